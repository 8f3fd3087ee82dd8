"""Time several pieces of work against each other."""

import time
from collections.abc import Callable, Sequence

import torch

__all__ = ["Work", "time_by_turns"]

LEAST = 5  # runs of each, however long they take

Work = Callable[[], object]


def time_by_turns(
    works: Sequence[Work], seconds: float, device: torch.device | None = None
) -> list[float]:
    """Run each in turn; return the fastest time of each, since disturbances only add time.

    `device`: wait for this device after each run, unless it is the CPU.
    """

    def finish() -> None:
        if device is not None and device.type != "cpu":
            torch.accelerator.synchronize(device)

    taken: list[list[float]] = [[] for _ in works]
    for work in works:
        work()
    finish()
    end = time.perf_counter() + seconds
    while len(taken[-1]) < LEAST or time.perf_counter() < end:
        for work, times in zip(works, taken, strict=True):
            start = time.perf_counter()
            work()
            finish()
            times.append(time.perf_counter() - start)
    return [min(times) for times in taken]
