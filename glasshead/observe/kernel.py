"""The Triton engine: the statistics of `tiled.py` on CUDA, at about the price of the attention.

One sweep (`programs/rows.py`) measures what needs every weight; what needs few of them (near lags,
single keys, the strongest keys) is looked up afterwards by smaller programs.
"""

import importlib.util
import math
import os
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from glasshead.observe.sweep import EXACT, HIDDEN, PROBES, Sums, Sweep

__all__ = ["Tuning", "sums", "why_not"]

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
LOG2E = math.log2(math.e)
MOST_TOP = 32
SHIFT = 14.0  # weights times 2^14 lie well in float16
UNITS = 2.0**40  # shared sums are whole numbers of 2^-40
CANDIDATES = 2**28  # bytes, at most, for the candidates of the strongest keys


@dataclass(frozen=True)
class Tuning:
    """How the sweep runs. The defaults are for an H200; what is left out is not measured."""

    rows: int = 128  # queries of a program; at most 128
    cols: int = 128  # keys of a tile
    unroll: int = 1  # tiles of a group: cols x unroll, at most 128
    warps: int = 8
    stages: int = 3
    registers: int | None = None  # at most, for a thread
    lanes: int = 8  # columns over which sums of a row stay spread
    half: bool = True  # sums of columns on tensor cores, where q has 16 bits
    rowdot: bool = True  # sums of rows on tensor cores as well, where the mask is causal
    columns: bool = True
    top: bool = True
    overview: bool = True
    lags: bool = True
    distance: bool = True
    square: bool = True
    entropy: bool = True


