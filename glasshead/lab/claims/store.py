"""Store the result of a claim in a folder: the numbers, the verdict, and what they depend on.

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
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import glasshead.lab.claims as package
from glasshead import __version__
from glasshead.errors import InputError, NotFiniteError
from glasshead.files.writing import atomic_write
from glasshead.lab.claims.claim import Evidence, Finding
from glasshead.lab.claims.stats import Interval
from glasshead.lab.claims.verdict import Verdict
from glasshead.lab.texts import Words
from glasshead.machine import cpu_name

__all__ = [
    "StoredResult",
    "code_hash",
    "from_json",
    "machine_facts",
    "read_result",
    "through_json",
    "to_json",
    "write_result",
]

FOLDER = Path(package.__file__).parent


@dataclass(frozen=True)
class StoredResult:
    number: int
    quick: bool
    seeds: tuple[int, ...]
    evidence: Evidence
    finding: Finding
    code: str  # `code_hash` of the claim when it ran
    seconds: float
    when: str  # in UTC, to the minute
    versions: Mapping[str, str]
    machine: Mapping[str, Any]
    search_seeds: tuple[int, ...] = ()  # with which rates were chosen; empty in older results

    @property
    def is_current(self) -> bool:
        return self.code == code_hash(self.number)


def machine_facts(threads: int) -> tuple[dict[str, str], dict[str, Any]]:
    """Return versions and machine, as far as they could change a number."""
    versions = {"glasshead": __version__, "python": platform.python_version()}
    versions |= {name: version(name) for name in ("torch", "numpy")}
    own = getattr(os, "sched_getaffinity", None)
    machine = {
        "system": platform.system(),
        "processor": cpu_name(),
        "cores": len(own(0)) if own else os.cpu_count(),
        "threads": threads,
    }
    return versions, machine


def code_hash(number: int) -> str:
    """Hash the claim's file and the modules of its folder that it imports, directly or not.

    Texts and `drawing` do not count: figures are drawn anew from the evidence.
    """
    todo = [package.claim_modules()[number].rpartition(".")[2]]
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name not in seen and name != "drawing":
            seen.add(name)
            todo += _imported_neighbours(FOLDER / f"{name}.py")
    total = hashlib.sha256()
    for name in sorted(seen):
        total.update(name.encode() + b"\0" + (FOLDER / f"{name}.py").read_bytes())
    return total.hexdigest()[:16]


def _imported_neighbours(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            # `from PACKAGE import stats` and `from PACKAGE.stats import mean`
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
    inside = f"{package.__name__}."
    names = [name.removeprefix(inside) for name in found if name.startswith(inside)]
    return [name for name in names if (FOLDER / f"{name}.py").exists()]


def to_json(result: StoredResult) -> dict[str, Any]:
    # asdict makes a Words or an Interval a dict, and an enum's value is a string.
    seeds = {"seeds": list(result.seeds), "search_seeds": list(result.search_seeds)}
    return {**asdict(result), **seeds}


def from_json(data: Mapping[str, Any]) -> StoredResult:
    plain = data["finding"]
    numbers = {
        name: Interval(**value) if isinstance(value, dict) else float(value)
        for name, value in plain["numbers"].items()
    }
    # Older results have none of these.
    when, why = (Words(**plain.get(name, {"en": "", "zh": ""})) for name in ("when", "why"))
    finding = Finding(Verdict(plain["verdict"]), Words(**plain["words"]), numbers, when, why)
    seeds = {name: tuple(data.get(name, ())) for name in ("seeds", "search_seeds")}
    return StoredResult(**{**data, **seeds, "finding": finding})


def through_json(data: Any, what: str) -> Any:
    """Return the data as JSON gives it back.

    Raises:
        NotFiniteError: it contains NaN or infinity.
    """
    for place, value in _not_finite(data, ""):
        raise NotFiniteError(
            f"{what} contains {value}{place and f' at {place}'}",
            hint="the experiment must say what the result of a failed training is",
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


def write_result(folder: Path, result: StoredResult, figures: Mapping[str, bytes]) -> None:
    """Write the figures, PNGs by language, then the numbers: where they exist, all does."""
    plain = through_json(to_json(result), f"the result of claim {result.number}")
    for lang, picture in figures.items():
        with atomic_write(folder / f"{result.number:02}.{lang}.png") as file:
            file.write(picture)
    with atomic_write(folder / f"{result.number:02}.json") as file:
        file.write(json.dumps(plain, ensure_ascii=False, indent=1).encode())


def read_result(folder: Path, number: int) -> StoredResult | None:
    path = folder / f"{number:02}.json"
    if not path.exists():
        return None
    try:
        return from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is not the result of a claim: {type(error).__name__}: {error}",
            hint=f"delete it, and run 'glasshead claims {number}' again",
        ) from None
