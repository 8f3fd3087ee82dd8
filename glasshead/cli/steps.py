"""`glasshead steps`: attention in numbers."""

from pathlib import Path
from typing import Annotated, Literal

from glasshead.cli.terminal import AsJson, Lang, argument, console, language, option, print_json
from glasshead.errors import InputError

__all__ = ["steps"]


def steps(
    words: Annotated[list[str] | None, argument("[WORDS]", "A sentence.")] = None,
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
    example: Annotated[
        str | None,
        option(
            "--example",
            "NAME",
            "A worked example of the documents, beside ours: shiny, journey, self-attention, "
            "two-heads, numpy-q1, kitten, ladder, slips.",
        ),
    ] = None,
    lang: Lang = None,
    as_json: AsJson = False,
) -> None:
    """Show attention in numbers, step by step, for a sentence.

    Prints tables of scores, scaling, mask, softmax, and the weighted sum; with --query each in full
    for one word. Vectors are the textbook's, or made from a word's spelling, or your own. With
    --example: the numbers of a document beside ours, and its mistakes marked.

    \b
    Examples:
      glasshead steps "Hello shiny sun!" --query shiny --no-scale
      glasshead steps "那只小猫 它 饿坏了" --query 它 --causal
      glasshead steps "Your journey starts with one step" --json
      glasshead steps --example two-heads
    """
    if example is not None:
        if words or query is not None or vectors is not None or causal or not scale:
            raise InputError(
                f"--example {example} has words and settings of its own",
                hint=f"glasshead steps --example {example}",
            )
        _show_example(example, language(lang), as_json)
        return
    if not words:
        raise InputError(
            "glasshead steps needs a sentence or an example",
            hint='try: glasshead steps "Hello shiny sun!" or glasshead steps --example shiny',
        )
    from glasshead.lab import walkthrough

    walked = walkthrough.walk(" ".join(words), query, vectors, scale, causal)
    if as_json:
        print_json(walkthrough.as_json(walked))
        return
    from glasshead.lab.walkthrough_tables import tables

    out = console()
    for part in tables(walked, language(lang), out.width, out.options.ascii_only):
        out.print(part)


def _show_example(name: str, lang: Literal["zh", "en"], as_json: bool) -> None:
    from glasshead.lab.examples import compute

    example = compute(name)
    if as_json:
        print_json(example.as_json())
        return
    from glasshead.lab.examples.tables import tables

    out = console()
    for part in tables(example, lang):
        out.print(part)
