"""Words to text and back: Chinese without spaces, a capital where a sentence begins."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from unicodedata import normalize

from glasshead.errors import InputError
from glasshead.text.tinyworld.endings import ENDINGS
from glasshead.text.tinyworld.events import VERBS
from glasshead.text.tinyworld.grammar import FUNCTION_WORDS
from glasshead.text.tinyworld.lexicon import (
    DINNER,
    HOURS,
    LUNCH,
    NOUNS,
    PLACES,
    TIMES,
    check_language,
)
from glasshead.text.word_tokenizer import find_unknown, segment

__all__ = ["spell", "tokenize", "vocabulary"]

_FULL_WIDTH = str.maketrans({",": "，", ".": "。"})


def spell(tokens: Sequence[str], lang: str) -> str:
    """
    >>> spell(["now", "it", "is", "torn", "."], "en")
    'Now it is torn.'
    """
    if check_language(lang) == "zh":
        return "".join(tokens)
    text, start = [], True
    for token in tokens:
        if token in {",", "."}:
            text.append(token)
        else:
            text.append(f" {token[0].upper()}{token[1:]}" if start else f" {token}")
        start = token == "."
    return "".join(text).strip()


@cache
def vocabulary(lang: str) -> tuple[str, ...]:
    """Every word of the world in one language, sorted."""
    phrases = [FUNCTION_WORDS[check_language(lang)]]
    phrases += [noun.word(lang) for noun in NOUNS]
    phrases += [getattr(place, f"{lang}_phrase") for place in PLACES]
    said = [*TIMES, DINNER, LUNCH, HOURS, *ENDINGS]
    for verb in VERBS:
        said += [verb.preposition, *verb.of_actor, *verb.of_thing, *verb.given]
        said += [verb.manner] if verb.manner else []
        phrases.append(getattr(verb, lang))
        phrases.append({"zh": verb.zh_done, "en": verb.en_done, "de": ""}[lang])
    phrases += [getattr(words, lang) for words in said]
    if lang == "zh":
        phrases += [f"{noun.measure} {noun.that_measure}" for noun in NOUNS]
    if lang == "de":
        phrases += [noun.de_oblique for noun in NOUNS] + [ending.de_last for ending in ENDINGS]
    words = {token.partition("/")[0] for phrase in phrases for token in phrase.split()}
    return tuple(sorted(words - {"@"}))


def tokenize(text: str, lang: str) -> tuple[str, ...]:
    """The words of a text of this world: the inverse of spelling it.

    >>> tokenize("现在它饿坏了。", "zh")
    ('现在', '它', '饿坏', '了', '。')
    """
    text = normalize("NFC", text)
    if check_language(lang) == "zh":
        return _segment("".join(text.split()).translate(_FULL_WIDTH))
    known, tokens, start = set(vocabulary(lang)), [], True
    for word in re.findall(r"[\w'-]+|\S", text):
        small = word[0].lower() + word[1:]
        token = small if start and small in known else word
        if token not in known:
            raise _unknown(word, lang)
        tokens.append(token)
        start = token == "."
    return tuple(tokens)


def _segment(text: str) -> tuple[str, ...]:
    known = set(vocabulary("zh"))
    longest = max(map(len, known))
    words = segment(text, known, longest)
    if words is None:
        start, end = find_unknown(text, known, longest)
        raise _unknown(text[start:end], "zh")
    return words


def _unknown(word: str, lang: str) -> InputError:
    near = get_close_matches(word, vocabulary(lang), n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else "glasshead world prints stories of this world"
    return InputError(f"the world has no word '{word}' ({lang})", hint=hint)
