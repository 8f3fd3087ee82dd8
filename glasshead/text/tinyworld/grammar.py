"""Turn the content of a story into words: one function for each language.

Each yields (role, phrase). A word has its letters as marks, with the role before them: `thing.n` is
the noun of the thing in every language, and words with a common mark are aligned.
"""

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from glasshead.text.tinyworld.endings import Ending
from glasshead.text.tinyworld.lexicon import Noun

if TYPE_CHECKING:
    from glasshead.text.tinyworld.story import Story

__all__ = ["FUNCTION_WORDS", "GRAMMARS", "MarkedWords", "mark_words"]

Phrases = Iterator[tuple[str, str]]
MarkedWords = tuple[tuple[str, tuple[str, ...]], ...]

_DEFINITE = {"m": ("der", "den", "dem"), "f": ("die", "die", "der"), "n": ("das", "das", "dem")}
_INDEFINITE = {
    "m": ("ein", "einen", "einem"),
    "f": ("eine", "eine", "einer"),
    "n": ("ein", "ein", "einem"),
}
_PRONOUNS = {"m": ("er", "ihn", "ihm"), "f": ("sie", "sie", "ihr"), "n": ("es", "es", "ihm")}

# The words written in this file; all others are in the lexicon and the events.
FUNCTION_WORDS = {
    "zh": "那 一 ， 。 因为 把 被 结果 都 忘 了 现在 你看 听说 它 他 她",
    "en": "the that a an , . because was by and so forgot all about now look people say it he she",
    "de": "der die das den dem ein eine einen einem einer dort , . weil hat wurde von vom und "
    "darüber ganz vergessen jetzt schau man sagt dass er sie es ihn ihm ihr",
}


@cache
def mark_words(role: str, phrase: str) -> MarkedWords:
    """
    >>> mark_words("place", "im/ad Park/n")
    (('im', ('place.a', 'place.d')), ('Park', ('place.n',)))
    """
    words = (token.partition("/") for token in phrase.split())
    return tuple(
        (word, tuple(f"{role}.{letter}" for letter in letters)) for word, _, letters in words
    )


def chinese(story: "Story") -> Phrases:
    subject, role = story.subject, story.subject_role
    time = ("time", story.time.zh if story.time else "")
    place = ("place", story.place.zh_phrase if story.place else "")
    if story.circumstance:
        yield "circumstance", f"因为/b {story.circumstance.zh} ，/c"
    if story.first == "time":
        yield time
    elif story.first == "place":
        yield place
        yield "place", "，/c"
    yield role, f"那/d {subject.that_measure}/d {subject.zh}/n"
    if story.topic:
        yield "topic", f"，/c {_zh_pronoun(subject)}/p"
    if story.first != "time":
        yield time
    if story.first != "place":
        yield place
    yield from _zh_event(story)
    if story.reason:
        pronoun = _zh_pronoun(story.noun(story.reason_role))
        yield "reason", f"，/c 因为/b {pronoun}/p {story.reason.zh}"
    if story.manner:
        yield "manner", f"，/c {story.manner.zh}"
    if story.forgotten:
        yield "forgotten", f"，/c 结果/s 把 {story.forgotten.zh} 都/u 忘/f 了"
    yield "break", "，/b"
    text = story.ending.zh.replace("@", f"{_zh_pronoun(story.referent)}/p")
    if story.lead == "say":
        yield "ending", f"听说/s {text}"
    else:
        yield "ending", f"{'你看/t ，/u ' if story.lead == 'look' else ''}现在/j {text}"
    yield "stop", "。/z"


def _zh_event(story: "Story") -> Phrases:
    verb, other = story.verb, story.other
    article = f"那/d {other.that_measure}" if story.definite else f"一/d {other.measure}"
    phrase = f"{article}/d {other.zh}/n"
    if story.passive or (story.definite and verb.ba):
        yield story.other_role, f"{'被/xy' if story.passive else '把'} {phrase}"
        yield "verb", verb.zh_done
    else:
        yield "verb", verb.zh
        yield "thing", phrase


def _zh_pronoun(noun: Noun) -> str:
    return {"m": "他", "f": "她"}[noun.gender] if "person" in noun.kinds else "它"


