"""Read and write the tokenizer of a GGUF file: vocabulary, merges, and a name for the rest."""

import json
from collections.abc import Mapping
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from glasshead.errors import InputError
from glasshead.text.bpe import split_gpt2_words
from glasshead.text.hugging_face import wrap_tokenizer
from glasshead.text.sentencepiece_model import piece_table
from glasshead.text.tokenizer import (
    BPETokenizer,
    ByteTokenizer,
    CharTokenizer,
    PieceTokenizer,
    Tokenizer,
)

__all__ = ["read_tokenizer", "tokenizer_fields"]

# What a piece may consist of; {digits} is how many digits.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_NORMAL, _CONTROL, _USER, _UNUSED = 1, 3, 4, 5
_HINT = "put the model's tokenizer.json beside the file"


def _split(digits: str) -> Any:
    pattern = Regex(_WORDS.format(digits=digits))
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pattern, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _gpt2(*before: Any) -> Any:
    return pre_tokenizers.Sequence([*before, split_gpt2_words()])


_PRE_TOKENIZERS = {
    "gpt-2": _gpt2,
    "default": _gpt2,
    "smollm": lambda: _gpt2(pre_tokenizers.Digits(individual_digits=True)),
    "llama-bpe": lambda: _split("{1,3}"),
    "qwen2": lambda: _split(""),
}


def read_tokenizer(fields: Mapping[str, Any], source: str) -> Tokenizer:
    """Make a tokenizer of the fields tokenizer.ggml.*."""

    def get(name: str) -> Any:
        return fields.get(f"tokenizer.ggml.{name}")

    kind, pre, tokens, merges = get("model"), get("pre") or "default", get("tokens"), get("merges")
    if kind == "llama" and (found := _read_simple(tokens, get("token_type"))) is not None:
        return found
    if kind != "gpt2" or pre not in _PRE_TOKENIZERS:
        raise InputError(f"{source} has an unknown tokenizer ({kind}, {pre})", hint=_HINT)
    if not isinstance(tokens, list) or not isinstance(merges, list):
        raise InputError(f"{source} lacks the vocabulary or the merges of its tokenizer", _HINT)
    types = get("token_type") or [_NORMAL] * len(tokens)
    try:
        vocabulary = {
            str(token): number
            for number, (token, kind_of_token) in enumerate(zip(tokens, types, strict=True))
            if kind_of_token != _UNUSED
        }
        pairs = [tuple(merge.split(" ")) for merge in merges]
        model = models.BPE(vocabulary, pairs, ignore_merges=pre == "llama-bpe")
        inner = tokenizers.Tokenizer(model)
        inner.pre_tokenizer, inner.decoder = _PRE_TOKENIZERS[pre](), decoders.ByteLevel()
        if pre == "qwen2":
            inner.normalizer = normalizers.NFC()
        for kind_of_token, special in ((_CONTROL, True), (_USER, False)):
            named = [t for t, n in zip(tokens, types, strict=True) if n == kind_of_token]
            inner.add_tokens([AddedToken(t, special=special, normalized=False) for t in named])
        if get("add_bos_token") and isinstance(bos := get("bos_token_id"), int):
            inner.post_processor = processors.TemplateProcessing(
                single=f"{tokens[bos]} $A", special_tokens=[(tokens[bos], bos)]
            )
    except Exception as error:  # the library raises no narrower class
        raise InputError(f"the tokenizer of {source} is damaged: {error}", hint=_HINT) from None
    return wrap_tokenizer(inner, source)


