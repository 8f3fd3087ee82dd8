"""`glasshead exercise`: write attention yourself, and have it checked."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glasshead.cli.terminal import AsJson, Lang, argument, console, language, option, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from glasshead.lab.exercises.catalog import Exercise
    from glasshead.lab.exercises.folder import ExerciseFolder

__all__ = ["exercise"]

_WIDEST = 100  # columns; longer lines are hard to read


class Action(StrEnum):
    list = "list"
    start = "start"
    check = "check"
    hint = "hint"
    show = "show"
    look = "look"


_SAYS = {
    "en": {
        "passed": "passed", "changed": "changed since it passed", "started": "started", "new": "",
        "hints": "hints: {n}", "next": "next: glasshead exercise {action} {n}",
        "written": "written: {path}", "exists": "{path} exists and is left as it is",
        "look": "now look: glasshead exercise look {n}",
        "help": "a hint: glasshead exercise hint {n}    the lesson: glasshead lesson {lesson}",
        "hint": "hint {n} of {of}", "last": "that was the last hint; "
        "glasshead exercise show {n} prints a solution",
        "done": "All exercises are passed.",
    },
    "zh": {
        "passed": "通过", "changed": "通过之后又改过", "started": "已开始", "new": "",
        "hints": "提示 {n} 条", "next": "下一步：glasshead exercise {action} {n}",
        "written": "已写入 {path}", "exists": "{path} 已存在，保持原样",
        "look": "看一看：glasshead exercise look {n}",
        "help": "要提示：glasshead exercise hint {n}    看课程：glasshead lesson {lesson}",
        "hint": "提示 {n}/{of}", "last": "提示到此为止；glasshead exercise show {n} 会打印一份答案",
        "done": "全部练习都已通过。",
    },
}  # fmt: skip


def exercise(
    action: Annotated[
        Action, argument("ACTION", "list, start, check, hint, show (a solution) or look.")
    ] = Action.list,
    which: Annotated[
        str | None,
        argument("WHICH", "Its number or name; without it, the first that is not passed."),
    ] = None,
    folder: Annotated[
        Path, option("--folder", "DIR", "Where your files and your progress are.")
    ] = Path("exercises"),
    limit: Annotated[
        int, option("--time-limit", "SECONDS", "Stop a check after so long.", min=1)
    ] = 60,
    lang: Lang = None,
    as_json: AsJson = False,
) -> None:
    """Write attention yourself, step by step, and have it checked.

    `start` writes a file with a signature to fill in, and says why; `check` runs it and says which
    mistake was made; `hint` gives the next of three hints; `look` runs your code in a small model
    and shows what its heads look at. A file that exists is never overwritten.

    \b
    Examples:
      glasshead exercise
      glasshead exercise start 1
      glasshead exercise check softmax
      glasshead exercise look 4 --folder mine

    Exit code of check: 0 right, 1 a mistake was found, 2 there is nothing to check.
    """
    from glasshead.lab.exercises.folder import ExerciseFolder

    place, words = ExerciseFolder(folder), language(lang)
    out = console()
    out.width = min(out.width, _WIDEST)
    if action == Action.list:
        _list(place, words, out, as_json)
        return
    found = place.current(which)
    if action == Action.start:
        _start(place, found, words, out)
    elif action == Action.check:
        _check(place, found, limit, words, out, as_json)
    elif action == Action.hint:
        _hint(place, found, words, out)
    elif action == Action.show:
        typer.echo(found.solution(words), nl=False)
    else:
        _look(place, found, words, out)


def _list(place: "ExerciseFolder", words: Any, out: "Console", as_json: bool) -> None:
    from rich.cells import cell_len
    from rich.text import Text

    from glasshead.lab.exercises.catalog import exercises

    says = _SAYS[words]
    if as_json:
        rows = [
            {"number": e.number, "name": e.name, "title": e.title("en"), "state": place.state(e)}
            for e in exercises()
        ]
        print_json({"folder": str(place.path), "exercises": rows})
        return
    widest = max(cell_len(each.title(words)) for each in exercises())
    for each in exercises():
        state, hints = place.state(each), place.of(each).hints
        mark = "✓" if state == "passed" else " "
        title = each.title(words)
        notes = [says[state], says["hints"].format(n=hints) if hints else ""]
        line = f"{mark} {each.number:>2}  {title}{' ' * (widest - cell_len(title))}  "
        out.print(Text(line + "  ".join(filter(None, notes))), soft_wrap=True)
    _say_next(place, words, out)


def _say_next(place: "ExerciseFolder", words: Any, out: "Console") -> None:
    from glasshead.lab.exercises.catalog import exercises

    says = _SAYS[words]
    for each in exercises():
        state = place.state(each)
        if state != "passed":
            action = "start" if state == "new" else "check"
            out.print(says["next"].format(action=action, n=each.number), style="dim")
            return
    out.print(says["done"], style="bold green")


def _start(place: "ExerciseFolder", found: "Exercise", words: Any, out: "Console") -> None:
    wrote = place.start(found, words)
    _print_markdown(found.why[words], out)
    out.print()
    says = _SAYS[words]["written" if wrote else "exists"]
    out.print(says.format(path=place.file(found)), style="bold", soft_wrap=True)
    out.print(_SAYS[words]["next"].format(action="check", n=found.number), style="dim")


def _check(
    place: "ExerciseFolder",
    found: "Exercise",
    limit: int,
    words: Any,
    out: "Console",
    as_json: bool,
) -> None:
    from glasshead.lab.exercises.child import run_check
    from glasshead.lab.exercises.report import show_report

    report = run_check(found, place.require(found), limit)
    place.note(found, right=report.ok)
    if as_json:
        print_json(report.as_json())
    else:
        for line in show_report(report, words):
            out.print(line)
        says = _SAYS[words]["look" if report.ok else "help"]
        out.print(says.format(n=found.number, lesson=found.texts["lesson"][words]), style="dim")
        if report.ok:
            _say_next(place, words, out)
    if not report.ok:
        raise typer.Exit(1)


def _hint(place: "ExerciseFolder", found: "Exercise", words: Any, out: "Console") -> None:
    from glasshead.lab.exercises.catalog import hints

    known = list(hints(found))
    given = place.of(found).hints
    for n, each in enumerate(known[: given + 1], 1):
        out.print(_SAYS[words]["hint"].format(n=n, of=len(known)), style="bold")
        _print_markdown(each[words], out)
    if given >= len(known):
        out.print(_SAYS[words]["last"].format(n=found.number), style="dim")
    else:
        place.note(found, hint=True)


def _look(place: "ExerciseFolder", found: "Exercise", words: Any, out: "Console") -> None:
    from glasshead.lab.exercises.looking import look

    path = place.require(found)
    _print_markdown(found.after[words], out)
    for part in look(found, path, words):
        out.print(part)


def _print_markdown(text: str, out: "Console") -> None:
    from glasshead.lab.lesson_page import THEME, LessonMarkdown

    with out.use_theme(THEME):
        out.print(LessonMarkdown(text))
