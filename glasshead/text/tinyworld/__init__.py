"""The embedded world: endless small stories in Chinese, English and German, with what their
pronouns refer to."""

from glasshead.text.tinyworld.lexicon import LANGUAGES, Noun
from glasshead.text.tinyworld.spelling import spell, tokenize, vocabulary
from glasshead.text.tinyworld.story import Pronoun, Story
from glasshead.text.tinyworld.world import SPLITS, World, corpus

__all__ = [
    "LANGUAGES",
    "SPLITS",
    "Noun",
    "Pronoun",
    "Story",
    "World",
    "corpus",
    "spell",
    "tokenize",
    "vocabulary",
]
