"""The Triton engine: the statistics of `tiled.py` on CUDA, at about the price of the attention.

One sweep measures what needs every weight; what needs few of them (near lags, single keys, the
strongest keys) is looked up afterwards by smaller programs. There are two sweeps:

    programs/packed.py   16 bits and a long text: fast
    programs/rows.py     everything else: all sums in float32, and the same every time if asked to
"""

import importlib.util
import math
import os
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glasshead.observe.gathering import gathered, lags_from
from glasshead.observe.sweep import EXACT, HIDDEN, PROBES, Sums, Sweep

__all__ = ["Packed", "Tuning", "sums", "tuned", "why_not"]

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
LOG2E = math.log2(math.e)
MOST_TOP = 32
SHIFT = 10.0  # of the packed sweep: weights times 2^10 lie well in float16
UNITS = 2.0**40  # shared sums are whole numbers of 2^-40
CELLS = 2**29  # bytes, at most, for the cells of the packed sweep
CANDIDATES = 2**28  # bytes, at most, for the candidates of the strongest keys


@dataclass(frozen=True)
class Tuning:
    """How the sweep in float32 runs."""

    rows: int = 64  # queries of a program
    cols: int = 64  # keys of a tile
    unroll: int = 2  # tiles of a group: cols x unroll, at most 128
    warps: int = 4
    stages: int = 2
    lanes: int = 8  # columns over which sums of a row stay spread


@dataclass(frozen=True)
class Packed:
    """How the packed sweep runs; the defaults are the best of those measured on an H200."""

    warps: int = 4  # each has 16 queries
    parts: int = 2  # so many times, for each tile of keys
    cols: int = 128  # keys of a group
    stages: int = 3
    registers: int | None = None  # at most, for a thread


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


def sums(sweep: Sweep, tuning: Tuning | Packed | None = None) -> Sums:
    if tuning is None:
        tuning = tuned(sweep)
    guard = torch.cuda.device(sweep.q.device) if sweep.q.is_cuda else torch.no_grad()
    with guard:
        return _Engine(sweep, tuning).sums()


def tuned(sweep: Sweep) -> Tuning | Packed:
    """The sweep that fits, and how it should run."""
    D, S, itemsize = sweep.q.shape[3], sweep.k.shape[2], sweep.q.dtype.itemsize
    fits = D <= 128 and min(sweep.cell) >= 16 and S <= 2**22  # groups have 16 bits
    if itemsize == 2 and fits and not sweep.deterministic:
        return Packed(registers=168) if D <= 64 else Packed(stages=2)
    if itemsize == 2:
        return Tuning() if D <= 128 else Tuning(cols=32)
    return Tuning(cols=32, unroll=4) if D <= 128 else Tuning(rows=32, cols=32, unroll=1, stages=1)


