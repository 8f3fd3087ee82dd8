"""What is served: a run, a folder of runs, transformers models and .glass files, or one .glass.

    library = Library(Path("runs"))
    library.list()                  what there is, also what is broken, without reading any weights
    library.open("poems").loaded    the model, read once and kept while it is in use

A request names what it wants, and the name is looked up among what was found: no path is ever
made of what a request says.
"""

import hashlib
import os
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
from glasshead.observe.inspectable import Inspectable
from glasshead.observe.trace import Trace, open_glass
from glasshead.observe.transformers_folder import TransformersFolder
from glasshead.page.entries import Entry, describe
from glasshead.serve.logs import LOG

__all__ = ["Entry", "Library", "Served"]

DEEPEST = 2  # folders between the root and a model
MOST = 1000  # entries
PATIENCE = 1.0  # seconds of reading that go without saying
# What makes a folder one of a model, whole or not.
SIGNS = ("config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer.json")

READ = (".json", ".safetensors", ".jinja", ".spm", "vocab.txt", "merges.txt", ".glass")

Stamp = tuple[tuple[str, int, int, int], ...]


@dataclass(eq=False)
class Served:
    """Something that was opened. Who runs the model holds `lock`: a recording sees all it does."""

    entry: Entry
    stamp: str  # another one, when the files have changed
    loaded: Run | None = None  # of kinds gpt, translator, reader, encoder
    subject: Inspectable | None = None  # of all but glass; its model is that of `loaded`
    atlas: Trace | None = None  # of glass
    whole: Callable[[], bool] = lambda: True  # False if the atlas may no longer be touched
    evicted: bool = False  # the library keeps it no more; who still uses it lets go soon
    lock: threading.RLock = field(default_factory=threading.RLock)


@dataclass(frozen=True)
class _Place:
    path: Path
    stamp: Stamp
    wrong: str = ""  # why it is not even looked at