def english(story: "Story") -> Phrases:
    subject, verb, other = story.subject, story.verb, story.other
    if story.circumstance:
        yield "circumstance", f"because/b {story.circumstance.en} ,/c"
    if story.first == "time" and story.time:
        yield "time", story.time.en
    if story.first == "place" and story.place:
        yield "place", f"{story.place.en_phrase} ,/c"
    yield story.subject_role, f"{'that' if story.topic else 'the'}/d {subject.en}/n"
    if story.topic:
        yield "topic", f",/c {_en_pronoun(subject)}/p"
    if story.passive:
        yield "actor", "was/x"
        yield "verb", verb.en_done
        yield "actor", "by/y"
    else:
        yield "verb", verb.en
        yield "thing", verb.preposition.en
    article = "the" if story.definite else "an" if other.en[0] in "aeiou" else "a"
    yield story.other_role, f"{article}/d {other.en}/n"
    if story.first != "place" and story.place:
        yield "place", story.place.en_phrase
    if story.first != "time" and story.time:
        yield "time", story.time.en
    if story.reason:
        pronoun = _en_pronoun(story.noun(story.reason_role))
        yield "reason", f"because/b {pronoun}/p {story.reason.en}"
    if story.manner:
        yield "manner", f"{',' if story.forgotten else 'and'}/c {story.manner.en}"
    if story.forgotten:
        yield "forgotten", f"and/c so/s forgot/f all/u about/u {story.forgotten.en}"
    yield "break", "./b"
    text = story.ending.en.replace("@", f"{_en_pronoun(story.referent)}/p")
    if story.lead == "say":
        yield "ending", f"people/s say/s that/q {text}"
    else:
        yield "ending", f"{'look/t ,/u ' if story.lead == 'look' else ''}now/j {text}"
    yield "stop", "./z"


def _en_pronoun(noun: Noun) -> str:
    return {"m": "he", "f": "she"}[noun.gender] if "person" in noun.kinds else "it"


def german(story: "Story") -> Phrases:
    """Verb second, participle last: Gestern hat das Kätzchen im Park ... gejagt."""
    subject, verb = story.subject, story.verb
    if story.circumstance:
        yield "circumstance", f"weil/b {story.circumstance.de} ,/c"
    if story.first == "time" and story.time:
        yield "time", story.time.de
    if story.first == "place" and story.place:
        yield "place", story.place.de_phrase
    finite = ("actor", "wurde/x") if story.passive else ("verb", "hat/t")
    if story.first or story.circumstance:
        yield finite
    yield story.subject_role, f"{_DEFINITE[subject.gender][0]}/d {subject.de}/n"
    if story.topic:
        yield "topic", f"dort ,/c {_PRONOUNS[subject.gender][0]}/p"
    if not (story.first or story.circumstance):
        yield finite
    if story.first != "time" and story.time:
        yield "time", story.time.de
    if story.first != "place" and story.place:
        yield "place", story.place.de_phrase
    if story.passive:
        phrase = _de_phrase(story.actor, story.definite, 2)
        yield "actor", f"von/y {phrase}".replace("von/y dem/d", "vom/yd")
    else:
        phrase = _de_phrase(story.thing, story.definite, 2 if verb.preposition.de else 1)
        yield "thing", f"{verb.preposition.de} {phrase}".replace("an/w dem/d", "am/wd")
    yield "verb", verb.de
    if story.reason:
        pronoun = _PRONOUNS[story.noun(story.reason_role).gender][0]
        yield "reason", f",/c weil/b {pronoun}/p {story.reason.de}"
    if story.manner:
        yield "manner", f"{',' if story.forgotten else 'und'}/c {story.manner.de}"
    if story.forgotten:
        again = "hat " if story.manner and story.manner.finite else ""
        yield "forgotten", f"und/c {again}darüber/s {story.forgotten.de} ganz/u vergessen/f"
    yield "break", "./b"
    yield "ending", _de_ending(story.ending, story.lead, story.referent)
    yield "stop", "./z"


def _de_phrase(noun: Noun, definite: bool, case: int) -> str:
    article = (_DEFINITE if definite else _INDEFINITE)[noun.gender][case]
    return f"{article}/d {noun.de_oblique if case else noun.de}/n"


def _de_ending(ending: Ending, lead: str, referent: Noun) -> str:
    pronoun = f"{_PRONOUNS[referent.gender][ending.case]}/p"
    if lead == "say":
        verb, _, rest = [*ending.de.split(" ", 2), ""][:3]  # the second is the pronoun
        return f"man/s sagt/s , dass/q {pronoun} {ending.de_last or f'{rest} {verb}'}"
    return f"{'schau/t ,/u ' if lead == 'look' else ''}jetzt/j {ending.de.replace('@', pronoun)}"


GRAMMARS = {"zh": chinese, "en": english, "de": german}
