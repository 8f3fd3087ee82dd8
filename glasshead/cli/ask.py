"""`glasshead ask`: what do the pronouns of a sentence stand for?"""

from typing import Annotated

from glasshead.cli.terminal import (
    AsJson,
    Lang,
    RunArgument,
    argument,
    console,
    language,
    print_json,
    read_text,
)
from glasshead.errors import InputError

__all__ = ["ask"]


def ask(
    run: RunArgument,
    text: Annotated[str | None, argument("[TEXT]", "A sentence; - or nothing: stdin.")] = None,
    lang: Lang = None,
    as_json: AsJson = False,
) -> None:
    """Ask what pronouns of a sentence stand for, or translate it.

    Shows the noun that each pronoun looks at, and what the answer becomes if it may not look there.
    Of a sentence outside of the run's small world it says so instead of answering: one with unknown
    words, in a shape that the world does not have, or with several answers.

    \b
    Examples:
      glasshead ask runs/demo/reader "那个小猫，它昨天在公园里追逐一只蝴蝶，现在它饿坏了。"
      glasshead ask runs/demo/reader-en "The kitten chased a butterfly. Now it has flown away."
      glasshead ask runs/demo/translator "它饿坏了。" --json

    `glasshead demo` trains such runs, `glasshead world` prints sentences of their world.
    """
    given = read_text(text).strip()
    if not given:
        raise InputError(
            "there is no sentence to ask about",
            hint=f'try: glasshead ask {run} "那个小猫，它昨天在公园里追逐一只蝴蝶，现在它饿坏了。"',
        )
    from glasshead.machine import settle_half_precision

    settle_half_precision()  # before torch computes anything
    from glasshead.lab.ask import ask as answer
    from glasshead.lab.ask_tables import show

    asked = answer(run, given)
    if as_json:
        print_json(asked.as_json())
        return
    out = console()
    for line in show(asked, language(lang)):
        out.print(line)
