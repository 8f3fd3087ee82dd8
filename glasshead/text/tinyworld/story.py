"""One story: what it says, its words in three languages, and the truth about them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from glasshead.text.tinyworld.endings import ENDINGS, Ending, endings_of
from glasshead.text.tinyworld.events import Circumstance, Manner, Reason, Verb
from glasshead.text.tinyworld.grammar import GRAMMARS, Marked, marked
from glasshead.text.tinyworld.lexicon import LANGUAGES, Noun, Place, Trilingual, check_language
from glasshead.text.tinyworld.spelling import spell

__all__ = ["ByLanguage", "Pronoun", "Story"]

T = TypeVar("T")


@dataclass(frozen=True)
class Pronoun:
    """`tokens[index]` stands for the entity that `word`, `tokens[referent_index]`, names."""

    index: int
    referent_index: int
    entity: Noun
    word: str


class ByLanguage(Mapping[str, T]):
    """What a story has in each language, made when asked for: one language costs one."""

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
    """Its fields are what it says; whatever is in words is worked out from them.

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
    about: str  # whom the ending tells of: actor, thing or place
    place: Place | None = None
    time: Trilingual | None = None
    first: str = ""  # what stands before the subject: time, place or nothing
    passive: bool = False
    topic: bool = False  # 那个小猫，它...
    definite: bool = False  # the one who is not the subject: 那只, the; otherwise 一只, a
    circumstance: Circumstance | None = None
    reason: Reason | None = None
    reason_role: str = ""  # whom the reason tells of: actor or thing
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
        """What the last pronoun stands for."""
        return self.noun(self.about)

    def noun(self, role: str) -> Noun:
        noun: Noun = getattr(self, role)
        return noun

    @property
    def tokens(self) -> ByLanguage[tuple[str, ...]]:
        """Words and punctuation; without the capital that a sentence begins with."""
        return ByLanguage(lambda lang: tuple(word for word, _ in self._marked(lang)))

    @property
    def pronouns(self) -> ByLanguage[list[Pronoun]]:
        """Those of the third person, first to last."""
        return ByLanguage(self._pronouns)

    @property
    def nouns(self) -> ByLanguage[tuple[int, ...]]:
        """Where the nouns stand (all but those that tell the time)."""
        return ByLanguage(
            lambda lang: tuple(
                index
                for index, (_, marks) in enumerate(self._marked(lang))
                if any(mark.endswith(".n") for mark in marks)
            )
        )

    def text(self, lang: str) -> str:
        return spell(self.tokens[lang], lang)

    def alignment(self, source: str, target: str) -> frozenset[tuple[int, int]]:
        """(i, j): word i of `source` and word j of `target` mean the same."""
        places = self._places(target)
        return frozenset(
            (i, j)
            for i, (_, marks) in enumerate(self._marked(source))
            for mark in marks
            for j in places.get(mark, ())
        )

    def flip(self) -> "Story":
        """The same story with an ending that makes the last pronoun stand for the other one.

        A story that ends with its place comes to end with its actor.
        """
        about, other = ("thing", "actor") if self.about == "actor" else ("actor", "thing")
        fitting = endings_of(self.noun(about), self.noun(other))
        alike = [e for e in fitting if bool(e.case) == bool(self.ending.case)]
        choice = alike or [e for e in fitting if not e.case]
        ending = choice[ENDINGS.index(self.ending) % len(choice)]
        return replace(self, about=about, ending=ending)

    @cached_property
    def _made(self) -> dict[str, Marked]:
        return {}

    def _marked(self, lang: str) -> Marked:
        if lang not in self._made:
            pieces = GRAMMARS[check_language(lang)](self)
            self._made[lang] = tuple(word for piece in pieces for word in marked(*piece))
        return self._made[lang]

    def _places(self, lang: str) -> dict[str, list[int]]:
        places: dict[str, list[int]] = {}
        for index, (_, marks) in enumerate(self._marked(lang)):
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
