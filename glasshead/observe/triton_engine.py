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

from glasshead.observe.engine import HIDDEN, EngineInput, EngineOutput
from glasshead.observe.gathering import lags_from
from glasshead.observe.triton_lookups import LOG2E, Lookups

__all__ = ["Packed", "Tuning", "sums", "tuned", "why_not"]

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
MOST_TOP = 32
SHIFT = 10.0  # of the packed sweep: weights times 2^10 lie well in float16
UNITS = 2.0**40  # shared sums are whole numbers of 2^-40
CELLS = 2**29  # bytes, about, for the cells of the packed sweep


@dataclass(frozen=True)
class Tuning:
    """How the sweep in float32 runs."""

    rows: int = 64  # queries of a program
    cols: int = 64  # keys of a tile
    unroll: int = 2  # tiles of a group: cols x unroll, at most 128
    warps: int = 4
    stages: int = 2
    lanes: int = 8  # columns over which sums of a row stay spread

    @property
    def group(self) -> int:
        return self.cols * self.unroll


@dataclass(frozen=True)
class Packed:
    """How the packed sweep runs; the defaults are the best of those measured on an H200."""

    warps: int = 4  # each has 2 x 16 queries
    cols: int = 128  # keys of a group
    stages: int = 3
    registers: int | None = None  # at most, for a thread

    @property
    def group(self) -> int:
        return self.cols


def why_not(sweep: EngineInput) -> str | None:
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


def sums(sweep: EngineInput, tuning: Tuning | Packed | None = None) -> EngineOutput:
    if tuning is None:
        tuning = tuned(sweep)
    guard = torch.cuda.device(sweep.q.device) if sweep.q.is_cuda else torch.no_grad()
    with guard:
        return _Engine(sweep, tuning).sums()


def packs(device: torch.device) -> bool:
    """Whether the packed sweep runs there. What its threads tell each other supposes that products
    lie in their registers as Hopper leaves them; other GPUs leave them otherwise."""
    if device.type != "cuda":
        return True  # the interpreter
    return torch.version.hip is None and torch.cuda.get_device_capability(device)[0] == 9


def tuned(sweep: EngineInput) -> Tuning | Packed:
    """The sweep that fits, and how it should run."""
    (T, D), S, itemsize = sweep.q.shape[2:], sweep.k.shape[2], sweep.q.dtype.itemsize
    fits = D <= 128 and min(sweep.cell) >= 16 and max(T, S) <= 2**22  # groups have 16 bits
    if itemsize == 2 and fits and not sweep.deterministic and packs(sweep.q.device):
        return Packed(registers=168) if D <= 64 else Packed(stages=2)
    if itemsize == 2:
        return Tuning() if D <= 128 else Tuning(cols=32)
    return Tuning(cols=32, unroll=4) if D <= 128 else Tuning(rows=32, cols=32, unroll=1, stages=1)


