"""The routes of the page's Runs view: training runs, and the results of the lab.

    GET /api/runs                       every run and its progress; ladders and claims, if any
    GET /api/runs/{id}/metrics?after=   its metrics since a cursor, while it trains or later
    GET /api/runs/{id}/samples          texts that it generated while training
    GET /api/runs/{id}/heads            what every head did while it trained, if it was watched
    GET /api/runs/{id}/config           its settings
    GET /api/ladder?id=                 the results of `glasshead ladder`
    GET /api/claims?id=                 the claims of a folder; /api/claims/figure has the pictures

An id is looked up among the folders that were found; no path is built from a request. Files are
read on FastAPI's threads, not on the workers: the page polls every second.
"""

import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from glasshead.errors import CheckpointError, NotFoundError
from glasshead.serve.lab_files import read_claim, read_ladder
from glasshead.serve.library import Entry, Library
from glasshead.serve.run_files import (
    read_heads,
    read_json,
    read_metrics,
    read_samples,
    read_tail,
)

__all__ = ["router"]

router = APIRouter(prefix="/api", tags=["runs"])

RUNS = {"gpt", "translator", "reader", "encoder", "broken"}
DEEPEST = 2  # folders between the root and a ladder, as for runs
FIGURE = 1 << 24  # bytes
PNG = b"\x89PNG\r\n\x1a\n"

FolderId = Annotated[str, Query(max_length=1024)]


@router.get("/runs")
def runs(request: Request) -> dict[str, Any]:
    library: Library = request.app.state.library
    entries, paths = library.list(), library.paths()
    return {
        "runs": [
            _describe_run(library, entry, paths[entry.id])
            for entry in entries
            if entry.kind in RUNS and entry.id in paths  # else it has just been deleted
        ],
        "ladders": list(_folders(library, _is_ladder)),
        "claims": list(_folders(library, _is_claims)),
    }


def _describe_run(library: Library, entry: Entry, path: Path) -> dict[str, Any]:
    """Return the state of a run, from its last lines of metrics."""
    metrics, config = (path / name for name in ("metrics.jsonl", "config.json"))
    lines, age = read_tail(metrics) if _readable(library, metrics) else ([], None)
    losses = [line for line in lines if "loss" in line]
    evaluations = [line for line in lines if "val_loss" in line]
    return {
        "id": entry.id,
        "name": entry.name,
        "kind": entry.kind,
        "reason": entry.reason,
        "step": max((line["step"] for line in lines[-2:]), default=None),
        "loss": losses[-1]["loss"] if losses else None,
        "val_loss": evaluations[-1]["val_loss"] if evaluations else None,
        "age": age,
        "steps": _total_steps(config) if _readable(library, config) else None,
    }


def _total_steps(file: Path) -> int | None:
    """Return the number of steps in the config; None if the run is limited by time."""
    try:
        steps = read_json(file, 1 << 20)["train"]["steps"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return steps if type(steps) is int else None


@router.get("/runs/{name:path}/metrics")
def metrics(
    request: Request, name: str, after: Annotated[str, Query(max_length=40)] = ""
) -> dict[str, Any]:
    return asdict(read_metrics(_file(request.app.state.library, name, "metrics.jsonl"), after))


@router.get("/runs/{name:path}/samples")
def samples(request: Request, name: str) -> dict[str, Any]:
    found = read_samples(_file(request.app.state.library, name, "samples.txt"))
    return {"samples": [asdict(sample) for sample in found]}


@router.get("/runs/{name:path}/heads")
def heads(request: Request, name: str) -> dict[str, Any]:
    return asdict(read_heads(_file(request.app.state.library, name, "heads.jsonl")))


@router.get("/runs/{name:path}/config")
def config(request: Request, name: str) -> dict[str, Any]:
    file = _file(request.app.state.library, name, "config.json")
    try:
        found = read_json(file)
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"config.json of {name} cannot be read: {error}", hint="restore it from a backup"
        ) from None
    settings = found if isinstance(found, dict) else {}
    parts = {part: settings.get(part) for part in ("model", "train", "data")}
    shown = {part: held if isinstance(held, dict) else {} for part, held in parts.items()}
    # Only the names of files are sent, not paths of this machine.
    for kind in ("sources", "val"):
        if isinstance(places := shown["data"].get(kind), list):
            shown["data"][kind] = [Path(str(place)).name for place in places]
    return {"kind": str(settings.get("kind")), **shown}


