"""Files that are complete or absent, also on a disk that fails."""

import errno
import os
import subprocess
import sys
from contextlib import nullcontext

import pytest

from glasshead.files import writing
from glasshead.files.locking import try_lock
from glasshead.files.writing import atomic_write, what_to_do
from glasshead.text.token_store import token_store
from glasshead.text.tokenizer import ByteTokenizer


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EINVAL, errno.ENOTSUP])
def test_a_disk_that_cannot_hold_a_file_is_an_error(tmp_path, monkeypatch, number):
    def fail(handle: int) -> None:
        raise OSError(number, os.strerror(number))

    path = tmp_path / "file"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", fail)
    tolerated = number in (errno.EINVAL, errno.ENOTSUP)  # of file systems that know no fsync
    fails = nullcontext() if tolerated else pytest.raises(OSError, match=os.strerror(number))
    with fails, atomic_write(path) as file:
        file.write(b"new")
    assert path.read_text() == ("new" if tolerated else "old")


@pytest.mark.parametrize(
    ("number", "hint"),
    [(errno.ENOSPC, "make room"), (errno.EDQUOT, "make room"), (errno.EROFS, "make the folder")],
)
def test_a_disk_that_takes_nothing_names_what_would_help(number, hint):
    assert what_to_do(OSError(number, "no")).startswith(hint)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no flock")
def test_a_file_system_without_fsync_and_locks_is_written_to(tmp_path, monkeypatch):
    import fcntl

    def refuse(*args):
        raise OSError(errno.ENOLCK if len(args) > 1 else errno.EINVAL, "not here")

    monkeypatch.setattr(os, "fsync", refuse)
    monkeypatch.setattr(fcntl, "flock", refuse)
    with atomic_write(tmp_path / "a") as file:
        file.write(b"text")
    assert (tmp_path / "a").read_bytes() == b"text"
    store = token_store([tmp_path / "a"], ByteTokenizer(), tmp_path / "b")
    assert bytes(store.ids.tolist()) == b"text"
    with (tmp_path / "lock").open("wb") as file:
        assert try_lock(file)


def test_a_file_that_is_open_elsewhere_is_replaced_when_it_is_closed(tmp_path, monkeypatch):
    """As on Windows, where an open file cannot be replaced."""
    real, tried = os.replace, []

    def busy(*paths):
        tried.append(paths)
        if len(tried) < 3:
            raise PermissionError(errno.EACCES, "Access is denied")
        real(*paths)

    monkeypatch.setattr(writing, "WAITS", (0.0, 0.0, 0.0))
    monkeypatch.setattr(os, "replace", busy)
    with writing.atomic_write(tmp_path / "file") as file:
        file.write(b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert len(tried) == 3


def test_one_process_at_a_time_holds_a_lock(tmp_path):
    path = tmp_path / "lock"
    code = (
        f"from glasshead.files.locking import try_lock; print(try_lock(open({str(path)!r}, 'wb')))"
    )

    def other() -> str:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        return done.stdout.strip()

    with open(path, "wb") as file:
        assert try_lock(file)
        assert other() == "False"
    assert other() == "True"
