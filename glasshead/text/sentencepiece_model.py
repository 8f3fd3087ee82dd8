"""Write a table of characters or bytes as a tokenizer.model of sentencepiece.

It is the only form in which llama.cpp's converter accepts an unknown vocabulary, and only for Llama
does it leave the text unchanged. A byte-level BPE has no such form, because its pieces may be parts
of characters.
"""

import struct
from collections.abc import Iterator

from glasshead.text.tokenizer import ByteTokenizer, CharTokenizer, Tokenizer

__all__ = ["piece_table", "sentencepiece_model"]

_SPACE = "▁"  # how sentencepiece writes a space
_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6
_BPE, _CHARACTERS = 2, 4


def sentencepiece_model(tokenizer: Tokenizer) -> bytes | None:
    """Return the file, or None if sentencepiece cannot represent the tokenizer.

    >>> sentencepiece_model(CharTokenizer("▁")) is None
    True
    """
    if (words := piece_table(tokenizer)) is None:
        return None
    kind = _CHARACTERS if isinstance(tokenizer, CharTokenizer) else _BPE
    unknown = len(words)
    # Pieces that sentencepiece requires and the model lacks come after all of its ids.
    words += [("<unk>", _UNKNOWN), *([("<0x20>", _BYTE)] if kind == _BPE else [])]
    trainer = _field(3, kind) + _field(35, int(kind == _BPE)) + _field(40, unknown)
    # No space is added before the text, none removed: texts stay unchanged.
    unchanged = _field(1, b"identity") + _field(3, 0) + _field(4, 0) + _field(5, 1)
    return b"".join([*_pieces(words), _field(2, trainer), _field(3, unchanged)])


def piece_table(tokenizer: Tokenizer) -> list[tuple[str, int]] | None:
    """Return each id's piece and its type; sentencepiece and llama.cpp number types alike.

    >>> piece_table(CharTokenizer(" a", ["<eos>"]))
    [('▁', 1), ('a', 1), ('<eos>', 3)]
    """
    match tokenizer:
        case CharTokenizer() if _SPACE not in tokenizer.characters:
            words = [(c.replace(" ", _SPACE), _NORMAL) for c in tokenizer.characters]
        case ByteTokenizer():
            words = [(f"<0x{value:02X}>", _BYTE) for value in range(256)]
            words[ord(" ")] = (_SPACE, _NORMAL)
        case _:
            return None
    specials = tokenizer.specials
    return words + [(name, _CONTROL) for name in sorted(specials, key=lambda name: specials[name])]


def _pieces(words: list[tuple[str, int]]) -> Iterator[bytes]:
    for word, kind in words:
        score = bytes([2 << 3 | 5]) + struct.pack("<f", 0.0)
        yield _field(1, _field(1, word.encode()) + score + _field(3, kind))


def _field(number: int, value: int | bytes) -> bytes:
    """Encode one protobuf field: a number, or bytes with their length."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """
    >>> _varint(300).hex()
    'ac02'
    """
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
