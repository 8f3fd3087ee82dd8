"""What it costs to look at every head of a text while a model reads it."""

from dataclasses import dataclass

import torch

from glasshead.lab.plan.devices import Device, Rates
from glasshead.lab.plan.operations import Setting, operations, pairs
from glasshead.lab.plan.shapes import Counts
from glasshead.lab.plan.training import seconds_by_kind, waited_for_python
from glasshead.model.gpt import GPTConfig
from glasshead.observe.lags import lag_starts
from glasshead.observe.statistics import OVERVIEW, cell_side
from glasshead.observe.tile_engine import BAND, ROWS

__all__ = ["ObservingPlan", "look_seconds", "plan_observing", "statistics_bytes"]

TOP = 8  # strongest keys of a row, as `observing` keeps them unless told otherwise
ROW_NUMBERS = 8  # lse, sum, entropy, concentration, distance; weight on itself, previous, first
# What the engine on a GPU holds besides while it measures a layer: for each row of a head, from
# 128K tokens on an H200, and at most so much for candidates of the strongest keys.
ROW_WORK, CANDIDATES = 200, 2**28
# Calls of torch for each layer, to measure it and, with a model, to check it: where programs are
# through at once, they are the time.
CALLS, CHECKS = 350, 75
TABLES = 10  # times that a GPU goes over the overview of a head: from 64 texts at a time
OWN_LSE = 0.78  # of the sweep's time, where the model has not said it: `observe` without a model


@dataclass(frozen=True)
class ObservingPlan:
    tokens: int
    pairs: int  # of query and key, of all heads
    weights: float  # bytes that all of them would take in float32, were they kept
    memory: dict[str, float]  # bytes, by kind
    peak: float
    forward: float  # seconds that the model alone takes
    look: float  # seconds that looking adds

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / (self.forward + self.look)


def plan_observing(
    config: GPTConfig,
    counts: Counts,
    device: Device,
    *,
    itemsize: int = 2,
    rates: Rates | None = None,
) -> ObservingPlan:
    """One text of max_len, `observing(model, keep="statistics")`."""
    rates = rates or device.rates(itemsize)
    T, L, on_gpu = config.max_len, config.n_layers, device.name != "cpu"
    s = Setting(config, B=1, T=T, itemsize=itemsize, cuda=on_gpu, training=False, last_only=True)
    H, _, D = s.heads
    seen = L * H * pairs(T, T, config.window)
    rows = H * T
    if on_gpu:
        work = ROW_WORK * rows + min(CANDIDATES, 4 * 128 * rows)
    else:  # three bands of one head; sums by lag in float64, twice, and by key
        band = min(T * T, max(BAND["cpu"], ROWS["cpu"][0] * T))
        work = 3 * 4 * band + 8 * H * (2 * (2 * T - 1) + T)
    if cell_side(T, OVERVIEW) == 1:  # both maps are made, and one of them kept
        work += 4 * H * T * T
    memory = {
        "params": float(itemsize * counts.total),
        "statistics": float(L * statistics_bytes(1, H, T)),
        "working": float(work),
        "activations": max(op.moved for op in operations(s) if op.kind == "pointwise"),
    }
    ops = operations(s)
    busy = sum(seconds_by_kind(ops, s, rates).values())
    calls = sum(op.host_calls() for op in ops)
    look = look_seconds(rates, T, H, D, window=config.window, cuda=on_gpu)
    return ObservingPlan(
        tokens=T,
        pairs=seen,
        weights=4.0 * L * H * T * T,
        memory=memory,
        peak=sum(memory.values()),
        forward=busy + waited_for_python(s, rates, calls, busy),
        look=L * (look + CHECKS * rates.call),
    )


def look_seconds(
    rates: Rates,
    T: int,
    H: int,
    D: int,
    *,
    B: int = 1,
    window: int | None = None,
    cuda: bool = True,
    lse_given: bool = True,
) -> float:
    """How long measuring one layer takes."""
    sweep = B * H * pairs(T, T, window) / rates.pairs(D) * (1 if lse_given else 1 + OWN_LSE)
    if not cuda:
        return sweep
    side = -(-T // cell_side(T, OVERVIEW))
    tables = TABLES * B * H * 2 * 4 * side * side / rates.memory
    # What is asked for after the sweep waits for it.
    return sweep + max(tables, CALLS * rates.call)


def statistics_bytes(B: int, H: int, T: int, causal: bool = True) -> int:
    """Of the `HeadStatistics` of one layer whose T queries look at T keys.

    >>> round(statistics_bytes(1, 1, 1024) / 2**20, 2)  # most of it the overview
    4.15
    """
    cell = cell_side(T, OVERVIEW)
    side, maps = -(-T // cell), 1 if cell == 1 else 2  # of one weight, mean and max are the same
    top = min(TOP, T)
    buckets = len(lag_starts(T, T, causal, torch.device("cpu")))
    per_row = 4 * ROW_NUMBERS + (8 + 4) * top
    per_head = per_row * T + 4 * T + 4 * buckets + 3 * 4 + 4 * maps * side * side
    return B * H * per_head + 8 * (T + T + buckets)
