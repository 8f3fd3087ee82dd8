"""`glasshead demo`: train three small models in a minute or two, and see what they look at."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from glasshead.cli.terminal import (
    Lang,
    ProgressDisplay,
    console,
    language,
    option,
    say,
    write_errors,
)

if TYPE_CHECKING:
    from rich.progress import TaskID
    from rich.text import Text

__all__ = ["demo"]


def demo(
    lang: Lang = None,
    seed: Annotated[
        int, option("--seed", "S", "Another seed: other stories, other models.", min=0)
    ] = 1,
    stories: Annotated[int, option("--stories", "N", "Unseen stories to measure on.", min=1)] = 500,
    steps: Annotated[
        int | None, option("--steps", "N", "Train less, or more [default: the presets']", min=1)
    ] = None,
    out: Annotated[Path, option("--out", "DIR", "The folder to write.")] = Path("runs/demo"),
) -> None:
    """Train three small models, and see what they look at.

    Two find what pronouns stand for, in Chinese and in English, one translates. Tables of what
    their heads do go to the screen, three runs and report.html to --out; `glasshead serve
    runs/demo` shows them live.

    \b
    Examples:
      glasshead demo
      glasshead demo --lang en --seed 2
      glasshead demo --stories 2000 --out runs/demo-2

    It takes about a minute and a half on two cores. An earlier demo in the same folder is replaced
    when the new one is done.
    """
    import json

    from rich.text import Text

    from glasshead.machine import settle_half_precision

    settle_half_precision()  # before torch computes anything
    from glasshead.lab import demo as lab
    from glasshead.lab.demo_report import report
    from glasshead.lab.demo_tables import first_picture, screens

    words = language(lang)
    with lab.open_workspace(out) as work:
        with _DemoProgress(words) as bars:
            first = {"zh": "reader", "en": "reader-en"}[words]

            def finished(name: str) -> None:
                if name == first:
                    bars.show([Text(), *first_picture(work / name, words), Text()])

            seconds = lab.train_models(work, seed, steps, bars.progress, finished, words)
            bars.say("measuring")
            found = lab.measure_models(work, seed, stories, seconds)
        with write_errors(out):
            (work / "report.html").write_text(report(found, out, words), encoding="utf-8")
            text = json.dumps(lab.demo_json(found), indent=1)
            (work / "demo.json").write_text(text, encoding="utf-8")
            lab.move_into_place(work, out)
    terminal = console()
    for part in screens(found, out, words, terminal.width, terminal.options.ascii_only):
        terminal.print(part)


_SAYS = {
    "en": {
        "reader": "reader",
        "reader-en": "English reader",
        "translator": "translator",
        "measuring": "measuring ...",
    },
    "zh": {
        "reader": "读者",
        "reader-en": "英语读者",
        "translator": "翻译器",
        "measuring": "正在测量……",
    },
}


class _DemoProgress(ProgressDisplay):
    """A bar for each model on a terminal; otherwise a line at each quarter."""

    def __init__(self, lang: str) -> None:
        from rich.progress import TextColumn

        super().__init__(TextColumn("{task.fields[loss]}"))
        self._says = _SAYS[lang]
        self._tasks: dict[str, TaskID] = {
            name: self._bar.add_task(self._says[name], total=1.0, loss="")
            for name in ("reader", "reader-en", "translator")
        }
        self._quarters = dict.fromkeys(self._tasks, 0)

    def progress(self, name: str, done: float, loss: float | None) -> None:
        shown = "" if loss is None else f"loss {loss:.4f}"
        self._bar.update(self._tasks[name], completed=done, loss=shown)
        if not self._on_terminal and int(4 * done) > self._quarters[name]:
            self._quarters[name] = int(4 * done)
            say(f"{self._says[name]}: {done:.0%}, {shown}")

    def show(self, lines: "list[Text]") -> None:
        for line in lines:
            if self._on_terminal:
                self._bar.console.print(line)
            else:
                say(line.plain)

    def say(self, what: str) -> None:
        if self._on_terminal:
            self._bar.console.print(self._says[what], style="dim")
        else:
            say(self._says[what])