class Library:
    """What lies in one folder."""

    def __init__(self, root: Path, device: torch.device | None = None, keep: int = 4) -> None:
        self.root, self.device, self.keep = root.resolve(), device or torch.device("cpu"), keep
        if not self.root.exists():
            hint = near_file(root, "name a run, a folder or a .glass file")
            raise InputError(f"{root} does not exist", hint=hint)
        if not self.root.is_dir() and self.root.suffix != ".glass":
            raise InputError(
                f"{root} is neither a folder nor a .glass file",
                hint="name a run, a folder of runs, or what `glasshead atlas` wrote",
            )
        self.single = not self.root.is_dir() or _is_model(self.root)
        self._known: dict[str, Path] = {}  # as the last walk found them
        self._described: dict[str, tuple[Stamp, Entry]] = {}
        self._open: OrderedDict[str, Served] = OrderedDict()
        self._opening: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def list(self) -> "list[Entry]":
        """Everything that there is now, by name."""
        places, began, told = self._places(), time.monotonic(), False
        found: list[Entry] = []
        for name, place in places.items():
            if not told and time.monotonic() - began > PATIENCE:
                about = {"models": len(places), "done": len(found)}
                LOG.info("reading", extra={"about": about})
                told = True
            found.append(self._entry(name, place))
        return found

    def paths(self) -> dict[str, Path]:
        """Where everything lies, by name."""
        return {name: place.path for name, place in self._places().items()}

    def find(self, name: str) -> Entry:
        """One of the list."""
        return self._entry(name, self._place(name))

    def open(self, name: str) -> Served:
        """The model or the atlas of that name; read anew if its files have changed."""
        place = self._place(name)
        stamp = _short(place.stamp)
        with self._lock:
            opening = self._opening.setdefault(name, threading.Lock())
        with opening:  # whoever asks for the same meanwhile waits for this one
            with self._lock:
                known = self._open.get(name)
                if known is not None and known.stamp == stamp:
                    self._open.move_to_end(name)
                    return known
            entry = self._entry(name, place)
            if entry.kind == "broken":
                raise CheckpointError(f"{name} is broken: {entry.reason}", hint="choose another")
            try:
                served = self._read(entry, place.path, stamp)
            except GlassheadError as error:
                self._remember(name, place, entry.broken(self._told(error)))
                raise CheckpointError(
                    f"{name} is broken: {self._told(error)}", hint=error.hint
                ) from None
            self._put(name, served)
            return served

    def path(self, name: str) -> Path:
        """Where it lies; its own files are found below it."""
        return self._place(name).path

    @property
    def loaded(self) -> int:
        return len(self._open)

    def _read(self, entry: Entry, path: Path, stamp: str) -> Served:
        if entry.kind == "glass":
            whole = _unshrunk(path)
            return Served(entry, stamp, atlas=open_glass(path), whole=whole)
        if entry.kind == "transformers":
            return Served(entry, stamp, subject=TransformersFolder(path, self.device))
        loaded = load(path)
        return Served(entry, stamp, loaded, make_inspectable(loaded, self.device))

    def _put(self, name: str, served: Served) -> None:
        with self._lock:
            old = [self._open.pop(name)] if name in self._open else []
            self._open[name] = served
            while len(self._open) > self.keep:
                old.append(self._open.popitem(last=False)[1])
        for each in old:
            each.evicted = True

    def _entry(self, name: str, place: _Place) -> Entry:
        with self._lock:
            stamp, entry = self._described.get(name, ((), None))
        if entry is None or stamp != place.stamp:
            if place.wrong:
                entry = Entry(name, name.rpartition("/")[2], "broken", place.wrong)
            else:
                entry = describe(name, place.path)
                entry = replace(entry, reason=self._hidden(entry.reason))
            self._remember(name, place, entry)
        return entry

    def _remember(self, name: str, place: _Place, entry: Entry) -> None:
        with self._lock:
            self._described[name] = (place.stamp, entry)

    def _told(self, error: GlassheadError) -> str:
        return self._hidden(str(error))

    def _hidden(self, text: str) -> str:
        """Without where the folder lies on this machine, which is nobody's business, and without
        halves of characters, which a config may hold and no answer can."""
        text = text.encode("utf-8", "replace").decode()
        return text.replace(f"{self.root}{os.sep}", "").replace(str(self.root), self.root.name)

    def _place(self, name: str) -> _Place:
        """One model: only a name that is not known, or is gone, costs a walk through the folder."""
        path = self._known.get(name)
        if path is not None and path.exists():
            return self._placed(path)
        found = self._places()
        if name not in found:
            raise NotFoundError(f"there is no '{name[:200]}' here", hint="/api/models lists all")
        return found[name]

    def _places(self) -> dict[str, _Place]:
        if self.single:
            return {_utf8(self.root.name): self._placed(self.root)}
        found: dict[str, _Place] = {}
        for path in self._walk(self.root, DEEPEST):
            name = _utf8(path.relative_to(self.root).as_posix())
            found[name] = self._placed(path)
            if len(found) >= MOST:
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
                continue  # also what is being written, which has such a name until it is whole
            if path.suffix == ".glass" or _is_model(path):
                yield path
            elif depth > 0 and path.is_dir() and self._is_inside(path):
                yield from self._walk(path, depth - 1)

    def _placed(self, path: Path) -> _Place:
        """A path with what tells when its files change, unless a link leads out of the root."""
        try:
            files = [path] if not path.is_dir() else [path, *_files(path)]
            wrong = next((told for file in files if (told := self._wrong(path, file))), "")
            # Of a run that trains, only the model counts: the rest changes all the time.
            read = [f for f in files if f.name.endswith(READ) and f.parent.name != "state"]
            stats = [] if wrong else [(file.name, file.stat()) for file in read]
        except OSError as error:
            return _Place(path, (), f"cannot be read: {error.strerror}")
        return _Place(path, tuple((n, s.st_mtime_ns, s.st_size, s.st_ino) for n, s in stats), wrong)

    def _wrong(self, path: Path, file: Path) -> str:
        """Why a file of a model is not to be opened."""
        what = "it" if file == path else _utf8(file.name)
        if not self._is_inside(file):
            return f"{what} is a link that leads out of the folder"
        if file.name.endswith(READ) and not file.is_file() and (file != path or not path.is_dir()):
            return f"{what} is no file"  # a pipe would be waited for
        return "" if _utf8(str(file)) == str(file) else "its name is not UTF-8"

    def _is_inside(self, path: Path) -> bool:
        return Path(os.path.realpath(path)).is_relative_to(self.root)


def _unshrunk(path: Path) -> Callable[[], bool]:
    """Whether a file still has all it had: to touch what was cut off would end the program.

    One that was deleted, or replaced by another, lives on for whoever has it open.
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
    return any((path / name).is_file() for name in SIGNS)


def _files(folder: Path) -> list[Path]:
    """What may be read of a model's folder."""
    state = folder / "state"
    return sorted([*folder.iterdir(), *(state.iterdir() if state.is_dir() else ())])


def _utf8(name: str) -> str:
    """A name that JSON can carry, whatever the file system has."""
    return os.fsencode(name).decode("utf-8", "replace")


def _short(stamp: Stamp) -> str:
    return hashlib.sha256(repr(stamp).encode()).hexdigest()[:12]
