"""The last two states of a run, and who may write them."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from torch import Tensor

from glasshead.checkpoint.files import atomic_write, read_tensors, sync_folder, write_tensors
from glasshead.checkpoint.processes import ALONE, Processes
from glasshead.errors import CheckpointError

if TYPE_CHECKING:
    from glasshead.checkpoint.sharded import ShardWriter

try:
    import fcntl
except ImportError:  # Windows: there two processes can train one run, and should not
    fcntl = None  # type: ignore[assignment]

__all__ = ["Like", "State", "States", "first_whole", "read_state"]

# Shared out like which tensor the one of that name is; None: every process has all of it.
Like = Callable[[str], Tensor | None]


@dataclass(frozen=True, eq=False)
class State:
    """What a training loop needs to go on as if it had never stopped."""

    tensors: dict[str, Tensor]
    progress: dict[str, Any]  # counters, as JSON

    def part(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names begin so, by the rest of their names."""
        found = self.tensors.items()
        return {n.removeprefix(prefix): tensor for n, tensor in found if n.startswith(prefix)}


class States:
    """The states in a run's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state_files = [path / "state" / f"{name}.safetensors" for name in ("last", "previous")]

    @property
    def states(self) -> list[Path]:
        """The last state and the previous one: a file, or a folder to which several wrote."""
        folders = [file.with_suffix("") for file in self.state_files]
        both = zip(folders, self.state_files, strict=True)
        return [folder if folder.exists() else file for folder, file in both]

    def save_state(self, state: State, rotate: bool = True) -> None:
        """The new state becomes the last; the last becomes the previous, unless told not to."""
        last = self.state_files[0]
        about = {"step": str(state.progress["step"]), "progress": json.dumps(state.progress)}
        with atomic_write(last, partial(self._make_way, last, rotate)) as file:
            write_tensors(file, state.tensors, about)

    def save_shards(self, state: State, writer: "ShardWriter", rotate: bool = True) -> None:
        """The same by several processes, each with its part, in the background."""
        last = self.state_files[0].with_suffix("")
        new = last.with_name(".last.new")

        def name() -> None:
            self._make_way(last, rotate)
            os.replace(new, last)
            sync_folder(last.parent)

        writer.save(state.tensors, state.progress, new, name)

    def _make_way(self, new: Path, rotate: bool) -> None:
        """For a new last state, the only one of its name: a file or a folder."""
        last, previous = self.states
        if rotate and last.exists():
            if previous.is_dir() or last.is_dir():
                _remove(previous)
            os.replace(last, self.state_files[1].with_suffix(last.suffix))
        elif last.is_dir() or last != new:
            _remove(last)

    def load_state(
        self,
        restore: Callable[[State, Path], None],
        last_is_good: bool = True,
        processes: Processes = ALONE,
        like: Like | None = None,
    ) -> bool:
        """Give `restore` the last state; the previous one if the last is damaged or no good.

        False before the first save. `restore` raises CheckpointError for a state that cannot be.
        Several processes get the same state or none, each its part of it as `like` says.
        """
        last, previous = processes.broadcast(self.states)
        if not processes.broadcast(last.exists() or previous.exists()):
            return False

        def read(file: Path) -> None:
            error = None
            try:
                restore(read_state(file, like), file)
            except CheckpointError as found:
                error = found
            if not processes.all_true(error is None):
                raise error or CheckpointError(
                    f"another process cannot read {file}", hint="let all of them see its folder"
                )

        if not last_is_good and processes.broadcast(previous.exists()):
            read(previous)
            return True
        used, _ = first_whole([last, previous], read, processes.first)
        if used == previous and processes.first and last.exists():
            # At the next save it would take the place of the one that is whole.
            damaged = last.with_name(f"damaged{last.suffix}")
            _remove(damaged)
            os.replace(last, damaged)
        return True

    @contextmanager
    def lock(self) -> Iterator[None]:
        """While one process trains here, no other may."""
        with open(self.path / "state" / "lock", "wb") as file:
            if fcntl is not None:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise CheckpointError(
                        f"another process is training {self.path}",
                        hint="wait until it ends, or stop it",
                    ) from None
                except OSError:
                    pass  # a file system without locks
            yield


def read_state(file: Path, like: Like | None = None) -> State:
    if file.is_dir():
        from glasshead.checkpoint.sharded import read_shards

        return State(*read_shards(file, like))
    tensors, about = read_tensors(file, like)
    try:
        return State(tensors, dict(json.loads(about["progress"])))
    except (KeyError, ValueError, TypeError) as error:
        raise CheckpointError(
            f"{file} is no state of a run: {error!r}", hint="take it from a copy"
        ) from None


def _remove(path: Path) -> None:
    """A folder is gone at once, however long it takes to empty it."""
    if path.is_dir():
        gone = path.with_name(f".{path.name}.old")
        shutil.rmtree(gone, ignore_errors=True)
        os.replace(path, gone)
        shutil.rmtree(gone)
    else:
        path.unlink(missing_ok=True)


_Read = TypeVar("_Read")


def first_whole(
    files: list[Path], read: Callable[[Path], _Read], speaks: bool = True
) -> tuple[Path, _Read]:
    """The first file that can be read, and what it gives; if it is not the first, say so."""
    errors: list[CheckpointError] = []
    for file in files:
        try:
            found = read(file)
        except CheckpointError as error:
            errors.append(error)
            continue
        if errors and speaks:
            print(f"{errors[0]}; using {file} instead", file=sys.stderr)
        return file, found
    raise errors[0]
