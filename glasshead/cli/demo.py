"""`glasshead demo`: two small models, trained in a minute or so, and what they look at."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glasshead.cli.terminal import Language, console, language

if TYPE_CHECKING:
    from rich.progress import TaskID

__all__ = ["demo"]


def demo(
    lang: Annotated[
        Language | None,
        typer.Option("--lang", help="Language of the words [default: the locale's]"),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            "--seed", metavar="S", min=0, help="Another seed: other stories, other models."
        ),
    ] = 1,
    stories: Annotated[
        int, typer.Option("--stories", metavar="N", min=1, help="Unseen stories to measure on.")
    ] = 500,
    steps: Annotated[
        int | None,
        typer.Option(
            "--steps", metavar="N", min=1, help="Train less, or more [default: the presets']"
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where it all goes.")] = Path(
        "runs/demo"
    ),
) -> None:
    """Train two small models, and see what they look at.

    One finds what pronouns stand for, one translates. Tables of what their heads do go to the
    screen, two runs and report.html to --out; `glasshead serve runs/demo` shows them live.

    \b
    Examples:
      glasshead demo
      glasshead demo --lang en --seed 2
      glasshead demo --stories 2000 --out runs/demo-2

    It takes about a minute and a half on two cores. An earlier demo in the same folder is replaced
    when the new one is done.
    """
    import json

    from glasshead.errors import InputError
    from glasshead.machine import settle_half_precision

    settle_half_precision()  # before torch computes anything
    from glasshead.lab import demo as lab
    from glasshead.lab.demo_report import report
    from glasshead.lab.demo_tables import screens

    words = lang.value if lang else language()
    with lab.begin(out) as work:
        with _Bars(words) as bars:
            seconds = lab.train(work, seed, steps, bars.progress)
            bars.measuring()
            found = lab.measure(work, seed, stories, seconds)
        try:
            (work / "report.html").write_text(report(found, out, words), encoding="utf-8")
            (work / "demo.json").write_text(json.dumps(lab.figures(found), indent=1))
            lab.place(work, out)
        except OSError as error:
            raise InputError(
                f"cannot write to {out}: {error.strerror}", hint="choose another --out"
            ) from None
    terminal = console()
    for part in screens(found, out, words, terminal.width, terminal.options.ascii_only):
        terminal.print(part)


_SAYS = {
    "en": {"reader": "reader", "translator": "translator", "measuring": "measuring ..."},
    "zh": {"reader": "读者", "translator": "译者", "measuring": "正在测量……"},
}


class _Bars:
    """A bar for each model on a terminal; otherwise a line at each quarter."""

    def __init__(self, lang: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._says, self._on_terminal = _SAYS[lang], sys.stderr.isatty()
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[loss]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            expand=True,
            transient=True,
            disable=not self._on_terminal,
        )
        self._tasks: dict[str, TaskID] = {
            name: self._bars.add_task(self._says[name], total=1.0, loss="")
            for name in ("reader", "translator")
        }
        self._quarters = dict.fromkeys(self._tasks, 0)

    def __enter__(self) -> "_Bars":
        self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bars.stop()

    def progress(self, name: str, done: float, loss: float | None) -> None:
        shown = "" if loss is None else f"loss {loss:.4f}"
        self._bars.update(self._tasks[name], completed=done, loss=shown)
        if not self._on_terminal and int(4 * done) > self._quarters[name]:
            self._quarters[name] = int(4 * done)
            self._say(f"{self._says[name]}: {done:.0%}, {shown}")

    def measuring(self) -> None:
        if self._on_terminal:
            self._bars.console.print(self._says["measuring"], style="dim")
        else:
            self._say(self._says["measuring"])

    def _say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)
