"""The rules by which a byte-level BPE cuts a text into words, as JavaScript writes them."""

import json
from functools import cache
from typing import Any

from glasshead.text.bpe import split_gpt2_words, split_words

__all__ = ["javascript_pattern"]

# White space as Unicode defines it; JavaScript's own \s has one character more and one less.
_SPACE = r"\t-\r\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_SPACE_IN_LINE = _SPACE.replace(r"\t-\r", r"\t\v\f")
_CJK = r"\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}"
_OURS = "|".join(
    [
        r"'(?:[sdmt]|ll|ve|re)",
        rf" ?(?:(?![{_CJK}])[\p{{L}}\p{{M}}])+",
        rf"[{_CJK}]+",
        r" ?\p{N}{1,3}",
        rf" ?[^{_SPACE}\p{{L}}\p{{M}}\p{{N}}]+",
        r"[\r\n]+",
        rf"[{_SPACE_IN_LINE}]+(?![^{_SPACE}])",
        rf"[{_SPACE_IN_LINE}]+",
    ]
)
_GPT2 = "|".join(
    [
        r"'(?:[sdmt]|ll|ve|re)",
        r" ?\p{L}+",
        r" ?\p{N}+",
        rf" ?[^{_SPACE}\p{{L}}\p{{N}}]+",
        rf"[{_SPACE}]+(?![^{_SPACE}])",
        rf"[{_SPACE}]+",
    ]
)


def javascript_pattern(rules: Any) -> str | None:
    """Return the pattern of words for the `pre_tokenizer` of a tokenizer.json.

    It is for a RegExp with the flag u. None stands for rules that are neither ours nor GPT-2's.
    """
    return next((pattern for known, pattern in _known() if known == rules), None)


@cache
def _known() -> list[tuple[Any, str]]:
    import tokenizers

    found = []
    for make, pattern in ((split_words, _OURS), (split_gpt2_words, _GPT2)):
        inner = tokenizers.Tokenizer(tokenizers.models.BPE())
        inner.pre_tokenizer = make()
        found.append((json.loads(inner.to_str())["pre_tokenizer"], pattern))
    return found