class _Engine(Lookups):
    """Everything, from one of the two sweeps and from what is looked up beside it."""

    def __init__(self, sweep: EngineInput, tuning: Tuning | Packed) -> None:
        # Lags are gathered by blocks of queries and of keys, from cells where they are as fine.
        self.tuning, self.cell = tuning, sweep.cell
        if isinstance(tuning, Packed):
            self.cell = (min(sweep.cell[0], 128), min(sweep.cell[1], 128))
            super().__init__(sweep, tuning.group, (128, 128), shift=SHIFT, packed=True)
        else:
            super().__init__(
                sweep, tuning.group, (tuning.rows, tuning.group), shift=0.0, packed=False
            )

    def sums(self) -> EngineOutput:
        sweep, one = self.sweep, self.one
        # What is asked for first is short, and the GPU is busy with it while the sweep is prepared.
        near, own, previous = self.near()
        if isinstance(self.tuning, Packed):
            rows, group, least, received, cell_sum, cell_max, lags = self._sweep_pairs(self.tuning)
        else:
            rows, group, least, received, cell_sum, cell_max, lags = self._sweep_rows(self.tuning)
        row_sum, weighted, square, distance = rows
        lse = (self.lse + self.shift) / LOG2E
        top_keys, top_weights = self.top(group, least)
        duplicate = induction = None
        if sweep.sorted_ids is not None:
            duplicate, induction = (x.mul_(one) for x in self.at_copies(*sweep.sorted_ids))

        def shaped(x: Tensor) -> Tensor:
            return x.unflatten(0, (self.B, self.H))

        return EngineOutput(
            lse=shaped(lse.masked_fill(self.lse == -HIDDEN, -math.inf)),
            row_sum=shaped(row_sum * one),
            entropy=shaped(self._entropy(row_sum * one, weighted * one)),
            concentration=shaped(square * one**2),
            distance=shaped(distance * one),
            self_weight=shaped(own * one),
            previous_weight=shaped(previous * one),
            first_weight=shaped(self.at_keys(sweep.first) * one),
            duplicate=None if duplicate is None else shaped(duplicate),
            induction=None if induction is None else shaped(induction),
            top_keys=shaped(top_keys),
            top_weights=shaped(top_weights),
            received=shaped(received),
            lags=shaped(self.buckets(near, lags) * one),
            probe_lags=shaped(self.probes()),
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
        cell_sum, cell_max = self.zeros(*cells), self.zeros(*cells)
        fixed = sweep.deterministic
        received = self.zeros(n, S, dtype=torch.int64 if fixed else torch.float32)
        out, lags = self.zeros(4, n, T), self.zeros(n, blocks, 64)
        top = self.zeros(n, T, slots)
        group = self.zeros(n, T, slots, dtype=torch.int32)
        # Cells no coarser than a group already hold the sums from which lags are gathered.
        from_cells = wide <= self.group
        sweep_rows[(blocks, n)](
            self.q, self.k, self.lse, received, out, top, group, lags, cell_sum, cell_max,
            *self.shared, 1 / max(T, S), cells[1], cells[2], **self.kind, **self.precise,
            BM=tuning.rows, BN=tuning.cols, UNROLL=tuning.unroll, LANES=tuning.lanes,
            UNITS=UNITS if fixed else 0.0, TOP=slots, LAGS=not from_cells,
            CELL_ROWS=tall, CELL_COLS=wide, TALL=min(tall, tuning.rows),
            WIDE=min(wide, tuning.cols), STAGES=tuning.stages, num_warps=tuning.warps,
        )  # fmt: skip
        if from_cells:
            lags = lags_from(cell_sum, self.T, self.S, self.block, self.cell)
        received = received.double() / (UNITS if fixed else 1)
        cell_sum, cell_max = self._pooled(cell_sum, torch.sum), self._pooled(cell_max, torch.amax)
        return out, group, top.amin(-1), received, cell_sum, cell_max, lags

    def _sweep_pairs(self, tuning: Packed) -> tuple[Any, ...]:
        from glasshead.observe.programs.assembly import insertion, spreading
        from glasshead.observe.programs.packed import sweep_pairs

        n, T, S = self.B * self.H, self.T, self.S
        size = 2 * tuning.warps * 16
        blocks = -(-T // size)
        tall, wide = self.cell
        keys = -(-S // tuning.cols) * tuning.cols  # whole groups, as they are written
        down, across = -(-blocks * size // 128) * (128 // tall), -(-keys // wide)
        received, out = self.zeros(n, keys), self.empty(4, n, T)
        top = self.empty(n, T, self.slots, dtype=torch.int32)
        insert, insert_types = insertion(self.slots)
        spread, spread_types = spreading(tuning.cols // 8)
        heads = max(1, min(n, CELLS // (8 * down * across)))  # at a time
        found = []
        for head in range(0, n, heads):
            cells = (min(heads, n - head), down, across)
            cell_sum, cell_max = self.zeros(*cells), self.zeros(*cells, dtype=torch.int32)
            sweep_pairs[(blocks, cells[0])](
                self.q, self.k, self.lse, received, out, top, cell_sum, cell_max,
                *self.shared, 1 / max(T, S), down, across, keys, head, n, **self.kind,
                WARPS=tuning.warps, BN=tuning.cols, TOP=self.slots, TALL=tall, WIDE=wide,
                STAGES=tuning.stages, INSERT=insert, INSERT_TYPES=insert_types, SPREAD=spread,
                SPREAD_TYPES=spread_types, num_warps=tuning.warps, maxnreg=tuning.registers,
            )  # fmt: skip
            most = cell_max.short().view(torch.float16).float()
            lags = lags_from(cell_sum, T, S, self.block, self.cell)
            found.append((self._pooled(cell_sum, torch.sum), self._pooled(most, torch.amax), lags))
        parts = found[0] if len(found) == 1 else map(torch.cat, zip(*found, strict=True))
        return out, top, None, received[:, :S] * self.one, *parts

    def _pooled(self, x: Tensor, how: Any) -> Tensor:
        """Cells as the overview wants them, of those that the sweep filled."""
        rows, cols = (-(-n // c) for n, c in zip((self.T, self.S), self.sweep.cell, strict=True))
        tall = self.sweep.cell[0] // min(self.cell[0], self.block[0])
        wide = self.sweep.cell[1] // self.cell[1]
        if tall == wide == 1:
            return x[:, :rows, :cols]
        x = torch.nn.functional.pad(x, (0, -x.shape[2] % wide, 0, -x.shape[1] % tall))
        x = how(x.unflatten(2, (-1, wide)).unflatten(1, (-1, tall)), dim=(2, 4))
        return x[:, :rows, :cols]
