"""Join tokens to characters and words, and merge weights between tokens to weights between words.

    >>> tokens = ["It", "'s", " the", " ", b"\\xe7", b"\\x8c\\xab", "!"]
    >>> [word.text for word in words(tokens)]
    ["It's", 'the', '猫', '!']

A token is its text, or its bytes if they are not valid text. The weight on a word is the sum over
its tokens, and the weights of a word are the mean over its tokens: rows still sum to 1. Chinese is
written without spaces, and words are not guessed: they are single characters, or what the tokenizer
keeps together.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glasshead.errors import InputError, did_you_mean
from glasshead.text.tokenizer import Tokenizer

__all__ = [
    "Token",
    "Word",
    "as_token",
    "batch_tokens",
    "characters",
    "decode_tokens",
    "find_word",
    "merge",
    "single_tokens",
    "visible",
    "words",
]

Token = str | bytes
UNFINISHED = "unexpected end of data"  # what Python says of bytes that end inside a character


@dataclass(frozen=True)
class Word:
    """The tokens from start to stop, and their text."""

    text: str
    start: int
    stop: int


def decode_tokens(tokenizer: Tokenizer, ids: Sequence[int]) -> list[Token]:
    """Return the text or bytes of each id; the name of a special token."""
    names = {number: name for name, number in tokenizer.specials.items()}
    return [names[i] if i in names else as_token(tokenizer.token_bytes(i)) for i in ids]


def as_token(piece: bytes) -> Token:
    """Return the text of some bytes, or the bytes themselves if they are not valid UTF-8.

    >>> as_token("猫".encode()), as_token(b"\\xe7")
    ('猫', b'\\xe7')
    """
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return piece


def characters(tokens: Sequence[Token]) -> list[Word]:
    """Join tokens until they are valid text; bytes that never are are written as ⟨E5 B0⟩.

    >>> [word.text for word in characters(["a", b"\\xe7", b"\\x8c", b"\\xab", b"\\xe5\\xb0", "b"])]
    ['a', '猫', '⟨E5 B0⟩', 'b']
    """
    found: list[Word] = []
    pending, start = b"", 0
    for place, token in enumerate(tokens):
        piece = token.encode() if isinstance(token, str) else token
        if pending and _decode_error(pending + piece) not in (None, UNFINISHED):
            found.append(Word(_show_bytes(pending), start, place))
            pending, start = b"", place
        pending += piece
        if _decode_error(pending) != UNFINISHED:
            found.append(Word(_show_bytes(pending), start, place + 1))
            pending, start = b"", place + 1
    if pending:
        found.append(Word(_show_bytes(pending), start, len(tokens)))
    return found


def words(tokens: Sequence[Token]) -> list[Word]:
    """Return the words of a text, without the spaces around them; each token is in exactly one.

    Punctuation and line ends are words of their own.
    """
    found: list[Word] = []
    pieces = characters(tokens)
    for piece, after in zip(pieces, [*(p.text for p in pieces[1:]), ""], strict=False):
        if found and _belong_together(found[-1].text, piece.text, after):
            before = found.pop()
            piece = Word(before.text + piece.text, before.start, piece.stop)
        found.append(piece)
    if len(found) > 1 and _is_space(found[-1].text):
        end = found.pop()
        found[-1] = Word(found[-1].text, found[-1].start, end.stop)
    return [Word(word.text.strip() or word.text, word.start, word.stop) for word in found]


def single_tokens(tokens: Sequence[Token]) -> list[Word]:
    """Return each token as a word of its own."""
    return [
        Word(token if isinstance(token, str) else f"⟨{token.hex(' ').upper()}⟩", i, i + 1)
        for i, token in enumerate(tokens)
    ]


def merge(weights: Tensor, rows: Sequence[Word], cols: Sequence[Word]) -> Tensor:
    """Merge weights (..., T, S) between tokens to (..., rows, cols) between words.

    >>> w = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.5, 0.25, 0.25]])
    >>> merge(w, [Word("a", 0, 1), Word("bc", 1, 3)], [Word("ab", 0, 2), Word("c", 2, 3)])
    tensor([[1.0000, 0.0000],
            [0.8750, 0.1250]])
    """
    over = weights.new_zeros(*weights.shape[:-1], len(cols))
    over = over.index_add_(-1, _word_numbers(cols).to(weights.device), weights)
    out = weights.new_zeros(*weights.shape[:-2], len(rows), len(cols))
    out = out.index_add_(-2, _word_numbers(rows).to(weights.device), over)
    sizes = torch.tensor([word.stop - word.start for word in rows], device=weights.device)
    return out / sizes[:, None]


def find_word(wanted: str, among: Sequence[Word]) -> Word:
    """Return the last occurrence of one or several words; `它#1` is the first one of 它.

    >>> at = [Word(c, i, i + 1) for i, c in enumerate("小猫说它饿，它是猫")]
    >>> find_word("它", at).start, find_word("它#1", at).start, find_word("小猫", at)
    (6, 3, Word(text='小猫', start=0, stop=2))
    """
    bare, _, number = wanted.rpartition("#")
    places = _places(wanted, among)
    if places or not (bare and number.isdecimal()):
        nth = len(places)
    else:
        places, wanted, nth = _places(bare, among), bare, int(number)
    if not places:
        known = list(dict.fromkeys(word.text for word in among))
        few = known if len(known) <= 40 else [*known[:40], "..."]
        hint = did_you_mean(wanted, known)
        raise InputError(
            f"'{wanted}' is not in the text",
            hint=hint
            if hint.startswith("did")
            else f"choose one of: {' '.join(map(visible, few))}",
        )
    if not 1 <= nth <= len(places):
        raise InputError(
            f"'{wanted}' has no occurrence number {nth}",
            hint=f"it occurs {len(places)} times: {wanted}#1 is the first",
        )
    return places[nth - 1]


def visible(text: str) -> str:
    """Replace characters that cannot be seen by a sign.

    >>> visible("a\\n"), visible(" "), visible("")
    ('a↵', '␣', '∅')
    """
    if not text:
        return "∅"
    signs = {"\n": "↵", "\r": "␍", "\t": "⇥"}
    if text.isspace():
        signs |= {" ": "␣", "\u3000": "␣"}
    shown = "".join(signs.get(c, c) for c in text)
    return "".join(c if c.isprintable() or c == "\u3000" else f"⟨U+{ord(c):04X}⟩" for c in shown)


def _places(wanted: str, among: Sequence[Word]) -> list[Word]:
    """Return where neighbouring words spell what is wanted, ignoring spaces."""
    target = "".join(wanted.split()) or wanted
    found = []
    for first, word in enumerate(among):
        text = ""
        for last in among[first:]:
            text += "".join(last.text.split()) or last.text
            if text == target:
                found.append(Word(wanted, word.start, last.stop))
            if len(text) >= len(target):
                break
    return found


def _word_numbers(found: Sequence[Word]) -> Tensor:
    """Return the number of each token's word."""
    sizes = torch.tensor([word.stop - word.start for word in found], dtype=torch.int64)
    return torch.arange(len(found)).repeat_interleave(sizes)


