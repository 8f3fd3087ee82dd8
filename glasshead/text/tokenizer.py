"""Tokenizers: characters, bytes, byte-level BPE, or the words of a list.

    >>> tokenizer = CharTokenizer.train("春江潮水")
    >>> encoded = tokenizer.encode("江水")
    >>> encoded.ids.tolist(), encoded.offsets.tolist()
    ([2, 1], [[0, 3], [3, 6]])

`<eos>` typed in a text is five characters, never the special token.
"""

import codecs
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

from glasshead.errors import ConfigError, InputError, UnknownCharacterError, did_you_mean
from glasshead.files.reading import read_small
from glasshead.text.base_tokenizer import (
    VERSION,
    Encoded,
    Ids,
    Tokenizer,
    number_specials,
    utf8,
)
from glasshead.text.bpe import BPETokenizer, check_ids
from glasshead.text.marian_tokenizer import MarianTokenizer
from glasshead.text.piece_tokenizer import PieceTokenizer
from glasshead.text.word_tokenizer import WordTokenizer

__all__ = [
    "BPETokenizer",
    "ByteTokenizer",
    "CharTokenizer",
    "Encoded",
    "MarianTokenizer",
    "PieceTokenizer",
    "StreamDecoder",
    "Tokenizer",
    "WordTokenizer",
    "load_tokenizer",
    "place_after",
    "read_inner",
    "tokenizer_from_json",
    "unknown_character",
]


class CharTokenizer(Tokenizer):
    """One id for each distinct character of the training text, in order of code point."""

    kind = "char"

    def __init__(self, characters: str, specials: Sequence[str] = ()) -> None:
        if not characters or list(characters) != sorted(set(characters)):
            raise InputError(
                "a vocabulary needs at least one character; they must be distinct and sorted",
                hint="make it from a text: CharTokenizer.train(text)",
            )
        self.characters = characters
        names = number_specials(specials, first=len(characters))
        super().__init__([utf8(char) for char in characters] + [b""] * len(names), names)
        codes = _code_points(characters)
        # The last entry stays unknown and represents every code point beyond it.
        self._id_of = np.full(int(codes[-1]) + 2, -1, dtype=np.int32)
        self._id_of[codes] = np.arange(len(codes), dtype=np.int32)

    @classmethod
    def train(cls, texts: str | Iterable[str], specials: Sequence[str] = ()) -> "CharTokenizer":
        characters: set[str] = set()
        for text in [texts] if isinstance(texts, str) else texts:
            utf8(text)
            characters.update(text)
        if not characters:
            raise InputError("the training text is empty", hint="give a file that contains text")
        return cls("".join(sorted(characters)), specials)

    def encode_ids(self, text: str) -> Ids:
        ids = self._id_of[np.minimum(_code_points(text), len(self._id_of) - 1)]
        unknown = np.flatnonzero(ids < 0)
        if unknown.size:
            index = int(unknown[0])
            raise unknown_character(text[index], *place_after(text[:index]))
        return ids

    def to_json(self) -> str:
        return self._own_json(characters=self.characters)


class ByteTokenizer(Tokenizer):
    """The 256 bytes: encodes any text, most Chinese characters as three ids."""

    kind = "byte"

    def __init__(self, specials: Sequence[str] = ()) -> None:
        names = number_specials(specials, first=256)
        super().__init__([bytes([value]) for value in range(256)] + [b""] * len(names), names)

    def encode_ids(self, text: str) -> Ids:
        return np.frombuffer(utf8(text), dtype=np.uint8).astype(np.int32)

    def to_json(self) -> str:
        return self._own_json()


class StreamDecoder:
    """Decodes ids one by one into whole characters.

    >>> stream = StreamDecoder(ByteTokenizer())
    >>> [stream.push(token) for token in "春".encode()]
    ['', '', '春']
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        return self._decoder.decode(self._tokenizer.token_bytes(token))

    def flush(self) -> str:
        """Return what is left; an incomplete character becomes U+FFFD."""
        return self._decoder.decode(b"", final=True)


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Load a `tokenizer.json` of any kind."""
    try:
        content = read_small(path)
    except OSError as error:
        raise InputError(f"cannot read the tokenizer {path}: {error.strerror}", _NAME) from None
    return tokenizer_from_bytes(content, str(path))


def tokenizer_from_bytes(content: bytes, name: str) -> Tokenizer:
    """Load a tokenizer from the content of a file."""
    try:
        return tokenizer_from_json(content.decode("utf-8"), name)
    except UnicodeDecodeError as error:
        reason = f"invalid UTF-8 at byte {error.start}"
        raise InputError(f"{name} is not a tokenizer: {reason}", _NAME) from None


_OWN = ("char", "byte", "word", "pieces", "marian")  # kinds that are stored in our own format
_NAME = "name the tokenizer.json of a run"
_DAMAGED = "the file may be damaged: copy it from another checkpoint, or train again"


