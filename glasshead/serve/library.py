"""The models that are served: a run, a folder of runs, transformers models and .glass files, or one
.glass file.

    library = Library(Path("runs"))
    library.list()                  all entries, also broken ones, without reading any weights
    library.open("poems").run    the model, read once and kept while it is in use

The name in a request is looked up among the entries; no path is ever built from a request.
"""

import hashlib
import os
import shlex
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from glasshead.checkpoint import Run, load
from glasshead.errors import CheckpointError, GlassheadError, InputError, NotFoundError, near_file
from glasshead.generation.opening import make_inspectable
from glasshead.observe.inspectable import InspectableModel
from glasshead.observe.trace import Trace, open_glass
from glasshead.observe.transformers_folder import TransformersFolder
from glasshead.page.entries import Entry, describe
from glasshead.serve.logs import LOG

__all__ = ["Entry", "Library", "ServedModel"]

DEEPEST = 2  # folders between the root and a model
MAX_ENTRIES = 1000
QUIET_SECONDS = 1.0  # listing that takes longer is logged
# A folder with one of these files is a model, complete or not.
MODEL_FILES = ("config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer.json")

READ = (".json", ".safetensors", ".jinja", ".spm", "vocab.txt", "merges.txt", ".glass")

Stamp = tuple[tuple[str, int, int, int], ...]


@dataclass(eq=False)
class ServedModel:
    """An open model or .glass file. Hold `lock` to run the model: hooks see every call."""

    entry: Entry
    stamp: str  # changes when the files change
    run: Run | None = None  # of kinds gpt, translator, reader, encoder
    inspectable: InspectableModel | None = None  # of all kinds but glass; has the model of `run`
    trace: Trace | None = None  # of glass
    whole: Callable[[], bool] = lambda: True  # False if the .glass file may no longer be read
    evicted: bool = False  # the library has dropped it; users should let go of it soon
    lock: threading.RLock = field(default_factory=threading.RLock)


@dataclass(frozen=True)
class _Location:
    path: Path
    stamp: Stamp
    wrong: str = ""  # why its files are not read


