"""The engine that runs on any device: bands of rows, many heads at a time, a few passes over each.

A band is some query rows and all the keys they can reach, of as many heads as stay in the cache
together, so each score is computed once: a whole row is there, and its lse needs no pass of its
own. Scores are multiples of log 2, because some processors take thirty times as long for powers of
e as for those of 2. Hidden pairs are filled in only where the mask has a border. Sums over rows or
over columns are products with vectors; only entropy needs a pass of products.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from glasshead.attention.mask import Mask
from glasshead.observe.engine import HIDDEN, EngineInput, EngineOutput
from glasshead.observe.tile_buffers import TileBuffers, TileViews
from glasshead.observe.tile_operations import (
    DistanceSums,
    fold,
    hidden_parts,
    sum_at_keys,
    top_columns,
    weights_at_keys,
)

__all__ = ["run_tiles"]

LOG2E = math.log2(math.e)
BAND = {"cpu": 2**19, "cuda": 2**26}  # pairs of all heads of a band: 2 MB of scores, or 256
ROWS = {"cpu": (64, 64), "cuda": (256, 4096)}  # least and most rows of a band; powers of two
OF_ROWS = (
    "lse", "row_sum", "entropy", "concentration", "distance", "self_weight", "previous_weight",
    "first_weight", "duplicate", "induction",
)  # fmt: skip
Heads = tuple[slice, slice]  # some sequences, and some heads of each


def run_tiles(inputs: EngineInput) -> EngineOutput:
    sums = _BandSums(inputs)
    with torch.autocast(inputs.q.device.type, enabled=False):
        for start in range(0, sums.T, sums.rows):
            sums.add_band(slice(start, min(start + sums.rows, sums.T)))
    return sums.output()


class _BandSums:
    """The sums so far, and the buffers in which each band is measured."""

    def __init__(self, inputs: EngineInput) -> None:
        self.inputs = inputs
        (B, H, T, D), S = inputs.q.shape, inputs.k.shape[2]
        self.B, self.H, self.T, self.S = B, H, T, S
        self.scale = inputs.scoring.scale_for(D)
        self.dtype = torch.promote_types(inputs.q.dtype, torch.float32)
        self.rows = _band_rows(inputs.q.device, T, S)
        new = torch.empty((), dtype=self.dtype, device=inputs.q.device).new_zeros
        limit = BAND.get(inputs.q.device.type, BAND["cpu"])
        self.buffers = TileBuffers(new(()), self.rows, S, B * H, limit)
        self.row = {name: new(B, H, T) for name in OF_ROWS}
        self.row["lse"] -= math.inf
        self.top_weights = new(B, H, T, inputs.top_k)
        self.top_keys = torch.full_like(self.top_weights, -1, dtype=torch.int64)
        cells = (B, H, -(-T // inputs.cell[0]), -(-S // inputs.cell[1]))
        self.cell_sum = new(cells)
        # Cells of one weight are kept once.
        self.cell_max = self.cell_sum if inputs.cell == (1, 1) else new(cells)
        # Many small numbers are summed in float64.
        self.received = new(B, H, S, dtype=torch.float64)
        self.lags = new(B, H, max(T + S - 1, 0), dtype=torch.float64)
        every_row = inputs.probe_step == 1
        self.probe_lags = self.lags if every_row else torch.zeros_like(self.lags)
        # A NaN of a hidden key must be overwritten, which takes longer. Not asked on a GPU, where
        # it would be waited for.
        self.finite = inputs.k.is_cpu and bool(inputs.k.sum(dtype=self.dtype).isfinite())

    def add_band(self, rows: slice) -> None:
        """Measure one band of rows in all heads."""
        inputs, T, S, device = self.inputs, self.T, self.S, self.inputs.q.device
        cols = inputs.mask.reachable_cols(rows, T, S)
        # Columns start where a cell of the overview does; what this adds, the mask hides.
        cols = slice(cols.start - cols.start % inputs.cell[1], cols.stop)
        n, m = rows.stop - rows.start, cols.stop - cols.start
        if not m:
            return
        position = torch.arange(rows.start, rows.stop, device=device) + (S - T)
        distances = DistanceSums(position, cols, max(T, S), self.dtype, inputs.mask.causal)
        most = self.buffers.start_band(n, m)
        shared: list[tuple[slice, Tensor]] | None = None
        if not _differs(inputs.mask):
            shared = list(hidden_parts(inputs.mask, T, S, rows, cols, device))
        for sequences, heads in _split_heads(self.B, self.H, inputs.k.shape[1], most):
            fills = shared
            if fills is None:
                mask = _of_sequences(inputs.mask, sequences)
                fills = list(hidden_parts(mask, T, S, rows, cols, device))
            part = (sequences, heads)
            found = self.buffers.views(_size(sequences) * _size(heads), n, m)
            self._compute_scores(part, rows, cols, fills, found.scores)
            self._compute_weights(part, rows, found, distances)
            self._measure_rows(part, rows, cols, found, position)
            self._measure_columns(part, rows, cols, found)

    def _compute_scores(
        self, part: Heads, rows: slice, cols: slice, fills: list[tuple[slice, Tensor]], out: Tensor
    ) -> None:
        scoring, group = self.inputs.scoring, self.H // self.inputs.k.shape[1]
        sequences, heads = part
        q = self.inputs.q[(*part, rows)]  # (b, h, n, D)
        of_keys = slice(heads.start // group, -(-heads.stop // group))
        k = self.inputs.k[sequences, of_keys, cols].to(self.dtype)  # (b, h_kv, m, D)
        b, h, n, m = *q.shape[:3], k.shape[2]
        factor = self.scale if scoring.softcap is not None else self.scale * LOG2E
        q = (q.to(self.dtype) * factor).reshape(b * k.shape[1], -1, q.shape[3])
        torch.bmm(q, k.reshape(len(q), m, -1).mT, out=out.view(len(q), -1, m))
        if scoring.softcap is not None:
            out.div_(scoring.softcap).tanh_().mul_(scoring.softcap * LOG2E)
        s = out.view(b, h, n, m)
        added = None if scoring.is_plain else scoring.additive_bias(self.T, self.S, rows, cols)
        if added is not None:
            s.add_(_of_heads(added, part) * LOG2E).clamp_(min=HIDDEN)
        for columns, hides in fills:
            hides = _of_heads(hides, (slice(None), heads))
            if self.finite:
                limit = torch.full_like(hides, math.inf, dtype=self.dtype)
                border = s[..., columns]
                torch.minimum(border, limit.masked_fill_(hides, HIDDEN), out=border)
            else:
                s[..., columns].masked_fill_(hides, HIDDEN)

    def _compute_weights(
        self, part: Heads, rows: slice, views: TileViews, distances: DistanceSums
    ) -> None:
        """Turn scores into logarithms of weights, in place; write the weights."""
        s, w, given = views.scores, views.weights, self.inputs.lse
        sequences, heads = part
        if given is None:
            top = s.amax(-1)  # (heads, n), in base 2
        else:
            top = given[(*part, rows)].flatten(0, 1).to(self.dtype) * LOG2E
        empty = top <= HIDDEN / 2
        if self.inputs.queries is not None:
            counts = self.inputs.queries[sequences, rows].repeat_interleave(_size(heads), 0)
            empty = empty | ~counts
        lse = top.masked_fill(empty, -HIDDEN)  # so that an empty row's weights are 2^-1e30 = 0
        torch.exp2(s.sub_(lse[..., None]), out=w)
        row_sum, distance = distances.compute(w)
        if given is None:
            whole = row_sum.masked_fill(empty, 1)
            w.div_(whole[..., None])
            s.sub_(whole.log2()[..., None])
            lse = lse + whole.log2()
            row_sum, distance = row_sum / whole, distance / whole
        self._store(part, rows, "lse", lse.div_(LOG2E).masked_fill_(empty, -math.inf))
        self._store(part, rows, "row_sum", row_sum)
        self._store(part, rows, "distance", distance)

    def _store(self, part: Heads, rows: slice, name: str, x: Tensor) -> None:
        out = self.row[name][(*part, rows)]
        out.copy_(x.view(out.shape))

    def _measure_rows(
        self, part: Heads, rows: slice, cols: slice, views: TileViews, position: Tensor
    ) -> None:
        inputs, (s, w, product) = self.inputs, views[:3]
        sequences, heads = part
        torch.mul(w, s, out=product)
        self._store(part, rows, "entropy", product.sum(-1).div_(-LOG2E))
        self._store(part, rows, "concentration", torch.linalg.vector_norm(w, dim=-1).square_())

        w = w.view(_size(sequences), _size(heads), *w.shape[1:])
        first = inputs.first_keys[sequences, rows]
        single = [position.expand_as(first), (position - 1).expand_as(first), first]
        found = weights_at_keys(w, torch.stack(single, -1), cols).unbind(-1)
        for name, x in zip(("self_weight", "previous_weight", "first_weight"), found, strict=True):
            self._store(part, rows, name, x)
        if inputs.earlier_copies is not None:
            copies = inputs.earlier_copies[sequences, rows]
            followers = torch.where(copies < 0, -1, copies + 1)
            self._store(part, rows, "duplicate", sum_at_keys(w, copies, cols))
            self._store(part, rows, "induction", sum_at_keys(w, followers, cols))
        logs, places = top_columns(s.flatten(0, 1), inputs.top_k)
        real = logs > HIDDEN / 2
        n_top = logs.shape[1]
        weights, keys = (x[(*part, rows)][..., :n_top] for x in (self.top_weights, self.top_keys))
        weights.copy_((logs.exp2() * real).view(weights.shape))
        keys.copy_(torch.where(real, places + cols.start, -1).view(keys.shape))

    def _measure_columns(self, part: Heads, rows: slice, cols: slice, views: TileViews) -> None:
        """Sum what each key receives, each lag, and the overview: a cell's rows first, then its
        columns."""
        w, by_lag, n = views.weights, views.by_lag, views.weights.shape[1]
        first = rows.start + self.S - cols.stop  # the smallest lag of the band, counted from 0
        lags = (*part, slice(first, first + by_lag.shape[-1]))
        self._add(self.lags[lags], by_lag.sum(1).flip(-1))
        if self.probe_lags is not self.lags:
            step = self.inputs.probe_step
            probes = by_lag[:, (self.T - 1 - rows.start) % step :: step]
            if probes.shape[1]:
                self._add(self.probe_lags[lags], probes.sum(1).flip(-1))
        received = self.received[(*part, cols)]
        if self.inputs.cell == (1, 1):
            self.cell_sum[(*part, rows, cols)] = w.view(*received.shape[:2], n, -1)
            self._add(received, w.sum(1))
            return
        tall, wide = self.inputs.cell
        into = slice(cols.start // wide, -(-cols.stop // wide))
        whole = n - n % tall
        for start, rest in ((0, w[:, :whole]), (whole, w[:, whole:])):
            if not rest.shape[1]:
                continue
            stack = rest.unflatten(1, (-1, min(tall, rest.shape[1])))  # (heads, cells, tall, m)
            total, top = stack.sum(2), stack.amax(2)  # (heads, cells, m)
            self._add(received, total.sum(1))
            at = (rows.start + start) // tall
            here = (*part, slice(at, at + total.shape[1]), into)
            self._add(self.cell_sum[here], fold(total, wide).sum(-1))
            cells = self.cell_max[here]
            top = fold(top, wide).amax(-1).view(cells.shape)
            cells.copy_(torch.maximum(cells, top))

    @staticmethod
    def _add(out: Tensor, x: Tensor) -> None:
        out += x.view(out.shape)

    def output(self) -> EngineOutput:
        starts = self.inputs.lag_starts
        lag = torch.arange(1 - self.T, self.lags.shape[-1] + 1 - self.T, device=starts.device)
        bucket = torch.searchsorted(starts, lag, right=True).sub_(1).clamp_(min=0)
        lags = self.lags.new_zeros(*self.lags.shape[:2], len(starts))
        rows: dict[str, Tensor | None] = dict(self.row)
        if self.inputs.earlier_copies is None:
            rows |= {"duplicate": None, "induction": None}
        return EngineOutput(
            **rows,  # type: ignore[arg-type]
            top_keys=self.top_keys,
            top_weights=self.top_weights,
            received=self.received,
            lags=lags.index_add_(-1, bucket, self.lags),
            probe_lags=self.probe_lags,
            cell_sum=self.cell_sum,
            cell_max=self.cell_max,
        )


def _band_rows(device: torch.device, T: int, S: int) -> int:
    least, most = ROWS.get(device.type, ROWS["cpu"])
    wanted = BAND.get(device.type, BAND["cpu"]) // max(S, 1)
    enough = 1 << max(T - 1, 1).bit_length()
    return min(max(least, min(most, 1 << max(wanted, 1).bit_length() - 1)), enough)


def _split_heads(B: int, H: int, H_kv: int, most: int) -> Iterator[Heads]:
    """Yield parts of at most `most` heads, at least one: whole sequences, whole groups of heads
    that share their keys, or parts of such a group.

    >>> [(b.start, b.stop, h.start, h.stop) for b, h in _split_heads(2, 6, 2, 4)]
    [(0, 1, 0, 3), (0, 1, 3, 6), (1, 2, 0, 3), (1, 2, 3, 6)]
    """
    if most >= H:
        step = most // H
        for b in range(0, B, step):
            yield slice(b, min(b + step, B)), slice(0, H)
        return
    group = H // H_kv
    inner, outer = (most - most % group, H) if most >= group else (most, group)
    for b in range(B):
        for first in range(0, H, outer):
            for h in range(first, first + outer, inner):
                yield slice(b, b + 1), slice(h, min(h + inner, first + outer))


def _size(part: slice) -> int:
    size: int = part.stop - part.start
    return size


def _differs(mask: Mask) -> bool:
    """Whether sequences have masks of their own."""
    parts = ((mask.keys, 2), (mask.documents, 2), (mask.dense, 4))
    return any(x is not None and x.dim() == full and len(x) > 1 for x, full in parts)


def _of_sequences(mask: Mask, sequences: slice) -> Mask:
    """Return the mask of some sequences of the batch."""

    def some(x: Tensor | None, full: int) -> Tensor | None:
        return x[sequences] if x is not None and x.dim() == full and x.shape[0] > 1 else x

    return replace(
        mask, keys=some(mask.keys, 2), documents=some(mask.documents, 2), dense=some(mask.dense, 4)
    )


def _of_heads(x: Tensor, part: Heads) -> Tensor:
    """Return what concerns some heads of a tensor that broadcasts to (B, H, n, m)."""
    x = x.reshape((1,) * (4 - x.dim()) + x.shape)
    x = x if x.shape[0] == 1 else x[part[0]]
    return x if x.shape[1] == 1 else x[:, part[1]]