def _decode_error(data: bytes) -> str | None:
    """Return Python's reason why these bytes are not valid UTF-8; None if they are."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.reason
    return None


def _show_bytes(data: bytes) -> str:
    """Decode bytes; write those that are not valid UTF-8 as ⟨E5 B0⟩."""
    text = ""
    while data:
        try:
            return text + data.decode()
        except UnicodeDecodeError as error:
            # Neighbouring bytes that are not valid are written together.
            stop = error.end
            while stop < len(data) and data[stop] & 0xC0 == 0x80:
                stop += 1
            bad = data[error.start : stop].hex(" ").upper()
            text += f"{data[: error.start].decode()}⟨{bad}⟩"
            data = data[stop:]
    return text


_APOSTROPHES = "'’"
_JOINER = "\u200d"


def _belong_together(before: str, here: str, after: str) -> bool:
    if not here or not before:
        return True  # a token without text
    if _is_space(before):
        return "\n" not in here[:1]
    last, first = before[-1], here[0]
    if unicodedata.category(first)[0] == "M" or _JOINER in (first, last):
        return True
    if first in _APOSTROPHES:
        return _in_word(last) and _in_word((here + after)[1:2])
    if last in _APOSTROPHES and _in_word(before[-2:-1]):
        last = before[-2]
    return _in_word(last) and _in_word(first)


def _is_space(text: str) -> bool:
    """Whether it is white space without a line end."""
    return text.isspace() and "\n" not in text and "\r" not in text


def _in_word(character: str) -> bool:
    """Whether it is a letter, digit or mark of a script that puts spaces between words."""
    if not character or unicodedata.category(character)[0] not in "LMN":
        return False
    wide = unicodedata.east_asian_width(character) in "WF"
    return not wide or "HANGUL" in unicodedata.name(character, "")


def batch_tokens(tokens: Any) -> list[list[str | bytes]] | None:
    """Return a list for each sequence; one list of tokens is a batch of one."""
    if tokens is None:
        return None
    listed = list(tokens)
    if all(isinstance(piece, str | bytes) for piece in listed):
        return [listed]
    return [list(sequence) for sequence in listed]
