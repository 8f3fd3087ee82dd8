"""The lengths in a GGUF file, before anyone believes them.

Its reader takes every count as it stands: one that lies makes it grow until the memory is full.
"""

import os
from pathlib import Path
from typing import BinaryIO

__all__ = ["check_lengths"]

_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes, by type
_STRING, _ARRAY = 8, 9


def check_lengths(path: Path) -> None:
    """Walk over all fields and tensors; ValueError where one reaches beyond the end."""
    with path.open("rb") as file:
        _skip(file, 8)  # the mark and the version
        tensors, fields = _number(file, 8), _number(file, 8)
        for _ in range(fields):
            _skip_string(file)
            _skip_value(file, _number(file, 4))
        for _ in range(tensors):
            _skip_string(file)
            _skip(file, 8 * _number(file, 4) + 12)  # its shape, type and place


def _skip_value(file: BinaryIO, kind: int) -> None:
    if kind == _STRING:
        _skip_string(file)
    elif kind == _ARRAY:
        inner, count = _number(file, 4), _number(file, 8)
        if inner == _STRING:
            for _ in range(count):
                _skip_string(file)
        else:
            _skip(file, count * _size(inner))
    else:
        _skip(file, _size(kind))


def _size(kind: int) -> int:
    if kind not in _SIZES:
        raise ValueError(f"type {kind} is unknown")
    return _SIZES[kind]


def _skip_string(file: BinaryIO) -> None:
    _skip(file, _number(file, 8))


def _number(file: BinaryIO, size: int) -> int:
    data = file.read(size)
    if len(data) < size:
        raise ValueError("it ends in the middle of a number")
    return int.from_bytes(data, "little")


def _skip(file: BinaryIO, n: int) -> None:
    left = os.fstat(file.fileno()).st_size - file.tell()
    if n > left:
        raise ValueError(f"{n} bytes are announced where {left} are left")
    file.seek(n, os.SEEK_CUR)