@router.get("/ladder")
def ladder(request: Request, id: FolderId = "") -> dict[str, Any]:
    return read_ladder(_folder(request.app.state.library, _is_ladder, id) / "ladder.json")


@router.get("/claims")
def claims(request: Request, id: FolderId = "") -> dict[str, Any]:
    files = _claim_files(_folder(request.app.state.library, _is_claims, id))
    return {"claims": [read_claim(number, file) for number, file in sorted(files.items())]}


@router.get("/claims/figure", response_class=Response)
def figure(
    request: Request,
    number: Annotated[int, Query(ge=0, lt=100)],
    id: FolderId = "",
    lang: Literal["en", "zh"] = "en",
) -> Response:
    """A claim's picture, as PNG."""
    library: Library = request.app.state.library
    file = _folder(library, _is_claims, id) / f"{number:02}.{lang}.png"
    if file.is_file() and _readable(library, file) and file.stat().st_size <= FIGURE:
        data = file.read_bytes()
        if data.startswith(PNG):
            return Response(data, media_type="image/png")
    raise NotFoundError(
        f"claim {number} has no picture ({lang})", hint=f"draw it with `glasshead claims {number}`"
    )


def _file(library: Library, name: str, file: str) -> Path:
    """Return the path of a file in a run's folder; the file may be missing."""
    path = library.path(name) / file
    if library.find(name).kind not in RUNS or not _readable(library, path):
        raise NotFoundError(f"'{name[:200]}' has no {file}", hint="GET /api/runs lists all runs")
    return path


def _is_inside(library: Library, path: Path) -> bool:
    return path.resolve().is_relative_to(library.root)


def _readable(library: Library, path: Path) -> bool:
    """Whether it is a file of the library, or missing; reading a pipe would block."""
    return _is_inside(library, path) and (path.is_file() or not path.exists())


def _folders(library: Library, wanted: Any) -> Iterator[str]:
    """Yield the folders of a kind, by their paths below the root; the root itself is ''."""
    level = [library.root] if library.root.is_dir() else []
    for depth in range(DEEPEST + 1):
        for folder in level:
            if wanted(folder):
                yield folder.relative_to(library.root).as_posix().removeprefix(".")
        if depth < DEEPEST:
            level = [child for folder in level for child in _children(library, folder)]


def _children(library: Library, folder: Path) -> Iterator[Path]:
    try:
        inside = sorted(folder.iterdir())
    except OSError:
        return
    for path in inside:
        plain = not path.name.startswith(".") and path.as_posix().isprintable()
        if plain and path.is_dir() and _is_inside(library, path):
            yield path


def _folder(library: Library, wanted: Any, name: str) -> Path:
    if name not in _folders(library, wanted):
        raise NotFoundError(f"there is no folder '{name[:200]}'", hint="GET /api/runs lists all")
    return library.root / name


def _is_ladder(folder: Path) -> bool:
    file = folder / "ladder.json"
    return file.is_file() and not file.is_symlink()


def _is_claims(folder: Path) -> bool:
    return folder.name == "claims" and bool(_claim_files(folder))


def _claim_files(folder: Path) -> dict[int, Path]:
    """Return the files of stored claims by number."""
    try:
        inside = list(folder.iterdir())
    except OSError:
        return {}
    named = [(re.fullmatch(r"(\d\d)\.json", path.name), path) for path in inside]
    return {int(n[1]): p for n, p in named if n and p.is_file() and not p.is_symlink()}
