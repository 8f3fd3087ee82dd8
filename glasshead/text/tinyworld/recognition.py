"""Recognize a story: which stories of this world have exactly these words?

The grammar only writes. It is used to read as well: the words of a text name the few nouns, verbs
and phrases that it can consist of; each story that they make is written, and those that have the
words of the text are its readings. So a text is in this world exactly if it could be told in it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any

from glasshead.errors import InputError
from glasshead.text.tinyworld import lexicon
from glasshead.text.tinyworld.endings import ENDINGS, Ending, endings_of
from glasshead.text.tinyworld.events import VERBS, Reason, Verb
from glasshead.text.tinyworld.lexicon import NOUNS, PLACES, Place
from glasshead.text.tinyworld.spelling import tokenize
from glasshead.text.tinyworld.story import Story
from glasshead.text.tinyworld.world import forgettable, is_met, places_of, verbs_of

__all__ = ["Recognition", "recognize"]

# The words that tell how an ending begins, if not with "now".
_LEADS = {
    "zh": {"look": "你看", "say": "听说"},
    "en": {"look": "look", "say": "say"},
    "de": {"look": "schau", "say": "sagt"},
}


@dataclass(frozen=True)
class Recognition:
    """What a text is in this world. `why` is empty if it is a story, and only one.

    unknown: the world lacks a word, which is `detail`
    shape: all words are known, but no story has them in this order
    ambiguous: a pronoun can stand for several nouns, which are `choices`
    impossible: the shape is that of a story, but this does not happen in this world
    """

    why: str
    story: Story | None = None
    detail: str = ""
    choices: tuple[str, ...] = ()


def recognize(text: str, lang: str) -> Recognition:
    """Tell whether a text is a story of this world.

    >>> recognize("它饿坏了。", "zh").why
    'shape'
    >>> recognize("Now the dog is starving.", "en").detail
    'dog'
    """
    try:
        tokens = tokenize(text, lang)
    except InputError as error:
        return Recognition("unknown", detail=str(error).split("'")[1])
    if not tokens:
        return Recognition("shape")
    readings = [story for story in _candidates(tokens, lang) if story.tokens[lang] == tokens]
    told = [story for story in readings if _is_told(story)]
    answers = {tuple(one.referent_index for one in story.pronouns[lang]) for story in told}
    if len(answers) == 1:
        return Recognition("", told[0])
    if not readings:
        return Recognition("shape")
    happen = [story for story in readings if story.verb in verbs_of(story.actor, story.thing)]
    choices = tuple(
        dict.fromkeys(
            story.referent.word(lang)
            for story in happen
            if story.ending.possible_of(story.referent)
        )
    )
    if len(choices) > 1 or len(answers) > 1:
        return Recognition("ambiguous", choices=choices)
    return Recognition("impossible")


def _is_told(story: Story) -> bool:
    """Tell whether World tells such a story: the conditions of `_Teller.tell`."""
    actor, thing, verb, place = story.actor, story.thing, story.verb, story.place
    given = story.circumstance
    if not is_met(actor, thing) or verb not in verbs_of(actor, thing):
        return False
    if place and place not in places_of(verb, actor, thing):
        return False
    if given and not (place and given.where in place.kinds and not story.first):
        return False
    if story.topic and (story.first or given):
        return False
    if given and (story.time is lexicon.EVENING or story.passive or story.reason):
        return False
    if story.reason and not _reason_fits(story, story.reason):
        return False
    if (story.manner or story.forgotten) and (story.reason or story.passive):
        return False
    if story.forgotten and story.forgotten not in forgettable(verb, actor, thing, story.time):
        return False
    if story.lead == "say" and story.ending.case:
        return False
    if story.about == "place":
        indoor = given is not None and given.where == "indoor"
        return bool(place) and not indoor and story.ending in endings_of(place, actor, thing)
    other = thing if story.about == "actor" else actor
    return story.ending in endings_of(story.referent, other)


def _reason_fits(story: Story, reason: Reason) -> bool:
    role = story.reason_role
    told = story.verb.of_actor if role == "actor" else story.verb.of_thing
    other = story.noun("thing" if role == "actor" else "actor")
    return reason in told and reason.fits(story.noun(role), other)


def _candidates(tokens: Sequence[str], lang: str) -> Iterator[Story]:
    """Yield stories made of the phrases whose words all occur."""
    words = set(tokens)

    def occurring(options: Iterable[Any]) -> list[Any]:
        """Return the longest of the phrases that occur, or None if none does."""
        found = [one for one in options if one and _words(getattr(one, lang)) <= words]
        sets = [_words(getattr(one, lang)) for one in found]
        longest = [one for one, mine in zip(found, sets, strict=True)
                   if not any(mine < other for other in sets)]  # fmt: skip
        return longest or [None]

    nouns = [noun for noun in NOUNS if words & {noun.word(lang), _oblique(noun, lang)}]
    endings = [ending for ending in ENDINGS if _ending_words(ending, lang, words)]
    places = _places(words, lang)
    times = occurring(lexicon.TIMES)
    forgotten = {*occurring((lexicon.DINNER, lexicon.LUNCH, lexicon.HOURS)), None}
    lead = next((lead for lead, word in _LEADS[lang].items() if word in words), "now")
    flags = (False, True)
    for (actor, thing), verb in product(permutations(nouns, 2), VERBS):
        active, passive = _verb_words(verb, lang, words)
        reasons: set[tuple[Reason | None, str]] = {(None, "")}
        for role, told in (("actor", verb.of_actor), ("thing", verb.of_thing)):
            reasons |= {(reason, role) for reason in occurring(told) if reason}
        for is_passive, (reason, role), place, time, *rest in product(
            [False] * active + [True] * passive, reasons, places, times,
            occurring(verb.given), occurring([verb.manner]), forgotten,
            endings, ("actor", "thing", "place"), ("", "time", "place"), flags, flags,
        ):  # fmt: skip
            given, manner, forgot, ending, about, first, topic, definite = rest
            if (place is None and "place" in (about, first)) or (time is None and first == "time"):
                continue
            yield Story(
                *(actor, thing, verb, ending, about, place, time, first, is_passive, topic),
                *(definite, given, reason, role, manner, forgot, lead),
            )


def _places(words: set[str], lang: str) -> list[Place | None]:
    found = [one for one in PLACES if _words(getattr(one, f"{lang}_phrase")) <= words]
    return [*found] or [None]


def _words(phrase: str) -> set[str]:
    return {token.partition("/")[0] for token in phrase.split()} - {"@"}


def _oblique(noun: lexicon.Noun, lang: str) -> str:
    return noun.de_oblique if lang == "de" else noun.word(lang)


def _ending_words(ending: Ending, lang: str, words: set[str]) -> bool:
    plain = _words(getattr(ending, lang)) <= words
    return plain or (lang == "de" and bool(ending.de_last) and _words(ending.de_last) <= words)


def _verb_words(verb: Verb, lang: str, words: set[str]) -> tuple[bool, bool]:
    """Tell whether the verb's words occur in the active and in the passive voice."""
    done = {"zh": verb.zh_done, "en": verb.en_done, "de": verb.de if verb.en_done else ""}[lang]
    passive = bool(done) and _words(done) <= words
    active = _words(getattr(verb, lang)) <= words or (lang == "zh" and passive)  # 把 ... 起来
    return active, passive
