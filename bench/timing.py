"""Measure time and memory, for all benchmarks."""

import gc
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import torch

__all__ = ["clock", "peak_memory", "release", "run_in_process", "synchronize", "time_in_turns"]

Run = Callable[[], object]
CHILD_MEMORY = 8 * 2**30  # bytes that a child process may allocate before it fails


def synchronize(device: str) -> None:
    """Wait until a GPU has finished all queued work."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def clock(run: Run, device: str) -> float:
    """Return the seconds of one call, including the work of a GPU."""
    synchronize(device)
    start = time.perf_counter()
    run()
    synchronize(device)
    return time.perf_counter() - start


def time_in_turns(
    runs: Mapping[str, Run], repeats: int, device: str, in_a_row: int = 1
) -> dict[str, float]:
    """Return the median seconds of each, run in turns so that a slow minute affects all alike.

    With more than one call `in_a_row` the first of a turn is not counted: the clock speed of a GPU
    then depends on what it did before.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(repeats + 1):
        for name, run in runs.items():
            seconds = [clock(run, device) for _ in range(in_a_row)]
            if turn:  # the first turn warms up
                times[name] += seconds[-max(1, in_a_row - 1) :]
    return {name: statistics.median(found) for name, found in times.items()}


def peak_memory(run: Run, device: str) -> float | None:
    """Return the peak bytes of a call beyond those in use before; None if they are not known.

    On a CPU it is the process's memory, which is exact only in a fresh process: `run_in_process`.
    """
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return torch.cuda.max_memory_allocated() - before
    if not sys.platform.startswith("linux"):
        run()
        return None
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = _status("VmRSS")
    run()
    return _status("VmHWM") - before


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    found = next(line for line in lines if line.startswith(f"{name}:"))
    return int(found.split()[1]) * 1024


def release() -> None:
    """Free the memory of the last measurement."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def run_in_process(function: Callable[..., Any], *args: Any) -> Any:
    """Call function(*args) in a fresh process.

    Raises what the function raises, and MemoryError if the process dies.
    """
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, initializer=_limit_memory) as process:
        try:
            return process.submit(function, *args).result()
        except BrokenProcessPool:
            raise MemoryError("the process died") from None
        except RuntimeError as error:  # torch's error on a CPU
            if "allocate memory" in str(error) or "enough memory" in str(error):
                raise MemoryError(str(error).splitlines()[0]) from None
            raise


def _limit_memory() -> None:
    if sys.platform.startswith("linux"):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (CHILD_MEMORY, CHILD_MEMORY))
