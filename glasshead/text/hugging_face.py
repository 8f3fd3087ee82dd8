"""The tokenizer in another program's folder, and ours as another program reads it.

A tokenizer that works on bytes becomes a `BPETokenizer`, which gives back every text; others become
a `PieceTokenizer`, which is as exact as they are.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from glasshead.errors import InputError
from glasshead.text.bpe import VISIBLE_BYTES, BPETokenizer, check_ids, split_gpt2_words
from glasshead.text.piece_tokenizer import PieceTokenizer
from glasshead.text.tokenizer import (
    ByteTokenizer,
    CharTokenizer,
    MarianTokenizer,
    Tokenizer,
    read_inner,
    tokenizer_from_json,
)

__all__ = [
    "byte_level_bpe",
    "find_tokenizer",
    "to_hugging_face_json",
    "tokenizer_files",
    "wrap_tokenizer",
]

_MOST = 64 << 20  # bytes of a file


def find_tokenizer(folder: Path) -> Tokenizer:
    """By the files of Marian, by tokenizer.json, or by the files of GPT-2 or BERT."""
    ways: dict[tuple[str, ...], Callable[..., Tokenizer]] = {
        # First: a tokenizer.json beside them could cut one language only.
        ("source.spm", "target.spm", "vocab.json"): _from_marian,
        ("tokenizer.json",): _from_json,
        ("vocab.json", "merges.txt"): _from_merges,
        ("vocab.txt",): _from_words,
    }
    for names, way in ways.items():
        files = [folder / name for name in names]
        if all(file.is_file() for file in files):
            return way(*files)
    raise InputError(
        f"{folder} has no tokenizer: neither {' nor '.join('+'.join(names) for names in ways)}",
        hint="save the model's tokenizer into the folder, with save_pretrained",
    )


def byte_level_bpe(
    vocabulary: dict[str, int], merges: list[tuple[str, str]], specials: list[str]
) -> BPETokenizer:
    """A tokenizer as GPT-2's, from its table and its merges."""
    check_ids(vocabulary.values())
    inner = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
    inner.pre_tokenizer = split_gpt2_words()
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([name for name in specials if name in vocabulary])
    return BPETokenizer(inner)


def to_hugging_face_json(tokenizer: Tokenizer) -> str:
    """A tokenizer.json that the transformers library loads, and that gives the same ids.

    >>> inner = tokenizers.Tokenizer.from_str(to_hugging_face_json(CharTokenizer("abc", ["<eos>"])))
    >>> inner.encode("cab").ids, inner.decode([2, 0]), inner.token_to_id("<eos>")
    ([2, 0, 1], 'ca', 3)
    """
    match tokenizer:
        case BPETokenizer() | PieceTokenizer():
            return tokenizer.hugging_face_json()
        case CharTokenizer():
            vocabulary = {char: number for number, char in enumerate(tokenizer.characters)}
            inner = tokenizers.Tokenizer(models.BPE(vocabulary, []))
            inner.decoder = decoders.Fuse()
        case ByteTokenizer():
            vocabulary = dict(VISIBLE_BYTES)
            inner = tokenizers.Tokenizer(models.BPE(vocabulary, []))
            inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            inner.decoder = decoders.ByteLevel()
        case _:
            raise InputError(
                f"a tokenizer of kind '{tokenizer.kind}' cannot be exported",
                hint="these can: char, byte, bpe",
            )
    inner.add_special_tokens(sorted(tokenizer.specials, key=lambda name: tokenizer.specials[name]))
    return str(inner.to_str())


def tokenizer_files(tokenizer: Tokenizer, *, lowercase: bool = False) -> dict[str, bytes]:
    """What the transformers library reads a tokenizer from, by the files' names.

    Args:
        lowercase: whether texts are to be read in small letters.
    """
    if isinstance(tokenizer, MarianTokenizer):
        return tokenizer.files
    written = to_hugging_face_json(tokenizer)
    if lowercase:
        parts = json.loads(written)
        before = [parts["normalizer"]] if parts.get("normalizer") else []
        rules = {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, *before]}
        written = json.dumps({**parts, "normalizer": rules}, ensure_ascii=False)
    return {"tokenizer.json": written.encode()}


def wrap_tokenizer(inner: tokenizers.Tokenizer, source: str) -> Tokenizer:
    """A tokenizer of the library as one of ours."""
    try:
        return tokenizer_from_json(inner.to_str(), source)
    except InputError:  # it does not work on bytes, or not on all, or changes the text first
        try:
            return PieceTokenizer(inner)
        except InputError as error:
            raise InputError(f"{source}: {error}", hint=error.hint) from None


def _from_json(file: Path) -> Tokenizer:
    return wrap_tokenizer(read_inner(_text(file), str(file)), str(file))


def _from_merges(vocabulary: Path, merges: Path) -> Tokenizer:
    table = _json(vocabulary)
    lines = [line for line in _text(merges).split("\n") if line and not line.startswith("#version")]
    pairs = [tuple(line.split(" ")) for line in lines]
    if not all(isinstance(number, int) and number >= 0 for number in table.values()):
        raise _damaged(vocabulary, "an id is no number")
    if wrong := next((line for line, pair in zip(lines, pairs, strict=True) if len(pair) != 2), ""):
        raise _damaged(merges, f"'{wrong}' is not two pieces")
    try:
        return byte_level_bpe(table, pairs, ["<|endoftext|>"])  # type: ignore[arg-type]
    except InputError as error:
        raise InputError(f"{vocabulary}: {error}", hint=error.hint) from None
    except Exception as error:  # the library raises no narrower class
        raise _damaged(merges, str(error)) from None


def _from_marian(source: Path, target: Path, vocabulary: Path) -> Tokenizer:
    try:
        return MarianTokenizer(_bytes(source), _bytes(target), _json(vocabulary), str(vocabulary))
    except InputError:
        raise
    except Exception as error:  # the library raises no narrower class
        raise _damaged(source, str(error)) from None


def _from_words(file: Path) -> Tokenizer:
    """BERT's list of wordpieces; whether letters are made small stands beside it."""
    words = _text(file).removesuffix("\n").split("\n")
    beside = file.parent / "tokenizer_config.json"
    lowercase = _json(beside).get("do_lower_case", True) if beside.is_file() else True
    numbers = {word: number for number, word in enumerate(words)}
    if missing := [name for name in ("[UNK]", "[CLS]", "[SEP]") if name not in numbers]:
        raise _damaged(file, f"it lacks {missing[0]}")
    inner = tokenizers.Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer(lowercase=lowercase is not False)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece()
    inner.add_special_tokens(
        [name for name in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") if name in numbers]
    )
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[(name, numbers[name]) for name in ("[CLS]", "[SEP]")],
    )
    return PieceTokenizer(inner)


def _bytes(file: Path) -> bytes:
    try:
        if (size := file.stat().st_size) > _MOST:
            raise _damaged(file, f"{size} bytes are too many")
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}", hint="check the folder") from None


def _text(file: Path) -> str:
    try:
        return _bytes(file).decode("utf-8")
    except UnicodeDecodeError as error:
        raise _damaged(file, f"invalid UTF-8 at byte {error.start}") from None


def _json(file: Path) -> dict[str, Any]:
    try:
        data = json.loads(_text(file))
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise _damaged(file, str(error)) from None
    if not isinstance(data, dict):
        raise _damaged(file, "it is no object")
    return data


def _damaged(file: Path, why: str) -> InputError:
    return InputError(f"{file} cannot be used: {why}", hint="the file is damaged; take it anew")
