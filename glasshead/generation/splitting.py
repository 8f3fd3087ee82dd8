"""A text that is too long for a translator is cut where it hurts least.

At every end of a sentence, since translators are mostly trained on single ones. A sentence that
is still too long is cut at commas and the like, else at spaces, else between pieces of the
tokenizer, into as few parts as can be. The parts put together are the text, to the last character.

    >>> split("One. Two, three, four. Five.", lambda part: len(part.strip()) <= 12, list)
    ['One. ', 'Two, three, ', 'four. ', 'Five.']
"""

import re
import unicodedata
from collections.abc import Callable, Sequence

__all__ = ["join", "split"]

_CLOSING = "[\"'”’」』）》)\\]]*"


def _units(always: str, before_space: str) -> re.Pattern[str]:
    """Up to such a character, each with the white space behind it.

    A full stop ends a sentence, and a comma a clause, only before white space: 3.14 and 1,000
    stay whole. A row of them is looked at once, from its start, or its time would be squared.
    """
    once = rf"(?<!{before_space}){before_space}++{_CLOSING}+(?=\s|\Z)"
    return re.compile(rf".+?(?:{always}+{_CLOSING}|{once}|\Z)\s*", re.DOTALL)


_SENTENCE = _units("[。！？…!?]", r"\.")
_CLAUSE = _units("[，、；：—]", "[,;:]")
_WORD = re.compile(r"\S+\s*|\s+")

_Cut = Callable[[str], Sequence[str]]


def split(text: str, fits: Callable[[str], bool], pieces: _Cut) -> list[str]:
    """Parts of a text that fit; the text itself if it does.

    Args:
        pieces: cuts a text into the smallest units there are. One that does not fit by itself is
            a part all the same.
    """
    if not text or fits(text):
        return [text] if text else []
    levels: list[_Cut] = [_CLAUSE.findall, _WORD.findall, pieces]
    sentences = _SENTENCE.findall(text)
    return [part for sentence in sentences for part in _packed([sentence], fits, levels)]


def _packed(units: Sequence[str], fits: Callable[[str], bool], finer: Sequence[_Cut]) -> list[str]:
    """As many units together as fit; one that does not fit by itself is cut more finely."""
    parts: list[str] = []
    start = 0
    while start < len(units):
        count = _most(units, start, fits)
        if count or not finer:
            parts.append("".join(units[start : start + max(1, count)]))
        else:
            parts += _packed(finer[0](units[start]), fits, finer[1:])
        start += max(1, count)
    return parts


def _most(units: Sequence[str], start: int, fits: Callable[[str], bool]) -> int:
    """How many units from `start` on fit together, found by doubling and halving.

    >>> [_most("a" * n, 2, lambda text: len(text) <= 5) for n in (5, 7, 100)]
    [3, 5, 5]
    """
    there = len(units) - start
    low, high = 0, 1
    while high <= there and fits("".join(units[start : start + high])):
        low, high = high, 2 * high
    high = min(high, there + 1)
    while high - low > 1:
        middle = (low + high) // 2
        fit = fits("".join(units[start : start + middle]))
        low, high = (middle, high) if fit else (low, middle)
    return low


def join(texts: Sequence[str]) -> str:
    """Translations of parts become one text: with a space between them, but not in Chinese.

    >>> join(["One.", "Two."]), join(["一。", "二。"])
    ('One. Two.', '一。二。')
    """
    joined = ""
    for text in texts:
        apart = joined and text and not (_wide(joined[-1]) or _wide(text[0]))
        joined += f" {text}" if apart else text
    return joined


def _wide(character: str) -> bool:
    """Of a script without spaces; Korean has them."""
    wide = unicodedata.east_asian_width(character) in "WF"
    return wide and "HANGUL" not in unicodedata.name(character, "")
