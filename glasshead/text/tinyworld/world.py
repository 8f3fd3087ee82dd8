"""An endless sequence of stories, each a pure function of (seed, split, index)."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from itertools import count, product
from random import Random
from typing import TypeVar

from glasshead.errors import InputError, did_you_mean
from glasshead.text.tinyworld import lexicon
from glasshead.text.tinyworld.endings import ENDINGS, endings_of
from glasshead.text.tinyworld.events import VERBS, Manner, Verb
from glasshead.text.tinyworld.lexicon import NOUNS, PLACES, Noun, Place, Trilingual
from glasshead.text.tinyworld.story import Story

__all__ = ["SPLITS", "World", "corpus", "pairs", "split_of"]

T = TypeVar("T")

SPLITS = ("train", "test")

# Chosen so that the kitten and the butterfly of the seed's sentence are in "test".
_SALT = "tinyworld-15"

# Who meets whom, as cumulative shares. In the first three meetings the pronoun fits both nouns; in
# the last only one.
_MEETINGS = {"animals": 0.40, "animal and thing": 0.82, "people": 0.91, "person and other": 1.0}


def split_of(actor: Noun, thing: Noun) -> str:
    """Return the split of a pair: the same whoever acts and however the story ends."""
    pair = "/".join(sorted((actor.en, thing.en)))
    return "test" if sha256(f"{_SALT}/{pair}".encode()).digest()[0] < 26 else "train"


@cache
def verbs_of(actor: Noun, thing: Noun) -> tuple[Verb, ...]:
    """Return the verbs that fit, each as often as its weight."""
    return tuple(
        verb
        for verb in VERBS
        for _ in range(verb.weight)
        if any(
            not actors.isdisjoint(actor.kinds) and not things.isdisjoint(thing.kinds)
            for actors, things in verb.who
        )
    )


def is_met(actor: Noun, thing: Noun) -> bool:
    """Tell whether a story can be about the two: it must have an ending about each."""
    both_end = endings_of(actor, thing) and endings_of(thing, actor)
    return bool(both_end and verbs_of(actor, thing))


@cache
def pairs(split: str) -> dict[str, list[tuple[Noun, Noun]]]:
    """Return all pairs (actor, thing) of a split, by the kind of their meeting."""
    found: dict[str, list[tuple[Noun, Noun]]] = {meeting: [] for meeting in _MEETINGS}
    for actor, thing in product(NOUNS, NOUNS):
        if is_met(actor, thing) and split_of(actor, thing) == split:
            found[_meeting(actor, thing)].append((actor, thing))
    return found


def _meeting(actor: Noun, thing: Noun) -> str:
    people = ("person" in actor.kinds) + ("person" in thing.kinds)
    if people == 2 and actor.gender == thing.gender:
        return "people"
    if people:
        return "person and other"
    alive = not thing.kinds.isdisjoint({"land", "insect", "bird", "swimmer"})
    return "animals" if alive else "animal and thing"


class World:
    """
    >>> world = World(seed=7)
    >>> world.story("train", 5) == next(world.stories("train", start=5))
    True
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def stories(self, split: str = "train", start: int = 0) -> Iterator[Story]:
        return (self.story(split, index) for index in count(start))

    def story(self, split: str, index: int) -> Story:
        if split not in SPLITS:
            raise InputError(f"the world has no split '{split}'", hint=did_you_mean(split, SPLITS))
        return _Teller(Random(f"{self.seed}/{split}/{index}").random).tell(split)

    @staticmethod
    def seed_story() -> Story:
        """那个小猫，它昨天在公园里追逐一只蝴蝶，玩得不亦乐乎，结果把晚餐都忘了，现在它饿坏了。"""
        nouns = {noun.en: noun for noun in NOUNS}
        return Story(
            actor=nouns["kitten"],
            thing=nouns["butterfly"],
            verb=VERBS[0],
            ending=ENDINGS[0],
            about="actor",
            place=PLACES[0],
            time=lexicon.YESTERDAY,
            topic=True,
            manner=VERBS[0].manner,
            forgotten=lexicon.DINNER,
        )


