"""Cells of the attention map: each the mean and the max of many weights.

A few rows at a few keys are computed at a time, so few that they stay in the cache, and reduced
before the next are. Threads share the rows: several threads that meet at every product would wait
for each other more than they work. The statistics of a long text hold small cells already; larger
ones are pooled from those.
"""

import math
import os
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from glasshead.observe.engine import HIDDEN
from glasshead.observe.tile_operations import fold, hidden_parts, intersect, pool_blocks, shift
from glasshead.observe.trace_storage import LayerTrace, RecordedCall

__all__ = ["Cells", "compute_cells", "pool_overview"]

LOG2E = math.log2(math.e)
BLOCK = 2**18  # weights that are computed at a time: 1 MB
ROWS = 256  # of these, at most
SHARE = 2**26  # weights that are worth a thread of their own: about 0.1 s


class Cells(NamedTuple):
    mean: Tensor  # (rows, cols)
    max: Tensor  # (rows, cols)


def pool_overview(
    layer_trace: LayerTrace, batch: int, head: int, rows: slice, cols: slice, side: int,
    overview: Cells, cell: tuple[int, int], hide_sink: bool,
) -> Cells:  # fmt: skip
    """Return cells of side x side weights, pooled from the smaller cells of the whole map."""
    high, wide = cell
    r = slice(rows.start // high, -(-rows.stop // high))
    c = slice(cols.start // wide, -(-cols.stop // wide))
    mean, top = overview.mean[r, c].cpu(), overview.max[r, c].cpu()
    if hide_sink and cols.start == 0 < cols.stop:
        # The first column of cells is computed again, without the first key.
        first = slice(0, min(wide, cols.stop))
        again = compute_cells(layer_trace, batch, head, rows, first, cell, hide_sink=True)
        mean, top = mean.clone(), top.clone()
        mean[:, :1], top[:, :1] = again
    total = mean * (_sizes(rows, high)[:, None] * _sizes(cols, wide))
    total = pool_blocks(total, side // high, side // wide, torch.sum)
    most = pool_blocks(top, side // high, side // wide, torch.amax)
    return Cells(total / (_sizes(rows, side)[:, None] * _sizes(cols, side)), most)


def compute_cells(
    layer_trace: LayerTrace, batch: int, head: int, rows: slice, cols: slice,
    cell: tuple[int, int], hide_sink: bool = False,
) -> Cells:  # fmt: skip
    """Return the cells of a rectangle that starts at a cell's corner, from the weights themselves.

    Sides of cells are powers of two. With `hide_sink` the first key counts as if it was masked.
    """
    # Each share takes its own copy of the keys, so it has many rows.
    tall, n = max(cell[0], ROWS), max(SHARE // max(1, cols.stop - cols.start), 16 * ROWS)
    step = -(-n // tall) * tall
    starts = range(rows.start, max(rows.stop, rows.start + 1), step)
    # Two pools: a page does not queue behind a whole map.
    pool = _threads("map" if len(starts) > 1 else "page")
    ahead, found = deque[Future[Cells]](), list[Cells]()
    try:
        for start in starts:
            if len(ahead) > torch.get_num_threads():
                found.append(ahead.popleft().result())
            some = slice(start, min(start + step, rows.stop))
            share = (layer_trace, batch, head, some, cols, cell, hide_sink)
            ahead.append(pool.submit(_compute_share, *share))
        found += [share.result() for share in ahead]
    finally:
        for future in ahead:
            future.cancel()
    return Cells(*(torch.cat(each) for each in zip(*found, strict=True)))


@cache
def _threads(kind: str) -> ThreadPoolExecutor:
    """Return as many threads as torch uses, each of which computes on its own."""
    return ThreadPoolExecutor(torch.get_num_threads(), kind, initializer=_use_one_thread)


_STARTING = threading.Lock()


def _use_one_thread() -> None:
    """Let torch use one thread in this thread, and as many as before in all others."""
    with _STARTING:
        others = torch.get_num_threads()  # asked first: it sets this thread's own number
        torch.set_num_threads(1)
        # The line above also set the number that later threads begin with: set it back.
        again = threading.Thread(target=torch.set_num_threads, args=(others,))
        again.start()
        again.join()


if hasattr(os, "register_at_fork"):  # a forked process has none of the threads
    os.register_at_fork(after_in_child=_threads.cache_clear)


@torch.no_grad()
def _compute_share(
    layer_trace: LayerTrace, batch: int, head: int, rows: slice, cols: slice,
    cell: tuple[int, int], hide_sink: bool,
) -> Cells:  # fmt: skip
    tall, wide = cell
    areas = _sizes(rows, tall)[:, None] * _sizes(cols, wide)
    total, most = torch.zeros(areas.shape), torch.zeros(areas.shape)
    for call in layer_trace.calls:
        r = intersect(rows, call.row, call.T)
        if r.start >= r.stop:
            continue
        c = _reachable(call, r, cols)
        weights = _Weights(layer_trace, call, batch, head, r, c)
        for some in _bands(r, tall):
            here = _cells_of(some, rows, tall)
            for part, sums, maxima in weights.reduce_rows(some, c, tall, hide_sink):
                there = _cells_of(part, cols, wide)
                total[here, there] += fold(sums, wide, part.start % wide).sum(-1)
                cells = most[here, there]
                top = fold(maxima, wide, part.start % wide).amax(-1)
                torch.maximum(cells, top.to(cells.dtype), out=cells)
    return Cells(total / areas, most)


def _reachable(call: RecordedCall, rows: slice, cols: slice) -> slice:
    """Return the part of `cols` that these rows of a call can reach."""
    reach = call.mask.reachable_cols(shift(rows, -call.row), call.T, call.S)
    return intersect(cols, reach.start + call.key, reach.stop - reach.start)


class _Weights:
    """The weights of one head in a rectangle of one call, block by block.

    With plain scores the row's lse goes into the product, as one dim more: q · k - lse. Powers are
    of 2, the factor going into q: some processors take three times as long for those of e.
    """

    def __init__(
        self, layer_trace: LayerTrace, call: RecordedCall, batch: int, head: int,
        rows: slice, cols: slice,
    ) -> None:  # fmt: skip
        q, k, lse = layer_trace.tensors()
        self.call, self.rows, self.cols = call, rows, cols
        cpu = torch.device("cpu")
        self.mask, self.scoring = call.of_head(batch, head, cpu)
        self.flat = call.flat_rows(batch, head, shift(rows, -call.row), cpu)
        dtype = torch.promote_types(q.dtype, torch.float32)
        own = lse[batch, head, rows].to(cpu, dtype)
        # A row that may attend to nothing has lse -inf and weights 0.
        self.minus = (-own).masked_fill_(own == -torch.inf, HIDDEN)[:, None]  # (n, 1)
        group = q.shape[1] // k.shape[1]
        self.q = q[batch, head, rows].to(cpu, dtype) * self.scoring.scale_for(q.shape[-1])
        self.k = k[batch, head // group, cols].to(cpu, dtype)
        if self.scoring.is_plain:
            self.q = torch.cat([self.q, self.minus], 1) * LOG2E  # (n, D + 1)
            self.k = F.pad(self.k, (0, 1), value=1.0)  # (m, D + 1)
        self.buffer, *self.sums = torch.empty(3, BLOCK, dtype=dtype)

    def reduce_rows(
        self, rows: slice, cols: slice, tall: int, hide_sink: bool
    ) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield some keys, and sums and maxima over the rows of each cell: (cells, m) each.

        The tensors are overwritten by the next ones.
        """
        n = rows.stop - rows.start
        tall = min(tall, n)
        cols = _reachable(self.call, rows, cols)
        if cols.start >= cols.stop:
            return
        for some in _aligned_parts(cols, BLOCK // (n // tall)):
            size = n // tall, some.stop - some.start
            sums, maxima = (x[: math.prod(size)].view(size) for x in self.sums)
            for part in _aligned_parts(some, BLOCK // n):
                w = self._block(rows, part)
                if hide_sink and part.start == 0:
                    w[:, 0] = 0
                stack, to = w.unflatten(0, (-1, tall)), shift(part, -some.start)
                torch.sum(stack, 1, out=sums[:, to])
                torch.amax(stack, 1, out=maxima[:, to])
            yield some, sums, maxima

    def _block(self, rows: slice, cols: slice) -> Tensor:
        """Return the weights of a rectangle, in a buffer that the next one overwrites."""
        call, scoring = self.call, self.scoring
        n, m = rows.stop - rows.start, cols.stop - cols.start
        q, k = self.q[shift(rows, -self.rows.start)], self.k[shift(cols, -self.cols.start)]
        w = torch.mm(q, k.T, out=self.buffer[: n * m].view(n, m))
        at, to = shift(rows, -call.row), shift(cols, -call.key)
        if not scoring.is_plain:
            if scoring.softcap is not None:
                w.div_(scoring.softcap).tanh_().mul_(scoring.softcap)
            added = scoring.additive_bias(call.T, call.S, at, to)
            if added is not None:
                w.add_(added.reshape(added.shape[-2:]))
            w.add_(self.minus[shift(rows, -self.rows.start)]).mul_(LOG2E)
        w.exp2_()
        # Not before: the exponential of a hidden score takes several times as long as another.
        for part, hides in hidden_parts(self.mask, call.T, call.S, at, to, w.device):
            w[:, part].masked_fill_(hides.reshape(hides.shape[-2:]), 0)
        if self.flat is not None:
            w.masked_fill_(self.flat[shift(rows, -self.rows.start)], 1 / call.S)
        return w


def _cells_of(part: slice, whole: slice, side: int) -> slice:
    """Return the cells of the whole in which a part lies."""
    start, stop = part.start - whole.start, part.stop - whole.start
    return slice(start // side, -(-stop // side))


def _bands(rows: slice, tall: int) -> Iterator[slice]:
    """Cut rows into parts that are whole cells each, or lie in one.

    >>> [(band.start, band.stop) for band in _bands(slice(3, 300), 4)]
    [(3, 4), (4, 260), (260, 300)]
    """
    most = min(ROWS, BLOCK)
    start = rows.start
    while start < rows.stop:
        into, left = start % tall, rows.stop - start
        if into or left < tall or most < tall:
            size = min(tall - into, left, most)
        else:
            size = min(most, left) // tall * tall
        yield slice(start, start + size)
        start += size


def _aligned_parts(cols: slice, most: int) -> Iterator[slice]:
    """Cut columns into parts of at most `most`, which end at multiples of a power of two.

    >>> [(part.start, part.stop) for part in _aligned_parts(slice(3, 21), 11)]
    [(3, 8), (8, 16), (16, 21)]
    """
    step = 1 << max(1, most).bit_length() - 1
    for start in range(cols.start - cols.start % step, cols.stop, step):
        yield slice(max(start, cols.start), min(start + step, cols.stop))


def _sizes(part: slice, side: int) -> Tensor:
    """Return how many positions each cell of a slice holds: `side`, but for the last.

    >>> _sizes(slice(8, 18), 4)
    tensor([4, 4, 2])
    """
    starts = torch.arange(part.start, part.stop, side)
    return (part.stop - starts).clamp(max=side)
