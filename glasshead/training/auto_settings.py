"""What 'auto' means on this machine: precision, compiling, CUDA graphs, threads.

The choices are saved in config.json, so that a resumed run makes the same ones: sums over another
number of threads differ in their last bits.
"""

import os

import torch
from torch import nn

from glasshead.errors import ConfigError
from glasshead.machine import amx_crashes, cpu_flags, find_compiler, triton_works
from glasshead.training.optim import hidden_matrices

__all__ = ["pick_compile", "pick_graph", "pick_precision", "pick_threads"]

# Parameters inside the blocks, below which a second thread costs more time than it saves: at width
# 32 a step took 12 ms on one thread and 39 on two.
ONE_THREAD = 250_000
# ... below which, on a CPU, casting to bf16 and back costs more than the products gain.
BF16_PAYS = 2_000_000
# ... below which the host launches kernels more slowly than a GPU runs them.
GRAPH_PAYS = 50_000_000


def pick_precision(name: str, device: torch.device, model: nn.Module) -> str:
    """Return the precision; 'auto' is bf16 where it is faster than float32."""
    if name != "auto":
        return name
    if device.type == "cuda":
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        # AVX-512 alone gains on processors without AMX (1.3 to 1.6 times float32's speed on an AMD
        # EPYC); on one whose AMX cannot be used it is slower than float32.
        flags, limited = cpu_flags(), "ONEDNN_MAX_CPU_ISA" in os.environ
        works = not amx_crashes() if "amx_bf16" in flags else "avx512_bf16" in flags
        fast = works and not limited and _count_hidden(model) >= BF16_PAYS
    return "bf16" if fast else "float32"


def pick_compile(name: str, device: torch.device, is_long: bool) -> str:
    """Return whether to compile; 'auto' means long runs on a GPU.

    On a CPU compiling gains a few percent and costs half a minute.
    """
    works = triton_works() if device.type == "cuda" else bool(find_compiler())
    if name == "on" and not works:
        needs = "Triton and a C compiler" if device.type == "cuda" else "a C++ compiler"
        raise ConfigError(
            f"--compile on needs {needs}",
            hint="leave --compile out; `glasshead doctor` says how to install it",
        )
    if name != "auto":
        return name
    return "on" if device.type == "cuda" and is_long and works else "off"


def pick_graph(name: str, device: torch.device, model: nn.Module) -> str:
    """Return whether to replay steps as a CUDA graph; 'auto' means models with short steps.

    A long step keeps the GPU busy however slow the host is.
    """
    if device.type != "cuda":
        if name == "on":
            raise ConfigError(
                f"--graph on needs a GPU, but the device is {device}", hint="leave --graph out"
            )
        return "off"
    if name != "auto":
        return name
    return "on" if _count_hidden(model) < GRAPH_PAYS else "off"


def pick_threads(n: int | None, model: nn.Module) -> int:
    """Return the number of CPU threads: all, but one for a small model."""
    if n is not None:
        return n
    return 1 if _count_hidden(model) < ONE_THREAD else torch.get_num_threads()


def _count_hidden(model: nn.Module) -> int:
    """Count the parameters of the matrices inside the blocks."""
    return sum(p.numel() for p in hidden_matrices(model))