class _Teller:
    """Makes the choices of one story. `rand` is Random.random, the only method of Random that
    gives the same numbers in every version of Python."""

    def __init__(self, rand: Callable[[], float]) -> None:
        self.rand = rand

    def chance(self, probability: float) -> bool:
        return self.rand() < probability

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self.rand() * len(options))]

    def tell(self, split: str) -> Story:
        share = self.rand()
        meeting = next(name for name, up_to in _MEETINGS.items() if share < up_to)
        actor, thing = self.pick(pairs(split)[meeting])
        verb = self.pick(verbs_of(actor, thing))
        passive = bool(verb.zh_done) and self.chance(0.45)
        places = places_of(verb, actor, thing)
        place = self.pick(places) if self.chance(0.8) else None
        time = self.pick(lexicon.TIMES) if self.chance(0.8) else None

        first, topic, circumstance = "", False, None
        given = [c for c in verb.given if place and c.where in place.kinds and not passive]
        if given and self.chance(0.3):
            circumstance = self.pick(given)
            time = lexicon.YESTERDAY if time is lexicon.EVENING else time  # the sun is shining
        else:
            first = self.pick([""] + ["time"] * bool(time) + ["place"] * bool(place))
            topic = not first and self.chance(0.5)

        reason, reason_role = None, ""
        manner: Manner | None = None
        forgotten: Trilingual | None = None
        if not circumstance and self.chance(0.4):
            reasons = [("actor", r) for r in verb.of_actor if r.fits(actor, thing)]
            reasons += [("thing", r) for r in verb.of_thing if r.fits(thing, actor)]
            if reasons:
                reason_role, reason = self.pick(reasons)
        elif not passive:
            manner = verb.manner if self.chance(0.5) else None
            if options := forgettable(verb, actor, thing, time):
                forgotten = self.pick(options) if self.chance(0.5) else None

        about, endings = "place", endings_of(place, actor, thing) if place else ()
        # After "the door was open" or "the room was dark", that too could be closed now.
        indoor = circumstance is not None and circumstance.where == "indoor"
        if not endings or indoor or self.chance(0.8):
            about = self.pick(("actor", "thing"))
            endings = endings_of(actor, thing) if about == "actor" else endings_of(thing, actor)
        ending = self.pick(endings)
        leads = ("now", "now", "look") if ending.case else ("now", "now", "look", "say")
        return Story(
            *(actor, thing, verb, ending, about, place, time, first, passive, topic),
            *(self.chance(0.3), circumstance, reason, reason_role, manner, forgotten),
            lead=self.pick(leads),
        )


def forgettable(verb: Verb, actor: Noun, thing: Noun, time: Trilingual | None) -> list[Trilingual]:
    """Return what the actor may forget over what happens."""
    if not verb.absorbing or actor.kinds.isdisjoint({"land", "bird", "person"}):
        return []
    meals = [lexicon.LUNCH] * (time is not lexicon.EVENING)
    meals += [lexicon.DINNER] * (time is not lexicon.MORNING)
    if "food" in thing.kinds:
        meals = []  # the meal too could be mouldy now
    return [*meals, lexicon.HOURS]


def places_of(verb: Verb, actor: Noun, thing: Noun) -> tuple[Place, ...]:
    """Return the places where this can happen."""
    wet, town = "swimmer" in actor.kinds | thing.kinds, "person" in actor.kinds & thing.kinds
    return _places(verb, wet, town)


@cache
def _places(verb: Verb, wet: bool, town: bool) -> tuple[Place, ...]:
    return tuple(
        place
        for place in PLACES
        if not verb.where.isdisjoint(place.kinds)
        and ("wet" in place.kinds or not wet)
        and ("town" in place.kinds or not town)
    )


def corpus(n: int, lang: str, seed: int = 0) -> Iterator[str]:
    """Return the first `n` training stories as lines of text."""
    world = World(seed)
    return (world.story("train", index).text(lang) for index in range(n))
