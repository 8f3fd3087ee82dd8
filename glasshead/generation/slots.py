"""Keys and values of many texts in one place, so that one call of the model serves them all.

Each text has a row, and all rows end at the same column; what stands before a short one is masked:

    columns      0 . . . . . . . stop . .
    a text of 3          k k k
    a text of 7  k k k k k k k            room for the next

Aligned like this, the columns between two keys are their distance, which is all that windows and
ALiBi ask. A text that joins is written into a new row; when one leaves, the last row takes its
place. The others are not computed again, and seldom copied: when the room is used up.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from glasshead.attention.cache import Cache, FixedCache

__all__ = ["Slots"]

AHEAD = 128  # columns of room: all rows are copied once in so many steps


class Slots:
    """Rows of keys and values; `lengths` tells how many each row has."""

    def __init__(self, device: torch.device) -> None:
        self.lengths: list[int] = []
        self._device = device
        self._stop = 0
        # Each (rows, H_kv, columns, D). Before `stop`, rows in use hold no NaN, seen or not.
        self._k: list[Tensor] = []
        self._v: list[Tensor] = []

    @property
    def width(self) -> int:
        """Columns that the longest text takes."""
        return max(self.lengths, default=0)

    def join(self, n: int, kv: Sequence[tuple[Tensor, Tensor]]) -> None:
        """A new last row: n keys and values (H_kv, n, D) for each layer."""
        row = len(self.lengths)
        if self._k and (row == len(self._k[0]) or n > self._stop):
            self._move(2 * row, max(n, self.width))
        elif not self._k:
            self._stop = n
            for k, v in kv:
                self._k.append(_room(1, n + AHEAD, k))
                self._v.append(_room(1, n + AHEAD, v))
        self.lengths.append(n)
        begin = self._stop - n
        given = [k for k, _ in kv] + [v for _, v in kv]
        for mine, new in zip(self._k + self._v, given, strict=True):
            mine[row, :, :begin] = 0
            mine[row, :, begin : self._stop] = new

    def leave(self, row: int) -> None:
        """The last row takes this one's place."""
        last = len(self.lengths) - 1
        if row != last:
            for mine in self._k + self._v:
                mine[row, :, : self._stop] = mine[last, :, : self._stop]
            self.lengths[row] = self.lengths[last]
        self.lengths.pop()
        if not self.lengths:
            self._k, self._v, self._stop = [], [], 0

    def caches(self, rows: slice) -> list[Cache]:
        """For one call of the model with one more id for each of these rows.

        Until `advance`, the call can be repeated, for all rows or some.
        """
        if self._k and self._stop == self._k[0].shape[2]:
            self._move(len(self.lengths), self.width)
        begin, found = self._stop - self.width, list[Cache]()
        for k, v in zip(self._k, self._v, strict=True):
            cache = FixedCache(k.shape[2] - begin)
            cache.k, cache.v, cache.length = k[rows, :, begin:], v[rows, :, begin:], self.width
            found.append(cache)
        return found

    def advance(self) -> None:
        """What the last call wrote stays."""
        self._stop += 1
        self.lengths = [length + 1 for length in self.lengths]

    def keys(self, rows: slice) -> Tensor | None:
        """(B, S) what the rows' next ids may see: not the columns before a text begins."""
        pads = [self.width - length for length in self.lengths[rows]]
        if not any(pads):
            return None
        columns = torch.arange(self.width + 1, device=self._device)
        return columns >= torch.tensor(pads, device=self._device)[:, None]

    def positions(self, rows: slice) -> Tensor:
        """(B, 1), of the rows' next ids."""
        return torch.tensor(self.lengths[rows], device=self._device)[:, None]

    def _move(self, rows: int, width: int) -> None:
        """Into new room, for so many rows and so many columns, and some ahead."""
        used, kept = len(self.lengths), self.width
        for layers in (self._k, self._v):
            for index, old in enumerate(layers):  # one by one: never twice the memory
                new = _room(rows, width + AHEAD, old[0])
                new[:used, :, width - kept : width] = old[:used, :, self._stop - kept : self._stop]
                layers[index] = new
        self._stop = width


def _room(rows: int, columns: int, like: Tensor) -> Tensor:
    H, _, D = like.shape
    return torch.zeros(rows, H, columns, D, dtype=like.dtype, device=like.device)
