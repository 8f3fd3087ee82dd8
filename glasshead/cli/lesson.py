"""`glasshead lesson`: a short course on attention, in the terminal."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glasshead.cli.terminal import Language, console, language

if TYPE_CHECKING:
    from rich.console import Console

    from glasshead.lab.lessons import Lesson

__all__ = ["lesson"]

_WIDEST = 100  # cells: longer lines are hard to read

_SAYS = {
    "en": {
        "enter": "Enter goes on, q ends",
        "try": "glasshead lesson {n} --source > mine.py, change a line, python mine.py",
        "next": "next: glasshead lesson {n}",
    },
    "zh": {
        "enter": "回车继续，q 结束",
        "try": "glasshead lesson {n} --source > mine.py，改一行，再 python mine.py",
        "next": "下一课：glasshead lesson {n}",
    },
}


def lesson(
    number: Annotated[
        int | None, typer.Argument(metavar="N", help="Which lesson; none lists them.")
    ] = None,
    lang: Annotated[
        Language | None, typer.Option("--lang", help="Language of the text [default: the locale's]")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Do not wait for Enter after each part.")
    ] = False,
    source: Annotated[
        bool, typer.Option("--source", help="Print the script instead, to change and to run.")
    ] = False,
) -> None:
    """Attention in ten short lessons: read, see it run, change a line.

    \b
    Examples:
      glasshead lesson
      glasshead lesson 3 --lang zh
      glasshead lesson 3 --source > mine.py

    A lesson is a plain Python script. What it prints is computed as you read, in a few seconds at
    most; pictures go to runs/lessons, or where GLASSHEAD_LESSON_OUT says.
    """
    from glasshead.lab import lessons as lab

    words = lang.value if lang else language()
    out = console()
    if number is None:
        for each in lab.lessons():
            out.print(f"{each.number:>2}  {each.title(words)}")
        return
    found = lab.find(number)
    if source:
        sys.stdout.write(found.path.read_text(encoding="utf-8"))
        return
    out.width = min(out.width, _WIDEST)
    waits = not everything and sys.stdin.isatty() and sys.stdout.isatty()
    if _plays(found, words, out, waits):
        after = [each.number for each in lab.lessons() if each.number > number]
        out.print(_SAYS[words]["try"].format(n=number), style="dim")
        if after:
            out.print(_SAYS[words]["next"].format(n=after[0]), style="dim")


def _plays(found: "Lesson", words: Any, out: "Console", waits: bool) -> bool:
    """Cell by cell; False if the reader leaves before the end."""
    from glasshead.lab.lesson_page import THEME, highlighted, markdown
    from glasshead.lab.lessons import LessonText, run
    from glasshead.machine import settle_half_precision

    settle_half_precision()  # before torch computes anything
    names: dict[str, Any] = {}
    for place, cell in enumerate(found.cells):
        if isinstance(cell, LessonText):
            if place and waits and not _goes_on(_SAYS[words]["enter"]):
                return False
            with out.use_theme(THEME):
                out.print(markdown(cell.of(words)))
        else:
            out.print(highlighted(cell.source, out.options.ascii_only))
            sys.stdout.flush()
            run(found, cell, names)
        out.print()
    return True


def _goes_on(prompt: str) -> bool:
    sys.stderr.write(f"{prompt} ")
    sys.stderr.flush()
    said = sys.stdin.readline()
    if sys.stderr.isatty() and said:
        sys.stderr.write("\x1b[1A\x1b[2K")  # the line of the prompt, which has served
    return bool(said) and said.strip().lower() not in ("q", "quit")
