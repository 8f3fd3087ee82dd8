"""QR codes, for an address that a phone reads from the screen.

    qr_modules("http://192.168.1.5:8000/")      rows of modules, True = dark, without a margin

After ISO/IEC 18004: bytes only, error correction of level L, the smallest version that fits. A
phone reads a screen without dirt or scratches, so larger modules help it more than correction.
"""

import re
from itertools import chain, pairwise
from typing import NamedTuple

from glasshead.errors import InputError

__all__ = ["qr_modules"]

# Of level L, by version from 1 on: bytes of correction in each block, and blocks.
CORRECTION = (
    7, 10, 15, 20, 26, 18, 20, 24, 30, 18, 20, 24, 26, 30, 22, 24, 28, 30, 28, 28,
    28, 28, 30, 30, 26, 28, 30, 30, 30, 30, 30, 30, 30, 30, 30, 30, 30, 30, 30, 30,
)  # fmt: skip
BLOCKS = (
    1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 4, 6, 6, 6, 6, 7, 8,
    8, 9, 9, 10, 12, 12, 12, 13, 14, 15, 16, 17, 18, 19, 19, 20, 21, 22, 24, 25,
)  # fmt: skip
BYTES, LEVEL_L = 0b0100, 0b01
FILLER = (0xEC, 0x11)
MASKS = (
    lambda x, y: (x + y) % 2,
    lambda x, y: y % 2,
    lambda x, y: x % 3,
    lambda x, y: (x + y) % 3,
    lambda x, y: (x // 3 + y // 2) % 2,
    lambda x, y: x * y % 2 + x * y % 3,
    lambda x, y: (x * y % 2 + x * y % 3) % 2,
    lambda x, y: ((x + y) % 2 + x * y % 3) % 2,
)
# Parts of a row that a reader could take for a finder, or that are long runs.
RUN = re.compile(r"0{5,}|1{5,}")
FINDER = re.compile(r"(?=10111010000|00001011101)")

Modules = list[list[bool]]


class _Symbol(NamedTuple):
    """The modules of one version that hold no data, and the places of those that do."""

    dark: Modules
    free: list[tuple[int, int]]  # (x, y) in the order in which bits are placed


def qr_modules(text: str) -> Modules:
    """Return the rows of the QR code of a text.

    Raises InputError if the text is longer than the largest code holds.
    """
    data = text.encode()
    for version in range(1, 41):
        symbol = _symbol(version)
        n_bytes = len(symbol.free) // 8
        room = n_bytes - CORRECTION[version - 1] * BLOCKS[version - 1]
        count = 8 if version < 10 else 16
        if 4 + count + 8 * len(data) <= 8 * room:
            break
    else:
        raise InputError(f"{len(data):,} bytes are too many for a QR code", hint="use fewer")
    words = _corrected(_padded(data, count, room), version, n_bytes)
    bits = [word >> at & 1 for word in words for at in range(7, -1, -1)]
    shown = [_masked(symbol, bits, mask) for mask in range(8)]
    return min(shown, key=_penalty)


def _padded(data: bytes, count: int, room: int) -> bytes:
    """The mode, the length, the data, and filler up to `room` bytes."""
    bits = f"{BYTES:04b}{len(data):0{count}b}" + "".join(f"{byte:08b}" for byte in data)
    bits += "0" * min(4, 8 * room - len(bits))
    bits += "0" * (-len(bits) % 8)
    words = [int(bits[at : at + 8], 2) for at in range(0, len(bits), 8)]
    return bytes(words + [FILLER[n % 2] for n in range(room - len(words))])


def _corrected(data: bytes, version: int, n_bytes: int) -> list[int]:
    """Data and correction of all blocks, byte by byte from each block in turn."""
    n, extra = BLOCKS[version - 1], CORRECTION[version - 1]
    blocks, at = [], 0
    for block in range(n):
        size = n_bytes // n - extra + (block >= n - n_bytes % n)
        blocks.append(data[at : at + size])
        at += size
    corrections = [_remainder(block, extra) for block in blocks]
    longest = max(map(len, blocks))
    first = [block[i] for i in range(longest) for block in blocks if i < len(block)]
    return first + list(chain.from_iterable(zip(*corrections, strict=True)))


def _remainder(data: bytes, degree: int) -> list[int]:
    """The Reed-Solomon bytes: what is left of the data divided by a polynomial of that degree."""
    divisor, root = [0] * (degree - 1) + [1], 1
    for _ in range(degree):
        divisor = [
            _times(one, root) ^ following
            for one, following in zip(divisor, [*divisor[1:], 0], strict=True)
        ]
        root = _times(root, 2)
    rest = [0] * degree
    for byte in data:
        factor = byte ^ rest[0]
        rest = [
            one ^ _times(part, factor) for one, part in zip([*rest[1:], 0], divisor, strict=True)
        ]
    return rest


def _times(a: int, b: int) -> int:
    """Multiply in the field of 256 elements.

    >>> _times(2, 0x80) == 0x1D, _times(3, 7)
    (True, 9)
    """
    product = 0
    while b:
        product ^= a * (b & 1)
        a, b = a << 1 ^ (a >> 7) * 0x11D, b >> 1
    return product


def _symbol(version: int) -> _Symbol:
    size = 17 + 4 * version
    dark: Modules = [[False] * size for _ in range(size)]
    taken: set[tuple[int, int]] = set()

    def put(x: int, y: int, value: bool) -> None:
        dark[y][x] = value
        taken.add((x, y))

    for i in range(size):  # timing
        put(6, i, i % 2 == 0)
        put(i, 6, i % 2 == 0)
    for x0, y0 in ((3, 3), (size - 4, 3), (3, size - 4)):  # finders
        for x in range(max(0, x0 - 4), min(size, x0 + 5)):
            for y in range(max(0, y0 - 4), min(size, y0 + 5)):
                put(x, y, max(abs(x - x0), abs(y - y0)) in (0, 1, 3))
    places = _alignment(version, size)
    corners = {(6, 6), (6, size - 7), (size - 7, 6)}
    for x0, y0 in ((x, y) for x in places for y in places if (x, y) not in corners):
        for x in range(x0 - 2, x0 + 3):
            for y in range(y0 - 2, y0 + 3):
                put(x, y, max(abs(x - x0), abs(y - y0)) != 1)
    for x, y in chain(*_format_places(size)):
        put(x, y, False)  # written when the mask is known
    put(8, size - 8, True)
    if version >= 7:
        bits = version << 12 | _checked(version, 12, 0x1F25)
        for i in range(18):
            x, y = size - 11 + i % 3, i // 3
            put(x, y, bool(bits >> i & 1))
            put(y, x, bool(bits >> i & 1))
    columns = [x for x in range(size - 1, -1, -2) if x > 6] + [5, 3, 1]
    free = [
        (right - left, y)
        for n, right in enumerate(columns)
        for y in (range(size) if n % 2 else range(size - 1, -1, -1))
        for left in (0, 1)
        if (right - left, y) not in taken
    ]
    return _Symbol(dark, free)


def _alignment(version: int, size: int) -> list[int]:
    """Where the centres of the alignment patterns are, on both axes.

    >>> _alignment(2, 25), _alignment(7, 45), _alignment(32, 145)
    ([6, 18], [6, 22, 38], [6, 34, 60, 86, 112, 138])
    """
    if version == 1:
        return []
    n = version // 7 + 2
    step = 26 if version == 32 else (4 * version + 2 * n + 1) // (2 * n - 2) * 2
    return [6, *(size - 7 - step * i for i in range(n - 2, -1, -1))]


def _format_places(size: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Where the 15 bits of the format stand, the lowest first: at one corner, and at the others."""
    first = [(8, y) for y in (0, 1, 2, 3, 4, 5, 7, 8)] + [(x, 8) for x in (7, 5, 4, 3, 2, 1, 0)]
    second = [(size - 1 - i, 8) for i in range(8)] + [(8, size - 7 + i) for i in range(7)]
    return first, second


def _checked(value: int, degree: int, divisor: int) -> int:
    """The check bits of a format or version: a remainder of polynomials over bits."""
    rest = value
    for _ in range(degree):
        rest = rest << 1 ^ (rest >> degree - 1) * divisor
    return rest


def _masked(symbol: _Symbol, bits: list[int], mask: int) -> Modules:
    dark = [row[:] for row in symbol.dark]
    for n, (x, y) in enumerate(symbol.free):
        bit = bits[n] if n < len(bits) else 0
        dark[y][x] = bool(bit) != (MASKS[mask](x, y) == 0)
    value = LEVEL_L << 3 | mask
    format_bits = (value << 10 | _checked(value, 10, 0x537)) ^ 0x5412
    for places in _format_places(len(dark)):
        for i, (x, y) in enumerate(places):
            dark[y][x] = bool(format_bits >> i & 1)
    return dark


def _penalty(dark: Modules) -> int:
    """How hard the code is to read: runs, blocks, what looks like a finder, and uneven darkness."""
    rows = ["".join("01"[one] for one in row) for row in dark]
    lines = rows + ["".join(column) for column in zip(*rows, strict=True)]
    runs = sum(len(found[0]) - 2 for line in lines for found in RUN.finditer(line))
    blocks = sum(
        upper[x] == upper[x + 1] == lower[x] == lower[x + 1]
        for upper, lower in pairwise(rows)
        for x in range(len(rows) - 1)
    )
    finders = sum(len(FINDER.findall(f"0000{line}0000")) for line in lines)
    part = sum(row.count("1") for row in rows) / len(rows) ** 2
    return runs + 3 * blocks + 40 * finders + 10 * int(abs(part - 0.5) * 20)
