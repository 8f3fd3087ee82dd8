"""`glasshead steps`: attention in numbers."""

from pathlib import Path
from typing import Annotated

import typer

from glasshead.cli.terminal import Language, console, language

__all__ = ["steps"]


def steps(
    words: Annotated[list[str], typer.Argument(metavar="WORDS", help="A sentence.")],
    query: Annotated[
        str | None,
        typer.Option(
            "--query", metavar="WORD", help="Show the row of this word; WORD#2 is its second place."
        ),
    ] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(
            "--vectors",
            metavar="FILE.json",
            help='Your own vectors: {"word": [...], ...}, or such objects under "q", "k" and "v".',
        ),
    ] = None,
    scale: Annotated[
        bool, typer.Option("--scale/--no-scale", help="Divide scores by √d, or do not.")
    ] = True,
    causal: Annotated[bool, typer.Option("--causal", help="Hide the words that follow.")] = False,
    lang: Annotated[
        Language | None,
        typer.Option("--lang", help="Language of the tables [default: the locale's]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Show attention in numbers, step by step, for a sentence.

    Tables come out: scores, scaling, mask, softmax, and the weighted sum; with --query each in
    full for one word. Vectors are the textbook's, or made from a word's spelling, or your own.

    \b
    Examples:
      glasshead steps "Hello shiny sun!" --query shiny --no-scale
      glasshead steps "那只小猫 它 饿坏了" --query 它 --causal
      glasshead steps "Your journey starts with one step" --json
    """
    from glasshead.lab import walkthrough

    walked = walkthrough.walk(" ".join(words), query, vectors, scale, causal)
    out = console()
    if as_json:
        import json

        ascii_only = out.options.ascii_only
        print(json.dumps(walkthrough.as_json(walked), ensure_ascii=ascii_only, allow_nan=False))
        return
    from glasshead.lab.walkthrough_tables import tables

    for part in tables(
        walked, lang.value if lang else language(), out.width, out.options.ascii_only
    ):
        out.print(part)
