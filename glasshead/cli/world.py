"""`glasshead world`: stories of the embedded world, with what their pronouns stand for."""

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from glasshead.cli.terminal import console
from glasshead.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from rich.text import Text

    from glasshead.text.tinyworld import Story

__all__ = ["Split", "world"]


class Split(StrEnum):
    train = "train"
    test = "test"


def world(
    show: Annotated[int, typer.Option("--show", metavar="N", help="How many stories.")] = 5,
    lang: Annotated[
        str,
        typer.Option("--lang", metavar="LANGUAGES", help="Which of zh, en and de, in this order."),
    ] = "zh,en,de",
    seed: Annotated[
        int, typer.Option("--seed", metavar="S", min=0, help="Another seed, other stories.")
    ] = 0,
    split: Annotated[
        Split,
        typer.Option("--split", help="The two share no combination of actor, thing and ending."),
    ] = Split.train,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object a story, with its whole truth.")
    ] = False,
) -> None:
    """Print stories of the embedded world, one language a line.

    They are endless, generated from a seed, and it is known what each pronoun stands for: what
    `demo`, `ladder` and `train --task refer` train on.

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
        raise InputError(f"--show {show}: there is nothing to show", hint="show at least 1 story")
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
                out.print(marked(story, name), soft_wrap=True)
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
        raise InputError(f"--lang {lang}: a language is named twice", hint="name each once")
    return names


def marked(story: "Story", lang: str) -> "Text":
    """The story's text, each pronoun followed by what it stands for: 它(→小猫)."""
    from rich.text import Text

    from glasshead.text.tinyworld import spell

    tokens, pronouns = story.tokens[lang], story.pronouns[lang]
    shown, done = Text(), 0
    for pronoun in pronouns:
        # Spelling a beginning of the story gives a beginning of its text.
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
