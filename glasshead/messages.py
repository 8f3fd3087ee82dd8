"""What people read, in their language: English as the code writes it, or Chinese.

Errors are raised and lines are printed in plain English. Where such a text reaches a terminal,
`translate` looks it up in `messages_zh.json`, which maps English templates to Chinese ones: `{0}`,
`{1}`, ... stand for the values that an f-string puts in. A text that matches no template stays
English. `make check` prints the lines that the file lacks, and how to add them.
"""

import os
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

__all__ = ["DRAFT", "HOLE", "VARIABLE", "escape_controls", "language", "translate"]

VARIABLE = "GLASSHEAD_LANG"
HOLE = re.compile(r"\{(\d+)\}")
DRAFT = "?"  # before Chinese that is not yet to be shown; see tools/messages.py
# Where a text may be cut if it matches no template as a whole, and what joins the parts.
SEPARATORS = {"; ": "；", ": ": "："}
LONGEST = 500  # characters in which separators are looked for
# What a terminal obeys instead of showing it: control characters other than tab and line feed, a
# carriage return that ends no line, and marks that change the direction of the text around them.
_CONTROLS = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
    r"|\r(?!\n)"
)


def language() -> Literal["en", "zh"]:
    """Return the language of GLASSHEAD_LANG, else the locale's: Chinese, or English for others."""
    for name in (VARIABLE, "LC_ALL", "LC_MESSAGES", "LANG"):
        if value := os.environ.get(name):
            return "zh" if value.lower().startswith("zh") else "en"
    return "en"


def translate(text: str, lang: str | None = None) -> str:
    """Return an English message in the language of the user, as far as the catalogue knows it.

    `lang` is that of someone at another screen, such as the page's.
    """
    return text if (lang or language()) == "en" else _translate(text)


def escape_controls(text: str) -> str:
    r"""Return a text in which nothing commands a terminal: such characters become their codes.

    >>> print(escape_controls("\x1b[31mred\u202e"))
    \x1b[31mred\u202e
    """
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


class _Template(NamedTuple):
    longest: str  # the longest piece between two values, to reject most templates quickly
    english: str
    chinese: str

    def render(self, text: str) -> str | None:
        """Return the text in Chinese if it matches, its values translated where they are known."""
        if self.longest not in text or not (found := _pattern(self.english).fullmatch(text)):
            return None
        values = [_translate(value) for value in found.groups()]
        return HOLE.sub(lambda hole: values[int(hole[1])], self.chinese)


@lru_cache(maxsize=1024)
def _translate(text: str) -> str:
    exact, templates = _catalogue()
    if (found := exact.get(text)) is not None:
        return found
    if " " not in text:  # a name or a number
        return text
    rendered = [template.render(text) for template in templates]
    # A short template may leave less in English than a long one that ends in a value.
    found = min((one for one in rendered if one is not None), key=_latin_letters, default=None)
    return found or _translate_parts(text)


def _latin_letters(text: str) -> int:
    return sum(c.isascii() and c.isalpha() for c in text)


def _translate_parts(text: str) -> str:
    """Translate what stands on the two sides of a separator, if that is known."""
    half = ""  # if only one side is known
    for english, chinese in SEPARATORS.items():
        for place in re.finditer(re.escape(english), text[:LONGEST]):
            first, rest = text[: place.start()], text[place.end() :]
            parts = _translate(first), _translate(rest)
            if parts[0] != first and parts[1] != rest:
                return chinese.join(parts)
            if parts != (first, rest):
                half = half or chinese.join(parts)
    return half or text


@cache
def _catalogue() -> tuple[dict[str, str], list[_Template]]:
    """Return the texts without values, and the templates, those with the most words first."""
    import json

    path = Path(__file__).with_name("messages_zh.json")
    found: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    exact = {
        english: chinese for english, chinese in found.items() if chinese[:1] not in ("", DRAFT)
    }
    templates = list(_templates(exact))
    templates.sort(key=lambda template: len(HOLE.sub("", template.english)), reverse=True)
    return exact, templates


def _templates(catalogue: dict[str, str]) -> Iterator[_Template]:
    for english, chinese in catalogue.items():
        if "{" in english:
            yield _Template(max(HOLE.split(english)[::2], key=len), english, chinese)


@cache
def _pattern(english: str) -> re.Pattern[str]:
    """Return a pattern with a group for each value.

    If a template has hardly a letter, such as "{0} on {1}", its values have no spaces: otherwise
    any sentence would match.
    """
    pieces = HOLE.split(english)[::2]
    value = "(.*?)" if sum(map(str.isalpha, "".join(pieces))) > 2 else r"(\S*?)"
    return re.compile(value.join(map(re.escape, pieces)), re.DOTALL)