class Library:
    """The models of one folder."""

    def __init__(self, root: Path, device: torch.device | None = None, keep: int = 4) -> None:
        self.root, self.device, self.keep = root.resolve(), device or torch.device("cpu"), keep
        if not self.root.exists():
            hint = near_file(root, "name a run, a folder or a .glass file")
            raise InputError(f"{root} does not exist", hint=hint)
        if not self.root.is_dir() and self.root.suffix != ".glass":
            if self.root.suffix == ".gguf":
                raise InputError(
                    f"{root} is a GGUF file, which is imported before it is served",
                    hint=f"run glasshead import {shlex.quote(str(root))} -o RUN, then serve RUN",
                )
            raise InputError(
                f"{root} is neither a folder nor a .glass file",
                hint="name a run, a folder of runs, or a file that `glasshead atlas` wrote",
            )
        self.single = not self.root.is_dir() or _is_model(self.root)
        self._known: dict[str, Path] = {}  # found by the last walk
        self._described: dict[str, tuple[Stamp, Entry]] = {}
        self._open: OrderedDict[str, ServedModel] = OrderedDict()
        self._opening: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def list(self) -> "list[Entry]":
        """Return all current entries, by name."""
        places, began, logged = self._locations(), time.monotonic(), False
        found: list[Entry] = []
        for name, place in places.items():
            if not logged and time.monotonic() - began > QUIET_SECONDS:
                about = {"models": len(places), "done": len(found)}
                LOG.info("reading", extra={"about": about})
                logged = True
            found.append(self._entry(name, place))
        return found

    def paths(self) -> dict[str, Path]:
        """Return the paths of all entries, by name."""
        return {name: place.path for name, place in self._locations().items()}

    def find(self, name: str) -> Entry:
        """Return one entry; raise NotFoundError if there is none of that name."""
        return self._entry(name, self._location(name))

    def open(self, name: str) -> ServedModel:
        """Return the open model or .glass file; read it again if its files have changed."""
        place = self._location(name)
        stamp = _hash(place.stamp)
        with self._lock:
            opening = self._opening.setdefault(name, threading.Lock())
        with opening:  # other threads that open the same model wait here
            with self._lock:
                known = self._open.get(name)
                if known is not None and known.stamp == stamp:
                    self._open.move_to_end(name)
                    return known
            entry = self._entry(name, place)
            if entry.kind == "broken":
                raise CheckpointError(
                    f"{name} is broken: {entry.reason}", hint="choose another model"
                )
            try:
                served = self._read(entry, place.path, stamp)
            except GlassheadError as error:
                reason = self._hide_root(str(error))
                self._remember(name, place, entry.as_broken(reason))
                raise CheckpointError(f"{name} is broken: {reason}", hint=error.hint) from None
            self._keep(name, served)
            return served

    def path(self, name: str) -> Path:
        """Return the path of an entry."""
        return self._location(name).path

    @property
    def n_open(self) -> int:
        return len(self._open)

    def _read(self, entry: Entry, path: Path, stamp: str) -> ServedModel:
        if entry.kind == "glass":
            whole = _shrink_check(path)
            return ServedModel(entry, stamp, trace=open_glass(path), whole=whole)
        if entry.kind == "transformers":
            return ServedModel(entry, stamp, inspectable=TransformersFolder(path, self.device))
        loaded = load(path)
        return ServedModel(entry, stamp, loaded, make_inspectable(loaded, self.device))

    def _keep(self, name: str, served: ServedModel) -> None:
        with self._lock:
            old = [self._open.pop(name)] if name in self._open else []
            self._open[name] = served
            while len(self._open) > self.keep:
                old.append(self._open.popitem(last=False)[1])
        for each in old:
            each.evicted = True

    def _entry(self, name: str, place: _Location) -> Entry:
        with self._lock:
            stamp, entry = self._described.get(name, ((), None))
        if entry is None or stamp != place.stamp:
            if place.wrong:
                entry = Entry(name, name.rpartition("/")[2], "broken", place.wrong)
            else:
                entry = describe(name, place.path)
                entry = replace(entry, reason=self._hide_root(entry.reason))
            self._remember(name, place, entry)
        return entry

    def _remember(self, name: str, place: _Location, entry: Entry) -> None:
        with self._lock:
            self._described[name] = (place.stamp, entry)

    def _hide_root(self, text: str) -> str:
        """Remove the path of the served folder, and lone surrogates, which UTF-8 cannot encode."""
        text = text.encode("utf-8", "replace").decode()
        return text.replace(f"{self.root}{os.sep}", "").replace(str(self.root), self.root.name)

    def _location(self, name: str) -> _Location:
        """Return where a model is; walk the folder only if the name is unknown or its path gone."""
        path = self._known.get(name)
        if path is not None and path.exists():
            return self._inspect(path)
        found = self._locations()
        if name not in found:
            raise NotFoundError(
                f"there is no model '{name[:200]}'",
                hint="GET /api/models lists all",
                field="model",
            )
        return found[name]

    def _locations(self) -> dict[str, _Location]:
        if self.single:
            return {_utf8(self.root.name): self._inspect(self.root)}
        found: dict[str, _Location] = {}
        for path in self._walk(self.root, DEEPEST):
            name = _utf8(path.relative_to(self.root).as_posix())
            found[name] = self._inspect(path)
            if len(found) >= MAX_ENTRIES:
                break
        self._known = {name: place.path for name, place in found.items()}
        return found

    def _walk(self, folder: Path, depth: int) -> Iterator[Path]:
        try:
            inside = sorted(folder.iterdir())
        except OSError:
            return
        for path in inside:
            if path.name.startswith("."):
                continue  # hidden, or still being written under a temporary name
            if path.suffix == ".glass" or _is_model(path):
                yield path
            elif depth > 0 and path.is_dir() and self._is_inside(path):
                yield from self._walk(path, depth - 1)

    def _inspect(self, path: Path) -> _Location:
        """Return a path with the stamp of its files; `wrong` if they must not be read."""
        try:
            files = [path] if not path.is_dir() else [path, *_files(path)]
            wrong = next((why for file in files if (why := self._why_unsafe(path, file))), "")
            # In a run that trains, only the model counts: other files change all the time.
            read = [f for f in files if f.name.endswith(READ) and f.parent.name != "state"]
            stats = [] if wrong else [(file.name, file.stat()) for file in read]
        except OSError as error:
            return _Location(path, (), f"cannot be read: {error.strerror}")
        return _Location(
            path, tuple((n, s.st_mtime_ns, s.st_size, s.st_ino) for n, s in stats), wrong
        )

    def _why_unsafe(self, path: Path, file: Path) -> str:
        """Return why a file of a model must not be opened, or an empty string."""
        what = "it" if file == path else _utf8(file.name)
        if not self._is_inside(file):
            return f"{what} is a link to outside of the folder"
        if file.name.endswith(READ) and not file.is_file() and (file != path or not path.is_dir()):
            return f"{what} is not a regular file"  # reading a pipe would block
        return "" if _utf8(str(file)) == str(file) else "its name is not UTF-8"

    def _is_inside(self, path: Path) -> bool:
        return Path(os.path.realpath(path)).is_relative_to(self.root)


def _shrink_check(path: Path) -> Callable[[], bool]:
    """Return a function that tells whether a memory-mapped file still has its size.

    Reading past its new end would crash the process. A file that was deleted or replaced can still
    be read.
    """
    before = path.stat()

    def whole() -> bool:
        try:
            now = path.stat()
        except OSError:
            return True
        return now.st_ino != before.st_ino or now.st_size >= before.st_size

    return whole


def _is_model(path: Path) -> bool:
    return any((path / name).is_file() for name in MODEL_FILES)


def _files(folder: Path) -> list[Path]:
    """Return the files of a model's folder that may be read."""
    state = folder / "state"
    return sorted([*folder.iterdir(), *(state.iterdir() if state.is_dir() else ())])


def _utf8(name: str) -> str:
    """Return a name as valid UTF-8, whatever bytes the file system has."""
    return os.fsencode(name).decode("utf-8", "replace")


def _hash(stamp: Stamp) -> str:
    return hashlib.sha256(repr(stamp).encode()).hexdigest()[:12]
