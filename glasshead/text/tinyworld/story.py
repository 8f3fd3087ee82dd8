"""One story: its content, its words in three languages, and what its pronouns refer to."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from glasshead.text.tinyworld.endings import ENDINGS, Ending, endings_of
from glasshead.text.tinyworld.events import Circumstance, Manner, Reason, Verb
from glasshead.text.tinyworld.grammar import GRAMMARS, MarkedWords, mark_words
from glasshead.text.tinyworld.lexicon import LANGUAGES, Noun, Place, Trilingual, check_language
from glasshead.text.tinyworld.spelling import spell

__all__ = ["ByLanguage", "Pronoun", "Story"]

T = TypeVar("T")


@dataclass(frozen=True)
class Pronoun:
    """`tokens[index]` refers to `entity`, which `tokens[referent_index]`, or `word`, names."""

    index: int
    referent_index: int
    entity: Noun
    word: str


class ByLanguage(Mapping[str, T]):
    """A value for each language, computed when it is accessed."""

    def __init__(self, make: Callable[[str], T]) -> None:
        self._make = make

    def __getitem__(self, lang: str) -> T:
        return self._make(lang)

    def __iter__(self) -> Iterator[str]:
        return iter(LANGUAGES)

    def __len__(self) -> int:
        return len(LANGUAGES)


@dataclass(frozen=True, repr=False)
class Story:
    """The content of a story; its words in each language follow from it.

    >>> from glasshead.text.tinyworld import World
    >>> story = World.seed_story()
    >>> [(p.index, p.word) for p in story.pronouns["zh"]]
    [(4, '小猫'), (26, '小猫')]
    >>> story.flip().pronouns["zh"][-1].word
    '蝴蝶'
    """

    actor: Noun
    thing: Noun
    verb: Verb
    ending: Ending
    about: str  # what the ending is about: actor, thing or place
    place: Place | None = None
    time: Trilingual | None = None
    first: str = ""  # what comes before the subject: time, place or nothing
    passive: bool = False
    topic: bool = False  # 那个小猫，它...
    definite: bool = False  # the noun that is not the subject: 那只, the; otherwise 一只, a
    circumstance: Circumstance | None = None
    reason: Reason | None = None
    reason_role: str = ""  # what the reason is about: actor or thing
    manner: Manner | None = None
    forgotten: Trilingual | None = None
    lead: str = "now"  # how the ending begins: now; look, now; people say that (say)

    def __repr__(self) -> str:
        return f"Story({self.text('en')!r})"

    @property
    def subject_role(self) -> str:
        return "thing" if self.passive else "actor"

    @property
    def other_role(self) -> str:
        return "actor" if self.passive else "thing"

    @property
    def subject(self) -> Noun:
        return self.noun(self.subject_role)

    @property
    def other(self) -> Noun:
        return self.noun(self.other_role)

    @property
    def referent(self) -> Noun:
        """The noun that the last pronoun refers to."""
        return self.noun(self.about)

    def noun(self, role: str) -> Noun:
        noun: Noun = getattr(self, role)
        return noun

    @property
    def tokens(self) -> ByLanguage[tuple[str, ...]]:
        """Words and punctuation, without the capital at the start of a sentence."""
        return ByLanguage(lambda lang: tuple(word for word, _ in self._words(lang)))

    @property
    def pronouns(self) -> ByLanguage[list[Pronoun]]:
        """The pronouns of the third person, first to last."""
        return ByLanguage(self._pronouns)

    @property
    def nouns(self) -> ByLanguage[tuple[int, ...]]:
        """The positions of the nouns, except those of times."""

        def find(lang: str) -> tuple[int, ...]:
            words = enumerate(self._words(lang))
            return tuple(i for i, (_, marks) in words if any(m.endswith(".n") for m in marks))

        return ByLanguage(find)

    def text(self, lang: str) -> str:
        return spell(self.tokens[lang], lang)

    def alignment(self, source: str, target: str) -> frozenset[tuple[int, int]]:
        """Return pairs (i, j): word i of `source` and word j of `target` mean the same."""
        places = self._places(target)
        return frozenset(
            (i, j)
            for i, (_, marks) in enumerate(self._words(source))
            for mark in marks
            for j in places.get(mark, ())
        )

    def flip(self) -> "Story":
        """Return the story with an ending that makes the last pronoun refer to the other noun.

        A story whose ending is about the place gets one about the actor.
        """
        about, other = ("thing", "actor") if self.about == "actor" else ("actor", "thing")
        fitting = endings_of(self.noun(about), self.noun(other))
        alike = [e for e in fitting if bool(e.case) == bool(self.ending.case)]
        choice = alike or [e for e in fitting if not e.case]
        ending = choice[ENDINGS.index(self.ending) % len(choice)]
        return replace(self, about=about, ending=ending)

    @cached_property
    def _cache(self) -> dict[str, MarkedWords]:
        return {}

    def _words(self, lang: str) -> MarkedWords:
        if lang not in self._cache:
            phrases = GRAMMARS[check_language(lang)](self)
            self._cache[lang] = tuple(word for phrase in phrases for word in mark_words(*phrase))
        return self._cache[lang]

    def _places(self, lang: str) -> dict[str, list[int]]:
        places: dict[str, list[int]] = {}
        for index, (_, marks) in enumerate(self._words(lang)):
            for mark in marks:
                places.setdefault(mark, []).append(index)
        return places

    def _pronouns(self, lang: str) -> list[Pronoun]:
        places, tokens = self._places(lang), self.tokens[lang]
        roles = {"topic": self.subject_role, "reason": self.reason_role, "ending": self.about}
        found = []
        for where, role in roles.items():
            for index in places.get(f"{where}.p", ()):
                (referent,) = places[f"{role}.n"]
                found.append(Pronoun(index, referent, self.noun(role), tokens[referent]))
        return found
