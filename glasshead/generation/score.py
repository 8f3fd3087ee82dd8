"""Measure how well a model predicts a text: the surprise of every id, and their average.

    surprise (nats) = -log p(id | the ids before it)

A text longer than the model's `max_len` is read in windows that overlap: each starts `stride` ids
after the one before and counts only its last `stride` predictions, so that every id is counted
once and, after the first window, predicted from at least max_len - stride ids. Half of max_len is
the default. Memory depends on the model and the window, not on the length of the text.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from glasshead.errors import ConfigError, UnknownCharacterError
from glasshead.generation.sampling import not_finite_error
from glasshead.generation.step import eval_mode
from glasshead.model.gpt import GPT
from glasshead.text.base_tokenizer import Ids
from glasshead.text.bpe import Cutter
from glasshead.text.tokenizer import Tokenizer

__all__ = ["Score", "Surprises", "encode_parts", "surprises"]

READ = 1 << 12  # ids that are read at once, in windows side by side
LOGITS = 1 << 24  # logits that are held at once


@dataclass(frozen=True, eq=False)
class Surprises:
    """Some ids of a text, in order. Its first id is not predicted: its surprise is NaN."""

    ids: NDArray[np.int64]  # (n,)
    nats: NDArray[np.float64]  # (n,)


@dataclass
class Score:
    """The sum of the surprises of one text or several. First ids do not count."""

    tokens: int = 0
    bytes: int = 0
    nats: float = 0.0

    def add(self, part: Surprises, tokenizer: Tokenizer) -> None:
        counted = ~np.isnan(part.nats)
        self.tokens += int(counted.sum())
        self.bytes += int(tokenizer.byte_lengths[part.ids[counted]].sum())
        self.nats += float(part.nats[counted].sum())

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.nats / self.tokens

    @property
    def perplexity(self) -> float:
        return math.exp(self.loss) if self.loss < 700 else math.inf

    @property
    def bits_per_byte(self) -> float:
        """Comparable between tokenizers, as loss and perplexity are not."""
        return self.nats / math.log(2) / self.bytes


def encode_parts(tokenizer: Tokenizer, texts: Iterable[str]) -> Iterator[Ids]:
    """Encode one text that comes in parts; the ids are the same as if it came whole."""
    read = 0  # characters
    for part in _cut(texts):
        try:
            yield tokenizer.encode_ids(part)
        except UnknownCharacterError as error:
            since = f", counting from character {read} of the text" if read else ""
            raise UnknownCharacterError(f"{error}{since}", error.hint) from None
        read += len(part)


def _cut(texts: Iterable[str]) -> Iterator[str]:
    cutter = Cutter()
    for text in texts:
        yield from cutter.push(text)
    yield cutter.flush()


def surprises(model: GPT, parts: Iterable[Ids], stride: int | None = None) -> Iterator[Surprises]:
    """Yield the surprise of every id of one text, whose ids come in parts of any size."""
    size = model.config.max_len
    stride = max(1, size // 2) if stride is None else stride
    if not 1 <= stride <= size:
        raise ConfigError(
            f"stride ({stride}) must lie between 1 and max_len ({size})", hint=f"try {size // 2}"
        )
    side_by_side = max(1, READ // size)
    held = np.zeros(0, dtype=np.int64)  # the ids from the start of the next window on
    done = 0  # how many of those held are already counted
    for part in parts:
        if not len(held) and len(part):
            yield Surprises(part[:1].astype(np.int64), np.full(1, math.nan))
            done = 1
        held = np.concatenate([held, part])
        while len(held) > size:
            count = 1 if done == 1 else min(side_by_side, (len(held) - size - 1) // stride + 1)
            windows = np.lib.stride_tricks.sliding_window_view(held, size + 1)[::stride][:count]
            fresh = size + 1 - done
            yield _read(model, windows, fresh)
            held = held[count * stride :]
            done = size + 1 - stride
    if len(held) > done:
        yield _read(model, held[None], len(held) - done)


def _read(model: GPT, windows: NDArray[np.int64], fresh: int) -> Surprises:
    """Return the surprises of the last `fresh` ids of each window (B, n)."""
    ids = torch.from_numpy(np.array(windows)).to(model.embedding.weight.device)
    targets = ids[:, -fresh:].flatten()
    rows = max(1, LOGITS // model.config.vocab_size)
    with eval_mode(list(model.modules())):
        x = model.features(ids[:, :-1])[:, -fresh:].flatten(0, 1)  # (B * fresh, C)
        some = zip(x.split(rows), targets.split(rows), strict=True)
        nats = torch.cat([_nats(model, *pair) for pair in some])
    if not nats.isfinite().all():
        raise not_finite_error()
    return Surprises(targets.cpu().numpy(), nats.cpu().numpy())


def _nats(model: GPT, x: Tensor, targets: Tensor) -> Tensor:
    logits = model.logits(x)
    logits = logits if logits.dtype == torch.float64 else logits.float()
    return F.cross_entropy(logits, targets, reduction="none").double()
