"""From a sentence to the numbers of its attention: words, vectors, the four steps.

>>> walk("Hello shiny sun!", query="shiny", scaled=False).steps.weights[1].round(4)
array([0.2291, 0.4063, 0.3646])
"""

import math
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import numpy as np

from glasshead.attention import steps
from glasshead.errors import InputError, did_you_mean
from glasshead.lab.vectors import (
    QKV,
    TEXTBOOK,
    Table,
    from_spelling,
    read_vectors,
    suggest,
)

__all__ = ["Source", "Walkthrough", "as_json", "find", "split_words", "walk"]

Source = Literal["textbook", "spelling", "file"]

MAX_WORDS = 512

# Han characters and kana: scripts that are written without spaces.
_UNSPACED = re.compile(
    r"[\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)


@dataclass(frozen=True, eq=False)
class Walkthrough:
    """A sentence, where its vectors come from, and all numbers of its attention."""

    sentence: str
    words: list[str]
    sources: list[Source]
    query: int | None  # index of a word; None for all words
    scaled: bool
    causal: bool
    steps: steps.Steps

    @property
    def labels(self) -> list[str]:
        """The words, numbered where they occur more than once."""
        total, seen, labels = Counter(self.words), Counter[str](), []
        for word in self.words:
            seen[word] += 1
            labels.append(f"{word}#{seen[word]}" if total[word] > 1 else word)
        return labels


def walk(
    sentence: str,
    query: str | None = None,
    vectors: Path | None = None,
    scaled: bool = True,
    causal: bool = False,
) -> Walkthrough:
    """Split the sentence, look up vectors, and attend. Raises InputError for bad input."""
    words = split_words(sentence)
    index = None if query is None else find(words, query)
    if vectors is None:
        sources: list[Source] = ["textbook" if w in TEXTBOOK else "spelling" for w in words]
        table = {word: TEXTBOOK.get(word) or from_spelling(word) for word in words}
        tables = QKV(table, table, table)
    else:
        sources, tables = ["file"] * len(words), read_vectors(vectors)
    q, k, v = (
        _rows(part, table, words, vectors) for part, table in zip("qkv", tables, strict=True)
    )
    allowed = steps.causal(len(words), len(words)) if causal else None
    result = steps.attend(q, k, v, allowed, scaled)
    return Walkthrough(sentence, words, sources, index, scaled, causal, result)


def split_words(sentence: str) -> list[str]:
    """Split at white space, and strip punctuation.

    A sentence without spaces in a script that uses none is split into characters:

    >>> split_words("Don't stop, shiny sun!"), split_words("小猫，GPT")
    (["Don't", 'stop', 'shiny', 'sun'], ['小', '猫', 'GPT'])
    """
    try:
        sentence.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"the sentence is not text: character {error.start + 1} is {sentence[error.start]!r}",
            hint="the terminal must send UTF-8",
        ) from None
    text = "".join(" " if _separates(c) else c for c in unicodedata.normalize("NFC", sentence))
    if not re.search(r"\s", sentence.strip()):
        text = _UNSPACED.sub(r" \g<0> ", text)
    words = [word for word in map(_strip_punctuation, text.split()) if word]
    if not words:
        raise InputError(f"the sentence {sentence!r} has no words", hint='try "Hello shiny sun!"')
    if len(words) > MAX_WORDS:
        raise InputError(
            f"the sentence has {len(words)} words, more than {MAX_WORDS}",
            hint="these tables are for reading: take a shorter sentence",
        )
    return words


def find(words: list[str], query: str) -> int:
    """Return the index of the query in the words; `#2` at its end means its second occurrence.

    >>> find(["它", "饿", "它"], "它"), find(["它", "饿", "它"], "它#2")
    (0, 2)
    """
    word, nth = unicodedata.normalize("NFC", query), 1
    if word not in words and (numbered := re.fullmatch(r"(.+)#(\d{1,9})", word)):
        word, nth = numbered[1], int(numbered[2])
    word = word if word in words else _strip_punctuation(word.strip())
    places = [i for i, other in enumerate(words) if other == word]
    if not places:
        raise InputError(f"{query!r} is not a word of the sentence", hint=suggest(query, words))
    if not 1 <= nth <= len(places):
        times = "once" if len(places) == 1 else f"{len(places)} times"
        raise InputError(
            f"{word!r} occurs {times} in the sentence, so there is no {query!r}",
            hint=f"choose {word}#1" + (f" to {word}#{len(places)}" if len(places) > 1 else ""),
        )
    return places[nth - 1]


def as_json(walked: Walkthrough) -> dict[str, Any]:
    """Return all numbers in full precision, with null where a masked score is -inf."""
    s, i = walked.steps, walked.query
    matrices = {
        name: _plain(getattr(s, name))
        for name in ("q", "k", "v", "scores", "scaled", "masked", "weights", "context")
    }
    query = None
    if i is not None:
        query = {
            "word": walked.words[i],
            "index": i,
            "occurrence": walked.words[: i + 1].count(walked.words[i]),
            "occurrences": walked.words.count(walked.words[i]),
            **{name: matrices[name][i] for name in ("scores", "scaled", "masked", "weights")},
            "weighted": _plain(s.weights[i][:, None] * s.v),
            "context": matrices["context"][i],
        }
    return {
        "sentence": walked.sentence,
        "words": walked.words,
        "sources": walked.sources,
        "scale": walked.scaled,
        "causal": walked.causal,
        **matrices,
        "query": query,
    }


def _rows(part: str, table: Table, words: list[str], path: Path | None) -> steps.Array:
    missing = [word for word in dict.fromkeys(words) if word not in table]
    if missing:
        more = f" and {len(missing) - 1} more of the sentence's words" if missing[1:] else ""
        near = get_close_matches(missing[0], table, n=1)
        raise InputError(
            f"'{path}' has no {part} vector for {missing[0]!r}{more}",
            hint=did_you_mean(missing[0], near) if near else "add the word to the file",
        )
    return np.array([table[word] for word in words], dtype=np.float64)  # (T, D)


def _plain(array: steps.Array) -> list[list[float | None]]:
    """Return rows of numbers for JSON, which has no -inf."""
    return [[None if x == -math.inf else x for x in row] for row in array.tolist()]


def _separates(char: str) -> bool:
    """Tell whether a character separates words: a control character, or full-width punctuation."""
    kind = unicodedata.category(char)
    wide = unicodedata.east_asian_width(char) in "WF"
    return kind == "Cc" or (kind[0] == "P" and wide)


def _strip_punctuation(piece: str) -> str:
    return piece.strip("".join(c for c in piece if unicodedata.category(c)[0] == "P"))
