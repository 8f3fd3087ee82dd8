"""`glasshead world`: stories of the embedded world, with the referents of their pronouns."""

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from glasshead.cli.terminal import console, option
from glasshead.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from rich.text import Text

    from glasshead.text.tinyworld import Story

__all__ = ["Split", "world"]


class Split(StrEnum):
    train = "train"
    test = "test"


def world(
    show: Annotated[int, option("--show", "N", "How many stories.")] = 5,
    lang: Annotated[
        str, option("--lang", "LANGUAGES", "Which of zh, en and de, in this order.")
    ] = "zh,en,de",
    seed: Annotated[int, option("--seed", "S", "Another seed, other stories.", min=0)] = 0,
    split: Annotated[
        Split, option("--split", None, "They share no combination of actor, thing and ending.")
    ] = Split.train,
    as_json: Annotated[
        bool, option("--json", None, "Print one JSON object a story, with its annotations.")
    ] = False,
) -> None:
    """Print stories of the embedded world, one language a line.

    Stories are generated from a seed, without end, and the referent of each pronoun is known.
    `demo`, `ladder` and `train --task refer` train on them.

    \b
    Examples:
      glasshead world --show 5 --lang zh,de
      glasshead world --show 1000 --lang en > stories.txt
      glasshead world --show 3 --split test --json

    On a terminal each pronoun is followed by its noun, as in 它(→小猫). In a file or a pipe the
    stories are plain text. With --json each has its tokens, its pronouns (where they
    stand, and the word they stand for) and the word alignments between its languages.
    """
    from itertools import islice

    from glasshead.text.tinyworld import World

    langs = _languages(lang)
    if show < 1:
        raise InputError(f"--show ({show}) must be at least 1", hint="try --show 5")
    stories = islice(World(seed).stories(split.value), show)
    if as_json:
        for story in stories:
            _print_json(story, langs)
        return
    out = console()
    for number, story in enumerate(stories):
        if number and len(langs) > 1:
            print()
        for name in langs:
            if sys.stdout.isatty():
                out.print(mark_pronouns(story, name), soft_wrap=True)
            else:
                print(story.text(name))


def _languages(lang: str) -> list[str]:
    from glasshead.text.tinyworld import LANGUAGES

    names = [name.strip() for name in lang.split(",")]
    for name in names:
        if name not in LANGUAGES:
            raise InputError(
                f"--lang {lang}: the world has no language '{name}'",
                hint=did_you_mean(name, LANGUAGES),
            )
    if len(set(names)) < len(names):
        raise InputError(f"--lang {lang} names a language twice", hint="name each once")
    return names


def mark_pronouns(story: "Story", lang: str) -> "Text":
    """Return the story's text, each pronoun followed by its noun: 它(→小猫)."""
    from rich.text import Text

    from glasshead.text.tinyworld import spell

    tokens, pronouns = story.tokens[lang], story.pronouns[lang]
    shown, done = Text(), 0
    for pronoun in pronouns:
        # A prefix of the tokens spells a prefix of the text.
        end = len(spell(tokens[: pronoun.index + 1], lang))
        start = end - len(tokens[pronoun.index])
        shown.append(story.text(lang)[done:start])
        shown.append(story.text(lang)[start:end], style="bold cyan")
        shown.append(f"(→{pronoun.word})", style="cyan")
        done = end
    return shown.append(story.text(lang)[done:])


def _print_json(story: "Story", langs: list[str]) -> None:
    import json

    record = {
        "actor": story.actor.en,
        "thing": story.thing.en,
        "ending": story.ending.words("en"),
        "referent": story.referent.en,
        "text": {name: story.text(name) for name in langs},
        "tokens": {name: story.tokens[name] for name in langs},
        "pronouns": {
            name: [
                {"index": p.index, "referent_index": p.referent_index, "word": p.word}
                for p in story.pronouns[name]
            ]
            for name in langs
        },
        "alignment": {
            f"{source}-{target}": sorted(story.alignment(source, target))
            for number, source in enumerate(langs)
            for target in langs[number + 1 :]
        },
    }
    print(json.dumps(record, ensure_ascii=console().options.ascii_only))