def tokenizer_from_json(text: str, name: str = "tokenizer.json") -> Tokenizer:
    """Load a tokenizer from the result of `to_json`; `name` is used in errors."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not JSON: {error}", hint=_DAMAGED) from None
    if isinstance(data, dict) and data.get("glasshead") == "tokenizer":
        return _load_own(data, name)
    if isinstance(data, dict) and isinstance(data.get("model"), dict):
        return _load_hugging_face(data, text, name)
    raise InputError(f"{name} is not a tokenizer, neither ours nor Hugging Face's", _NAME)


def _load_own(data: dict[str, Any], name: str) -> Tokenizer:
    version, kind = data.get("version"), data.get("kind")
    if not isinstance(version, int) or version > VERSION:
        raise InputError(
            f"{name} has format {version!r}, but this glasshead reads up to {VERSION}",
            hint="install a newer glasshead",
        )
    if kind not in _OWN:
        raise InputError(
            f"{name} has an unknown kind of tokenizer {kind!r}", did_you_mean(str(kind), _OWN)
        )
    if kind == "marian":
        return MarianTokenizer.from_json(data, name)
    specials = data.get("specials")
    if not isinstance(specials, dict) or not all(type(i) is int for i in specials.values()):
        raise InputError(f"{name}: 'specials' {specials!r} do not map names to ids", hint=_DAMAGED)
    if kind == "pieces":
        try:
            return PieceTokenizer(read_inner(json.dumps(data.get("tokenizer")), name), specials)
        except InputError as error:
            raise InputError(f"{name}: {error}", hint=_DAMAGED) from None
    names = sorted(specials, key=lambda special: int(specials[special]))
    characters = data.get("characters", "")
    if not isinstance(characters, str):
        raise InputError(f"{name}: 'characters' {characters!r} is not text", hint=_DAMAGED)
    words = data.get("words", [])
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise InputError(f"{name}: 'words' is not a list of words", hint=_DAMAGED)
    try:
        tokenizer: Tokenizer
        match kind:
            case "word":
                tokenizer = WordTokenizer(words, names)
            case "byte":
                tokenizer = ByteTokenizer(names)
            case _:
                tokenizer = CharTokenizer(characters, names)
    except (InputError, ConfigError) as error:
        raise InputError(f"{name}: {error}", hint=_DAMAGED) from None
    if tokenizer.specials != specials:
        raise InputError(f"{name}: the ids of the special tokens are wrong: {specials}", _DAMAGED)
    return tokenizer


def _load_hugging_face(data: dict[str, Any], text: str, name: str) -> Tokenizer:
    kind, before = data["model"].get("type"), json.dumps(data.get("pre_tokenizer"))
    reasons = {
        f"its model is {kind}": kind != "BPE",
        "it is not byte-level": '"ByteLevel"' not in before,
        "it changes the text before splitting it": data.get("normalizer") is not None,
        "it adds a space before the text": '"add_prefix_space": true' in before,
    }
    for reason, holds in reasons.items():
        if holds:
            raise InputError(
                f"{name} cannot be used: {reason}",
                hint="use a byte-level BPE like GPT-2's, or train one",
            )
    try:
        return BPETokenizer(read_inner(text, name))
    except InputError as error:
        raise InputError(f"{name}: {error}", hint=error.hint) from None


def read_inner(text: str, name: str = "tokenizer.json") -> tokenizers.Tokenizer:
    """Load a tokenizer of the library, after checking ids, for which it would allocate memory."""
    try:
        data = json.loads(text)
        vocabulary = data["model"].get("vocab", [])
        added = [token["id"] for token in data.get("added_tokens", [])]
        check_ids([*added, *(vocabulary.values() if isinstance(vocabulary, dict) else [])])
        return tokenizers.Tokenizer.from_str(text)
    except BaseException as error:  # the library raises no narrower class, and panics beside it
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise InputError(f"{name} is damaged: {error}", hint=_DAMAGED) from None


def _code_points(text: str) -> NDArray[np.uint32]:
    utf32 = text.encode("utf-32-le", errors="surrogatepass")
    return np.frombuffer(utf32, dtype="<u4")


def place_after(text: str, line: int = 1, column: int = 1, index: int = 0) -> tuple[int, int, int]:
    """Return line, column and index of what follows a text that began at this place.

    >>> place_after("ab\\ncd"), place_after("e", 2, 3, 5)
    ((2, 3, 5), (2, 4, 6))
    """
    ends = text.count("\n")
    column = len(text) - text.rfind("\n") if ends else column + len(text)
    return line + ends, column, index + len(text)


def unknown_character(character: str, line: int, column: int, index: int) -> UnknownCharacterError:
    return UnknownCharacterError(
        f"character {character!r} (U+{ord(character):04X}) at line {line}, column {column} "
        f"(index {index}) was not in the training text",
        hint="remove it, or train with --tokenizer bpe or byte, which know every character",
    )
