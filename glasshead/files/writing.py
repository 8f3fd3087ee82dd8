"""Write files that are complete or absent."""

import errno
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from glasshead.errors import CheckpointError

__all__ = [
    "atomic_folder", "atomic_path", "atomic_write", "remove", "sync_file", "sync_folder",
    "what_to_do", "write_error",
]  # fmt: skip

WAITS = (0.05, 0.1, 0.2, 0.4, 0.8) if os.name == "nt" else ()  # seconds


@contextmanager
def atomic_write(path: Path, before: Callable[[], None] = lambda: None) -> Iterator[BinaryIO]:
    """Yield a file to write to. It replaces `path` once it is complete and on the disk.

    `before` is called right before the replacement.
    """
    temporary = path.with_name(f".{path.name}.new")
    try:
        with open(temporary, "wb") as file:
            yield file
            sync_file(file)
        before()
        _replace(temporary, path)
        sync_folder(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _replace(new: Path, path: Path) -> None:
    """Rename a file over another; on Windows wait until those who read that have closed it."""
    for seconds in WAITS:
        try:
            os.replace(new, path)
            return
        except PermissionError:
            time.sleep(seconds)
    os.replace(new, path)


def sync_file(file: BinaryIO) -> None:
    """Bring what was written to the disk, where the file system can do that."""
    file.flush()
    _sync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Bring the renames in a folder to the disk."""
    with suppress(PermissionError):  # Windows cannot open folders, and does not need it
        handle = os.open(folder, os.O_RDONLY)
        try:
            _sync(handle)
        finally:
            os.close(handle)


def _sync(handle: int) -> None:
    try:
        if sys.platform == "darwin":  # there fsync leaves the data in the drive's own memory
            import fcntl

            with suppress(OSError):  # of a network folder
                fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
                return
        os.fsync(handle)
    except OSError as error:  # some network folders cannot; a full or broken disk is an error
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP):
            raise


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a folder to write into. It becomes `path` at the end, or is removed on an error."""
    new = path.with_name(f".{path.name}.new")
    try:
        shutil.rmtree(new, ignore_errors=True)  # left by a kill
        new.mkdir(parents=True)
        yield new
        os.replace(new, path)
        sync_folder(path.parent)
    except BaseException as error:
        shutil.rmtree(new, ignore_errors=True)
        if isinstance(error, OSError):
            raise write_error(f"cannot create the folder {path}", error) from None
        raise


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a path of our own, for a file or a folder. It becomes `path` at the end."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{path.name}.", suffix=".new", dir=path.parent) as own:
            yield Path(own, path.name)
            os.replace(Path(own, path.name), path)
        sync_folder(path.parent)
    except OSError as error:
        raise write_error(f"cannot write {path}", error) from None


def remove(path: Path) -> None:
    """Remove a file or a folder. A folder disappears at once, however long it takes to empty it."""
    if path.is_dir():
        gone = path.with_name(f".{path.name}.old")
        shutil.rmtree(gone, ignore_errors=True)
        os.replace(path, gone)
        shutil.rmtree(gone)
    else:
        path.unlink(missing_ok=True)


def what_to_do(error: OSError) -> str:
    """Return what lets a file be written after this error, to be put into a hint."""
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return "make the folder writable"
    return "make room"


def write_error(what: str, error: OSError) -> CheckpointError:
    """
    >>> str(write_error("cannot create the folder a/b", NotADirectoryError(20, "Not a directory")))
    'cannot create the folder a/b: a file is in the way'
    """
    why, hint = error.strerror or error, "choose another --out"
    if isinstance(error, FileExistsError | NotADirectoryError):
        why = "a file is in the way"
    elif error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "make room, or choose another --out"
    return CheckpointError(f"{what}: {why}", hint=hint)
