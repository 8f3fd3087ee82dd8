"""A text that is being continued, and the one place that decides when it ends."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from glasshead.checkpoint import RunConfig
from glasshead.generation.sampling import SamplingConfig
from glasshead.generation.text_stream import TextStream
from glasshead.model.gpt import GPT
from glasshead.text.tokenizer import Tokenizer

__all__ = ["Finish", "TextState", "find_end_ids", "seen_ids"]

Finish = Literal["stop", "length"]


@dataclass(eq=False)
class TextState:
    """The ids of one text, how its next id is picked, and what may still come."""

    key: int
    ids: list[int]
    start: int  # the model sees the ids from here on
    config: SamplingConfig
    left: int  # how many ids it may still get
    end_ids: frozenset[int]
    random: random.Random
    stream: TextStream | None = None  # decodes the ids and looks for stop strings
    alternatives: int | None = None  # how many likely ids to report; None: no log-probabilities
    ended: bool = False
    seen: Tensor | None = None  # (V,) bool, the ids that occur; see `seen_ids`
    marked: int = 0  # how many ids are marked in `seen`

    @property
    def context(self) -> list[int]:
        """The ids that the model sees."""
        return self.ids[self.start :]

    @property
    def length(self) -> int:
        """How many ids the model sees."""
        return len(self.ids) - self.start

    def append(self, token: int) -> tuple[str, Finish | None]:
        """Add an id. Return the text that is certain now, and how the text ended if it did.

        A text ends at one of `end_ids`, which is not added; when a stop string is complete; and
        when no id is left to it.
        """
        stream = self.stream
        if token in self.end_ids:
            self.ended = True
            return "" if stream is None else stream.flush(), "stop"
        self.ids.append(token)
        self.left -= 1
        new = "" if stream is None else stream.push(token)
        if self.left == 0 and stream is not None and not stream.done:
            new += stream.flush()
        if stream is not None and stream.done:
            self.ended = True
            return new, "stop"
        if self.left == 0:
            self.ended = True
            return new, "length"
        return new, None


def seen_ids(texts: Sequence[TextState], vocab_size: int, device: torch.device) -> Tensor | None:
    """Return (B, V) bool, the ids that occur in each text; None without a repetition penalty."""
    if texts[0].config.repetition_penalty == 1:
        return None
    for text in texts:
        if text.seen is None:
            text.seen = torch.zeros(vocab_size, dtype=torch.bool, device=device)
        text.seen[text.ids[text.marked :]] = True
        text.marked = len(text.ids)
    return torch.stack([text.seen for text in texts if text.seen is not None])


def find_end_ids(
    model: GPT, tokenizer: Tokenizer, config: RunConfig | None = None
) -> frozenset[int]:
    """Return the ids that end a text.

    Those that stand for no text (special tokens, ids beyond the tokenizer's vocabulary), and the
    `eos_token_id` of an imported model, which a run's config keeps.
    """
    imported: Any = None if config is None else config.data.get("imported")
    ids = imported.get("ids") if isinstance(imported, dict) else None
    eos = ids.get("eos_token_id") if isinstance(ids, dict) else None
    named = [one for one in (eos if isinstance(eos, list) else [eos]) if isinstance(one, int)]
    beyond = range(tokenizer.vocab_size, model.config.vocab_size)
    return frozenset([*tokenizer.specials.values(), *beyond, *named])
