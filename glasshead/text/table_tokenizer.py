"""What every tokenizer is, and what follows from its table id -> bytes.

Ids stand for bytes, whatever the kind of tokenizer: decoding joins the table's entries, and
offsets are running sums of their lengths. Specials such as `<eos>` stand for no bytes at all.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from glasshead.errors import ConfigError, InputError

__all__ = ["VERSION", "Encoded", "Ids", "TableTokenizer", "Tokenizer", "number_specials", "utf8"]

Ids = NDArray[np.int32]
VERSION = 1  # of our own tokenizer.json, which BPE alone does not have


@dataclass(frozen=True, eq=False)
class Encoded:
    """Ids, and for each the bytes [start, end) of the UTF-8 text that it stands for."""

    ids: Ids  # (n,)
    offsets: NDArray[np.int64]  # (n, 2)


class Tokenizer(Protocol):
    """What the rest of the program may ask of a tokenizer."""

    kind: ClassVar[str]  # char, byte, bpe, word, pieces or marian
    exact: ClassVar[bool]  # whether `decode` gives back every text
    specials: dict[str, int]  # name -> id
    byte_lengths: NDArray[np.int64]  # (vocab_size,): bytes of text behind each id

    @property
    def vocab_size(self) -> int: ...
    @property
    def fingerprint(self) -> str: ...
    def encode(self, text: str) -> Encoded: ...
    def encode_ids(self, text: str) -> Ids: ...
    def prompt_ids(self, text: str) -> list[int]: ...
    def target_ids(self, text: str) -> Ids: ...
    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str: ...
    def decode_bytes(self, ids: Sequence[int] | NDArray[Any]) -> bytes: ...
    def token_bytes(self, token: int) -> bytes: ...
    def to_json(self) -> str: ...
    def save(self, path: str | Path) -> None: ...


class TableTokenizer(ABC):
    """The shared half of every tokenizer; a kind adds `encode_ids` and `to_json`."""

    kind: ClassVar[str]
    exact: ClassVar[bool] = True
    # Specials that the model is used to find before and behind a text; ours are used to none.
    marks: tuple[list[int], list[int]] = ([], [])

    def __init__(self, table: Sequence[bytes], specials: dict[str, int]) -> None:
        self.specials = specials
        self._table = list(table)
        self.byte_lengths = np.array([len(entry) for entry in self._table], dtype=np.int64)

    @abstractmethod
    def encode_ids(self, text: str) -> Ids: ...

    @abstractmethod
    def to_json(self) -> str: ...

    @property
    def vocab_size(self) -> int:
        return len(self._table)

    @property
    def fingerprint(self) -> str:
        return sha256(self.to_json().encode()).hexdigest()

    def encode(self, text: str) -> Encoded:
        ids = self.encode_ids(text)
        lengths = self.byte_lengths[ids]
        ends = np.cumsum(lengths)
        return Encoded(ids, np.stack([ends - lengths, ends], axis=1))

    def prompt_ids(self, text: str) -> list[int]:
        """The ids of a whole text as its model is used to be given it."""
        before, behind = self.marks
        return [*before, *self.encode_ids(text).tolist(), *behind]

    def target_ids(self, text: str) -> Ids:
        """The ids of a translation; a tokenizer of two languages cuts its words by the second."""
        return self.encode_ids(text)

    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """The text; bytes that are not UTF-8 show as U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def decode_bytes(self, ids: Sequence[int] | NDArray[Any]) -> bytes:
        array = np.asarray(ids, dtype=np.int64).ravel()
        wrong = np.flatnonzero((array < 0) | (array >= self.vocab_size))
        if wrong.size:
            raise InputError(
                f"id {array[wrong[0]]} is not in a vocabulary of {self.vocab_size}",
                hint="the ids come from another tokenizer, or from a model with more of them",
            )
        return b"".join([self._table[token] for token in array.tolist()])

    def token_bytes(self, token: int) -> bytes:
        return self.decode_bytes([token])

    def save(self, path: str | Path) -> None:
        Path(path).write_bytes(self.to_json().encode())

    def _own_json(self, **fields: object) -> str:
        head = {"glasshead": "tokenizer", "version": VERSION, "kind": self.kind}
        return json.dumps({**head, **fields, "specials": self.specials}, ensure_ascii=False)


def number_specials(names: Sequence[str], first: int) -> dict[str, int]:
    """Ids for the specials, from `first` on.

    Their names mix letters with < and >, which no word of ours does: so BPE can never merge typed
    text into an entry that has the name, and with it the id, of a special.
    """
    for name in names:
        if not re.fullmatch(r"<\|?\w+\|?>", name):
            raise ConfigError(
                f"special {name!r} is not a name in angle brackets", hint="write it like <eos>"
            )
    if len(set(names)) != len(names):
        raise ConfigError(f"a special occurs twice in {list(names)}", hint="name each once")
    return {name: first + index for index, name in enumerate(names)}


def utf8(text: str) -> bytes:
    """The text's bytes; half characters, as a mistyped argument can hold, are an error.

    >>> utf8("江").hex()
    'e6b19f'
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"the text has half a character (U+{ord(text[error.start]):04X}) "
            f"at index {error.start}, which UTF-8 cannot hold",
            hint="the text was probably not UTF-8 where it came from; convert it first",
        ) from None
