"""Batches of ids. A batch is a pure function of (seed, step), so resuming needs only the step.

Random numbers are raw Philox output, which is the same on every machine and for every release of
NumPy.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glasshead.errors import ConfigError, InputError

__all__ = ["Batch", "PairBatch", "PairBatches", "Rows", "TextBatches", "draw"]

CHUNK = 64  # steps whose offsets are drawn at once: creating a generator costs as much as a step


def draw(seed: int, number: int, count: int) -> NDArray[np.uint64]:
    """Return `count` random numbers that depend only on the seed and the number."""
    key = np.array([seed % 2**64, number], dtype=np.uint64)
    return np.random.Philox(key=key).random_raw(count)


def _check_step(step: int) -> None:
    if step < 0:
        raise ConfigError(f"step ({step}) must not be negative", hint="steps count from 0")


@dataclass(frozen=True, eq=False)
class Batch:
    ids: Tensor  # (B, T) int64
    targets: Tensor  # (B, T): the id that follows each


class TextBatches:
    """Random windows of a long sequence of ids.

    >>> batches = TextBatches(np.arange(100), batch_size=2, block=3, seed=1)
    >>> batch = batches.at(7)
    >>> torch.equal(batch.targets, batch.ids + 1), torch.equal(batch.ids, batches.at(7).ids)
    (True, True)
    """

    def __init__(self, ids: NDArray[Any], *, batch_size: int, block: int, seed: int) -> None:
        if min(batch_size, block) < 1:
            raise ConfigError(
                f"batch_size ({batch_size}) and block ({block}) must be at least 1",
                hint="32 and 64 are a start",
            )
        if len(ids) < block + 1:
            raise InputError(
                f"the text has {len(ids)} ids, but a block of {block} and the id after it "
                f"need {block + 1}",
                hint=f"use a longer text, or a block of at most {max(len(ids) - 1, 1)}",
            )
        self.batch_size, self.block, self.seed = batch_size, block, seed
        self.ids = np.asarray(ids)  # indexing the plain view of a memmap is several times faster
        self._starts = len(ids) - block
        self._window = np.arange(block + 1)
        self._chunk, self._offsets = -1, np.zeros((CHUNK, batch_size), dtype=np.int64)

    def at(self, step: int) -> Batch:
        return self._gather(self.offsets(step))

    def offsets(self, step: int) -> NDArray[np.int64]:
        """Return where the windows of a batch start, (B,)."""
        _check_step(step)
        chunk, row = divmod(step, CHUNK)
        if chunk != self._chunk:
            raw = draw(self.seed, chunk, CHUNK * self.batch_size)
            # The bias of the remainder is below starts / 2**64.
            offsets = (raw % np.uint64(self._starts)).astype(np.int64)
            self._chunk, self._offsets = chunk, offsets.reshape(CHUNK, self.batch_size)
        return self._offsets[row]

    def evenly_spaced(self, n: int) -> list[Batch]:
        """Return n batches of evenly spaced windows, including the first and the last."""
        rows = n * self.batch_size
        offsets = np.arange(rows) * (self._starts - 1) // max(rows - 1, 1)
        return [self._gather(some) for some in offsets.reshape(n, self.batch_size)]

    def _gather(self, offsets: NDArray[np.int64]) -> Batch:
        windows = self.ids[offsets[:, None] + self._window].astype(np.int64)  # (B, T + 1)
        both = torch.from_numpy(windows)
        return Batch(both[:, :-1].contiguous(), both[:, 1:].contiguous())


@dataclass(frozen=True, eq=False)
class PairBatch:
    source: Tensor  # (B, S) int64, padded on the right
    target_in: Tensor  # (B, T): <bos> and the target
    target_out: Tensor  # (B, T): the target and <eos>


class PairBatches:
    """Batches of pairs of similar length, as many as fit `max_tokens`; each pair once per epoch.

    A batch costs rows times the longer of its two widths, padding included. The cuts between
    lengths are the same in every epoch; pairs of equal length and the order of batches are
    shuffled. `encode_epoch` can return other ids of the same pairs for each epoch (BPE-dropout);
    if they are longer, batches cost a little more than `max_tokens`.
    """

    def __init__(
        self,
        src_ids: Sequence[Sequence[int] | NDArray[Any]],
        tgt_ids: Sequence[Sequence[int] | NDArray[Any]],
        *,
        max_tokens: int,
        seed: int,
        pad: int,
        bos: int,
        eos: int,
        lines: Sequence[int] | None = None,
        encode_epoch: "Callable[[int], tuple[Rows, Rows]] | None" = None,
    ) -> None:
        if len(src_ids) != len(tgt_ids) or not len(src_ids):
            raise InputError(
                f"{len(src_ids)} sources and {len(tgt_ids)} targets do not make pairs",
                hint="give as many sources as targets, and at least one",
            )
        self.seed, self.pad, self.bos, self.eos = seed, pad, bos, eos
        self._source, self._target = Rows.from_lists(src_ids), Rows.from_lists(tgt_ids)
        self._encode_epoch = encode_epoch
        self._sizes = np.maximum(self._source.lengths, self._target.lengths + 1)
        for problem, text in (
            (self._sizes > max_tokens, f"is longer than max_tokens ({max_tokens})"),
            (self._source.lengths == 0, "has an empty source"),
        ):
            if problem.any():
                index = int(np.argmax(problem))
                line = index + 1 if lines is None else lines[index]
                raise InputError(
                    f"the pair on line {line} {text}: {self._source.lengths[index]} and "
                    f"{self._target.lengths[index] + 1} ids",
                    hint="remove the line, or raise max_tokens",
                )
        self._cuts = _cuts(np.sort(self._sizes), max_tokens)
        self._epoch, self._plan = -1, [np.zeros(0, dtype=np.int64)]

    @property
    def steps_per_epoch(self) -> int:
        return len(self._cuts) + 1

    def at(self, step: int) -> PairBatch:
        _check_step(step)
        rows = self._rows(step)
        source = self._source.pad(rows, self.pad)
        target = self._target.pad(rows, self.pad)
        lengths = self._target.lengths[rows]
        edge = np.full((len(rows), 1), self.pad)
        target_out = np.concatenate([target, edge], axis=1)
        target_out[np.arange(len(rows)), lengths] = self.eos
        target_in = np.concatenate([np.full_like(edge, self.bos), target], axis=1)
        return PairBatch(*map(torch.from_numpy, (source, target_in, target_out)))

    def _rows(self, step: int) -> NDArray[np.int64]:
        epoch, index = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            if self._encode_epoch:
                self._source, self._target = self._encode_epoch(epoch)
                self._sizes = np.maximum(self._source.lengths, self._target.lengths + 1)
            draws = draw(self.seed, epoch, len(self._sizes) + self.steps_per_epoch)
            ties, order = draws[: len(self._sizes)], draws[len(self._sizes) :]
            groups = np.split(np.lexsort((ties, self._sizes)), self._cuts)
            self._plan = [groups[place] for place in np.argsort(order, kind="stable")]
            self._epoch = epoch
        return self._plan[index]


class Rows:
    """Rows of different lengths, stored end to end."""

    def __init__(self, flat: NDArray[Any], lengths: NDArray[np.int64]) -> None:
        self.lengths = lengths
        self._starts = np.cumsum(lengths) - lengths
        # `pad` reads one entry past the last row and ignores it.
        self._flat = np.append(flat.astype(np.int64), 0)

    @classmethod
    def from_lists(cls, rows: Sequence[Sequence[int] | NDArray[Any]]) -> "Rows":
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        return cls(np.concatenate([np.asarray(row, dtype=np.int64) for row in rows]), lengths)

    def __getitem__(self, row: int) -> NDArray[np.int64]:
        return self._flat[self._starts[row] : self._starts[row] + self.lengths[row]]

    def pad(self, rows: NDArray[np.int64], pad: int) -> NDArray[np.int64]:
        """Return these rows as a matrix, padded on the right."""
        lengths = self.lengths[rows]
        column = np.arange(lengths.max())
        inside = column < lengths[:, None]  # (B, T)
        places = np.where(inside, self._starts[rows][:, None] + column, -1)
        return np.where(inside, self._flat[places], pad)


def _cuts(sizes: NDArray[np.int64], max_tokens: int) -> list[int]:
    """Cut ascending sizes into groups: rows times the largest size is at most `max_tokens`."""
    cuts: list[int] = []
    start = 0
    while True:
        some = sizes[start : start + max_tokens // int(sizes[start])]
        rows = int(np.searchsorted(some * np.arange(1, len(some) + 1), max_tokens, side="right"))
        start += rows
        if start == len(sizes):
            return cuts
        cuts.append(start)
