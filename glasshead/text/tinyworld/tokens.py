"""The world's words as ids: one id a word, so that its truth about words is a truth about ids."""

from collections.abc import Sequence
from itertools import chain

from glasshead.text.tinyworld.lexicon import PLACES, TIMES, check_language
from glasshead.text.tinyworld.spelling import vocabulary
from glasshead.text.word_tokenizer import WordTokenizer

__all__ = ["SPECIALS", "pieces", "world_tokenizer"]

SPECIALS = ("<pad>", "<bos>", "<eos>")

# What a story can begin with besides its time and its place, and what its second sentence can.
_FIRST = {"en": ("because", "the", "that"), "de": ("weil", "der", "die", "das")}
_SECOND = {"en": ("now", "look", "people"), "de": ("jetzt", "schau", "man")}


def pieces(tokens: Sequence[str], lang: str) -> list[str]:
    """The tokens as they are written: `"".join(pieces(tokens, lang))` is the text.

    >>> pieces(["now", "it", "is", "torn", "."], "en")
    ['Now', ' it', ' is', ' torn', '.']
    """
    if check_language(lang) == "zh":
        return list(tokens)
    written: list[str] = []
    start = True
    for token in tokens:
        word = f"{token[0].upper()}{token[1:]}" if start else token
        written.append(f" {word}" if written and token not in {",", "."} else word)
        start = token == "."
    return written


def world_tokenizer(*langs: str) -> WordTokenizer:
    """Every word of the world in these languages, each as it can be written."""
    written = (vocabulary(lang) if lang == "zh" else _written(lang) for lang in langs)
    # A word that two languages write alike is one word.
    return WordTokenizer(list(dict.fromkeys(chain.from_iterable(written))), SPECIALS)


def _written(lang: str) -> list[str]:
    """Words with the space before them, and those that can begin a sentence with a capital."""
    words = vocabulary(lang)
    phrases = [getattr(place, f"{lang}_phrase") for place in PLACES]
    phrases += [getattr(time, lang) for time in TIMES]
    first = {phrase.split()[0].partition("/")[0] for phrase in phrases} | {*_FIRST[lang]}
    capital = [word[0].upper() + word[1:] for word in sorted(first)]
    later = [f" {word[0].upper()}{word[1:]}" for word in _SECOND[lang]]
    return [word if word in {",", "."} else f" {word}" for word in words] + capital + later
