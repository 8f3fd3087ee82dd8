"""Split a text that is too long for a translator, and join the translations of its parts.

It is split at every end of a sentence, since translators are mostly trained on single sentences. A
sentence that is still too long is split at commas and the like, else at spaces, else between
tokens, into as few parts as possible. The parts joined are the text, to the last character.

    >>> split("One. Two, three, four. Five.", lambda part: len(part.strip()) <= 12, list)
    ['One. ', 'Two, three, ', 'four. ', 'Five.']
"""

import re
import unicodedata
from collections.abc import Callable, Sequence

__all__ = ["join", "split"]

_CLOSING = "[\"'”’」』）》)\\]]*"


def _units(always: str, before_space: str) -> re.Pattern[str]:
    """Return a pattern of units that end at such a character and the white space after it.

    A full stop ends a sentence, and a comma a clause, only before white space: 3.14 and 1,000
    stay whole. Repeated stops are matched from the first only, or time would be quadratic.
    """
    once = rf"(?<!{before_space}){before_space}++{_CLOSING}+(?=\s|\Z)"
    return re.compile(rf".+?(?:{always}+{_CLOSING}|{once}|\Z)\s*", re.DOTALL)


_SENTENCE = _units("[。！？…!?]", r"\.")
_CLAUSE = _units("[，、；：—]", "[,;:]")
_WORD = re.compile(r"\S+\s*|\s+")

_Cut = Callable[[str], Sequence[str]]


def split(text: str, fits: Callable[[str], bool], pieces: _Cut) -> list[str]:
    """Return parts of a text that fit; the text itself if it does.

    Args:
        pieces: splits a text into the smallest units. One that does not fit is still a part.
    """
    if not text or fits(text):
        return [text] if text else []
    levels: list[_Cut] = [_CLAUSE.findall, _WORD.findall, pieces]
    sentences = _SENTENCE.findall(text)
    return [part for sentence in sentences for part in _pack([sentence], fits, levels)]


def _pack(units: Sequence[str], fits: Callable[[str], bool], finer: Sequence[_Cut]) -> list[str]:
    """Join as many units as fit; split one that does not fit into finer ones."""
    parts: list[str] = []
    start = 0
    while start < len(units):
        count = _most(units, start, fits)
        if count or not finer:
            parts.append("".join(units[start : start + max(1, count)]))
        else:
            parts += _pack(finer[0](units[start]), fits, finer[1:])
        start += max(1, count)
    return parts


def _most(units: Sequence[str], start: int, fits: Callable[[str], bool]) -> int:
    """Count how many units from `start` on fit together, by doubling and halving.

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
    """Join translations of parts, with spaces in between except in Chinese and Japanese.

    >>> join(["One.", "Two."]), join(["一。", "二。"])
    ('One. Two.', '一。二。')
    """
    joined = ""
    for text in texts:
        apart = joined and text and not (_has_no_spaces(joined[-1]) or _has_no_spaces(text[0]))
        joined += f" {text}" if apart else text
    return joined


def _has_no_spaces(character: str) -> bool:
    """Return whether a character is of a script without spaces. Korean has them."""
    wide = unicodedata.east_asian_width(character) in "WF"
    return wide and "HANGUL" not in unicodedata.name(character, "")
