"""Words to text and back: Chinese without spaces, a capital where a sentence begins."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from unicodedata import normalize

from glasshead.errors import InputError
from glasshead.text.tinyworld import lexicon
from glasshead.text.tinyworld.endings import ENDINGS
from glasshead.text.tinyworld.events import VERBS
from glasshead.text.tinyworld.grammar import FUNCTION_WORDS
from glasshead.text.tinyworld.lexicon import NOUNS, PLACES, check_language
from glasshead.text.word_tokenizer import find_unknown, segment

__all__ = ["pieces", "spell", "tokenize", "vocabulary"]

_FULL_WIDTH = str.maketrans({",": "，", ".": "。"})


def spell(tokens: Sequence[str], lang: str) -> str:
    """
    >>> spell(["now", "it", "is", "torn", "."], "en")
    'Now it is torn.'
    """
    return "".join(pieces(tokens, lang))


def pieces(tokens: Sequence[str], lang: str) -> list[str]:
    """Spell each token: with the space before it, and a capital where a sentence begins.

    >>> pieces(["now", "it", "is", "torn", "."], "en")
    ['Now', ' it', ' is', ' torn', '.']
    """
    if check_language(lang) == "zh":
        return list(tokens)
    spelled: list[str] = []
    start = True
    for token in tokens:
        word = f"{token[0].upper()}{token[1:]}" if start else token
        spelled.append(f" {word}" if spelled and token not in {",", "."} else word)
        start = token == "."
    return spelled


@cache
def vocabulary(lang: str) -> tuple[str, ...]:
    """Return every word of the world in one language, sorted."""
    phrases = [FUNCTION_WORDS[check_language(lang)]]
    phrases += [noun.word(lang) for noun in NOUNS]
    phrases += [getattr(place, f"{lang}_phrase") for place in PLACES]
    trilingual = [*lexicon.TIMES, lexicon.DINNER, lexicon.LUNCH, lexicon.HOURS, *ENDINGS, *VERBS]
    for verb in VERBS:
        trilingual += [verb.preposition, *verb.of_actor, *verb.of_thing, *verb.given]
        trilingual += [verb.manner] if verb.manner else []
        phrases.append({"zh": verb.zh_done, "en": verb.en_done, "de": ""}[lang])
    phrases += [getattr(entry, lang) for entry in trilingual]
    if lang == "zh":
        phrases += [f"{noun.measure} {noun.that_measure}" for noun in NOUNS]
    if lang == "de":
        phrases += [noun.de_oblique for noun in NOUNS] + [ending.de_last for ending in ENDINGS]
    words = {token.partition("/")[0] for phrase in phrases for token in phrase.split()}
    return tuple(sorted(words - {"@"}))


def tokenize(text: str, lang: str) -> tuple[str, ...]:
    """Cut a text of this world into its tokens: the inverse of `spell`.

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
