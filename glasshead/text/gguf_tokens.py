"""The tokenizer of a GGUF file, which has its vocabulary, its merges and a name for the rest."""

from collections.abc import Mapping
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from glasshead.errors import InputError
from glasshead.text.foreign import wrapped
from glasshead.text.tokenizer import Tokenizer

__all__ = ["tokenizer_of"]

# What may stand in one piece; of digits up to {digits}.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CONTROL, _USER = 3, 4


def _split(digits: str) -> Any:
    pattern = Regex(_WORDS.format(digits=digits))
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pattern, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _gpt2(*before: Any) -> Any:
    return pre_tokenizers.Sequence([*before, pre_tokenizers.ByteLevel(add_prefix_space=False)])


_WAYS = {
    "default": _gpt2,
    "gpt-2": _gpt2,
    "smollm": lambda: _gpt2(pre_tokenizers.Digits(individual_digits=True)),
    "llama-bpe": lambda: _split("{1,3}"),
    "qwen2": lambda: _split(""),
}


def tokenizer_of(fields: Mapping[str, Any], source: str) -> Tokenizer:
    """By the fields tokenizer.ggml.*."""

    def get(name: str) -> Any:
        return fields.get(f"tokenizer.ggml.{name}")

    kind, way, tokens, merges = get("model"), get("pre") or "default", get("tokens"), get("merges")
    if kind != "gpt2" or way not in _WAYS:
        raise InputError(
            f"{source}: its tokenizer ({kind}, {way}) is not known",
            hint="put the model's tokenizer.json beside the file",
        )
    if not isinstance(tokens, list) or not isinstance(merges, list):
        raise InputError(
            f"{source} lacks the vocabulary or the merges of its tokenizer",
            hint="put the model's tokenizer.json beside the file",
        )
    types = get("token_type") or [1] * len(tokens)
    try:
        vocabulary = {str(token): number for number, token in enumerate(tokens)}
        pairs = [tuple(merge.split(" ")) for merge in merges]
        inner = tokenizers.Tokenizer(
            models.BPE(vocabulary, pairs, ignore_merges=way == "llama-bpe")
        )
        inner.pre_tokenizer, inner.decoder = _WAYS[way](), decoders.ByteLevel()
        if way == "qwen2":
            inner.normalizer = normalizers.NFC()
        for kind_of_token, special in ((_CONTROL, True), (_USER, False)):
            named = [t for t, n in zip(tokens, types, strict=True) if n == kind_of_token]
            inner.add_tokens([AddedToken(t, special=special, normalized=False) for t in named])
        if get("add_bos_token") and isinstance(bos := get("bos_token_id"), int):
            inner.post_processor = processors.TemplateProcessing(
                single=f"{tokens[bos]} $A", special_tokens=[(tokens[bos], bos)]
            )
    except Exception as error:  # the library raises no narrower class
        raise InputError(
            f"{source}: its tokenizer is damaged: {error}",
            hint="put the model's tokenizer.json beside the file",
        ) from None
    return wrapped(inner, source)
