"""What 'auto' means on this machine: device, precision, compiling, threads.

What is picked goes into the run's config.json, so that resuming does the same: sums split over
another number of threads differ in their last bits.
"""

import importlib.util
import os
import shutil

import torch
from torch import nn

from glasshead.errors import ConfigError
from glasshead.machine import amx_crashes, cpu_flags
from glasshead.training.optim import hidden_matrices

__all__ = ["pick_compile", "pick_graph", "pick_precision", "pick_threads"]

# Below so many parameters inside the blocks, handing work to a second thread costs more than
# the work: at width 32 a step took 12 ms on one thread and 39 on two.
ONE_THREAD = 250_000
# Below so many, casting to bf16 and back costs more than the products gain on a CPU.
BF16_PAYS = 2_000_000
# Up to so many, the host cannot keep up with a GPU.
GRAPH_PAYS = 50_000_000


def pick_precision(name: str, device: torch.device, model: nn.Module) -> str:
    if name != "auto":
        return name
    if device.type == "cuda":
        good = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        good = _bf16_pays() and _hidden_size(model) >= BF16_PAYS
    return "bf16" if good else "float32"


def pick_compile(name: str, device: torch.device, is_long: bool) -> str:
    """On a CPU it gains a few percent and costs half a minute; on a GPU long runs gain."""
    if name != "auto":
        return name
    tools = importlib.util.find_spec("triton") and (shutil.which("cc") or shutil.which("gcc"))
    return "on" if device.type == "cuda" and is_long and tools else "off"


def pick_graph(name: str, device: torch.device, model: nn.Module) -> str:
    """Where a step is short: a long one keeps the GPU busy whatever the host does."""
    if device.type != "cuda":
        if name == "on":
            raise ConfigError(f"a step cannot be recorded on {device}", hint="leave --graph out")
        return "off"
    if name != "auto":
        return name
    return "on" if _hidden_size(model) < GRAPH_PAYS else "off"


def pick_threads(n: int | None, model: nn.Module) -> int:
    if n is not None:
        return n
    return 1 if _hidden_size(model) < ONE_THREAD else torch.get_num_threads()


def _bf16_pays() -> bool:
    """AMX, if it works; or AVX-512's products on a processor that has no other (an AMD EPYC: 1.3 to
    1.6 times float32's speed). One with AMX that may not use it is slower by AVX-512 in bf16."""
    flags, limited = cpu_flags(), "ONEDNN_MAX_CPU_ISA" in os.environ
    works = not amx_crashes() if "amx_bf16" in flags else "avx512_bf16" in flags
    return works and not limited


def _hidden_size(model: nn.Module) -> int:
    return sum(p.numel() for p in hidden_matrices(model))
