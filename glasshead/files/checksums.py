"""checksums.json: the digests of the small files beside it.

A file may have two digests: before it is replaced, the new one is put before the one of the file
that is there, so that a kill between the two writes leaves a folder whose files are all known.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from glasshead.errors import CheckpointError
from glasshead.files.digest import digest
from glasshead.files.reading import read_small
from glasshead.files.writing import atomic_write

__all__ = ["CHECKSUMS", "add_checksums", "check_content", "checksums", "has_checksums"]

CHECKSUMS = "checksums.json"


def add_checksums(folder: Path, files: Mapping[str, bytes]) -> None:
    """Add the digests of files that are about to be written into the folder."""
    known = checksums(folder)
    for name, content in files.items():
        own, there = digest(content), _digest_there(folder / name)
        known[name] = [own, *(old for old in known.get(name, []) if old == there != own)]
    with atomic_write(folder / CHECKSUMS) as file:
        file.write((json.dumps(known, indent=2, ensure_ascii=False) + "\n").encode())


def _digest_there(file: Path) -> str:
    try:
        return digest(read_small(file))
    except OSError:  # there is none, or none that could be read
        return ""


def checksums(folder: Path) -> dict[str, list[str]]:
    """Return the digests of each file that is listed; none if the folder has no checksums."""
    return _read(folder) if has_checksums(folder) else {}


def has_checksums(folder: Path) -> bool:
    return (folder / CHECKSUMS).exists()


def check_content(file: Path, content: bytes) -> None:
    """Raise CheckpointError if the content of a file is not what was written.

    A folder without checksums, and a file that they do not list, is not checked.
    """
    if not has_checksums(file.parent):
        return
    known = _read(file.parent)
    if file.name in known and digest(content) not in known[file.name]:
        raise CheckpointError(
            f"{file} is damaged: it is not what was written, by {CHECKSUMS}",
            hint=f"restore it from a backup; if you changed it yourself, remove {CHECKSUMS}",
        )


def _read(folder: Path) -> dict[str, list[str]]:
    file = folder / CHECKSUMS
    try:
        found = json.loads(read_small(file, 1 << 20, within=folder))
        if not isinstance(found, dict) or not all(isinstance(v, list) for v in found.values()):
            raise ValueError("it does not list digests by file")
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CheckpointError(
            f"{file} is damaged: {reason}",
            hint="restore it from a backup, or remove it: the files are then not checked",
        ) from None
    return found
