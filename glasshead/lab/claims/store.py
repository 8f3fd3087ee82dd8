"""What was found of a claim, kept in a folder: the numbers, the verdict, and what they depend on.

runs/claims/05.json         evidence, finding, seeds, versions, machine, hash of the code
runs/claims/05.en.png       the figure, and 05.zh.png
"""

import ast
import hashlib
import json
import math
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import glasshead.lab.claims as package
from glasshead import __version__
from glasshead.checkpoint.files import atomic_write
from glasshead.errors import InputError, NotFiniteError
from glasshead.lab.claims.claim import Evidence, Finding, Verdict, Words
from glasshead.lab.claims.stats import Interval

__all__ = ["Stored", "as_stored", "code_of", "from_json", "here", "read", "to_json", "write"]

FOLDER = Path(package.__file__).parent


def _draws(name: str) -> bool:
    """Figures are drawn anew from the evidence: how they are drawn changes no number."""
    return name == "drawing" or name.endswith("_figure")


@dataclass(frozen=True)
class Stored:
    number: int
    quick: bool
    seeds: tuple[int, ...]
    evidence: Evidence
    finding: Finding
    code: str  # `code_of` the claim when it ran
    seconds: float
    when: str  # in UTC, to the minute
    versions: Mapping[str, str]
    machine: Mapping[str, Any]

    @property
    def is_current(self) -> bool:
        return self.code == code_of(self.number)


def here(threads: int) -> tuple[dict[str, str], dict[str, Any]]:
    """Versions and machine, as far as they could change a number."""
    versions = {"glasshead": __version__, "python": platform.python_version()}
    versions |= {name: version(name) for name in ("torch", "numpy")}
    own = getattr(os, "sched_getaffinity", None)
    machine = {
        "system": platform.system(),
        "processor": _processor(),
        "cores": len(own(0)) if own else os.cpu_count(),
        "threads": threads,
    }
    return versions, machine


def _processor() -> str:
    """The processor's name where it can be read (Linux), else its kind."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def code_of(number: int) -> str:
    """A hash of the claim's file and of the modules beside it that it imports, one by the other."""
    todo = [package.claim_modules()[number].rpartition(".")[2]]
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name in seen or _draws(name):
            continue
        seen.add(name)
        todo += _neighbours(FOLDER / f"{name}.py")
    total = hashlib.sha256()
    for name in sorted(seen):
        total.update(name.encode() + b"\0" + (FOLDER / f"{name}.py").read_bytes())
    return total.hexdigest()[:16]


def _neighbours(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            # `from glasshead.lab.claims import rnn` and `from glasshead.lab.claims.rnn import …`
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
    inside = f"{package.__name__}."
    names = [name.removeprefix(inside) for name in found if name.startswith(inside)]
    return [name for name in names if (FOLDER / f"{name}.py").exists()]


def to_json(stored: Stored) -> dict[str, Any]:
    finding = stored.finding
    numbers = {
        name: asdict(value) if isinstance(value, Interval) else value
        for name, value in finding.numbers.items()
    }
    plain = {
        "verdict": str(finding.verdict),
        "words": asdict(finding.words),
        "numbers": numbers,
    }
    return {**asdict(stored), "seeds": list(stored.seeds), "finding": plain}


def from_json(data: Mapping[str, Any]) -> Stored:
    plain = data["finding"]
    numbers = {
        name: Interval(**value) if isinstance(value, dict) else float(value)
        for name, value in plain["numbers"].items()
    }
    finding = Finding(Verdict(plain["verdict"]), Words(**plain["words"]), numbers)
    return Stored(**{**data, "seeds": tuple(data["seeds"]), "finding": finding})


def as_stored(data: Any, what: str) -> Any:
    """The data as JSON gives it back, which knows neither NaN nor infinity."""
    for place, value in _not_finite(data, ""):
        raise NotFiniteError(
            f"{what} holds {value}{place and f' at {place}'}",
            hint="the experiment must say what a training that failed counts as",
        )
    return json.loads(json.dumps(data, allow_nan=False))


def _not_finite(data: Any, place: str) -> Iterator[tuple[str, float]]:
    if isinstance(data, float) and not math.isfinite(data):
        yield place, data
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield from _not_finite(value, f"{place}/{key}")
    elif isinstance(data, list | tuple):
        for n, value in enumerate(data):
            yield from _not_finite(value, f"{place}/{n}")


def write(folder: Path, stored: Stored, figures: Mapping[str, bytes]) -> None:
    """`figures` are PNGs by language. The numbers come last: where they are, all is."""
    plain = as_stored(to_json(stored), f"the result of claim {stored.number}")
    for lang, picture in figures.items():
        with atomic_write(folder / f"{stored.number:02}.{lang}.png") as file:
            file.write(picture)
    with atomic_write(folder / f"{stored.number:02}.json") as file:
        file.write(json.dumps(plain, ensure_ascii=False, indent=1).encode())


def read(folder: Path, number: int) -> Stored | None:
    path = folder / f"{number:02}.json"
    if not path.exists():
        return None
    try:
        return from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is no result of a claim: {type(error).__name__}: {error}",
            hint=f"delete it, and run 'glasshead claims {number}' again",
        ) from None
