"""Read the tokenizer of a transformers folder, and write ours for the transformers library.

A byte-level tokenizer becomes a `BPETokenizer`, which reproduces every text; others become a
`PieceTokenizer`, which is as exact as they are.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from glasshead.errors import InputError
from glasshead.files.checksums import check_content
from glasshead.files.reading import read_small
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
    "find_tokenizer",
    "to_hugging_face_json",
    "tokenizer_files",
    "wrap_tokenizer",
]

_LARGEST_FILE = 64 << 20  # bytes


def find_tokenizer(folder: Path) -> Tokenizer:
    """Read the files of Marian, a tokenizer.json, or the files of GPT-2 or BERT."""
    readers: dict[tuple[str, ...], Callable[..., Tokenizer]] = {
        # First: a tokenizer.json beside them would cover one language only.
        ("source.spm", "target.spm", "vocab.json"): _read_marian,
        ("tokenizer.json",): _read_json,
        ("vocab.json", "merges.txt"): _read_merges,
        ("vocab.txt",): _read_wordpieces,
    }
    for names, read in readers.items():
        files = [folder / name for name in names]
        if all(file.is_file() for file in files):
            return read(*files)
    raise InputError(
        f"{folder} has no tokenizer: neither {' nor '.join('+'.join(names) for names in readers)}",
        hint="save the model's tokenizer into the folder with save_pretrained",
    )


def to_hugging_face_json(tokenizer: Tokenizer) -> str:
    """Return a tokenizer.json that the transformers library loads, and that gives the same ids.

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
                hint="tokenizers of kind char, byte and bpe can",
            )
    inner.add_special_tokens(sorted(tokenizer.specials, key=lambda name: tokenizer.specials[name]))
    return str(inner.to_str())


def tokenizer_files(tokenizer: Tokenizer, *, lowercase: bool = False) -> dict[str, bytes]:
    """Return the files, by name, from which the transformers library reads a tokenizer.

    Args:
        lowercase: whether the tokenizer must lowercase texts.
    """
    if isinstance(tokenizer, MarianTokenizer):
        return tokenizer.files
    text = to_hugging_face_json(tokenizer)
    if lowercase:
        parts = json.loads(text)
        own = [parts["normalizer"]] if parts.get("normalizer") else []
        rules = {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, *own]}
        text = json.dumps({**parts, "normalizer": rules}, ensure_ascii=False)
    return {"tokenizer.json": text.encode()}


def wrap_tokenizer(inner: tokenizers.Tokenizer, source: str) -> Tokenizer:
    """Convert a tokenizer of the library to one of ours."""
    try:
        return tokenizer_from_json(inner.to_str(), source)
    except InputError:  # it is not byte-level, lacks bytes, or normalises the text
        try:
            return PieceTokenizer(inner)
        except InputError as error:
            raise InputError(f"{source}: {error}", hint=error.hint) from None


def _read_json(file: Path) -> Tokenizer:
    return wrap_tokenizer(read_inner(_text(file), str(file)), str(file))


def _read_merges(vocabulary: Path, merges: Path) -> Tokenizer:
    table = _load_json(vocabulary)
    lines = [line for line in _text(merges).split("\n") if line and not line.startswith("#version")]
    pairs = [tuple(line.split(" ")) for line in lines]
    if not all(isinstance(number, int) and number >= 0 for number in table.values()):
        raise _damaged_file(vocabulary, "an id is not a number")
    if wrong := next((line for line, pair in zip(lines, pairs, strict=True) if len(pair) != 2), ""):
        raise _damaged_file(merges, f"'{wrong}' is not two pieces")
    try:
        check_ids(table.values())
        inner = tokenizers.Tokenizer(models.BPE(table, pairs))  # type: ignore[arg-type]
        inner.pre_tokenizer, inner.decoder = split_gpt2_words(), decoders.ByteLevel()
        inner.add_special_tokens([name for name in ("<|endoftext|>",) if name in table])
        return BPETokenizer(inner)
    except InputError as error:
        raise InputError(f"{vocabulary}: {error}", hint=error.hint) from None
    except Exception as error:  # the library raises no narrower class
        raise _damaged_file(merges, str(error)) from None


def _read_marian(source: Path, target: Path, vocabulary: Path) -> Tokenizer:
    try:
        table = _load_json(vocabulary)
        return MarianTokenizer(_bytes(source), _bytes(target), table, str(vocabulary))
    except InputError:
        raise
    except Exception as error:  # the library raises no narrower class
        raise _damaged_file(source, str(error)) from None


def _read_wordpieces(file: Path) -> Tokenizer:
    """Read BERT's list of wordpieces; tokenizer_config.json says whether it lowercases."""
    words = _text(file).removesuffix("\n").split("\n")
    config = file.parent / "tokenizer_config.json"
    lowercase = _load_json(config).get("do_lower_case", True) if config.is_file() else True
    numbers = {word: number for number, word in enumerate(words)}
    if missing := [name for name in ("[UNK]", "[CLS]", "[SEP]") if name not in numbers]:
        raise _damaged_file(file, f"it lacks {missing[0]}")
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
        content = read_small(file)
        check_content(file, content)
        return content
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}", hint="check the folder") from None


def _text(file: Path) -> str:
    try:
        return _bytes(file).decode("utf-8")
    except UnicodeDecodeError as error:
        raise _damaged_file(file, f"invalid UTF-8 at byte {error.start}") from None


def _load_json(file: Path) -> dict[str, Any]:
    try:
        data = json.loads(_text(file))
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise _damaged_file(file, str(error)) from None
    if not isinstance(data, dict):
        raise _damaged_file(file, "it is not a JSON object")
    return data


def _damaged_file(file: Path, why: str) -> InputError:
    return InputError(f"{file} cannot be used: {why}", hint="the file is damaged; get it again")
