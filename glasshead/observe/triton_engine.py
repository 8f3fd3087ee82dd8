"""The Triton engine: the same sums on CUDA, in about the time of the attention itself.

One sweep over all tiles measures what needs every weight; smaller programs look up the rest (near
lags, single keys, the strongest keys). There are two sweeps:

    programs/packed_sweep.py   16 bits and a long text: fast
    programs/sweep.py     everything else: all sums in float32, and the same every time if asked to
"""

import importlib.util
import math
import os
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glasshead.observe.engine import HIDDEN, EngineInput, EngineOutput
from glasshead.observe.lags import sum_cells_by_lag
from glasshead.observe.tile_operations import pool_blocks
from glasshead.observe.triton_lookups import LOG2E, Lookups

__all__ = ["Packed", "Tuning", "choose_tuning", "run_triton", "why_not"]

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


def why_not(inputs: EngineInput) -> str | None:
    """Return why this engine cannot measure the layer, or None if it can."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    if inputs.q.device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"it needs CUDA, and q is on {inputs.q.device.type}"
    if inputs.q.dtype not in DTYPES:
        return f"it does not support {inputs.q.dtype}"
    if inputs.mask.dense is not None:
        return "it does not support dense masks"
    if inputs.scoring.bias is not None:
        return "it supports no biases but ALiBi"
    if inputs.q.shape[-1] > 256:
        return f"it supports heads of at most 256 dimensions, not {inputs.q.shape[-1]}"
    if inputs.top_k > MOST_TOP:
        return f"it keeps at most {MOST_TOP} keys a row, not {inputs.top_k}"
    if not inputs.q.numel() or not inputs.k.numel():
        return "there is nothing to measure"
    return None


def run_triton(inputs: EngineInput, tuning: Tuning | Packed | None = None) -> EngineOutput:
    if tuning is None:
        tuning = choose_tuning(inputs)
    guard = torch.cuda.device(inputs.q.device) if inputs.q.is_cuda else torch.no_grad()
    with guard:
        return _Engine(inputs, tuning).run()


def can_pack(device: torch.device) -> bool:
    """Whether the packed sweep runs on the device. Its shuffles expect products in the registers
    where Hopper leaves them; other GPUs leave them elsewhere."""
    if device.type != "cuda":
        return True  # the interpreter
    return torch.version.hip is None and torch.cuda.get_device_capability(device)[0] == 9


def choose_tuning(inputs: EngineInput) -> Tuning | Packed:
    """Return the sweep that fits the layer, and how to run it."""
    (T, D), S, itemsize = inputs.q.shape[2:], inputs.k.shape[2], inputs.q.dtype.itemsize
    fits = D <= 128 and min(inputs.cell) >= 16 and max(T, S) <= 2**22  # groups have 16 bits
    if itemsize == 2 and fits and not inputs.deterministic and can_pack(inputs.q.device):
        return Packed(registers=168) if D <= 64 else Packed(stages=2)
    if itemsize == 2:
        return Tuning() if D <= 128 else Tuning(cols=32)
    return Tuning(cols=32, unroll=4) if D <= 128 else Tuning(rows=32, cols=32, unroll=1, stages=1)


class _Engine(Lookups):
    """Runs one of the two sweeps and the lookups beside it."""

    def __init__(self, inputs: EngineInput, tuning: Tuning | Packed) -> None:
        # Lags are summed by blocks of queries and of keys, from cells where they are as fine.
        self.tuning, self.cell = tuning, inputs.cell
        if isinstance(tuning, Packed):
            self.cell = (min(inputs.cell[0], 128), min(inputs.cell[1], 128))
            super().__init__(inputs, tuning.group, (128, 128), shift=SHIFT, packed=True)
        else:
            super().__init__(
                inputs, tuning.group, (tuning.rows, tuning.group), shift=0.0, packed=False
            )

    def run(self) -> EngineOutput:
        inputs, one = self.inputs, self.one
        # Short, so that the GPU is busy while the sweep is prepared.
        near, own, previous = self.near()
        if isinstance(self.tuning, Packed):
            rows, group, least, received, cell_sum, cell_max, lags = self._sweep_pairs(self.tuning)
        else:
            rows, group, least, received, cell_sum, cell_max, lags = self._sweep_rows(self.tuning)
        row_sum, weighted, square, distance = rows
        lse = (self.lse + self.shift) / LOG2E
        top_keys, top_weights = self.top(group, least)
        duplicate = induction = None
        if inputs.sorted_ids is not None:
            duplicate, induction = (x.mul_(one) for x in self.at_copies(*inputs.sorted_ids))

        found: dict[str, Any] = {
            "lse": lse.masked_fill(self.lse == -HIDDEN, -math.inf),
            "row_sum": row_sum * one,
            "entropy": self._entropy(row_sum * one, weighted * one),
            "concentration": square * one**2,
            "distance": distance * one,
            "self_weight": own * one,
            "previous_weight": previous * one,
            "first_weight": self.at_keys(inputs.first_keys) * one,
            "duplicate": duplicate,
            "induction": induction,
            "top_keys": top_keys,
            "top_weights": top_weights,
            "received": received,
            "lags": self.buckets(near, lags) * one,
            "probe_lags": self.probes(),
            "cell_sum": cell_sum * one,
            "cell_max": cell_max * one,
        }
        for name, x in found.items():
            found[name] = None if x is None else x.unflatten(0, (self.B, self.H))
        return EngineOutput(**found)

    def _entropy(self, row_sum: Tensor, weighted: Tensor) -> Tensor:
        """Return the entropy from sums of p (log2 p + shift). As the lse is rounded, a row's
        weights sum to 1 + e, and its entropy is off by e times itself; this is corrected."""
        entropy = (self.shift * row_sum - weighted) / LOG2E
        e = row_sum - 1
        return torch.where(e.abs() < 1e-4, entropy * (1 - e) + e, entropy)

    def _sweep_rows(self, tuning: Tuning) -> tuple[Tensor, ...]:
        from glasshead.observe.programs.sweep import sweep_rows

        inputs, slots = self.inputs, self.slots
        n, T, S = self.B * self.H, self.T, self.S
        blocks = -(-T // tuning.rows)
        tall, wide = self.cell
        cells = (n, blocks * tuning.rows // min(tall, tuning.rows), -(-S // wide))
        cell_sum, cell_max = self.zeros(*cells), self.zeros(*cells)
        fixed = inputs.deterministic
        received = self.zeros(n, S, dtype=torch.int64 if fixed else torch.float32)
        out, lags = self.zeros(4, n, T), self.zeros(n, blocks, 64)
        top = self.zeros(n, T, slots)
        group = self.zeros(n, T, slots, dtype=torch.int32)
        # Cells no coarser than a group already hold the sums that the lags need.
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
            lags = sum_cells_by_lag(cell_sum, self.T, self.S, self.block, self.cell)
        received = received.double() / (UNITS if fixed else 1)
        cell_sum = self._pool_cells(cell_sum, torch.sum)
        cell_max = self._pool_cells(cell_max, torch.amax)
        return out, group, top.amin(-1), received, cell_sum, cell_max, lags

    def _sweep_pairs(self, tuning: Packed) -> tuple[Any, ...]:
        from glasshead.observe.programs.packed_sweep import sweep_pairs
        from glasshead.observe.programs.ptx import column_sum_ptx, insertion_ptx

        n, T, S = self.B * self.H, self.T, self.S
        size = 2 * tuning.warps * 16
        blocks = -(-T // size)
        tall, wide = self.cell
        keys = -(-S // tuning.cols) * tuning.cols  # whole groups, as they are written
        down, across = -(-blocks * size // 128) * (128 // tall), -(-keys // wide)
        received, out = self.zeros(n, keys), self.empty(4, n, T)
        top = self.empty(n, T, self.slots, dtype=torch.int32)
        insert, insert_types = insertion_ptx(self.slots)
        spread, spread_types = column_sum_ptx(tuning.cols // 8)
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
            lags = sum_cells_by_lag(cell_sum, T, S, self.block, self.cell)
            cell_sum = self._pool_cells(cell_sum, torch.sum)
            cell_max = cell_max.short().view(torch.float16).float()
            found.append((cell_sum, self._pool_cells(cell_max, torch.amax), lags))
        parts = found[0] if len(found) == 1 else map(torch.cat, zip(*found, strict=True))
        return out, top, None, received[:, :S] * self.one, *parts

    def _pool_cells(self, x: Tensor, how: Any) -> Tensor:
        """Pool the sweep's cells to the size of the overview's."""
        rows, cols = (-(-n // c) for n, c in zip((self.T, self.S), self.inputs.cell, strict=True))
        tall = self.inputs.cell[0] // min(self.cell[0], self.block[0])
        wide = self.inputs.cell[1] // self.cell[1]
        x = x if tall == wide == 1 else pool_blocks(x, tall, wide, how)
        return x[:, :rows, :cols]
