"""`glasshead steps`: attention in numbers."""

from pathlib import Path
from typing import Annotated

from glasshead.cli.terminal import AsJson, Lang, argument, console, language, option, print_json

__all__ = ["steps"]


def steps(
    words: Annotated[list[str], argument("WORDS", "A sentence.")],
    query: Annotated[
        str | None,
        option("--query", "WORD", "Show the row of this word; WORD#2 is its second occurrence."),
    ] = None,
    vectors: Annotated[
        Path | None,
        option(
            "--vectors",
            "FILE.json",
            'Your own vectors: {"word": [...], ...}, or such objects under "q", "k" and "v".',
        ),
    ] = None,
    scale: Annotated[
        bool, option("--scale/--no-scale", None, "Divide scores by √d, or do not.")
    ] = True,
    causal: Annotated[bool, option("--causal", None, "Hide the words that follow.")] = False,
    lang: Lang = None,
    as_json: AsJson = False,
) -> None:
    """Show attention in numbers, step by step, for a sentence.

    Prints tables of scores, scaling, mask, softmax, and the weighted sum; with --query each in full
    for one word. Vectors are the textbook's, or made from a word's spelling, or your own.

    \b
    Examples:
      glasshead steps "Hello shiny sun!" --query shiny --no-scale
      glasshead steps "那只小猫 它 饿坏了" --query 它 --causal
      glasshead steps "Your journey starts with one step" --json
    """
    from glasshead.lab import walkthrough

    walked = walkthrough.walk(" ".join(words), query, vectors, scale, causal)
    if as_json:
        print_json(walkthrough.as_json(walked))
        return
    from glasshead.lab.walkthrough_tables import tables

    out = console()
    for part in tables(walked, language(lang), out.width, out.options.ascii_only):
        out.print(part)
