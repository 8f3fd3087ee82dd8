"""Plan how every head of a text is measured while a model reads it."""

from dataclasses import dataclass

import torch

from glasshead.lab.plan.counting import count_reading, pairs
from glasshead.lab.plan.devices import Device
from glasshead.lab.plan.meta_device import Target
from glasshead.lab.plan.scenario import Scenario
from glasshead.lab.plan.shapes import count
from glasshead.observe.lags import lag_starts
from glasshead.observe.statistics import cell_side
from glasshead.observe.tile_engine import BAND, ROWS

__all__ = ["ObservingPlan", "plan_observing", "statistics_bytes"]

TOP = 8  # strongest keys of a row, as `observing` keeps them by default
ROW_NUMBERS = 8  # lse, sum, entropy, concentration, distance; weight on itself, previous, first
# Bytes that a GPU needs besides to measure a layer: for each row of a head; for candidates of the
# strongest keys of a row, and at most.
ROW_WORK, CANDIDATES, MOST_CANDIDATES = 200, 512, 2**28
CALLS = 425  # of torch for each layer, to measure it and to check the result
# Operations for one pair of query and key, in a head of any width and for each of its dimensions.
PAIR, PAIR_WIDTH = 295.0, 3.1


@dataclass(frozen=True)
class ObservingPlan:
    tokens: int
    pairs: int  # of query and key, of all heads
    weights: float  # bytes of all attention weights in float32, which are not stored
    memory: dict[str, float]  # bytes, by kind
    peak: float
    forward: float  # seconds of the model alone
    look: float  # seconds that measuring adds
    tokens_per_s: float


def plan_observing(scenario: Scenario, device: Device) -> ObservingPlan:
    """Plan `observing(model, keep="statistics")` of one text of max_len."""
    config, itemsize = scenario.config, scenario.itemsize
    T, L, H = config.max_len, config.n_layers, config.n_heads
    D, seen = config.d_head or config.d_model // H, L * H * pairs(T, T, config.window)
    reading = count_reading(config, 1, Target(device.on_gpu, itemsize), T, cached=False)
    if device.on_gpu:
        working = ROW_WORK * H * T + min(MOST_CANDIDATES, CANDIDATES * H * T)
        if cell_side(T) == 1:  # two maps are computed, and one of them is kept
            working += 4 * H * T * T
    else:  # three bands; sums by lag, twice, and by key, in float64
        band = min(H * T * T, max(BAND["cpu"], ROWS["cpu"][0] * T))
        working = 3 * 4 * band + 8 * H * (2 * (2 * T - 1) + T)
    memory = {
        "params": float(itemsize * count(config).total),
        "statistics": float(L * statistics_bytes(1, H, T)),
        "working": float(working),
        "activations": reading.memory["working"],
    }
    busy = sum(device.seconds_by_kind(reading.forward, itemsize).values())
    forward = busy + device.seconds_for_python(reading.calls, busy)
    look = L * (
        look_seconds(device, H, T, D, config.window, itemsize) + CALLS * device.calibration.call
    )
    return ObservingPlan(
        tokens=T,
        pairs=seen,
        weights=4.0 * L * H * T * T,
        memory=memory,
        peak=sum(memory.values()),
        forward=forward,
        look=look,
        tokens_per_s=T / (forward + look),
    )


def look_seconds(
    device: Device, H: int, T: int, D: int, window: int | None = None, itemsize: int = 2
) -> float:
    """Return how long a device is busy with measuring one layer."""
    c = device.calibration
    seen = H * (pairs(T, T, window) + c.look_row * T)
    return seen * (PAIR + PAIR_WIDTH * D) / (c.look * device.peak(itemsize))


def statistics_bytes(B: int, H: int, T: int, causal: bool = True) -> int:
    """Return the size of one layer's `HeadStatistics`, of T queries and T keys.

    >>> [statistics_bytes(1, 1, n) // n for n in (1024, 65536)]  # of each token
    [181, 156]
    """
    cell = cell_side(T)
    side, maps = -(-T // cell), 1 if cell == 1 else 2  # of one weight, mean and maximum are equal
    buckets = len(lag_starts(T, T, causal, torch.device("cpu")))
    per_row = 4 * ROW_NUMBERS + (8 + 4) * min(TOP, T)
    per_head = per_row * T + 4 * T + 4 * buckets + 3 * 4 + 4 * maps * side * side
    return B * H * per_head + 8 * (T + T + buckets)
