"""Read files without trusting them: regular files only, and no more bytes than expected.

A config.json may be a named pipe, which blocks, a device, which never ends, or a link to another
place. Errors are OSErrors with the reason in `strerror`, like those of the system.
"""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

__all__ = ["SMALL", "check_regular", "open_regular", "read_small"]

SMALL = 64 << 20  # bytes; the largest tokenizers have 30 MB


def open_regular(path: str | Path, within: Path | None = None) -> BinaryIO:
    """Open a regular file for reading; raise OSError for anything else.

    With `within`, a file that a link leads out of this folder is refused.
    """
    path = Path(path)
    if within is not None and not _is_inside(path, within):
        raise _error(path, f"it is a link out of {within}")
    # Without O_NONBLOCK, opening a named pipe waits for a writer.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    raise _error(path, f"it is {_KINDS.get(stat.S_IFMT(mode), 'no file')}, not a regular file")


def check_regular(path: str | Path, within: Path | None = None) -> None:
    """Raise OSError unless `open_regular` can open the file."""
    open_regular(path, within).close()


def read_small(path: str | Path, most: int = SMALL, within: Path | None = None) -> bytes:
    """Read a whole file; raise OSError if it has more than `most` bytes or is not regular."""
    with open_regular(path, within) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise _error(path, f"it has {size:,} bytes, more than {most:,}", errno.EFBIG)
        data = file.read(most + 1)  # it may be growing
    if len(data) > most:
        raise _error(path, f"it has more than {most:,} bytes", errno.EFBIG)
    return data


def _is_inside(path: Path, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _error(path: str | Path, reason: str, number: int = errno.EINVAL) -> OSError:
    return OSError(number, reason, str(path))


_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
