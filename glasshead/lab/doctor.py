"""Examine this machine: what it has, which kernels attention gets, and what is missing.

`examine()` returns Findings and does not raise. `Findings.problems` lists what is wrong, with the
command that fixes it.
"""

import importlib
import os
import platform
import re
import shutil
import sys
import sysconfig
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from glasshead import __version__
from glasshead.errors import install_command
from glasshead.lab.kernels import CALLS, DTYPES, Choice, choices
from glasshead.machine import (
    count_cores,
    cpu_flags,
    cpu_name,
    find_compiler,
    settle_half_precision,
)

__all__ = [
    "CALLS", "CPU", "DTYPES", "DeviceReport", "Findings", "Package", "Problem", "Torch", "as_json",
    "examine", "packages",
]  # fmt: skip

PYTHONS = ((3, 11), (3, 13))
FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16")


@dataclass(frozen=True)
class Torch:
    version: str | None = None
    build: str | None = None  # "CPU", "CUDA 13.0, cuDNN 9.15.1", "ROCm 7.1"
    error: str | None = None  # why it cannot be imported


@dataclass(frozen=True)
class CPU:
    name: str
    cores: int  # that this process may use
    threads: int | None  # of torch
    flags: tuple[str, ...]
    amx: str  # "absent", "works", "avoided" (it crashes here), "limited" (by the environment)
    isa_limit: str | None  # ONEDNN_MAX_CPU_ISA


@dataclass(frozen=True)
class DeviceReport:
    device: str
    name: str
    memory: int | None  # bytes


@dataclass(frozen=True)
class Package:
    name: str
    needs: str  # "torch>=2.11"
    version: str | None  # None: not installed
    fits: bool
    extra: str | None  # None: required
    error: str | None = None  # why it cannot be imported; only required packages are tried


@dataclass(frozen=True)
class Problem:
    """Something that is missing or broken. doctor_tables.py puts it into words."""

    kind: str  # python, torch, package, import, kernel, extra, triton, compiler, headers, font
    about: str
    needed: bool  # else optional
    command: str | None  # that fixes it on this system
    extra: str | None = None


@dataclass(frozen=True)
class Findings:
    glasshead: str
    python: str
    python_fits: bool
    system: str
    torch: Torch
    cpu: CPU
    devices: tuple[DeviceReport, ...]
    warnings: tuple[str, ...]  # of torch, when it looked for devices
    kernels: tuple[Choice, ...]
    triton: str | None
    compiler: str | None
    python_headers: bool
    packages: tuple[Package, ...]
    chinese_font: str | None

    @property
    def cuda(self) -> bool:
        return any(device.device.startswith("cuda") for device in self.devices)

    @property
    def problems(self) -> list[Problem]:
        found = []
        if not self.python_fits:
            found.append(Problem("python", self.python, True, None))
        if self.torch.error:
            needs = next((p.needs for p in self.packages if p.name == "torch"), "torch")
            command = f'pip install --force-reinstall "{needs}"'
            found.append(Problem("torch", self.torch.error, True, command))
        for package in self.packages:
            if package.extra is None and not package.fits:
                about = f"{package.name} {package.version}" if package.version else package.name
                command = f'pip install "{package.needs}"'
                found.append(Problem("package", about, True, command))
            elif package.error and package.name != "torch":
                command = f'pip install --force-reinstall "{package.needs}"'
                about = f"{package.name}: {package.error}"
                found.append(Problem("import", about, True, command))
        failed: dict[tuple[str, str], list[str]] = {}
        for choice in self.kernels:
            if choice.error:
                dtypes = failed.setdefault((choice.device, choice.error), [])
                dtypes += [choice.dtype] * (choice.dtype not in dtypes)
        for (device, error), dtypes in failed.items():
            about = f"{device} ({', '.join(dtypes)}): {error}"
            found.append(Problem("kernel", about, True, None))
        for extra in dict.fromkeys(package.extra for package in self.packages):
            missing = [p.name for p in self.packages if p.extra == extra and not p.fits]
            if extra and missing:
                command = install_command(extra)
                found.append(Problem("extra", ", ".join(missing), False, command, extra))
        if self.cuda and self.triton is None:
            found.append(Problem("triton", "", False, "pip install triton"))
        if self.compiler is None:
            found.append(Problem("compiler", "", False, _by_system(_COMPILERS)))
        elif not self.python_headers:
            found.append(Problem("headers", "", False, _by_system(_HEADERS)))
        if self.chinese_font is None:
            found.append(Problem("font", "", False, _by_system(_FONTS)))
        return found

    @property
    def broken(self) -> bool:
        return any(problem.needed for problem in self.problems)


def examine() -> Findings:
    """Examine everything. Call it before torch computes anything (see `machine.py`)."""
    amx = _amx()
    found, torch = _torch()
    devices, said = _devices(torch) if torch else ((), ())
    # GPUs of one model get the same kernels: the first of each is examined.
    kinds = {(d.device.partition(":")[0], d.name): d.device for d in reversed(devices)}
    return Findings(
        glasshead=__version__,
        python=platform.python_version(),
        python_fits=PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1],
        system=platform.platform(),
        torch=found,
        cpu=CPU(
            name=cpu_name(),
            cores=count_cores(),
            threads=torch.get_num_threads() if torch else None,
            flags=tuple(flag for flag in FLAGS if flag in cpu_flags()),
            amx=amx,
            isa_limit=os.environ.get("ONEDNN_MAX_CPU_ISA"),
        ),
        devices=devices,
        warnings=said,
        kernels=tuple(choices([*reversed(kinds.values())])) if torch else (),
        triton=next(filter(None, map(_version, _TRITONS)), None),
        compiler=find_compiler(),
        python_headers=(Path(sysconfig.get_path("include")) / "Python.h").exists(),
        packages=tuple(packages(_requirements())),
        chinese_font=_font(),
    )