def why_not(sweep: Sweep) -> str | None:
    """Why this engine cannot serve the sweep, or None if it can."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    if sweep.q.device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"it needs CUDA, and q is on {sweep.q.device.type}"
    if sweep.q.dtype not in DTYPES:
        return f"it has no {sweep.q.dtype}"
    if sweep.mask.dense is not None:
        return "it has no dense masks"
    if sweep.scoring.bias is not None:
        return "it has no biases but ALiBi"
    if sweep.q.shape[-1] > 256:
        return f"it takes heads of at most 256, not {sweep.q.shape[-1]}"
    if sweep.top_k > MOST_TOP:
        return f"it keeps at most {MOST_TOP} keys a row, not {sweep.top_k}"
    if not sweep.q.numel() or not sweep.k.numel():
        return "there is nothing to measure"
    return None


def sums(sweep: Sweep, tuning: Tuning | None = None) -> Sums:
    if tuning is None:
        tuning = _tuned(sweep)
    guard = torch.cuda.device(sweep.q.device) if sweep.q.is_cuda else torch.no_grad()
    with guard:
        return _Engine(sweep, tuning).sums()


def _tuned(sweep: Sweep) -> Tuning:
    D, itemsize = sweep.q.shape[-1], sweep.q.dtype.itemsize
    tuning = Tuning()
    if itemsize == 4 or D > 128:
        return replace(tuning, rows=64, cols=32, unroll=4 if D <= 128 else 2, warps=4, stages=2)
    return tuning if D <= 64 else replace(tuning, stages=2)


class _Engine:
    def __init__(self, sweep: Sweep, tuning: Tuning) -> None:
        self.sweep, self.tuning = sweep, tuning
        (B, H, T, D), S = sweep.q.shape, sweep.k.shape[2]
        self.B, self.H, self.T, self.S = B, H, T, S
        self.q = sweep.q if sweep.q.stride(-1) == 1 else sweep.q.contiguous()
        self.k = sweep.k if sweep.k.stride(-1) == 1 else sweep.k.contiguous()
        mask, scoring, device = sweep.mask, sweep.scoring, sweep.q.device
        scale = scoring.scale_for(D)
        nothing = torch.zeros(1, dtype=torch.int32, device=device)
        keys = nothing if mask.keys is None else mask.keys.to(device, torch.int8).contiguous()
        documents = nothing
        if mask.documents is not None:
            documents = mask.documents.to(device).unique(return_inverse=True)[1].int()
        slopes = nothing.float() if scoring.slopes is None else scoring.slopes.to(device).float()
        cap = scoring.softcap
        # Every program takes these, in this order, after its own pointers.
        self.shared: tuple[Any, ...] = (
            keys, documents, slopes * LOG2E, T, S, H, H // sweep.k.shape[1],
            *self.q.stride()[:3], *self.k.stride()[:3],
            S if keys.dim() == 2 and len(keys) > 1 else 0,
            S if documents.dim() == 2 and len(documents) > 1 else 0,
            mask.window or 0,
            scale * LOG2E if cap is None else scale / cap, 0.0 if cap is None else cap * LOG2E,
        )  # fmt: skip
        self.kind: dict[str, Any] = {
            "D": D,
            "BD": max(16, 1 << (D - 1).bit_length()),
            "CAUSAL": mask.causal,
            "WINDOW": mask.window is not None,
            "KEYS": mask.keys is not None,
            "DOCUMENTS": mask.documents is not None,
            "CAP": cap is not None,
            "ALIBI": scoring.slopes is not None,
        }
        self.precise = {"PRECISION": "tf32x3" if sweep.q.dtype == torch.float32 else "tf32"}
        # Cells no coarser than a group already hold the sums from which lags are gathered.
        self.size = tuning.cols * tuning.unroll
        self.lags_from_cells = tuning.overview and sweep.cell[1] <= self.size
        self.half = tuning.half and sweep.q.dtype.itemsize == 2
        self.shift = SHIFT if self.half else 0.0
        self.units = UNITS * 2.0**-self.shift  # of a shifted weight
        self.lse = self._lse()  # (B x H, T), as the programs want it

    def _new(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=self.q.device)

    def _lse(self) -> Tensor:
        from glasshead.observe.programs.lse import sweep_lse

        tuning, given = self.tuning, self.sweep.lse
        if given is not None:
            lse = given.float().reshape(-1, self.T) * LOG2E
        else:
            lse = self._new(self.B * self.H, self.T)
            sweep_lse[(-(-self.T // tuning.rows), self.B * self.H)](
                self.q, self.k, lse, *self.shared, **self.kind, **self.precise,
                BM=tuning.rows, BN=tuning.cols, STAGES=tuning.stages, num_warps=tuning.warps,
            )  # fmt: skip
        empty = lse <= HIDDEN / 2
        if self.sweep.queries is not None:
            empty |= ~self.sweep.queries.repeat_interleave(self.H, 0)
        self.empty = empty
        return (lse - self.shift).masked_fill_(empty, -HIDDEN)

    def sums(self) -> Sums:
        from glasshead.observe.programs.rows import sweep_rows

        sweep, tuning = self.sweep, self.tuning
        n, T, S = self.B * self.H, self.T, self.S
        slots = 1 << (max(sweep.top_k, 2) - 1).bit_length()
        blocks = -(-T // tuning.rows)
        tall, wide = sweep.cell
        cells = (n, blocks * tuning.rows // min(tall, tuning.rows), -(-S // wide))
        cell_sum, cell_max = self._new(*cells), self._new(*cells)
        fixed = sweep.deterministic
        received = self._new(n, S, dtype=torch.int64 if fixed else torch.float32)
        out, lags = self._new(4, n, T), self._new(n, blocks, 64)
        top = self._new(n, T, slots)
        group = self._new(n, T, slots, dtype=torch.int32)
        sweep_rows[(blocks, n)](
            self.q, self.k, self.lse, received, out, top, group, lags, cell_sum, cell_max,
            *self.shared, 1 / max(T, S), cells[1], cells[2], **self.kind, **self.precise,
            BM=tuning.rows, BN=tuning.cols, UNROLL=tuning.unroll, LANES=tuning.lanes,
            HALF=self.half, ROWDOT=self.half and tuning.rowdot and sweep.mask.causal,
            COLUMNS=tuning.columns, UNITS=self.units if fixed else 0.0,
            TOP=slots if tuning.top else 0, OVERVIEW=tuning.overview,
            LAGS=tuning.lags and not self.lags_from_cells, DISTANCE=tuning.distance,
            SQUARE=tuning.square, ENTROPY=tuning.entropy, CELL_ROWS=tall, CELL_COLS=wide,
            TALL=min(tall, tuning.rows), WIDE=min(wide, tuning.cols), STAGES=tuning.stages,
            num_warps=tuning.warps, maxnreg=tuning.registers,
        )  # fmt: skip
        if tuning.lags and self.lags_from_cells:
            lags = self._lags_from(cell_sum)
        one = 2.0**-self.shift
        row_sum, weighted, square, distance = out
        lse = (self.lse + self.shift) / LOG2E
        # The sweep summed 2^shift p (log2 p + shift).
        entropy = (self.shift * row_sum - weighted) * (one / LOG2E)
        top_keys, top_logs = self._top(top, group, slots)
        near, own, previous = self._near()
        # Cells as tall as a program's rows, or taller, are gathered here.
        per_cell = max(1, tall // tuning.rows)
        cell_sum, cell_max = (
            torch.nn.functional.pad(x, (0, 0, 0, -x.shape[1] % per_cell)).unflatten(
                1, (-1, per_cell)
            )
            for x in (cell_sum, cell_max)
        )
        used = -(-T // tall)

        def shaped(x: Tensor) -> Tensor:
            return x.unflatten(0, (self.B, self.H))

        copies = sweep.earlier
        return Sums(
            lse=shaped(lse.masked_fill(self.empty, -math.inf)),
            row_sum=shaped(row_sum * one),
            entropy=shaped(entropy),
            concentration=shaped(square * one**2),
            distance=shaped(distance * one),
            self_weight=shaped(own * one),
            previous_weight=shaped(previous * one),
            first_weight=shaped(self._at_keys(sweep.first[..., None], 0) * one),
            duplicate=None if copies is None else shaped(self._at_keys(copies, 0) * one),
            induction=None if copies is None else shaped(self._at_keys(copies, 1) * one),
            top_keys=shaped(top_keys),
            top_weights=shaped(torch.exp2(top_logs - self.shift)),
            received=shaped(received.double() * (1 / UNITS if fixed else one)),
            lags=shaped(self._buckets(near, lags) * one),
            probe_lags=shaped(self._probes() / UNITS),
            cell_sum=shaped(cell_sum.sum(2)[:, :used] * one),
            cell_max=shaped(cell_max.amax(2)[:, :used] * (1 if tuning.overview else 0) * one),
        )

    def _at_keys(self, wanted: Tensor, plus: int) -> Tensor:
        from glasshead.observe.programs.pairs import sum_at_keys

        wanted = wanted.to(self.q.device, torch.int32).contiguous()
        out = self._new(self.B * self.H, self.T)
        sum_at_keys[(-(-self.T // 64), len(out))](
            self.q, self.k, self.lse, wanted, out, *self.shared, wanted.shape[-1], plus,
            **self.kind, BM=64,
        )  # fmt: skip
        return out

    def _near(self) -> tuple[Tensor, Tensor, Tensor]:
        """Weight by lag near 0, (B x H, lags); of each row on itself and on the position before."""
        from glasshead.observe.programs.pairs import near_lags

        ahead = 0 if self.sweep.mask.causal else min(EXACT, self.T) - 1
        n = min(EXACT, self.S) + ahead
        # Lags 0 and 1 are always looked at, for the rows.
        blocks, looked = -(-self.T // 64), max(n, ahead + 2)
        sums = self._new(self.B * self.H, blocks, looked)
        own, previous = (self._new(self.B * self.H, self.T) for _ in range(2))
        near_lags[(blocks, len(sums))](
            self.q, self.k, self.lse, sums, own, previous, *self.shared, -ahead, looked,
            **self.kind, BM=64,
        )  # fmt: skip
        return sums.sum(1, dtype=torch.float64)[:, :n], own, previous

    def _buckets(self, near: Tensor, far: Tensor) -> Tensor:
        """(B x H, n) as `lag_starts` orders them."""
        from glasshead.observe.programs.pairs import nearer_than_edges

        tuning = self.tuning
        blocks = -(-self.T // tuning.rows)
        nearer = self._new(len(far), blocks, 64)
        nearer_than_edges[(blocks, len(far))](
            self.q, self.k, self.lse, nearer, *self.shared, **self.kind, **self.precise,
            BM=tuning.rows, BN=tuning.cols, GROUP=self.size,
            num_warps=tuning.warps,
        )  # fmt: skip
        moved = nearer.sum(1, dtype=torch.float64)
        total = (far.sum(1, dtype=torch.float64) - moved).unflatten(1, (2, 32))
        total[..., :-1] += moved.unflatten(1, (2, 32))[..., 1:]
        total = total.clamp(min=0)
        starts = self.sweep.starts
        back, ahead = (int((side >= EXACT).sum()) for side in (starts, -starts))
        return torch.cat([total[:, 1, :ahead].flip(-1), near, total[:, 0, :back]], -1)

    def _lags_from(self, cell_sum: Tensor) -> Tensor:
        """(B x H, 1, 64) what the sweep gives where it sums lags itself: each block of rows and
        group of keys goes to the bucket of its farthest lag."""
        rows, size, wide = self.tuning.rows, self.size, self.sweep.cell[1]
        tall = min(self.sweep.cell[0], rows)  # of a row of the sweep's cells
        blocks, groups = -(-self.T // rows), -(-self.S // size)
        total = torch.nn.functional.pad(cell_sum, (0, groups * size // wide - cell_sum.shape[2]))
        total = total.view(-1, blocks, rows // tall, groups, size // wide).sum((2, 4))
        first = torch.arange(blocks, device=total.device)[:, None] * rows + (self.S - self.T)
        key = torch.arange(groups, device=total.device) * size
        back, ahead = (_bucket(x) for x in (first + rows - 1 - key, key + size - 1 - first))
        bucket = torch.where(back >= 0, back, torch.where(ahead >= 0, 32 + ahead, 64))
        far = total.new_zeros(len(total), 65, dtype=torch.float64)
        far.index_add_(1, bucket.flatten(), total.flatten(1).double())
        return far[:, None, :64]

    def _probes(self) -> Tensor:
        from glasshead.observe.programs.pairs import probe_lags

        step = self.sweep.probe_step
        out = self._new(self.B * self.H, self.T + self.S - 1, dtype=torch.int64)
        probes = -(-self.T // step)
        assert probes <= PROBES
        probe_lags[(-(-self.S // 64), len(out))](
            self.q, self.k, self.lse, out, *self.shared, step, probes,
            **self.kind, **self.precise, BM=64, BN=64, UNITS=self.units,
        )  # fmt: skip
        return out.double()

    def _top(self, best: Tensor, group: Tensor, slots: int) -> tuple[Tensor, Tensor]:
        """The strongest keys, from the groups that hold them; a few heads at a time."""
        from glasshead.observe.programs.top import merge_groups, search_groups

        n, T, K = self.B * self.H, self.T, self.sweep.top_k
        keys = self._new(n, T, K, dtype=torch.int64)
        logs = self._new(n, T, K)
        size = self.size
        groups = -(-self.S // size)
        if not self.tuning.top:
            return keys, logs
        floor = best.amin(-1)  # (n, T)
        together = 64 if self.q.dtype.itemsize == 2 else 16  # rows that name one group
        heads = max(1, CANDIDATES // (T * slots * slots * 8))
        for head in range(0, n, heads):
            part = slice(head, min(head + heads, n))
            named = group[part]
            offset = torch.arange(len(named), device=named.device, dtype=torch.int32) * groups
            named = torch.where(named < 0, len(named) * groups, named + offset[:, None, None])
            blocks = _gathered(named.flatten(), (part.stop - head) * groups, together)
            values = torch.full((named.numel(), slots), HIDDEN, device=named.device)
            places = torch.empty_like(values, dtype=torch.int32)
            search_groups[(len(blocks[1]),)](
                self.q, self.k, self.lse, *blocks, floor[part], values, places, *self.shared,
                head, groups, 1e-3, **self.kind, **self.precise, BM=together, GROUP=size,
                SLOTS=slots,
            )  # fmt: skip
            rows = (part.stop - head) * T
            merge_groups[(-(-rows // 16),)](
                values, places, logs[part], keys[part], rows, K, BM=16, SLOTS=slots
            )
        return keys, logs


def _bucket(lag: Tensor) -> Tensor:
    """n for lags of 128 x 2^n to 128 x 2^(n + 1) - 1; -1 for nearer ones."""
    n = torch.frexp(lag.clamp(min=1).double()).exponent.long() - 1 - int(math.log2(EXACT))
    return n.clamp(min=-1)


def _gathered(named: Tensor, groups: int, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Entries sorted by the group that they name, cut into blocks of `size` that share a group.

    Returns the order of the entries; each block's group (-1 for a block to spare) and first entry;
    each group's end. No count is waited for: there are as many blocks as there could be.

    >>> order, group, first, end = _gathered(torch.tensor([1, 0, 1, 1]), 2, 2)
    >>> order.tolist()[0], group.tolist(), first.tolist()[:3], end.tolist()
    (1, [0, 1, 1, -1], [0, 1, 3], [1, 4])
    """
    # 16 bits sort in half the time.
    narrow = named.short() if groups < 2**15 else named
    ordered, order = narrow.sort(stable=True)
    at = torch.arange(groups + 1, device=named.device, dtype=ordered.dtype)
    start = torch.searchsorted(ordered, at)  # (groups + 1,)
    blocks = (start.diff() + size - 1) // size
    end = blocks.cumsum(0)
    block = torch.arange(-(-len(named) // size) + groups, device=named.device)
    of = torch.searchsorted(end, block, right=True)
    spare = of == groups
    of = of.clamp(max=groups - 1)
    first = start[of] + (block - (end - blocks)[of]) * size
    return order, torch.where(spare, -1, of), first, start[1:]
