"""What can be inspected: a model that reads a text while its attention is recorded, or a file.

    inspectable.record("The cat sat.")          a Trace of every head

`transformers_folder.py` makes one of a folder with a `transformers` model. Those of our own runs
are in `generation/inspectable_runs.py`, because this part does not know our models.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.errors import ConfigError, InputError
from glasshead.observe.recording import Progress, observing
from glasshead.observe.trace import Trace, open_glass
from glasshead.observe.words import Token, characters

__all__ = [
    "RECORD_ALL", "GlassFile", "Inspectable", "InspectableModel", "RecordConfig",
    "split_translation",
]  # fmt: skip


@dataclass(frozen=True)
class RecordConfig:
    """How to record a text."""

    layers: tuple[int | str, ...] | None = None  # which attention layers; all when None
    max_tokens: int | None = None  # read no more of the text
    beyond: bool = False  # whether it may be longer than the texts the model was trained on
    progress: Progress | None = None
    folder: Path | None = None  # for what does not fit in memory

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ConfigError(
                f"max_tokens ({self.max_tokens}) must be at least 1", hint="leave it out for all"
            )


RECORD_ALL = RecordConfig()  # every layer, the whole text


class Inspectable(ABC):
    """A model whose attention can be recorded, or a file with a recording."""

    name: str

    @abstractmethod
    def record(self, text: str, config: RecordConfig = RECORD_ALL) -> Trace:
        """Record every head while the model reads the text, and translates it if it can."""


class GlassFile(Inspectable):
    """A .glass file: a trace, with the text that was read."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.name
        self.trace = open_glass(path)

    def record(self, text: str, config: RecordConfig = RECORD_ALL) -> Trace:
        """Return the trace in the file; `text` must be empty."""
        if text:
            raise InputError(
                f"{self.path} already holds the recording of a text",
                hint=f"leave the text out: glasshead look {self.path}",
            )
        return self.trace


class InspectableModel(Inspectable):
    """A model on a device."""

    def __init__(self, name: str, model: nn.Module, device: torch.device) -> None:
        self.name, self.device = name, device
        self.model = model.to(device).eval()

    def _run_observed(
        self,
        config: RecordConfig,
        run: Callable[[], object],
        about: dict[str, Any],
        tokens: Sequence[Token],
        ids: Tensor | None = None,
        source_tokens: Sequence[Token] | None = None,
    ) -> Trace:
        with (
            torch.no_grad(),
            observing(
                self.model,
                layers=config.layers,
                ids=None if ids is None else ids.cpu(),
                tokens=tokens,
                source_tokens=source_tokens,
                folder=config.folder,
                progress=config.progress,
            ) as trace,
        ):
            run()
        trace.about = {**trace.about, "name": self.name, **about}
        return trace

    def _truncate(
        self, ids: Sequence[int], config: RecordConfig, limit: int | None, can_exceed: bool
    ) -> list[int]:
        """Return the first `max_tokens` ids; raise if there are none, or more than `limit`."""
        kept = list(ids[: config.max_tokens])
        if not kept:
            raise InputError("the text is empty", hint="give a text to look at")
        if limit is None or len(kept) <= limit or (config.beyond and can_exceed):
            return kept
        beyond = "; --beyond reads all, at positions it never saw in training"
        raise InputError(
            f"the text has {len(kept):,} tokens, but {self.name} was made for {limit:,}",
            hint=f"--max-tokens {limit} reads the beginning" + (beyond if can_exceed else ""),
        )


def split_translation(tokens: Sequence[Token]) -> tuple[list[Token], dict[str, Any]]:
    """Return the tokens that the decoder reads, and a note of the last one, which it does not.

    The decoder writes each token at the position before it: rows of cross-attention are labelled
    with the token that is written there.
    """
    last = tokens[-1]
    return list(tokens[:-1]), {
        "last": last if isinstance(last, str) else characters([last])[0].text
    }
