"""The map from afar: cells of many weights, each their mean and their max.

A few rows at a few keys are weighed at a time, so few that they stay in the cache, and added up
before the next are. Threads share the rows: several that meet at every product would wait for
each other more than they work. What was measured of a long text holds small cells already; larger
ones are made of those.
"""

import math
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from glasshead.observe.engine import HIDDEN
from glasshead.observe.tile_operations import hidden, intersect, shift
from glasshead.observe.trace_storage import LayerTrace, RecordedCall

__all__ = ["Cells", "Overview", "overview", "pooled", "summed"]

LOG2E = math.log2(math.e)
BLOCK = 2**18  # weights that are made at a time: 1 MB
ROWS = 256  # of these, at most
SHARE = 2**26  # weights that are worth a thread of their own: about 0.1 s


class Cells(NamedTuple):
    mean: Tensor  # (rows, cols)
    max: Tensor  # (rows, cols)


class Overview(NamedTuple):
    """A head's whole map in cells of a size that is kept."""

    mean: Tensor  # (R, C)
    max: Tensor  # (R, C)
    cell: tuple[int, int]  # rows and columns of a cell, powers of two


def overview(record: LayerTrace, batch: int, head: int, cell: tuple[int, int]) -> Overview:
    """What measuring would keep of one head, for a record that was not measured."""
    _, _, T, S = record.shape
    return Overview(*summed(record, batch, head, slice(0, T), slice(0, S), cell), cell)


