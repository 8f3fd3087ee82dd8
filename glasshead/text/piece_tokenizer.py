"""Tokenizers of other programs that are not byte-level: wordpieces, sentencepieces."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

from glasshead.errors import InputError
from glasshead.text.base_tokenizer import Encoded, Ids, Tokenizer, utf8
from glasshead.text.bpe import empty_table, find_marks, token_to_bytes

__all__ = ["HIDDEN", "PieceTokenizer"]

HIDDEN = "\0"  # before a token that no text is encoded to, but that can be decoded


class PieceTokenizer(Tokenizer):
    """Any tokenizer of the Hugging Face `tokenizers` library.

    It may change the text before splitting it (lowercase, merge spaces), and an unknown word may
    become `[UNK]`, so `decode` does not always reproduce the text (`exact` is False); only offsets
    say where a piece is in the text. `names` are additional special tokens.
    """

    kind = "pieces"
    exact = False

    def __init__(self, inner: tokenizers.Tokenizer, names: Mapping[str, int] | None = None) -> None:
        # Not stored in the file; without it, "[SEP]" in a text becomes the special token.
        inner.encode_special_tokens = True
        inner.no_truncation()
        inner.no_padding()
        self._inner = inner
        added = inner.get_added_tokens_decoder()
        vocabulary = inner.get_vocab(with_added_tokens=True)
        parts = json.loads(inner.to_str())
        spell, others = _spelling(parts), {*(names or {}).values()}
        table = empty_table(vocabulary)
        for token, number in vocabulary.items():
            special = (number in added and added[number].special) or number in others
            table[number] = b"" if special else spell(token)
        specials = {str(token.content): number for number, token in added.items() if token.special}
        super().__init__(table, {**specials, **(names or {})})
        if wrong := [name for name, n in self.specials.items() if not 0 <= n < len(table)]:
            raise InputError(
                f"the id of special token {wrong[0]} is not in a vocabulary of {len(table)}",
                hint="the file is damaged; get it again",
            )
        self.marks = find_marks(inner)
        self._opens_with_space = spell is not token_to_bytes

    def encode_ids(self, text: str) -> Ids:
        return self.encode(text).ids

    def encode(self, text: str) -> Encoded:
        utf8(text)
        found = self._inner.encode(text, add_special_tokens=False)
        lengths = [len(character.encode()) for character in text]
        starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])  # of each character
        offsets = np.array(found.offsets, dtype=np.int64).reshape(-1, 2)
        return Encoded(np.array(self._numbers(found), dtype=np.int32), starts[offsets])

    def _numbers(self, found: tokenizers.Encoding) -> list[int]:
        return list(found.ids)

    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        text = super().decode(ids)
        return text.removeprefix(" ") if self._opens_with_space else text

    def to_json(self) -> str:
        return self._own_json(tokenizer=json.loads(self._inner.to_str()))

    def hugging_face_json(self) -> str:
        return str(self._inner.to_str())


def _spelling(parts: dict[str, Any]) -> Callable[[str], bytes]:
    """Return the function from a token of the vocabulary to its bytes."""
    model, around = parts["model"], json.dumps([parts.get("pre_tokenizer"), parts.get("decoder")])
    if '"ByteLevel"' in around:
        return token_to_bytes
    if model.get("type") == "WordPiece":
        prefix = str(model.get("continuing_subword_prefix") or "##")
        return lambda token: (
            token.removeprefix(prefix) if token.startswith(prefix) else f" {token}"
        ).encode()
    return _sentencepiece_to_bytes


def _sentencepiece_to_bytes(token: str) -> bytes:
    """
    >>> _sentencepiece_to_bytes("▁cat"), _sentencepiece_to_bytes("<0xE6>")
    (b' cat', b'\\xe6')
    """
    if byte := re.fullmatch("<0x([0-9A-F]{2})>", token):
        return bytes.fromhex(byte[1])
    return token.removeprefix(HIDDEN).replace("▁", " ").encode()
