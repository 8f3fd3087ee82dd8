"""The engine that runs on any device: bands of rows, one head at a time, a few passes over each.

A band is some query rows and all the keys they can reach, small enough to stay in the cache, so
each score is computed once: a whole row is there, and its lse needs no pass of its own. Hidden
pairs are filled in only where the mask has a border. Sums over rows or over columns are products
with thin matrices; only entropy needs a pass of products.
"""

import math
from dataclasses import replace

import torch
from torch import Tensor

from glasshead.attention.mask import Mask
from glasshead.observe.engine import HIDDEN, EngineInput, EngineOutput
from glasshead.observe.lags import LagSums
from glasshead.observe.tile_operations import (
    DistanceSums,
    fold,
    hidden_parts,
    pick_head,
    sum_at_keys,
    top_columns,
)

__all__ = ["run_tiles"]

BAND = {"cpu": 2**19, "cuda": 2**26}  # pairs in a band: 2 MB of scores on CPU, 256 MB on a GPU
ROWS = {"cpu": (64, 128), "cuda": (256, 4096)}  # least and most rows of a band; powers of two
OF_ROWS = (
    "lse", "row_sum", "entropy", "concentration", "distance", "self_weight", "previous_weight",
    "first_weight", "duplicate", "induction",
)  # fmt: skip


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
        self.buffers = new(3, self.rows * S)
        self.row = {name: new(B, H, T) for name in OF_ROWS}
        self.row["lse"] -= math.inf
        self.top_weights = new(B, H, T, inputs.top_k)
        self.top_keys = torch.full_like(self.top_weights, -1, dtype=torch.int64)
        cells = (B, H, -(-T // inputs.cell[0]), -(-S // inputs.cell[1]))
        self.cell_sum, self.cell_max = new(cells), new(cells)
        # Many small numbers are summed in float64.
        self.received = new(B, H, S, dtype=torch.float64)
        self.lags = new(B, H, max(T + S - 1, 0), dtype=torch.float64)
        self.probe_lags = torch.zeros_like(self.lags)

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
        distances = DistanceSums(position, cols, max(T, S), self.dtype)
        # The lag of w[i, j] is position[i] - (cols.start + j), and entry 0 is lag 1 - T.
        offset, step = rows.start + S - cols.start - 1, inputs.probe_step
        lags = LagSums(n, m, offset, device)
        probe_lags = LagSums(n, m, offset, device, (T - 1 - rows.start) % step, step)
        s, w, product = self.buffers[:, : n * m].view(3, n, m)
        group = self.H // inputs.k.shape[1]
        for b in range(self.B):
            fills = list(hidden_parts(_of_sequence(inputs.mask, b), T, S, rows, cols, device))
            for h in range(self.H):
                if h % group == 0:
                    k = inputs.k[b, h // group, cols].to(self.dtype).T  # (D, m)
                self._compute_scores(b, h, rows, cols, k, fills, out=s)
                self._compute_weights(b, h, rows, s, distances, out=w)
                self._measure_rows(b, h, rows, cols, s, w, product, position)
                self._measure_columns(b, h, rows, cols, w)
                lags.add(self.lags[b, h], w)
                probe_lags.add(self.probe_lags[b, h], w)

    def _compute_scores(
        self, b: int, h: int, rows: slice, cols: slice, k: Tensor,
        fills: list[tuple[slice, Tensor]], out: Tensor,
    ) -> None:  # fmt: skip
        scoring = self.inputs.scoring
        torch.mm(self.inputs.q[b, h, rows].to(self.dtype) * self.scale, k, out=out)
        if scoring.softcap is not None:
            out.div_(scoring.softcap).tanh_().mul_(scoring.softcap)
        added = None if scoring.is_plain else scoring.additive_bias(self.T, self.S, rows, cols)
        if added is not None:
            out.add_(pick_head(added, b, h)[0, 0]).clamp_(min=HIDDEN)
        for part, hides in fills:
            out[:, part].masked_fill_(pick_head(hides, 0, h)[0, 0], HIDDEN)

    def _compute_weights(
        self, b: int, h: int, rows: slice, s: Tensor, distances: DistanceSums, out: Tensor
    ) -> None:
        """Turn scores into logarithms of weights, in place; write the weights to `out`."""
        given = self.inputs.lse
        top = s.amax(-1) if given is None else given[b, h, rows].to(self.dtype)
        empty = top <= HIDDEN / 2
        if self.inputs.queries is not None:
            empty = empty | ~self.inputs.queries[b, rows]
        lse = top.masked_fill(empty, -HIDDEN)  # so that an empty row's weights are exp(-1e30) = 0
        torch.exp(s.sub_(lse[:, None]), out=out)
        row_sum, distance = distances.compute(out)
        if given is None:
            whole = row_sum.masked_fill(empty, 1)
            out.div_(whole[:, None])
            s.sub_(whole.log()[:, None])
            lse = lse + whole.log()
            row_sum, distance = row_sum / whole, distance / whole
        self.row["lse"][b, h, rows] = lse.masked_fill(empty, -math.inf)
        self.row["row_sum"][b, h, rows] = row_sum
        self.row["distance"][b, h, rows] = distance

    def _measure_rows(
        self, b: int, h: int, rows: slice, cols: slice, s: Tensor, w: Tensor, product: Tensor,
        position: Tensor,
    ) -> None:  # fmt: skip
        inputs, one = self.inputs, w.new_ones(w.shape[1])
        found = {
            "entropy": -(torch.mul(w, s, out=product) @ one),
            "concentration": torch.linalg.vector_norm(w, dim=-1).square(),
            "self_weight": sum_at_keys(w, position[:, None], cols),
            "previous_weight": sum_at_keys(w, position[:, None] - 1, cols),
            "first_weight": sum_at_keys(w, inputs.first_keys[b, rows, None], cols),
        }
        if inputs.earlier_copies is not None:
            copies = inputs.earlier_copies[b, rows]
            found["duplicate"] = sum_at_keys(w, copies, cols)
            found["induction"] = sum_at_keys(w, torch.where(copies < 0, -1, copies + 1), cols)
        for name, x in found.items():
            self.row[name][b, h, rows] = x
        logs, places = top_columns(s, inputs.top_k)
        real = logs > HIDDEN / 2
        self.top_weights[b, h, rows, : logs.shape[1]] = logs.exp() * real
        self.top_keys[b, h, rows, : logs.shape[1]] = torch.where(real, places + cols.start, -1)

    def _measure_columns(self, b: int, h: int, rows: slice, cols: slice, w: Tensor) -> None:
        """Sum what each key receives, and the overview: a cell's rows first, then its columns."""
        tall, wide = self.inputs.cell
        into = slice(cols.start // wide, -(-cols.stop // wide))
        whole = len(w) - len(w) % tall
        for start, part in ((0, w[:whole]), (whole, w[whole:])):
            if not len(part):
                continue
            stack = part.unflatten(0, (-1, min(tall, len(part))))  # (cells, tall, m)
            total, top = stack.sum(1), stack.amax(1)  # (cells, m)
            self.received[b, h, cols] += total.sum(0)
            first = (rows.start + start) // tall
            here = slice(first, first + len(total))
            self.cell_sum[b, h, here, into] += fold(total, wide).sum(-1)
            cells = self.cell_max[b, h, here, into]
            torch.maximum(cells, fold(top, wide).amax(-1), out=cells)

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


def _of_sequence(mask: Mask, b: int) -> Mask:
    """Return the mask of one sequence of the batch."""

    def one(x: Tensor | None, full: int) -> Tensor | None:
        return x[b : b + 1] if x is not None and x.dim() == full and x.shape[0] > 1 else x

    return replace(
        mask, keys=one(mask.keys, 2), documents=one(mask.documents, 2), dense=one(mask.dense, 4)
    )
