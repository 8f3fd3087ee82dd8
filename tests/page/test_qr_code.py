"""QR codes, read back by a decoder that shares nothing with the encoder but the standard."""

import pytest

from glasshead.errors import InputError
from glasshead.page.qr_code import qr_modules

# What the standard prints of level L: the blocks of a version as (bytes, of these data).
BLOCKS = {
    1: [(26, 19)], 2: [(44, 34)], 3: [(70, 55)], 4: [(100, 80)], 5: [(134, 108)],
    7: 2 * [(98, 78)],
    10: [*2 * [(86, 68)], *2 * [(87, 69)]], 14: [*3 * [(145, 115)], (146, 116)],
    32: 17 * [(145, 115)], 40: [*19 * [(148, 118)], *6 * [(149, 119)]],
}  # fmt: skip
CENTRES = {1: [], 2: [6, 18], 3: [6, 22], 4: [6, 26], 5: [6, 30], 7: [6, 22, 38],
           10: [6, 28, 50], 14: [6, 26, 46, 66],
           32: [6, 34, 60, 86, 112, 138], 40: [6, 30, 58, 86, 114, 142, 170]}  # fmt: skip
VERSIONS = {7: 0b000111110010010100, 40: 0b101000110001101001}
FORMATS = [0b111011111000100, 0b111001011110011, 0b111110110101010, 0b111100010011101,
           0b110011000101111, 0b110001100011000, 0b110110001000001, 0b110100101110110]  # fmt: skip
HIDES = ["(r + c) % 2", "r % 2", "c % 3", "(r + c) % 3", "(r // 2 + c // 3) % 2",
         "(r * c) % 2 + (r * c) % 3", "((r * c) % 2 + (r * c) % 3) % 2",
         "((r + c) % 2 + (r * c) % 3) % 2"]  # fmt: skip


def powers():
    value, found = 1, []
    for _ in range(255):
        found.append(value)
        value = value * 2 if value < 128 else value * 2 - 256 ^ 0x1D
    return found


POWERS = powers()


def number(rows, places):
    return int("".join(str(int(rows[r][c])) for r, c in places), 2)


def decoded(rows):
    """The version and the text of a code, of which every block must be without an error."""
    n = len(rows)
    assert {len(row) for row in rows} == {n}
    version = (n - 17) // 4
    mask = FORMATS.index(number(rows, [(8, c) for c in (0, 1, 2, 3, 4, 5, 7, 8)]
                                + [(r, 8) for r in (7, 5, 4, 3, 2, 1, 0)]))  # fmt: skip
    again = [(r, 8) for r in range(n - 1, n - 8, -1)] + [(8, c) for c in range(n - 8, n)]
    assert number(rows, again) == FORMATS[mask]
    if version >= 7:
        ends = [(i // 3, n - 11 + i % 3) for i in range(17, -1, -1)]
        assert number(rows, ends) == number(rows, [(c, r) for r, c in ends]) == VERSIONS.get(
            version, number(rows, ends)
        )  # fmt: skip
    centres = CENTRES[version]
    near = [(a, b) for a in centres for b in centres if (a, b) not in
            {(6, 6), (6, n - 7), (n - 7, 6)}]  # fmt: skip
    hides, bits = compile(HIDES[mask], "mask", "eval"), ""
    for turn, c in enumerate([c for c in range(n - 1, 0, -1) if c != 6][::2]):
        for r in range(n) if turn % 2 else range(n - 1, -1, -1):
            for col in (c, c - 1):
                corner = (r < 9 and (col < 9 or col >= n - 8)) or (r >= n - 8 and col < 9)
                about = version >= 7 and min(r, col) < 6 and max(r, col) >= n - 11
                aligned = any(abs(r - a) < 3 and abs(col - b) < 3 for a, b in near)
                if not (corner or about or aligned or 6 in (r, col)):
                    bits += "01"[rows[r][col] ^ (eval(hides, {"r": r, "c": col}) == 0)]
    words = [int(bits[at : at + 8], 2) for at in range(0, len(bits) - 7, 8)]
    return version, text_of(words, version)


def text_of(words, version):
    sizes = BLOCKS[version]
    blocks = [[] for _ in sizes]
    words = iter(words)
    for column in range(max(data for _, data in sizes)):
        for block, (_, data) in zip(blocks, sizes, strict=True):
            if column < data:
                block.append(next(words))
    for _ in range(sizes[0][0] - sizes[0][1]):
        for block in blocks:
            block.append(next(words))
    assert list(words) == []
    for block, (size, data) in zip(blocks, sizes, strict=True):
        assert len(block) == size
        for root in range(size - data):  # where a polynomial without errors is zero
            value = 0
            for word in block:
                log = None if value == 0 else POWERS.index(value)
                value = (0 if log is None else POWERS[(log + root) % 255]) ^ word
            assert value == 0, (version, root)
    joined = "".join(f"{word:08b}" for block, (_, data) in zip(blocks, sizes, strict=True)
                     for word in block[:data])  # fmt: skip
    assert joined[:4] == "0100"
    head = 12 if version < 10 else 20
    size = int(joined[4:head], 2)
    assert set(joined[head + 8 * size :][:4]) <= {"0"}
    return bytes(int(joined[head + 8 * n :][:8], 2) for n in range(size)).decode()


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 7, 10, 14, 32])
def test_a_code_is_read_back_at_the_most_that_a_version_holds(version):
    room = sum(data for _, data in BLOCKS[version]) - (2 if version < 10 else 3)
    text = "http://10.0.0.7:8000/?key=k#text=它 "[: room // 2].ljust(room - 2, "~")
    while len(text.encode()) > room:
        text = text[:-1]
    assert decoded(qr_modules(text)) == (version, text)


@pytest.mark.deep
def test_the_largest_code_is_read_back():
    assert decoded(qr_modules("z" * 2953)) == (40, "z" * 2953)


def test_the_smallest_codes_are_read_back():
    assert [decoded(qr_modules(text)) for text in ("", "a")] == [(1, ""), (1, "a")]


def test_what_is_too_long_for_any_code_is_refused():
    with pytest.raises(InputError, match="2,954 bytes"):
        qr_modules("z" * 2954)
