"""`glasshead ladder`: what each part of a GPT is worth."""

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
    from glasshead.lab.ladder import Climb
    from glasshead.lab.rungs import Rung

__all__ = ["ladder"]


def ladder(
    rungs: Annotated[
        str, option("--rungs", "1,3-7", "Which rungs; 11 and 12 need a GPU.")
    ] = "1-10",
    steps: Annotated[
        int | None,
        option("--steps", "N", "Of each rung [default: 2000; 5000 for 11 and 12]", min=1),
    ] = None,
    seeds: Annotated[
        int, option("--seeds", "N", "How often each is trained, for error bars.", min=1)
    ] = 1,
    text: Annotated[
        str | None,
        option("--text", "FILE", "Your text, or ci: built in [default: generated stories]"),
    ] = None,
    out: Annotated[
        Path, option("--out", "DIR", "The folder for ladder.png and ladder.json.")
    ] = Path("runs/ladder"),
    lang: Lang = None,
) -> None:
    """Climb from a bigram table to a GPT, one part at a time.

    Every rung is trained on the same batches. Prints a table of losses and writes ladder.png and
    ladder.json to --out: what each part is worth.

    \b
    Examples:
      glasshead ladder
      glasshead ladder --text ci --rungs 1,3-7 --seeds 3
      glasshead ladder --text my.txt --steps 500 --out runs/mine

    Rungs 1 to 10 take a minute or two on one core of a CPU.
    """
    import json

    from glasshead.machine import settle_half_precision

    settle_half_precision()  # before torch computes anything
    from glasshead.files.writing import atomic_write
    from glasshead.lab.ladder import climb, read_text, summaries
    from glasshead.lab.ladder_figure import as_json, draw, label_font, tables
    from glasshead.lab.rungs import parse_rungs
    from glasshead.text.corpus import Report

    words = language(lang)
    numbers, report = parse_rungs(rungs), Report()
    data = read_text(text, report)
    say(*report.summary())
    climbs: list[Climb] = []
    with write_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        with _LadderProgress(len(numbers) * seeds) as progress:
            for one in climb(
                numbers, data, seeds=seeds, steps=steps, folder=out, progress=progress.on_step
            ):
                progress.on_climb(one)
                climbs.append(one)
                rows = summaries(climbs)
                # After each climb, so that an interrupted ladder keeps what is done.
                with atomic_write(out / "ladder.json") as file:
                    file.write(json.dumps(as_json(rows, data), indent=1).encode())
        if words == "zh" and label_font() is None:
            say("没有找到中文字体，图中文字改用英文；运行 glasshead doctor 查看需要安装的字体")
        with atomic_write(out / "ladder.png") as file:
            file.write(draw(rows, words))
    terminal = console()
    for part in tables(rows, data, words):
        terminal.print(part)
    say(f"{out / 'ladder.png'}, {out / 'ladder.json'}")


class _LadderProgress(ProgressDisplay):
    """A bar on a terminal, otherwise a line for each rung that is done."""

    def __init__(self, climbs: int) -> None:
        super().__init__()
        self._task = self._bar.add_task("", total=climbs)
        self._done = 0

    def on_step(self, rung: "Rung", seed: int, step: int, steps: int) -> None:
        if step % 20 == 0:
            where = f"rung {rung.number}, seed {seed}, step {step}"
            self._bar.update(self._task, completed=self._done + step / steps, description=where)

    def on_climb(self, climb: "Climb") -> None:
        self._done += 1
        line = f"rung {climb.rung}, seed {climb.seed}: "
        line += f"training loss {climb.train:.4f}, validation loss {climb.val:.4f}"
        self._bar.console.print(line, markup=False, highlight=False)
