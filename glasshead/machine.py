"""What this machine can do, and the device to use.

Some torch builds crash with an illegal instruction in half-precision products on processors that
announce AMX, because oneDNN chooses AMX kernels that do not run there. `settle_half_precision`
tries it once in another process, caches the result, and if it crashes limits oneDNN to AVX-512,
which is slower.
"""

import json
import math
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from glasshead import messages
from glasshead.errors import ConfigError

if TYPE_CHECKING:
    import torch

__all__ = [
    "SAFE_ISA", "amx_crashes", "check_memory", "count_cores", "cpu_flags", "cpu_name",
    "find_compiler", "free_memory", "mps_fault", "pick_device", "settle_half_precision",
    "triton_works", "wait_passively",
]  # fmt: skip

SAFE_ISA = "AVX512_CORE_FP16"

_PROBE = """
import torch
x = torch.ones(4, 64, 64, dtype=torch.bfloat16, requires_grad=True)
y = torch.nn.functional.linear(x, x[0]) @ x
torch.nn.functional.scaled_dot_product_attention(y[None], x[None], x[None]).sum().backward()
"""


@lru_cache
def find_compiler() -> str | None:
    """Return the C++ compiler, which torch.compile needs on a CPU; None if there is none."""
    names = (os.environ.get("CXX"), "c++", "g++", "clang++", "cl")
    return next(filter(None, map(shutil.which, filter(None, names))), None)


@lru_cache
def triton_works() -> bool:
    """Return whether Triton is installed, with the compiler and headers that it needs."""
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    headers = Path(sysconfig.get_path("include", "posix_prefix"), "Python.h")
    return find_spec("triton") is not None and bool(compiler) and headers.exists()


def settle_half_precision() -> bool:
    """Make bf16 and fp16 safe to use on this CPU; return True if oneDNN must not use AMX.

    Call it before torch computes anything: oneDNN reads its limit only once.
    """
    if "ONEDNN_MAX_CPU_ISA" in os.environ or not amx_crashes():
        return False
    os.environ["ONEDNN_MAX_CPU_ISA"] = SAFE_ISA
    return True


@lru_cache
def cpu_flags() -> frozenset[str]:
    """Return the features that the processor announces (Linux); empty if they cannot be read."""
    return frozenset(_read_cpuinfo("flags").split())


def cpu_name() -> str:
    """Return the name of the processor."""
    return _read_cpuinfo("model name") or platform.processor() or platform.machine()


def count_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _read_cpuinfo(field: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(field)), "").partition(":")[2].strip()


@lru_cache
def amx_crashes() -> bool:
    """Return whether half precision crashes; tried once per torch, kernel and processor."""
    if "amx_tile" not in cpu_flags():
        return False

    def try_it() -> bool | None:
        clean = {name: value for name, value in os.environ.items() if name != "ONEDNN_MAX_CPU_ISA"}
        probe = [sys.executable, "-c", _PROBE]
        code = subprocess.run(probe, capture_output=True, env=clean).returncode
        return None if code > 0 else code < 0  # by a signal; or torch could not be tried

    here = f"torch {version('torch')}, {platform.release()}, {platform.processor()}"
    return bool(_remember("amx.json", here, try_it))


def _remember(name: str, here: str, try_it: Callable[[], bool | str | None]) -> bool | str | None:
    """Return what was found on this machine before, or what `try_it` finds; None is not stored."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "glasshead" / name
    try:
        known = json.loads(cache.read_text(encoding="utf-8"))
        if isinstance(known, dict) and isinstance(known.get(here), bool | str):
            return known[here]
    except (OSError, ValueError):
        pass
    found = try_it()
    if found is not None:
        try:
            cache.parent.mkdir(parents=True, exist_ok=True)
            cache.write_text(json.dumps({here: found}), encoding="utf-8")
        except OSError:
            pass  # without a cache, the next start takes longer
    return found


@lru_cache
def mps_fault() -> str:
    """Return what mps gets wrong beside the CPU, "" if nothing; tried once per torch and system.

    The check runs in a process of its own, as it may end it.
    """
    check = [sys.executable, "-m", "glasshead.lab.device_check", "mps"]

    def try_it() -> str:
        done = subprocess.run(check, capture_output=True, text=True, encoding="utf-8")
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return last if done.returncode else done.stdout.strip()

    return str(_remember("mps.json", f"torch {version('torch')}, {platform.platform()}", try_it))


def _mps_works() -> bool:
    """Return whether mps may be picked; say the reason once if not."""
    fault = mps_fault()
    if fault and not _SAID:
        _SAID.append(fault)
        line = f"mps is not used, because it computes something else than the CPU: {fault}"
        print(messages.translate(line), file=sys.stderr)
    return not fault


_SAID: list[str] = []


def pick_device(name: str) -> "torch.device":
    """Return a device by name: auto, cpu, cuda, cuda:1; raise ConfigError if there is none."""
    import torch

    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() and _mps_works() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(
            f"unknown device '{name}'", hint="use --device cpu, cuda or cuda:1"
        ) from None
    if device.type == "meta":  # has shapes, but no values
        raise ConfigError(
            f"device '{name}' computes nothing", hint="use --device cpu, cuda or cuda:1"
        )
    if device.type == "mps" and torch.backends.mps.is_available():
        return device
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device '{name}' is not supported", hint="use --device cpu")
    n_gpus = torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= n_gpus:
        raise ConfigError(
            f"device '{name}' does not exist: torch sees {n_gpus} GPUs", hint="use --device cpu"
        )
    return device


def wait_passively() -> None:
    """Let threads of torch that wait for each other sleep, unless the user has decided otherwise.

    They spin by default. Where other programs want the cores, the thread that is waited for then
    does not run, and training takes five times as long. Call it before torch is imported.
    """
    if "torch" not in sys.modules:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def free_memory(device: str = "cpu") -> float:
    """Return the bytes that can still be allocated, as far as the system says; else infinity."""
    if device.startswith("cuda"):
        import torch

        return float(torch.cuda.mem_get_info(device)[0])
    found = [math.inf]
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")]
    with suppress(OSError, ValueError):  # the limit of a container; files it has read can go
        group = Path("/sys/fs/cgroup")
        lines = (group / "memory.stat").read_text(encoding="ascii").splitlines()
        files = next(int(line.split()[1]) for line in lines if line.startswith("inactive_file"))
        used = int((group / "memory.current").read_text(encoding="ascii")) - files
        found.append(int((group / "memory.max").read_text(encoding="ascii")) - used)
    with suppress(ImportError, OSError, ValueError):  # the limit of `ulimit -v`; not on Windows
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        if limit != resource.RLIM_INFINITY:
            found.append(limit - pages * resource.getpagesize())
    return max(0, min(found))


def check_memory(needed: float, what: str, hint: str, device: str = "cpu") -> None:
    """Raise ConfigError if something needs more bytes than are free."""
    if needed > (free := free_memory(device)):
        raise ConfigError(
            f"{what} needs at least {needed / 1e9:,.1f} GB of memory, and {free / 1e9:,.1f} GB "
            "are free",
            hint=hint,
        )