def as_json(findings: Findings) -> dict[str, Any]:
    problems = [asdict(problem) for problem in findings.problems]
    return {**asdict(findings), "problems": problems, "ok": not findings.broken}


def packages(requirements: Iterable[str]) -> list[Package]:
    """Find out which requirements are installed; they are written as in package metadata.

    >>> packages(["numpy>=2.0", "no-such-thing>=1; extra == 'hf'"])[1].extra
    'hf'
    """
    found = []
    for requirement in requirements:
        needs, _, marker = (part.strip() for part in requirement.partition(";"))
        name, bounds = re.findall(r"^[\w.-]+", needs)[0], dict(re.findall(r"(>=|<)([\w.]+)", needs))
        if name == "glasshead":  # an extra that includes another
            continue
        version = _version(name)
        fits = version is not None and (
            _numbers(bounds.get(">=", "0")) <= _numbers(version) < _numbers(bounds.get("<", "9999"))
        )
        extra = marker.split("extra ==")[-1].strip(" '\"") or None
        error = _import_error(name) if fits and extra is None else None
        found.append(Package(name, needs, version, fits, extra, error))
    return found


def _import_error(name: str) -> str | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            importlib.import_module(name.replace("-", "_"))
        except Exception as error:  # an incompatible library may raise anything
            return _first_line(error)
    return None


def _numbers(version: str) -> tuple[int, ...]:
    """Parse a version into numbers that can be compared.

    >>> _numbers("2.13.0+cpu"), _numbers("2.0rc1"), _numbers("")
    ((2, 13, 0), (2, 0), ())
    """
    numbers: list[int] = []
    for part in version.partition("+")[0].split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)


def _requirements() -> list[str]:
    try:
        return metadata.requires("glasshead") or []
    except metadata.PackageNotFoundError:  # not installed, so requirements are unknown
        return []


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _amx() -> str:
    if "amx_tile" not in cpu_flags():
        return "absent"
    # A limited oneDNN does not use AMX, so trying it would tell nothing.
    if "ONEDNN_MAX_CPU_ISA" in os.environ:
        return "limited"
    try:
        return "avoided" if settle_half_precision() else "works"
    except metadata.PackageNotFoundError:  # no torch
        return "absent"


def _torch() -> tuple[Torch, Any]:
    try:
        import torch
    except Exception as error:
        return Torch(_version("torch"), error=_first_line(error)), None
    build = "CPU"
    if torch.version.hip:
        build = f"ROCm {torch.version.hip}"
    elif torch.version.cuda:
        build = f"CUDA {torch.version.cuda}"
        if cudnn := torch.backends.cudnn.version():
            build += f", cuDNN {cudnn // 10000}.{cudnn // 100 % 100}.{cudnn % 100}"
    return Torch(torch.__version__, build), torch


def _devices(torch: Any) -> tuple[tuple[DeviceReport, ...], tuple[str, ...]]:
    found = [DeviceReport("cpu", cpu_name(), _memory())]
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
                about = torch.cuda.get_device_properties(number)
                found.append(DeviceReport(f"cuda:{number}", about.name, about.total_memory))
            if torch.backends.mps.is_available():
                memory = torch.mps.recommended_max_memory()
                found.append(DeviceReport("mps", cpu_name(), memory))
        except RuntimeError as error:  # a broken driver
            return tuple(found), (_first_line(error),)
    return tuple(found), tuple(_first_line(warning.message) for warning in heard)


def _first_line(error: Any) -> str:
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Windows
        return None


def _font() -> str | None:
    try:
        from glasshead.observe.fonts import chinese_font
    except Exception:  # matplotlib is broken, which is reported on its own
        return None
    return chinese_font()


def _by_system(commands: dict[str, str], which: Callable[[str], str | None] = shutil.which) -> str:
    """Return the command for this system; on Linux, for the installed package manager.

    >>> _by_system({"apt": "apt install x", "dnf": "dnf install y"}, {"dnf": "/bin/dnf"}.get)
    'dnf install y'
    """
    if sys.platform in commands:
        return commands[sys.platform]
    managers = {name: command for name, command in commands.items() if name in ("apt", "dnf")}
    return next((c for name, c in managers.items() if which(name)), " / ".join(managers.values()))


_TRITONS = ("triton", "pytorch-triton", "pytorch-triton-rocm", "triton-windows")
_COMPILERS = {
    "darwin": "xcode-select --install",
    "win32": "winget install Microsoft.VisualStudio.2022.BuildTools",
    "apt": "sudo apt install g++",
    "dnf": "sudo dnf install gcc-c++",
}
_HEADERS = {
    "apt": f"sudo apt install python{sys.version_info[0]}.{sys.version_info[1]}-dev",
    "dnf": f"sudo dnf install python{sys.version_info[0]}.{sys.version_info[1]}-devel",
}
_FONTS = {
    "darwin": "brew install --cask font-noto-sans-cjk-sc",
    "win32": "Add-WindowsCapability -Online -Name Language.Fonts.Hans~~~und-HANS~0.0.1.0",
    "apt": "sudo apt install fonts-noto-cjk",
    "dnf": "sudo dnf install google-noto-sans-cjk-fonts",
}
