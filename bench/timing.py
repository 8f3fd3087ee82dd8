"""How long something takes and how much memory it needs: the one place where that is measured."""

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

__all__ = ["apart", "clock", "peak_memory", "release", "synchronize", "take_turns"]

Run = Callable[[], object]
CHILD_MEMORY = 8 * 2**30  # bytes that a process set apart may ask for: it dies, not its neighbours


def synchronize(device: str) -> None:
    """Wait until a GPU has done all that it was told to."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def clock(run: Run, device: str) -> float:
    """Seconds of one call, a GPU's work included."""
    synchronize(device)
    start = time.perf_counter()
    run()
    synchronize(device)
    return time.perf_counter() - start


def take_turns(
    runs: Mapping[str, Run], repeats: int, device: str, in_a_row: int = 1
) -> dict[str, float]:
    """The median seconds of each. All take turns, so that a slow minute hits all alike.

    With more than one call `in_a_row` the first of a turn does not count: how fast a GPU's clock
    goes then depends on what it did before.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(repeats + 1):
        for name, run in runs.items():
            seconds = [clock(run, device) for _ in range(in_a_row)]
            if turn:  # the first turn warms up
                times[name] += seconds[-max(1, in_a_row - 1) :]
    return {name: statistics.median(found) for name, found in times.items()}


def peak_memory(run: Run, device: str) -> float | None:
    """Bytes that a call needs at most beyond those in use before; None where nobody counts them.

    On a CPU it is the process's memory, which is only true in one that has freed nothing: `apart`.
    """
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return torch.cuda.max_memory_allocated() - before
    if not sys.platform.startswith("linux"):
        run()
        return None
    Path("/proc/self/clear_refs").write_text("5")  # the peak is now what is in use
    before = _status("VmRSS")
    run()
    return _status("VmHWM") - before


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    found = next(line for line in lines if line.startswith(f"{name}:"))
    return int(found.split()[1]) * 1024


def release() -> None:
    """Give back what the last measurement left."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def apart(function: Callable[..., Any], *args: Any) -> Any:
    """function(*args) in a process of its own, with nothing in its memory but what it needs.

    Raises what the function raises, MemoryError if the process dies.
    """
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, initializer=_limit_memory) as process:
        try:
            return process.submit(function, *args).result()
        except BrokenProcessPool:
            raise MemoryError("its process died") from None
        except RuntimeError as error:  # torch's word for it on a CPU
            if "allocate memory" in str(error) or "enough memory" in str(error):
                raise MemoryError(str(error).splitlines()[0]) from None
            raise


def _limit_memory() -> None:
    if sys.platform.startswith("linux"):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (CHILD_MEMORY, CHILD_MEMORY))
