"""The base class of all tokenizers: what follows from a table id -> bytes.

Whatever the kind of tokenizer, an id stands for bytes: decoding joins the table's entries, and
offsets are running sums of their lengths. Special tokens such as `<eos>` stand for no bytes.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from glasshead.errors import ConfigError, InputError

__all__ = ["VERSION", "Encoded", "Ids", "Tokenizer", "number_specials", "utf8"]

Ids = NDArray[np.int32]
VERSION = 1  # of our own tokenizer.json format, which all kinds but BPE use


@dataclass(frozen=True, eq=False)
class Encoded:
    """Ids, and for each the bytes [start, end) of the UTF-8 text that it covers."""

    ids: Ids  # (n,)
    offsets: NDArray[np.int64]  # (n, 2)


class Tokenizer(ABC):
    """What all tokenizers share; a kind adds `encode_ids` and `to_json`."""

    kind: ClassVar[str]  # char, byte, bpe, word, pieces or marian
    exact: ClassVar[bool] = True  # whether `decode` reproduces every text
    # Special tokens before and after a text, as the model was trained; ours have none.
    marks: tuple[list[int], list[int]] = ([], [])

    def __init__(self, table: Sequence[bytes], specials: dict[str, int]) -> None:
        self.specials = specials  # name -> id
        self._table = list(table)
        # (vocab_size,): the bytes of text of each id
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
        """Encode a whole text, with the special tokens that its model expects around it."""
        before, after = self.marks
        return [*before, *self.encode_ids(text).tolist(), *after]

    def target_ids(self, text: str) -> Ids:
        """Encode a translation; a tokenizer of two languages uses the second."""
        return self.encode_ids(text)

    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """Return the text; bytes that are not UTF-8 become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def decode_bytes(self, ids: Sequence[int] | NDArray[Any]) -> bytes:
        array = np.asarray(ids, dtype=np.int64).ravel()
        wrong = np.flatnonzero((array < 0) | (array >= self.vocab_size))
        if wrong.size:
            raise InputError(
                f"id {array[wrong[0]]} is not in a vocabulary of {self.vocab_size}",
                hint="the ids come from another tokenizer, or from a model with more ids",
            )
        return b"".join([self._table[token] for token in array.tolist()])

    def token_bytes(self, token: int) -> bytes:
        if 0 <= token < len(self._table):  # without NumPy: a server decodes every id by itself
            return self._table[token]
        return self.decode_bytes([token])  # which raises

    def save(self, path: str | Path) -> None:
        Path(path).write_bytes(self.to_json().encode())

    def _own_json(self, **fields: object) -> str:
        head = {"glasshead": "tokenizer", "version": VERSION, "kind": self.kind}
        return json.dumps({**head, **fields, "specials": self.specials}, ensure_ascii=False)


def number_specials(names: Sequence[str], first: int) -> dict[str, int]:
    """Number the special tokens, starting with `first`.

    Their names mix letters with < and >, which our words never do, so BPE cannot merge typed text
    into a token with the name, and the id, of a special token.
    """
    for name in names:
        if not re.fullmatch(r"<\|?\w+\|?>", name):
            raise ConfigError(
                f"special token {name!r} is not a name in angle brackets", hint="write it as <eos>"
            )
    if len(set(names)) != len(names):
        raise ConfigError(f"a special token occurs twice in {list(names)}", hint="name each once")
    return {name: first + index for index, name in enumerate(names)}


def utf8(text: str) -> bytes:
    """Encode a text; raise if it has half of a surrogate pair, as a bad argument can.

    >>> utf8("江").hex()
    'e6b19f'
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"the text has half of a surrogate pair (U+{ord(text[error.start]):04X}) "
            f"at index {error.start}, which UTF-8 cannot encode",
            hint="the text was probably not UTF-8 originally; convert it first",
        ) from None
