"""The machine: its name, and its measured memory bandwidth and peak speed."""

import os
import platform
import re
from dataclasses import dataclass
from functools import lru_cache

import torch

from bench.timing import clock
from glasshead.machine import cpu_name

__all__ = ["Machine", "bandwidth", "matrix_peak", "this_machine"]


@dataclass(frozen=True)
class Machine:
    """The kind of a machine, without anything that identifies an individual one."""

    slug: str  # such as amd-epyc-2-cores or nvidia-h200
    name: str
    torch: str
    python: str
    read: float  # bytes a second from memory
    peaks: dict[str, float]  # operations a second of matrix products, by dtype


def this_machine(device: str, quick: bool = False) -> Machine:
    dtypes: tuple[str, ...] = ("float32",)
    if device.startswith("cuda"):
        name, dtypes = torch.cuda.get_device_name(), ("bfloat16", "float32")
    else:
        n = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        name = f"{_processor()}, {n} cores"
    return Machine(
        slug=re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-"),
        name=name,
        torch=torch.__version__.partition("+")[0],
        python=platform.python_version(),
        read=bandwidth(device, quick),
        peaks={dtype: matrix_peak(device, dtype, quick) for dtype in dtypes},
    )


def _processor() -> str:
    """Return the family of the processor, such as AMD EPYC or Intel Xeon."""
    return " ".join(re.sub(r"\(.*?\)|@.*", " ", cpu_name()).split()[:2]) or "CPU"


@lru_cache
def bandwidth(device: str, quick: bool = False) -> float:
    """Return bytes a second read from memory by a sum; the best of five."""
    size = 2**24 if quick else 2**30 if device.startswith("cuda") else 2**27
    numbers = torch.ones(size, device=device)
    return max(numbers.nbytes / clock(numbers.sum, device) for _ in range(6))


@lru_cache
def matrix_peak(device: str, dtype: str, quick: bool = False) -> float:
    """Return operations a second of a large matrix product; the best of five."""
    n = 512 if quick else 8192 if device.startswith("cuda") else 2048
    a, b = (torch.randn(n, n, device=device, dtype=getattr(torch, dtype)) for _ in range(2))
    return max(2 * n**3 / clock(lambda: a @ b, device) for _ in range(6))
