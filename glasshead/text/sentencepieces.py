"""A sentencepiece model's file, read without its library: pieces, their scores, and what is done to
the text before it is cut."""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from glasshead.errors import InputError
from glasshead.text.pieces import HIDDEN, PieceTokenizer

__all__ = ["Pieces", "marian_tokenizer", "read_pieces"]

_UNIGRAM = 1
_USED = (1, 4)  # normal pieces and those a user asked for; others stand for no text


@dataclass(frozen=True)
class Pieces:
    scores: dict[str, float]
    charsmap: bytes  # which characters are written as which others
    one_space: bool  # whether several spaces become one


def read_pieces(data: bytes, source: str) -> Pieces:
    """
    >>> read_pieces(b"\\x0a\\x0a\\x0a\\x03abc\\x15\\x00\\x00\\x80\\xbf", "x.spm").scores
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
            f"{source} is no sentencepiece model: {error!r}",
            hint="the file is damaged; take it anew",
        ) from None
    if kind != _UNIGRAM or not scores:
        raise InputError(
            f"{source} is a sentencepiece model of kind {kind} with {len(scores)} pieces",
            hint="only those of kind 1 (unigram) can be read",
        )
    return Pieces(scores, charsmap, one_space)


def marian_tokenizer(pieces: Pieces, vocabulary: Mapping[str, int], source: str) -> PieceTokenizer:
    """Cuts the source language; spells both, since both share one vocabulary."""
    for name in ("</s>", "<unk>", "<pad>"):
        if name not in vocabulary:
            raise InputError(f"{source} lacks {name}", hint="the file is damaged; take it anew")
    if sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise InputError(
            f"{source}: its ids are not 0 to {len(vocabulary) - 1}",
            hint="the file is damaged; take it anew",
        )
    lowest = min(pieces.scores.values())
    # Words of the target alone are hidden, so that no text of the source becomes one. But a single
    # character that the source does not know may stand for itself.
    entries = [
        (token, pieces.scores.get(token, lowest - 10))
        if token in pieces.scores or len(token) == 1
        else (HIDDEN + token, lowest)
        for token in sorted(vocabulary, key=lambda token: vocabulary[token])
    ]
    commands = [token for token in vocabulary if _is_command(token)]
    for name in commands:
        entries[vocabulary[name]] = (name, lowest)
    inner = tokenizers.Tokenizer(models.Unigram(entries, vocabulary["<unk>"], False))
    rules: list[Any] = [normalizers.Precompiled(pieces.charsmap)] if pieces.charsmap else []
    if pieces.one_space:
        rules += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    inner.normalizer = normalizers.Sequence(rules)
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    # Which language to translate into, where there are several.
    inner.add_tokens([AddedToken(name, normalized=False, rstrip=True) for name in commands])
    inner.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", vocabulary["</s>"])]
    )
    marks = {"<pad>": "<pad>", "<unk>": "<unk>", "<bos>": "<pad>", "<eos>": "</s>"}
    return PieceTokenizer(inner, {name: vocabulary[token] for name, token in marks.items()})


def _is_command(token: str) -> bool:
    return len(token) > 4 and token.startswith(">>") and token.endswith("<<")


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a protocol buffer: their numbers, and integers, floats or bytes."""
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
