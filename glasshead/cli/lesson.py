"""`glasshead lesson`: a short course on attention, in the terminal."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

from glasshead.cli.terminal import Lang, argument, console, language, option

if TYPE_CHECKING:
    from rich.console import Console

    from glasshead.lab.lessons import Lesson

__all__ = ["lesson"]

_WIDEST = 100  # columns; longer lines are hard to read

_SAYS = {
    "en": {
        "enter": "Enter to continue, q to quit",
        "try": "try it: glasshead lesson {n} --source > mine.py, change a line, python mine.py",
        "next": "next: glasshead lesson {n}",
    },
    "zh": {
        "enter": "按回车继续，按 q 退出",
        "try": "动手试试：glasshead lesson {n} --source > mine.py，改一行，再运行 python mine.py",
        "next": "下一课：glasshead lesson {n}",
    },
}


def lesson(
    number: Annotated[
        int | None, argument("N", "Which lesson; without it, they are listed.")
    ] = None,
    lang: Lang = None,
    everything: Annotated[
        bool, option("--all", None, "Do not wait for Enter after each part.")
    ] = False,
    source: Annotated[
        bool, option("--source", None, "Print the script instead, to change and to run.")
    ] = False,
) -> None:
    """Twelve short lessons on attention: read, run, change a line.

    \b
    Examples:
      glasshead lesson
      glasshead lesson 3 --lang zh
      glasshead lesson 3 --source > mine.py

    A lesson is a plain Python script, run as you read, in a few seconds at most; pictures are
    written to runs/lessons, or to the folder in GLASSHEAD_LESSON_OUT.
    """
    from glasshead.lab import lessons as lab

    words = language(lang)
    out = console()
    if number is None:
        for each in lab.lessons():
            out.print(f"{each.number:>2}  {each.title(words)}")
        return
    found = lab.find_lesson(number)
    if source:
        sys.stdout.write(found.path.read_text(encoding="utf-8"))
        return
    out.width = min(out.width, _WIDEST)
    waits = not everything and sys.stdin.isatty() and sys.stdout.isatty()
    if _play(found, words, out, waits):
        after = [each.number for each in lab.lessons() if each.number > number]
        out.print(_SAYS[words]["try"].format(n=number), style="dim")
        if after:
            out.print(_SAYS[words]["next"].format(n=after[0]), style="dim")


def _play(found: "Lesson", words: Any, out: "Console", waits: bool) -> bool:
    """Print and run the lesson cell by cell; return False if the reader quits."""
    from glasshead.lab.lesson_page import THEME, LessonMarkdown, highlight_code
    from glasshead.lab.lessons import run_cell
    from glasshead.lab.texts import Words
    from glasshead.machine import settle_half_precision

    settle_half_precision()  # before torch computes anything
    names: dict[str, Any] = {}
    for place, cell in enumerate(found.cells):
        if isinstance(cell, Words):
            if place and waits and not _wait_for_enter(_SAYS[words]["enter"]):
                return False
            with out.use_theme(THEME):
                out.print(LessonMarkdown(cell[words]))
        else:
            out.print(highlight_code(cell.source, out.options.ascii_only))
            sys.stdout.flush()
            run_cell(found, cell, names)
        out.print()
    return True


def _wait_for_enter(prompt: str) -> bool:
    """Return False if the reader quits."""
    sys.stderr.write(f"{prompt} ")
    sys.stderr.flush()
    line = sys.stdin.readline()
    if sys.stderr.isatty() and line:
        sys.stderr.write("\x1b[1A\x1b[2K")  # erase the prompt
    return bool(line) and line.strip().lower() not in ("q", "quit")
