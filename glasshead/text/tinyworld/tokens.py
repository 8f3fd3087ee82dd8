"""A tokenizer for the world with one id for each word, so that facts about words hold for ids."""

from itertools import chain

from glasshead.text.tinyworld.lexicon import PLACES, TIMES
from glasshead.text.tinyworld.spelling import pieces, vocabulary
from glasshead.text.word_tokenizer import WordTokenizer

__all__ = ["SPECIALS", "pieces", "world_tokenizer"]

SPECIALS = ("<pad>", "<bos>", "<eos>")

# What a story can begin with besides its time and its place, and what its second sentence can.
_FIRST = {"en": ("because", "the", "that"), "de": ("weil", "der", "die", "das")}
_SECOND = {"en": ("now", "look", "people"), "de": ("jetzt", "schau", "man")}


def world_tokenizer(*langs: str) -> WordTokenizer:
    """Return a tokenizer for every word of the world in these languages."""
    words = (vocabulary(lang) if lang == "zh" else _spelled_words(lang) for lang in langs)
    # A word that two languages spell alike is one word.
    return WordTokenizer(list(dict.fromkeys(chain.from_iterable(words))), SPECIALS)


def _spelled_words(lang: str) -> list[str]:
    """Words with a space before them, and capitalised those that can begin a sentence."""
    words = vocabulary(lang)
    phrases = [getattr(place, f"{lang}_phrase") for place in PLACES]
    phrases += [getattr(time, lang) for time in TIMES]
    first = {phrase.split()[0].partition("/")[0] for phrase in phrases} | {*_FIRST[lang]}
    capital = [word[0].upper() + word[1:] for word in sorted(first)]
    later = [f" {word[0].upper()}{word[1:]}" for word in _SECOND[lang]]
    return [word if word in {",", "."} else f" {word}" for word in words] + capital + later