def tokenizer_fields(
    tokenizer: Tokenizer, ids: Mapping[str, Any], size: int, template: str | None = None
) -> dict[str, Any]:
    """Return the fields with which llama.cpp encodes texts to the same ids.

    Args:
        ids: of bos_token, eos_token and pad_token, if they exist.
        size: the model's number of ids; unused tokens fill the table up to it.
    """
    # Several tokens may end a text; the first is the usual one.
    marks = {name: n[0] if isinstance(n, list) else n for name, n in ids.items()}
    if (end := marks.get("eos_token")) is None:
        raise InputError(
            "the tokenizer has no <eos>, and llama.cpp would use another token instead",
            hint="train with --preset llama, or with --portable",
        )
    if pieces := piece_table(tokenizer):
        fields: dict[str, Any] = {"model": "llama", "pre": "default"}
    else:
        fields, pieces = _bpe_fields(tokenizer)
    if len(pieces) > size:
        raise InputError(
            f"the tokenizer has {len(pieces)} ids, the model {size}",
            hint="put back the tokenizer with which the run was trained",
        )
    start = marks.get("bos_token")
    pieces += [(f"[PAD{number}]", _UNUSED) for number in range(len(pieces), size)]
    fields |= {
        "tokens": [piece for piece, _ in pieces],
        "token_type": [kind for _, kind in pieces],
        "scores": [0.0] * len(pieces),
        "add_space_prefix": False,
        "add_bos_token": start is not None and start in tokenizer.prompt_ids("")[:1],
        # Without it, llama.cpp would use a fixed id (1 or 11), which is some piece of text.
        "bos_token_id": end if start is None else start,
        "eos_token_id": end,
        **({} if (pad := marks.get("pad_token")) is None else {"padding_token_id": pad}),
    }
    chat = {"tokenizer.chat_template": template} if template else {}
    return {**{f"tokenizer.ggml.{name}": value for name, value in fields.items()}, **chat}


def _bpe_fields(tokenizer: Tokenizer) -> tuple[dict[str, Any], list[tuple[str, int]]]:
    """Return the fields and pieces of a byte-level BPE whose pre-tokenizer llama.cpp has."""
    if isinstance(tokenizer, CharTokenizer):
        raise InputError(
            "one of the tokenizer's characters is ▁, which llama.cpp takes for a space",
            hint="train with --tokenizer bpe or byte, or export a folder",
        )
    pre, parts = None, dict[str, Any]()
    if isinstance(tokenizer, BPETokenizer | PieceTokenizer):
        parts = json.loads(tokenizer.hugging_face_json())
        pre = next((name for name in _PRE_TOKENIZERS if _uses(parts, name)), None)
    if pre is None or not parts["model"]["merges"]:
        raise InputError(
            f"llama.cpp cannot split words as this {tokenizer.kind} tokenizer does",
            hint="train with --portable (or --preset llama), or export a folder",
        )
    table = {number: (piece, _NORMAL) for piece, number in parts["model"]["vocab"].items()}
    for token in parts["added_tokens"]:
        table[token["id"]] = (token["content"], _CONTROL if token["special"] else _USER)
    merges = [m if isinstance(m, str) else " ".join(m) for m in parts["model"]["merges"]]
    pieces = [table.get(number, (f"[PAD{number}]", _UNUSED)) for number in range(max(table) + 1)]
    return {"model": "gpt2", "pre": pre, "merges": merges}, pieces


def _uses(parts: Mapping[str, Any], pre: str) -> bool:
    """Whether a tokenizer.json splits words as this pre-tokenizer of llama.cpp does."""

    def steps(part: Any) -> list[dict[str, Any]]:
        within = part.get("pretokenizers", [part]) if part else []
        return [{name: v for name, v in step.items() if name != "trim_offsets"} for step in within]

    own = json.loads(_PRE_TOKENIZERS[pre]().__getstate__())
    return (
        parts["model"]["type"] == "BPE"
        and steps(parts["pre_tokenizer"]) == steps(own)
        and parts["normalizer"] == ({"type": "NFC"} if pre == "qwen2" else None)
        and bool(parts["model"].get("ignore_merges")) == (pre == "llama-bpe")
    )


def _read_simple(tokens: Any, types: Any) -> Tokenizer | None:
    """Read a table of characters or bytes that `tokenizer_fields` wrote; None if it is another."""
    try:
        table = [(str(t), int(n)) for t, n in zip(tokens, types, strict=True) if n != _UNUSED]
        names = [token for token, kind in table if kind == _CONTROL]
        text = "".join(token for token, kind in table if kind == _NORMAL).replace("▁", " ")
        for found in (ByteTokenizer(names), CharTokenizer(text, names)):
            if piece_table(found) == table:
                return found
    except (TypeError, ValueError):  # GlassheadError among them
        return None
    return None
