"""Store the keys and values of many texts so that one call of the model serves them all.

Each text has a row, and all rows end at the same column; what stands before a short one is masked:

    columns      0 . . . . . . . stop . .
    a text of 3          k k k
    a text of 7  k k k k k k k            room for the next

Aligned like this, the columns between two keys are their distance, which is all that windows and
ALiBi need. A text that joins is written into a new row; when one leaves, the last row takes its
place. No keys are computed again, and rows are copied only when the columns are used up.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from glasshead.attention.cache import Cache, FixedCache

__all__ = ["KVSlots", "LayerKV"]

SPARE = 128  # columns: rows are moved at most once in so many steps

LayerKV = tuple[Tensor, Tensor]  # keys and values of a text in one layer, (H_kv, n, D) each


class KVSlots:
    """Rows of keys and values, one for each text.

    Args:
        fixed: reserve the room that the texts may come to need at once, and keep it when they
            have left, so that the addresses stay the same. Otherwise the room grows as needed.
    """

    def __init__(self, device: torch.device, *, fixed: bool = False) -> None:
        self.device, self.fixed = device, fixed
        self.lengths: list[int] = []  # columns that each row uses
        self.width = 0  # columns that the longest row uses
        self.stop = 0  # the column where the next keys go
        self.rows = self.columns = 0  # room, used or not
        self.allocations = 0  # with each, the addresses change
        # One tensor a layer, (2, rows, H_kv, columns, D). Between the first column in use and
        # `stop`, rows in use hold no NaN, masked or not.
        self.layers: list[Tensor] = []
        self._views: list[tuple[Tensor, Tensor]] | None = None  # of all rows; None after a change

    def join(self, prompts: Sequence[tuple[int, Sequence[LayerKV]]], most: int) -> None:
        """Add a row for each prompt, given as its length and its keys and values by layer.

        Args:
            most: columns that the longest of all texts may come to use.
        """
        first, longest = len(self.lengths), max(n for n, _ in prompts)
        rows, stop = first + len(prompts), max(self.stop, longest)
        # Texts that join at once need no more than the longest; with later ones, rows move.
        fixed = _round_up(most + SPARE, 4 * SPARE) if first else _round_up(most)
        columns = fixed if self.fixed else stop
        if rows > self.rows or columns > self.columns:
            stop = max(self.width, longest)
            columns = max(columns, self.columns) if self.fixed else _with_spare(stop)
            self._allocate(rows, columns, stop, [k for k, _ in prompts[0][1]])
        elif stop != self.stop:
            self._shift(stop)
        self.lengths += [n for n, _ in prompts]
        self.width = max(self.width, longest)
        for row, (n, kv) in enumerate(prompts, first):
            for layer, (k, v) in zip(self.layers, kv, strict=True):
                layer[:, row, :, : stop - n] = 0
                layer[0, row, :, stop - n : stop] = k
                layer[1, row, :, stop - n : stop] = v
        self._views = None

    def leave(self, row: int) -> None:
        """Remove a row; the last row takes its place."""
        last = len(self.lengths) - 1
        if row != last:
            for layer in self.layers:
                layer[:, row, :, : self.stop] = layer[:, last, :, : self.stop]
            self.lengths[row] = self.lengths[last]
        self.lengths.pop()
        self.width = max(self.lengths, default=0)
        self._views = None
        if not self.lengths:
            self.stop = 0
            if not self.fixed:
                self.layers, self.rows, self.columns = [], 0, 0

    def free_columns(self) -> int:
        """Make room for one more column at least; return for how many there is room."""
        if self.stop == self.columns:
            if self.width + SPARE <= self.columns:
                self._shift(self.width)
            else:
                like = [layer[0, 0] for layer in self.layers]
                self._allocate(self.rows, _with_spare(self.width), self.width, like)
        return self.columns - self.stop

    def views(self, rows: slice) -> list[tuple[Tensor, Tensor]]:
        """Return for each layer the keys and values of these rows, (B, H_kv, S, D).

        The first `width` columns are in use, and the next is free. Until `advance`, it can be
        written again, for all rows or some.
        """
        self.free_columns()
        begin, all_rows = self.stop - self.width, rows == slice(0, len(self.lengths))
        if not all_rows:
            return [(k[rows, :, begin:], v[rows, :, begin:]) for k, v in self.layers]
        if self._views is None:
            self._views = [(k[rows, :, begin:], v[rows, :, begin:]) for k, v in self.layers]
        return self._views

    def caches(self, rows: slice) -> list[Cache]:
        """Return caches for one call of the model with one more id for each of these rows."""
        found: list[Cache] = []
        for k, v in self.views(rows):
            cache = FixedCache(k.shape[2])
            cache.k, cache.v, cache.length = k, v, self.width
            found.append(cache)
        return found

    def advance(self) -> None:
        """Keep the column that the last call wrote."""
        self.stop += 1
        self.width += 1
        self.lengths = [length + 1 for length in self.lengths]

    def visible(self, rows: slice) -> Tensor | None:
        """Return (B, S) bool: the columns that the rows' next ids may see; None if all."""
        pads = [self.width - length for length in self.lengths[rows]]
        if not any(pads):
            return None
        columns = torch.arange(self.width + 1, device=self.device)
        return columns >= torch.tensor(pads, device=self.device)[:, None]

    def positions(self, rows: slice) -> Tensor:
        """Return the positions of the rows' next ids: (B, 1), or (1,) if all are equal."""
        lengths = self.lengths[rows]
        if lengths.count(lengths[0]) == len(lengths):
            return torch.tensor(lengths[:1], device=self.device)
        return torch.tensor(lengths, device=self.device)[:, None]

    def _allocate(self, rows: int, columns: int, stop: int, like: Sequence[Tensor]) -> None:
        """Move the rows in use into new room, where they end at column `stop`.

        Args:
            like: for each layer any tensor (H_kv, ..., D) of the right dtype.
        """
        rows = self.rows if rows <= self.rows else max(rows, 2 * self.rows)
        used, old = len(self.lengths), slice(self.stop - self.width, self.stop)
        for index, (H, _, D) in enumerate(part.shape for part in like):
            new = like[index].new_zeros(2, rows, H, columns, D)
            if used:
                new[:, :used, :, stop - self.width : stop] = self.layers[index][:, :used, :, old]
            # One layer at a time: never twice the memory.
            self.layers[index : index + 1] = [new]
        self.rows, self.columns, self.stop, self._views = rows, columns, stop, None
        self.allocations += 1

    def _shift(self, stop: int) -> None:
        """Move the columns in use, so that all rows end at column `stop`."""
        used = len(self.lengths)
        for layer in self.layers if used else ():
            part = layer[:, :used, :, self.stop - self.width : self.stop].clone()
            layer[:, :used, :, stop - self.width : stop] = part
        self.stop, self._views = stop, None


def _with_spare(columns: int) -> int:
    return _round_up(columns + max(SPARE, columns // 2))


def _round_up(columns: int, unit: int = SPARE) -> int:
    return -(-columns // unit) * unit
