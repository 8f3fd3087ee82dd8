"""Operations on a band of weights: some query rows, all the keys they can reach.

A band is w (n, m): row i is the query at position `start + i`, column j the key `cols.start + j`.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from glasshead.attention.mask import Mask

__all__ = [
    "DistanceSums", "fold", "hidden_parts", "intersect", "pick_head", "pool_blocks", "shift",
    "sorted_columns", "sum_at_keys", "top_columns", "weights_at_keys",
]  # fmt: skip


def hidden_parts(
    mask: Mask, T: int, S: int, rows: slice, cols: slice, device: torch.device
) -> Iterator[tuple[slice, Tensor]]:
    """Yield the columns of a band where the mask may hide something, and what it hides there.

    Causality and a window hide only near their borders; each border is at most as wide as the
    band is tall. The other rules may hide anything anywhere.
    """
    anywhere = replace(mask, causal=False, window=None)
    if not anywhere.is_plain:
        borders = [(cols.start, cols.stop)]
    else:
        first, last = rows.start + S - T, rows.stop - 1 + S - T
        ahead = first + (1 if mask.causal else S if mask.window is None else mask.window)
        behind = 0 if mask.window is None else last - mask.window + 1
        # Keys before `behind` are too far back for some row, from `ahead` on too far ahead.
        borders = [
            (cols.start, min(behind, cols.stop)),
            (max(ahead, behind, cols.start), cols.stop),
        ]
        if mask.is_plain and not mask.causal:
            borders = []
    for start, stop in borders:
        if start < stop:
            allowed = mask.to_tensor(T, S, rows, slice(start, stop), device)
            if allowed is not None:
                part = slice(start - cols.start, stop - cols.start)
                hides = ~allowed
                yield part, hides.expand(*hides.shape[:-1], stop - start)


class DistanceSums:
    """Sums of weights, and of weight times distance, as products of a band with vectors.

    Left of the band's own positions the distance is `position - key`, right of them its negative:
    both are linear, so three vectors give all sums: 1, the side (+1, -1, or 0 in between), and
    side x key. Keys are counted from the band's first position, so that near distances keep their
    digits at any length. What lies in between, at most as wide as the band is tall, is written out.
    Causal weights are 0 to the right of their position: the side is +1 everywhere.
    """

    def __init__(
        self, position: Tensor, cols: slice, unit: int, dtype: torch.dtype, causal: bool
    ) -> None:
        first, last = int(position[0]), int(position[-1])
        key = torch.arange(cols.start, cols.stop, device=position.device)
        side = (key < first).to(dtype) - (key > last).to(dtype)
        self.one, self.causal = torch.ones_like(side), causal
        self.side = self.one if causal else side
        self.moment = self.side * (key - first).to(dtype) / unit  # (m,)
        self.row = (position - first).to(dtype) / unit  # (n,)
        self.own = slice(max(first - cols.start, 0), max(last + 1 - cols.start, 0))
        self.gap = (position[:, None] - key[self.own]).abs().to(dtype) / unit  # (n, own)

    def compute(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sum of each row of w (heads, n, m) and its mean distance / unit."""
        rows = w.flatten(0, 1)
        total, moment = ((rows @ x).view(w.shape[:2]) for x in (self.one, self.moment))
        if self.causal:
            return total, self.row * total - moment
        side = (rows @ self.side).view(w.shape[:2])
        return total, self.row * side - moment + (w[..., self.own] * self.gap).sum(-1)


def sum_at_keys(w: Tensor, keys: Tensor, cols: slice) -> Tensor:
    """Sum w (b, h, n, m) at the given keys (b, n, c) of each row; keys outside the band count 0."""
    return weights_at_keys(w, keys, cols).sum(-1)


def weights_at_keys(w: Tensor, keys: Tensor, cols: slice) -> Tensor:
    """Return w (b, h, n, m) at the given keys (b, n, c) of each row; 0 outside the band."""
    inside = ((keys >= cols.start) & (keys < cols.stop))[:, None]
    place = (keys - cols.start).clamp_(0, w.shape[-1] - 1)[:, None]
    return w.gather(-1, place.expand(-1, w.shape[1], -1, -1)) * inside


def top_columns(x: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return the n largest of each row, largest first, and their columns: a faster `x.topk(n)`.

    The n largest lie in the n groups whose maxima are largest, so most columns are read once.
    """
    m, small = x.shape[1], x.is_cpu and x.dtype == torch.float32
    if m <= max(8 * n, 256 if small else 0):
        return sorted_columns(x, n) if small and m > n else x.topk(min(n, m))
    size = m // 8  # column j belongs to group j % size
    grouped = x[:, : 8 * size].unflatten(1, (8, size)).amax(1)  # (rows, size)
    groups = top_columns(grouped, n)[1]
    columns = torch.arange(0, 8 * size, size, device=x.device)
    places = (groups[..., None] + columns).flatten(1)  # (rows, 8 n)
    if 8 * size < m:
        rest = torch.arange(8 * size, m, device=x.device)
        places = torch.cat([places, rest.expand(len(x), -1)], 1)
    values, best = top_columns(x.gather(1, places), n) if small else x.gather(1, places).topk(n)
    return values, places.gather(1, best)


def sorted_columns(x: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return what `x.topk(n)` returns, of float32 on a CPU.

    The column is written into the low bits of the number in float64, which NumPy sorts with vector
    instructions.
    """
    import numpy as np

    m = x.shape[1]
    wide = x.double()
    wide.view(torch.int64).add_(torch.arange(m))  # float32 leaves 29 bits
    found = wide.numpy()
    if m > 128:
        found = np.partition(found, m - n, axis=1)[:, m - n :].copy()
    found.sort(axis=1)
    found = found[:, len(found[0]) - n :][:, ::-1].copy()
    places = torch.from_numpy(found).view(torch.int64) & (2**29 - 1)
    return x.gather(1, places), places


def fold(x: Tensor, size: int, start: int = 0) -> Tensor:
    """Cut columns into runs of `size`, the first of which has `start` columns before x; what is
    missing is 0: (..., m) -> (..., runs, size)."""
    end = -(start + x.shape[-1]) % size
    x = torch.nn.functional.pad(x, (start, end)) if start or end else x
    return x.unflatten(-1, (-1, size))


def pool_blocks(x: Tensor, high: int, wide: int, how: Callable[..., Tensor]) -> Tensor:
    """Reduce x (..., R, C) over blocks of high x wide; what is missing at the border is 0."""
    x = torch.nn.functional.pad(x, (0, -x.shape[-1] % wide, 0, -x.shape[-2] % high))
    return how(x.unflatten(-1, (-1, wide)).unflatten(-3, (-1, high)), dim=(-3, -1))


def intersect(part: slice, start: int, size: int) -> slice:
    """Return the part of a slice within [start, start + size); it may end before it starts."""
    return slice(max(part.start, start), min(part.stop, start + size))


def shift(part: slice, by: int) -> slice:
    return slice(part.start + by, part.stop + by)


def pick_head(x: Tensor, batch: int, head: int) -> Tensor:
    """Return what concerns one sequence and head of a tensor that broadcasts to (B, H, n, m)."""
    x = x.reshape((1,) * (4 - x.dim()) + x.shape)
    x = x if x.shape[0] == 1 else x[batch : batch + 1]
    return x if x.shape[1] == 1 else x[:, head : head + 1]
