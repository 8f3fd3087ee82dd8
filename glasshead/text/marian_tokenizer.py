"""Marian's tokenizer, made of two sentencepiece models, which are read without their library."""

import json
import struct
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from glasshead.errors import InputError
from glasshead.text.base_tokenizer import Ids
from glasshead.text.piece_tokenizer import HIDDEN, PieceTokenizer

__all__ = ["MarianTokenizer", "SentencePieces", "read_sentencepieces"]

_UNIGRAM = 1
_USED = (1, 4)  # normal and user-defined pieces; others stand for no text


@dataclass(frozen=True)
class SentencePieces:
    scores: dict[str, float]
    charsmap: bytes  # normalisation rules for characters
    one_space: bool  # whether several spaces become one


def read_sentencepieces(data: bytes, source: str) -> SentencePieces:
    """
    >>> read_sentencepieces(b"\\x0a\\x0a\\x0a\\x03abc\\x15\\x00\\x00\\x80\\xbf", "x.spm").scores
    {'abc': -1.0}
    """
    scores, charsmap, one_space, kind = dict[str, float](), b"", True, _UNIGRAM
    try:
        for field, value in _fields(data):
            if field == 1:
                piece = dict(_fields(value))
                if piece.get(3, 1) in _USED:
                    scores[piece[1].decode()] = piece.get(2, 0.0)
            elif field == 2:
                kind = dict(_fields(value)).get(3, _UNIGRAM)
            elif field == 3:
                rules = dict(_fields(value))
                charsmap, one_space = rules.get(2, b""), bool(rules.get(4, 1))
    except (IndexError, KeyError, ValueError, AttributeError, TypeError, struct.error) as error:
        raise InputError(
            f"{source} is not a sentencepiece model: {error!r}",
            hint="the file is damaged; get it again",
        ) from None
    if kind != _UNIGRAM or not scores:
        raise InputError(
            f"{source} is a sentencepiece model of kind {kind} with {len(scores)} pieces",
            hint="only models of kind 1 (unigram) are supported",
        )
    return SentencePieces(scores, charsmap, one_space)


class _Side(PieceTokenizer):
    """One language: its pieces decide how words are split, the vocabulary gives their ids."""

    def __init__(self, pieces: SentencePieces, vocabulary: Mapping[str, int]) -> None:
        marks = {"<pad>": "<pad>", "<unk>": "<unk>", "<bos>": "<pad>", "<eos>": "</s>"}
        numbers = {name: vocabulary[token] for name, token in marks.items()}
        self._unknown, specials = numbers["<unk>"], {*marks.values()}
        self._number_of = {token: n for token, n in vocabulary.items() if token not in specials}
        self._cut_into = {*self._number_of.values()}
        super().__init__(_cutter(pieces, vocabulary), numbers)
        # After the vocabulary come pieces without an id, which are encoded as unknown.
        self._table, self.byte_lengths = (
            self._table[: len(vocabulary)],
            self.byte_lengths[: len(vocabulary)],
        )

    def _numbers(self, found: tokenizers.Encoding) -> list[int]:
        # A token that is not among the pieces may be a word of the other language.
        return [
            number if number in self._cut_into else self._number_of.get(token, self._unknown)
            for number, token in zip(found.ids, found.tokens, strict=True)
        ]


class MarianTokenizer(_Side):
    """Two sentencepiece models, one for each language, over one vocabulary.

    It keeps the contents of the files, so that an export can write them again.
    """

    kind = "marian"

    def __init__(
        self, source: bytes, target: bytes, vocabulary: Mapping[str, int], name: str = "vocab.json"
    ) -> None:
        _check(vocabulary, name)
        super().__init__(read_sentencepieces(source, "source.spm"), vocabulary)
        self._target = _Side(read_sentencepieces(target, "target.spm"), vocabulary)
        self._spm = {"source": source, "target": target}
        self._vocabulary = dict(vocabulary)

    def target_ids(self, text: str) -> Ids:
        return self._target.encode_ids(text)

    @property
    def files(self) -> dict[str, bytes]:
        """The files as the transformers library reads them."""
        vocabulary = json.dumps(self._vocabulary, ensure_ascii=False, indent=2)
        named = {f"{side}.spm": data for side, data in self._spm.items()}
        return {**named, "vocab.json": vocabulary.encode()}

    def to_json(self) -> str:
        text = {side: b64encode(data).decode() for side, data in self._spm.items()}
        return self._own_json(**text, vocabulary=self._vocabulary)

    @classmethod
    def from_json(cls, data: Mapping[str, Any], name: str) -> "MarianTokenizer":
        """Load the result of `to_json`; raise InputError if it is damaged."""
        try:
            source, target = (b64decode(data[side], validate=True) for side in ("source", "target"))
            return cls(source, target, dict(data["vocabulary"]), name)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"{name} is not a tokenizer of two languages: {error!r}", hint="use a backup copy"
            ) from None


def _check(vocabulary: Mapping[str, int], name: str) -> None:
    for token in ("</s>", "<unk>", "<pad>"):
        if token not in vocabulary:
            raise InputError(f"{name} lacks {token}", hint="the file is damaged; get it again")
    numbers = [*vocabulary.values()]
    if not all(type(n) is int for n in numbers) or sorted(numbers) != list(range(len(numbers))):
        raise InputError(
            f"the ids of {name} are not the numbers 0 to {len(numbers) - 1}",
            hint="the file is damaged; get it again",
        )


def _cutter(pieces: SentencePieces, vocabulary: Mapping[str, int]) -> tokenizers.Tokenizer:
    lowest = min(pieces.scores.values())
    # Words of the other language are hidden, so that no text is split into them.
    entries = [
        (token if token in pieces.scores else HIDDEN + token, pieces.scores.get(token, lowest))
        for token in sorted(vocabulary, key=lambda token: vocabulary[token])
    ]
    commands = [token for token in vocabulary if _is_command(token)]
    for name in commands:
        entries[vocabulary[name]] = (name, lowest)
    # A piece without an id still splits the text: it is unknown as a whole.
    entries += [item for item in pieces.scores.items() if item[0] not in vocabulary]
    inner = tokenizers.Tokenizer(models.Unigram(entries, vocabulary["<unk>"], False))
    rules: list[Any] = [normalizers.Precompiled(pieces.charsmap)] if pieces.charsmap else []
    if pieces.one_space:
        rules += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    inner.normalizer = normalizers.Sequence(rules)
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    # They say which language to translate into, if there are several.
    inner.add_tokens([AddedToken(name, normalized=False, rstrip=True) for name in commands])
    inner.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", vocabulary["</s>"])]
    )
    return inner


def _is_command(token: str) -> bool:
    return len(token) > 4 and token.startswith(">>") and token.endswith("<<")


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a protocol buffer: their numbers, and integers, floats or bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        field, wire = tag >> 3, tag & 7
        match wire:
            case 0:
                value, at = _varint(data, at)
                yield field, value
            case 1:
                yield field, data[at : at + 8]
                at += 8
            case 2:
                size, at = _varint(data, at)
                if size > len(data) - at:
                    raise ValueError(f"a field of {size} bytes goes past the end")
                yield field, data[at : at + size]
                at += size
            case 5:
                yield field, struct.unpack_from("<f", data, at)[0]
                at += 4
            case _:
                raise ValueError(f"wire type {wire}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("a number is too long")
