"""`glasshead ladder`: what each part of a GPT is worth."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glasshead.cli.terminal import Language, console, language, progress_bar

if TYPE_CHECKING:
    from glasshead.lab.ladder import Climb
    from glasshead.lab.rungs import Rung

__all__ = ["ladder"]


def ladder(
    rungs: Annotated[
        str, typer.Option("--rungs", metavar="1,3-7", help="Which rungs; 11 and 12 need a GPU.")
    ] = "1-10",
    steps: Annotated[
        int | None,
        typer.Option(
            "--steps", metavar="N", min=1, help="Of each rung [default: 2000; 5000 for 11 and 12]"
        ),
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(
            "--seeds", metavar="N", min=1, help="How often each is trained, for error bars."
        ),
    ] = 1,
    text: Annotated[
        str | None,
        typer.Option("--text", metavar="FILE", help="Your text [default: generated stories]"),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where ladder.png and ladder.json go.")
    ] = Path("runs/ladder"),
    lang: Annotated[
        Language | None,
        typer.Option("--lang", help="Language of table and picture [default: the locale's]"),
    ] = None,
) -> None:
    """Climb from a bigram table to a GPT, one part at a time.

    Every rung is trained on the same batches. A table of losses comes out, and ladder.png and
    ladder.json in --out: what each part is worth.

    \b
    Examples:
      glasshead ladder
      glasshead ladder --rungs 1,3-7 --seeds 3
      glasshead ladder --text my.txt --steps 500 --out runs/mine

    Rungs 1 to 10 take a minute or two on one core of a CPU.
    """
    import json

    from glasshead.errors import InputError
    from glasshead.machine import settle_half_precision

    settle_half_precision()  # before torch computes anything
    from glasshead.checkpoint.files import atomic_write
    from glasshead.lab.ladder import climb, read_text, summaries
    from glasshead.lab.ladder_figure import as_json, draw, label_font, tables
    from glasshead.lab.rungs import parse_rungs
    from glasshead.text.corpus import Report

    words = lang.value if lang else language()
    numbers, report = parse_rungs(rungs), Report()
    data = read_text(text, report)
    for line in report.summary():
        _say(line)
    climbs: list[Climb] = []
    try:
        out.mkdir(parents=True, exist_ok=True)
        with _LadderProgress(len(numbers) * seeds) as progress:
            for one in climb(
                numbers, data, seeds=seeds, steps=steps, folder=out, progress=progress.stepped
            ):
                progress.climbed(one)
                climbs.append(one)
                rows = summaries(climbs)
                # After each: what is done is kept, whatever happens to the rest.
                with atomic_write(out / "ladder.json") as file:
                    file.write(json.dumps(as_json(rows, data), indent=1).encode())
        if words == "zh" and label_font() is None:
            _say("没有含汉字的字体，图上的文字用英文；glasshead doctor 会告诉你装哪个")
        with atomic_write(out / "ladder.png") as file:
            file.write(draw(rows, words))
    except OSError as error:
        raise InputError(
            f"cannot write to {out}: {error.strerror}", hint="choose another --out"
        ) from None
    terminal = console()
    for part in tables(rows, data, words):
        terminal.print(part)
    _say(f"{out / 'ladder.png'}, {out / 'ladder.json'}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class _LadderProgress:
    """A bar on a terminal, otherwise a line for each rung that is done."""

    def __init__(self, climbs: int) -> None:
        self._bar = progress_bar()
        self._task = self._bar.add_task("", total=climbs)
        self._done = 0

    def __enter__(self) -> "_LadderProgress":
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def stepped(self, rung: "Rung", seed: int, step: int, steps: int) -> None:
        if step % 20 == 0:
            where = f"rung {rung.number}, seed {seed}, step {step}"
            self._bar.update(self._task, completed=self._done + step / steps, description=where)

    def climbed(self, climb: "Climb") -> None:
        self._done += 1
        line = f"rung {climb.rung}, seed {climb.seed}: "
        line += f"training loss {climb.train:.4f}, validation loss {climb.val:.4f}"
        self._bar.console.print(line, markup=False, highlight=False)
