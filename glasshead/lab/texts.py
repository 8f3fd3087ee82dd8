"""Texts in English and Chinese, read from the TOML file beside the module that uses them.

    title = { en = "Attention needs positions", zh = "注意力需要位置信息" }

    [figure]
    chance = { en = "chance", zh = "随机" }       # texts["figure.chance"]

Placeholders are those of `str.format`.
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

__all__ = [
    "LANGUAGES",
    "Language",
    "Words",
    "join_sentences",
    "join_words",
    "read_texts",
    "texts_in",
]

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")


@dataclass(frozen=True)
class Words:
    """The same text in two languages. `words["zh"]` picks one."""

    en: str
    zh: str

    def __getitem__(self, lang: str) -> str:
        return self.zh if lang == "zh" else self.en

    def __bool__(self) -> bool:
        return bool(self.en or self.zh)

    def format(self, **values: object) -> "Words":
        """Fill in the placeholders. A value that is itself `Words` is put in its language.

        >>> Words("{n} {what}", "{n} 个{what}").format(n=2, what=Words("heads", "头")).zh
        '2 个头'
        """
        return Words(*(self[lang].format(**_in_language(values, lang)) for lang in LANGUAGES))


def _in_language(values: Mapping[str, object], lang: str) -> dict[str, object]:
    return {
        name: value[lang] if isinstance(value, Words) else value for name, value in values.items()
    }


def join_words(parts: Iterable[object], en: str = ", ", zh: str = "、") -> Words:
    """Join words, or numbers that are the same in both languages.

    >>> join_words([Words("one", "一"), 2]).zh
    '一、2'
    """
    some = [part if isinstance(part, Words) else Words(str(part), str(part)) for part in parts]
    return Words(en.join(words.en for words in some), zh.join(words.zh for words in some))


def join_sentences(sentences: Iterable[Words]) -> Words:
    """Join the sentences that are not empty: with a space in English, with none in Chinese."""
    return join_words(filter(None, sentences), " ", "")


def read_texts(module: str) -> dict[str, Words]:
    """Read the texts of a module, given its `__file__`. A name in a table becomes "table.name"."""
    data = tomllib.loads(Path(module).with_suffix(".toml").read_text(encoding="utf-8"))
    return dict(_flatten(data, ""))


def texts_in(lang: Language, texts: Mapping[str, Words]) -> dict[str, str]:
    """Return the texts in one language."""
    return {name: words[lang] for name, words in texts.items()}


def _flatten(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Words]]:
    for name, value in table.items():
        if isinstance(value, str):
            yield prefix + name, Words(value, value)
        elif value.keys() == set(LANGUAGES):
            yield prefix + name, Words(**value)
        else:
            yield from _flatten(value, f"{prefix}{name}.")