class _Engine:
    def __init__(self, sweep: Sweep, tuning: Tuning | Packed) -> None:
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
        # Lags are gathered by blocks of queries and of keys, from cells where they are as fine.
        if isinstance(tuning, Packed):
            self.shift, self.group = SHIFT, tuning.cols
            self.block, self.cell = (128, 128), (min(sweep.cell[0], 128), min(sweep.cell[1], 128))
        else:
            self.shift, self.group = 0.0, tuning.cols * tuning.unroll
            self.block, self.cell = (tuning.rows, self.group), sweep.cell
        self.slots = 1 << (max(sweep.top_k, 2) - 1).bit_length()
        self.units = UNITS * 2.0**-self.shift  # of a shifted weight
        self.lse = self._lse()  # (B x H, T), as the programs want it

    def _new(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=self.q.device)

    def _lse(self) -> Tensor:
        from glasshead.observe.programs.lse import sweep_lse

        given = self.sweep.lse
        if given is not None:
            lse = given.float().reshape(-1, self.T) * LOG2E
        else:
            lse = self._new(self.B * self.H, self.T)
            big = self.q.dtype.itemsize * self.kind["BD"] > 256
            rows, cols, stages = (32, 32, 1) if big else (128, 64, 3)
            sweep_lse[(-(-self.T // rows), self.B * self.H)](
                self.q, self.k, lse, *self.shared, **self.kind, **self.precise,
                BM=rows, BN=cols, STAGES=stages, num_warps=4,
            )  # fmt: skip
        empty = lse <= HIDDEN / 2
        if self.sweep.queries is not None:
            empty |= ~self.sweep.queries.repeat_interleave(self.H, 0)
        self.empty = empty
        return (lse - self.shift).masked_fill_(empty, -HIDDEN)

    def sums(self) -> Sums:
        sweep, one = self.sweep, 2.0**-self.shift
        if isinstance(self.tuning, Packed):
            rows, top, group, received, cell_sum, cell_max, lags = self._sweep_pairs(self.tuning)
        else:
            rows, top, group, received, cell_sum, cell_max, lags = self._sweep_rows(self.tuning)
        row_sum, weighted, square, distance = rows
        lse = (self.lse + self.shift) / LOG2E
        top_keys, top_logs = self._top(top, group)
        near, own, previous = self._near()

        def shaped(x: Tensor) -> Tensor:
            return x.unflatten(0, (self.B, self.H))

        copies = sweep.earlier
        return Sums(
            lse=shaped(lse.masked_fill(self.empty, -math.inf)),
            row_sum=shaped(row_sum * one),
            entropy=shaped(self._entropy(row_sum * one, weighted * one)),
            concentration=shaped(square * one**2),
            distance=shaped(distance * one),
            self_weight=shaped(own * one),
            previous_weight=shaped(previous * one),
            first_weight=shaped(self._at_keys(sweep.first[..., None], 0) * one),
            duplicate=None if copies is None else shaped(self._at_keys(copies, 0) * one),
            induction=None if copies is None else shaped(self._at_keys(copies, 1) * one),
            top_keys=shaped(top_keys),
            top_weights=shaped(torch.exp2(top_logs - self.shift)),
            received=shaped(received),
            lags=shaped(self._buckets(near, lags) * one),
            probe_lags=shaped(self._probes()),
            cell_sum=shaped(cell_sum * one),
            cell_max=shaped(cell_max * one),
        )

    def _entropy(self, row_sum: Tensor, weighted: Tensor) -> Tensor:
        """From sums of p (log2 p + shift). The lse is rounded, so that a row's weights sum to 1 + e
        and its entropy is off by e times itself: what the sum shows is taken out."""
        entropy = (self.shift * row_sum - weighted) / LOG2E
        e = row_sum - 1
        return torch.where(e.abs() < 1e-4, entropy * (1 - e) + e, entropy)

    def _sweep_rows(self, tuning: Tuning) -> tuple[Tensor, ...]:
        from glasshead.observe.programs.rows import sweep_rows

        sweep, slots = self.sweep, self.slots
        n, T, S = self.B * self.H, self.T, self.S
        blocks = -(-T // tuning.rows)
        tall, wide = self.cell
        cells = (n, blocks * tuning.rows // min(tall, tuning.rows), -(-S // wide))
        cell_sum, cell_max = self._new(*cells), self._new(*cells)
        fixed = sweep.deterministic
        received = self._new(n, S, dtype=torch.int64 if fixed else torch.float32)
        out, lags = self._new(4, n, T), self._new(n, blocks, 64)
        top = self._new(n, T, slots)
        group = self._new(n, T, slots, dtype=torch.int32)
        # Cells no coarser than a group already hold the sums from which lags are gathered.
        from_cells = wide <= self.group
        sweep_rows[(blocks, n)](
            self.q, self.k, self.lse, received, out, top, group, lags, cell_sum, cell_max,
            *self.shared, 1 / max(T, S), cells[1], cells[2], **self.kind, **self.precise,
            BM=tuning.rows, BN=tuning.cols, UNROLL=tuning.unroll, LANES=tuning.lanes,
            UNITS=self.units if fixed else 0.0, TOP=slots, LAGS=not from_cells,
            CELL_ROWS=tall, CELL_COLS=wide, TALL=min(tall, tuning.rows),
            WIDE=min(wide, tuning.cols), STAGES=tuning.stages, num_warps=tuning.warps,
        )  # fmt: skip
        if from_cells:
            lags = lags_from(cell_sum, self.T, self.S, self.block, self.cell)
        received = received.double() / (UNITS if fixed else 1)
        cell_sum, cell_max = self._pooled(cell_sum, torch.sum), self._pooled(cell_max, torch.amax)
        return out, top, group, received, cell_sum, cell_max, lags

    def _sweep_pairs(self, tuning: Packed) -> tuple[Tensor, ...]:
        from glasshead.observe.programs.packed import sweep_pairs

        n, T, S = self.B * self.H, self.T, self.S
        size = tuning.parts * tuning.warps * 16
        blocks = -(-T // size)
        tall, wide = self.cell
        down, across = -(-blocks * size // 128) * (128 // tall), -(-S // wide)
        received, out = self._new(n, S), self._new(4, n, T)
        top = self._new(n, T, self.slots, dtype=torch.int32)
        heads = max(1, min(n, CELLS // (8 * down * across)))  # at a time
        found = []
        for head in range(0, n, heads):
            cells = (min(heads, n - head), down, across)
            cell_sum, cell_max = self._new(*cells), self._new(*cells, dtype=torch.int32)
            sweep_pairs[(blocks, cells[0])](
                self.q, self.k, self.lse, received, out, top, cell_sum, cell_max,
                *self.shared, 1 / max(T, S), down, across, head, n, **self.kind,
                WARPS=tuning.warps, BN=tuning.cols, PARTS=tuning.parts, TOP=self.slots,
                TALL=tall, WIDE=wide, STAGES=tuning.stages, num_warps=tuning.warps,
                maxnreg=tuning.registers,
            )  # fmt: skip
            most = cell_max.short().view(torch.float16).float()
            lags = lags_from(cell_sum, T, S, self.block, self.cell)
            found.append((self._pooled(cell_sum, torch.sum), self._pooled(most, torch.amax), lags))
        group = torch.where(top < 0, -1, top & 0xFFFF)
        best = (top >> 16).short().view(torch.float16).float()
        # Rounded to float16, and 0 where that is too small for it: a little less is sure.
        best = torch.where(top < 0, HIDDEN, (best.log2() - 2e-3).clamp(min=HIDDEN))
        received = received.double() * 2.0**-self.shift
        return out, best, group, received, *map(torch.cat, zip(*found, strict=True))

    def _pooled(self, x: Tensor, how: Any) -> Tensor:
        """Cells as the overview wants them, of those that the sweep filled."""
        rows = -(-self.T // self.sweep.cell[0])
        tall = self.sweep.cell[0] // min(self.cell[0], self.block[0])
        wide = self.sweep.cell[1] // self.cell[1]
        x = torch.nn.functional.pad(x, (0, -x.shape[2] % wide, 0, -x.shape[1] % tall))
        x = how(x.unflatten(2, (-1, wide)).unflatten(1, (-1, tall)), dim=(2, 4))
        return x[:, :rows]

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
        from glasshead.observe.programs.packed import near_band
        from glasshead.observe.programs.pairs import near_lags

        ahead = 0 if self.sweep.mask.causal else min(EXACT, self.T) - 1
        n = min(EXACT, self.S) + ahead
        blocks = -(-self.T // 64)
        own, previous = (self._new(self.B * self.H, self.T) for _ in range(2))
        if isinstance(self.tuning, Packed):
            chunks = 1 + (ahead > 0)
            sums = self._new(chunks, len(own), blocks, EXACT)
            near_band[(blocks, len(own), chunks)](
                self.q, self.k, self.lse, sums, own, previous, *self.shared, EXACT * (1 - chunks),
                **self.kind,
            )  # fmt: skip
            near = sums.sum(2, dtype=torch.float64).movedim(0, 1).flatten(1)
            return near[:, near.shape[1] - EXACT - ahead :][:, :n], own, previous
        # Lags 0 and 1 are always looked at, for the rows.
        looked = max(n, ahead + 2)
        sums = self._new(self.B * self.H, blocks, looked)
        near_lags[(blocks, len(sums))](
            self.q, self.k, self.lse, sums, own, previous, *self.shared, -ahead, looked,
            **self.kind, BM=64,
        )  # fmt: skip
        return sums.sum(1, dtype=torch.float64)[:, :n], own, previous

    def _buckets(self, near: Tensor, far: Tensor) -> Tensor:
        """(B x H, n) as `lag_starts` orders them."""
        from glasshead.observe.programs.pairs import nearer_than_edges

        rows, cols = self.block
        blocks = -(-self.T // rows)
        nearer = self._new(len(far), blocks, 64)
        nearer_than_edges[(blocks, len(far))](
            self.q, self.k, self.lse, nearer, *self.shared, **self.kind, **self.precise,
            BM=rows, BN=min(cols, 32 if self.q.dtype.itemsize == 4 else 64), GROUP=cols,
        )  # fmt: skip
        moved = nearer.sum(1, dtype=torch.float64)
        total = (far.sum(1, dtype=torch.float64) - moved).unflatten(1, (2, 32))
        total[..., :-1] += moved.unflatten(1, (2, 32))[..., 1:]
        total = total.clamp(min=0)
        back, ahead = self.sweep.far_buckets
        return torch.cat([total[:, 1, :ahead].flip(-1), near, total[:, 0, :back]], -1)

    def _probes(self) -> Tensor:
        from glasshead.observe.programs.pairs import probe_lags

        step = self.sweep.probe_step
        fast = isinstance(self.tuning, Packed)
        dtype = torch.float32 if fast else torch.int64
        out = self._new(self.B * self.H, self.T + self.S - 1, dtype=dtype)
        probes = -(-self.T // step)
        assert probes <= PROBES
        # In float32 a product keeps three copies of both sides in shared memory.
        side = 32 if self.q.dtype.itemsize * self.kind["BD"] > 512 else 64
        probe_lags[(-(-self.S // side), len(out))](
            self.q, self.k, self.lse, out, *self.shared, step, probes,
            **self.kind, **self.precise, BM=side, BN=side, UNITS=0.0 if fast else self.units,
        )  # fmt: skip
        return out * 2.0**-self.shift if fast else out.double() / UNITS

    def _top(self, best: Tensor, group: Tensor) -> tuple[Tensor, Tensor]:
        """The strongest keys, from the groups that hold them; a few heads at a time."""
        from glasshead.observe.programs.top import merge_groups, search_groups

        n, T, K = self.B * self.H, self.T, self.sweep.top_k
        keys = self._new(n, T, K, dtype=torch.int64)
        logs = self._new(n, T, K)
        size, slots = self.group, self.slots
        groups = -(-self.S // size)
        floor = best.amin(-1)  # (n, T)
        together = 64 if self.q.dtype.itemsize == 2 else 16  # rows that name one group
        heads = max(1, CANDIDATES // (T * slots * slots * 8))
        for head in range(0, n, heads):
            part = slice(head, min(head + heads, n))
            named = group[part]
            offset = torch.arange(len(named), device=named.device, dtype=torch.int32) * groups
            named = torch.where(named < 0, len(named) * groups, named + offset[:, None, None])
            blocks = gathered(named.flatten(), (part.stop - head) * groups, together)
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
