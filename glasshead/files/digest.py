"""A digest that shows whether bytes are the ones that were written, at the speed of memory.

Rows of 256 KiB are mixed into as many lanes, each a 64-bit state, by operations that NumPy
vectorises; BLAKE2b of the lanes and of the rest is the digest. Every step is a bijection of the
state, so a change within one word is always seen. It detects damage, not forgery.
"""

from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["DIGITS", "digest", "digest_file"]

DIGITS = 32  # hexadecimal ones of a digest
_LANES = 1 << 15
_FACTOR, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(29)  # the golden ratio, as 64 bits


def digest(data: Any) -> str:
    """Return the digest of bytes, or of a NumPy array's.

    >>> digest(b"abc") == digest(bytearray(b"abc")), digest(b"abc") == digest(b"abd")
    (True, False)
    """
    raw = np.frombuffer(data, dtype=np.uint8) if len(data) else np.zeros(0, dtype=np.uint8)
    rows = len(raw) // (8 * _LANES)
    whole = rows * 8 * _LANES
    total = blake2b(len(raw).to_bytes(8, "little"), digest_size=DIGITS // 2)
    if rows:
        state, moved = np.zeros(_LANES, dtype="<u8"), np.empty(_LANES, dtype="<u8")
        for row in raw[:whole].view("<u8").reshape(rows, _LANES):
            np.right_shift(state, _SHIFT, out=moved)
            np.bitwise_xor(state, moved, out=state)
            np.multiply(state, _FACTOR, out=state)
            np.add(state, row, out=state)
        total.update(state.data)
    total.update(raw[whole:].data)
    return total.hexdigest()


def digest_file(path: Path) -> str:
    """Return the digest of a file, which is mapped and not read into memory at once."""
    return digest(np.memmap(path, np.uint8, "r") if path.stat().st_size else b"")