def pooled(
    record: LayerTrace, batch: int, head: int, rows: slice, cols: slice, side: int,
    known: Overview, hide_sink: bool,
) -> Cells:  # fmt: skip
    """Cells of side x side weights, made of the smaller ones of an overview."""
    high, wide = known.cell
    r = slice(rows.start // high, -(-rows.stop // high))
    c = slice(cols.start // wide, -(-cols.stop // wide))
    mean, top = known.mean[r, c].cpu(), known.max[r, c].cpu()
    if hide_sink and cols.start == 0 < cols.stop:
        # The first column of cells is made anew, without the first key.
        first = slice(0, min(wide, cols.stop))
        anew = summed(record, batch, head, rows, first, known.cell, hide_sink=True)
        mean, top = mean.clone(), top.clone()
        mean[:, :1], top[:, :1] = anew
    total = mean * (sizes(rows, high)[:, None] * sizes(cols, wide))
    total = _blocks(total, side // high, side // wide, torch.sum)
    most = _blocks(top, side // high, side // wide, torch.amax)
    return Cells(total / (sizes(rows, side)[:, None] * sizes(cols, side)), most)


def summed(
    record: LayerTrace, batch: int, head: int, rows: slice, cols: slice, cell: tuple[int, int],
    hide_sink: bool = False,
) -> Cells:  # fmt: skip
    """Cells of a rectangle whose corner is a cell's, from the weights themselves.

    Sides of cells are powers of two. With `hide_sink` the first key counts as if it was masked.
    """
    # Each share takes its own copy of the keys, so it has many rows.
    tall, n = max(cell[0], ROWS), max(SHARE // max(1, cols.stop - cols.start), 16 * ROWS)
    step = -(-n // tall) * tall
    starts = range(rows.start, max(rows.stop, rows.start + 1), step)
    # A page does not queue behind a whole map, nor a map's last share behind those of another.
    pool = _threads("map" if len(starts) > 1 else "page")
    ahead, found = deque[Future[Cells]](), list[Cells]()
    try:
        for start in starts:
            if len(ahead) > torch.get_num_threads():
                found.append(ahead.popleft().result())
            some = slice(start, min(start + step, rows.stop))
            ahead.append(pool.submit(_summed, record, batch, head, some, cols, cell, hide_sink))
        found += [share.result() for share in ahead]
    finally:
        for share in ahead:
            share.cancel()
    return Cells(*(torch.cat(each) for each in zip(*found, strict=True)))


@cache
def _threads(kind: str) -> ThreadPoolExecutor:
    """Threads that compute alone, as many as would else compute together."""
    return ThreadPoolExecutor(torch.get_num_threads(), kind, initializer=_alone)


_ALONE = threading.Lock()


def _alone() -> None:
    """This thread computes with one thread only, and all others with as many as before."""
    with _ALONE:
        others = torch.get_num_threads()  # asked first, a thread has what threads begin with
        torch.set_num_threads(1)
        # This also set what threads begin with that are yet to come.
        again = threading.Thread(target=torch.set_num_threads, args=(others,))
        again.start()
        again.join()


if hasattr(os, "register_at_fork"):  # a forked process has none of the threads
    os.register_at_fork(after_in_child=_threads.cache_clear)


@torch.no_grad()
def _summed(
    record: LayerTrace, batch: int, head: int, rows: slice, cols: slice, cell: tuple[int, int],
    hide_sink: bool,
) -> Cells:  # fmt: skip
    tall, wide = cell
    areas = sizes(rows, tall)[:, None] * sizes(cols, wide)
    total, most = torch.zeros(areas.shape), torch.zeros(areas.shape)
    for span in record.calls:
        r = intersect(rows, span.row, span.T)
        if r.start >= r.stop:
            continue
        reach = span.mask.reachable_cols(shift(r, -span.row), span.T, span.S)
        c = intersect(cols, reach.start + span.key, reach.stop - reach.start)
        weights = _Weights(record, span, batch, head, r, c)
        for some in _bands(r, tall):
            here = _cells(some, rows, tall)
            for part, sums, maxima in weights.down(some, c, tall, hide_sink):
                there = _cells(part, cols, wide)
                total[here, there] += _runs(sums, part.start % wide, wide).sum(-1)
                cells = most[here, there]
                run = _runs(maxima, part.start % wide, wide)
                torch.maximum(cells, run.amax(-1).to(cells.dtype), out=cells)
    return Cells(total / areas, most)


class _Weights:
    """The weights of one head in a rectangle of one span, block by block.

    With plain scores the row's lse goes into the product, as one dim more: q · k - lse. Powers are
    of 2, the factor going into q: some processors take thrice as long for those of e.
    """

    def __init__(
        self,
        record: LayerTrace,
        span: RecordedCall,
        batch: int,
        head: int,
        rows: slice,
        cols: slice,
    ) -> None:
        q, k, lse = record.tensors()
        self.span = span
        self.mask, self.scoring = span.of_head(batch, head)
        self.rows, self.cols = rows, cols
        dtype = torch.promote_types(q.dtype, torch.float32)
        own = lse[batch, head, rows].to(dtype)
        # A row that may attend to nothing has lse -inf and weights 0.
        self.minus = (-own).masked_fill_(own == -torch.inf, HIDDEN)[:, None]  # (n, 1)
        group = q.shape[1] // k.shape[1]
        self.q = q[batch, head, rows].to(dtype) * self.scoring.scale_for(q.shape[-1])
        self.k = k[batch, head // group, cols].to(dtype)
        if self.scoring.is_plain:
            self.q = torch.cat([self.q, self.minus], 1) * LOG2E  # (n, D + 1)
            self.k = F.pad(self.k, (0, 1), value=1.0)  # (m, D + 1)
        self.buffer, *self.sums = torch.empty(3, BLOCK, dtype=dtype)

    def down(
        self, rows: slice, cols: slice, tall: int, hide_sink: bool
    ) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """EngineOutput and maxima down the cells of these rows, at some keys: (cells, m) each.

        They are good until the next ones come.
        """
        n, span = rows.stop - rows.start, self.span
        tall = min(tall, n)
        reach = span.mask.reachable_cols(shift(rows, -span.row), span.T, span.S)
        cols = intersect(cols, reach.start + span.key, reach.stop - reach.start)
        if cols.start >= cols.stop:
            return
        for some in _aligned(cols, BLOCK // (n // tall)):
            size = n // tall, some.stop - some.start
            sums, maxima = (x[: math.prod(size)].view(size) for x in self.sums)
            for part in _aligned(some, BLOCK // n):
                w = self._block(rows, part)
                if hide_sink and part.start == 0:
                    w[:, 0] = 0
                stack, to = w.unflatten(0, (-1, tall)), shift(part, -some.start)
                torch.sum(stack, 1, out=sums[:, to])
                torch.amax(stack, 1, out=maxima[:, to])
            yield some, sums, maxima

    def _block(self, rows: slice, cols: slice) -> Tensor:
        """The weights of a rectangle, good until the next one is asked for."""
        span, scoring = self.span, self.scoring
        n, m = rows.stop - rows.start, cols.stop - cols.start
        q, k = self.q[shift(rows, -self.rows.start)], self.k[shift(cols, -self.cols.start)]
        w = torch.mm(q, k.T, out=self.buffer[: n * m].view(n, m))
        at, to = shift(rows, -span.row), shift(cols, -span.key)
        if not scoring.is_plain:
            if scoring.softcap is not None:
                w.div_(scoring.softcap).tanh_().mul_(scoring.softcap)
            added = scoring.additive_bias(span.T, span.S, at, to)
            if added is not None:
                w.add_(added.reshape(added.shape[-2:]))
            w.add_(self.minus[shift(rows, -self.rows.start)]).mul_(LOG2E)
        w.exp2_()
        # Not before: the exponential of what is hidden takes several times as long as another.
        for part, hides in hidden(self.mask, span.T, span.S, at, to, w.device):
            w[:, part].masked_fill_(hides.reshape(hides.shape[-2:]), 0)
        return w


def _cells(part: slice, whole: slice, side: int) -> slice:
    """In which cells of the whole a part lies."""
    start, stop = part.start - whole.start, part.stop - whole.start
    return slice(start // side, -(-stop // side))


def _bands(rows: slice, tall: int) -> Iterator[slice]:
    """Rows in parts that are whole cells each, or lie in one.

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


def _aligned(cols: slice, most: int) -> Iterator[slice]:
    """Columns in parts of at most `most`, which end at multiples of a power of two.

    >>> [(part.start, part.stop) for part in _aligned(slice(3, 21), 11)]
    [(3, 8), (8, 16), (16, 21)]
    """
    step = 1 << max(1, most).bit_length() - 1
    for start in range(cols.start - cols.start % step, cols.stop, step):
        yield slice(max(start, cols.start), min(start + step, cols.stop))


def _runs(x: Tensor, into: int, wide: int) -> Tensor:
    """Columns by cell, of which the first has begun before: (n, m) -> (n, cells, wide)."""
    x = F.pad(x, (into, -(into + x.shape[1]) % wide)) if into or x.shape[1] % wide else x
    return x.unflatten(1, (-1, wide))


def _blocks(x: Tensor, high: int, wide: int, how: Callable[..., Tensor]) -> Tensor:
    """x in blocks of high x wide; what is missing at the border is 0."""
    x = F.pad(x, (0, -x.shape[1] % wide, 0, -x.shape[0] % high))
    return how(x.view(x.shape[0] // high, high, x.shape[1] // wide, wide), dim=(1, 3))


def sizes(part: slice, side: int) -> Tensor:
    """How many positions each cell of a span holds: `side`, but for the last.

    >>> sizes(slice(8, 18), 4)
    tensor([4, 4, 2])
    """
    starts = torch.arange(part.start, part.stop, side)
    return (part.stop - starts).clamp(max=side)
