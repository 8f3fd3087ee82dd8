"""Measure `glasshead ask`: 500 sentences of its world, and 200 outside of it.

    python -m bench.ask runs/demo/reader runs/demo/reader-en runs/demo/translator

Prints a table for docs/results.md. Inside, an answer counts if every pronoun is right, or the whole
translation; outside, "outside" is the right answer. tests/lab/test_ask.py uses the same sentences.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from glasshead.lab.ask import Asked, Respondent
from glasshead.text.tinyworld import Story, World, spell
from glasshead.text.tinyworld.endings import ENDINGS

__all__ = ["Measured", "inside", "measure", "outside"]

INSIDE, OUTSIDE = 500, 200
UNKNOWN = {
    "zh": ("恐龙", "火箭", "小提琴", "企鹅", "律师"),
    "en": ("dinosaur", "rocket", "violin", "penguin", "lawyer"),
}
FOREIGN = (
    "Le chat a faim.", "El gato persiguió una mariposa en el parque.", "ネコは蝶を追いかけた。",
    "Die Katze jagte gestern einen Schmetterling.", "Кошка голодна.", "고양이가 배고프다.",
    "12345", "!!!", "🐱🦋", "x = q @ k.T", "The quick brown fox jumps over the lazy dog.",
    "床前明月光，疑是地上霜。", "今天天气怎么样？", "What is the capital of France?",
    "Attention is all you need.", "你是谁？", "γάτα", "القط جائع", "小猫", "it",
)  # fmt: skip
ALONE = {"zh": "它饿坏了。", "en": "It is starving."}


@dataclass(frozen=True)
class Measured:
    answered: int  # of the sentences inside
    right: int
    kept_out: dict[str, tuple[int, int]]  # kind of sentence outside: told to be outside, of
    confident: tuple[str, ...]  # sentences outside that got an answer

    @property
    def outside(self) -> tuple[int, int]:
        told, of = zip(*self.kept_out.values(), strict=True)
        return sum(told), sum(of)


def inside(n: int = INSIDE, seed: int = 1) -> list[Story]:
    """Return stories whose pairs of nouns occur in no training story."""
    return list(islice(World(seed).stories("test"), n))


def outside(lang: str, n: int = OUTSIDE, seed: int = 1) -> list[tuple[str, str]]:
    """Return (kind, text): four kinds, a quarter each."""
    found: list[tuple[str, str]] = []
    for kind in (_shapes, _ambiguous, _unknown, _foreign):
        name = kind.__name__.removeprefix("_")
        found += [(name, text) for text in islice(kind(lang, seed), n // 4)]
    return found


def _shapes(lang: str, seed: int) -> Iterator[str]:
    """Yield known words in shapes that no story has."""
    yield ALONE[lang]
    for at, story in enumerate(World(seed).stories("test", 1000)):
        tokens = list(story.tokens[lang])
        noun = story.nouns[lang][0]
        start = max(i for i, token in enumerate(tokens[:-1]) if token in (",", ".", "，")) + 1
        yield spell(
            [
                tokens[start:],  # its ending alone
                tokens[: noun - 1] + tokens[noun:],  # without the word before the first noun
                tokens[start:-1] + tokens[:start],  # the ending first
                tokens[:-1][::-1] + tokens[-1:],  # backwards
                tokens[: noun + 1] + tokens[noun:],  # a noun twice
            ][at % 5],
            lang,
        )


def _ambiguous(lang: str, seed: int) -> Iterator[str]:
    """Yield stories whose ending fits both nouns, or neither."""
    for story in World(seed).stories("test", 2000):
        for ending in ENDINGS:
            fits = [ending.possible_of(one) for one in (story.actor, story.thing)]
            same = ("person" in story.actor.kinds) == ("person" in story.thing.kinds)
            if all(fits) and same and ending.case == story.ending.case:
                yield replace(story, about="actor", ending=ending).text(lang)
                break


def _unknown(lang: str, seed: int) -> Iterator[str]:
    """Yield stories in which a noun is a word that the world lacks."""
    for at, story in enumerate(World(seed).stories("test", 3000)):
        tokens = list(story.tokens[lang])
        nouns = story.nouns[lang]
        tokens[nouns[at % 2]] = UNKNOWN[lang][at % len(UNKNOWN[lang])]
        yield spell(tokens, lang)


def _foreign(lang: str, seed: int) -> Iterator[str]:
    """Yield other languages, the world's others among them, and what is no sentence."""
    yield from FOREIGN
    others = [other for other in ("zh", "en", "de") if other != lang]
    for at, story in enumerate(World(seed).stories("test", 4000)):
        yield story.text(others[at % 2])


def measure(respondent: Respondent, stories: Sequence[Story]) -> Measured:
    lang = respondent.langs[0]
    asked = [respondent.ask(story.text(lang)) for story in stories]
    right = sum(
        _is_right(one, story, respondent) for one, story in zip(asked, stories, strict=True)
    )
    kept_out: dict[str, tuple[int, int]] = {}
    confident = []
    for kind, text in outside(lang):
        told = not respondent.ask(text).is_inside
        before = kept_out.get(kind, (0, 0))
        kept_out[kind] = (before[0] + told, before[1] + 1)
        confident += [] if told else [text]
    answered = sum(one.is_inside for one in asked)
    return Measured(answered, right, kept_out, tuple(confident))


def _is_right(asked: Asked, story: Story, respondent: Respondent) -> bool:
    if not asked.is_inside:
        return False
    if asked.translation:
        return asked.translation == story.text(respondent.langs[1])
    said = [(one.index, one.word.lower()) for one in asked.answers]
    wanted = [(one.index, one.word.lower()) for one in story.pronouns[asked.lang]]
    return said == wanted


def main(paths: Sequence[str]) -> None:
    print("| run | answered | right | outside told | shapes | ambiguous | unknown | foreign |")
    print("|---|---|---|---|---|---|---|---|")
    for path in paths:
        found = measure(Respondent(path), stories := inside())
        cells = [f"{told} of {of}" for told, of in (found.outside, *found.kept_out.values())]
        name = path.rstrip("/").rpartition("/")[2]
        head = f"{found.answered} of {len(stories)} | {found.right}"
        print(f"| {name} | {head} | {' | '.join(cells)} |")
        for text in found.confident:
            print(f"answered: {text}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
