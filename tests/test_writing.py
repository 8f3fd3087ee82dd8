"""Files that are complete or absent, also on a disk that fails."""

import errno
import os
from contextlib import nullcontext

import pytest

from glasshead.files.writing import atomic_write


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
