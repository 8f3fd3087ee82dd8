"""What a run shows while it trains: a bar on a terminal, otherwise a line for each evaluation."""

import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from glasshead.messages import escape_controls, translate

__all__ = [
    "ProgressBar", "ProgressLines", "ProgressListener", "Status", "format_seconds", "new_listener",
    "sparkline",
]  # fmt: skip

DRAW_SECONDS = 0.1  # at least, between two drawings of the bar


@dataclass(frozen=True)
class Status:
    """How far a run is."""

    step: int
    done: float  # 0 to 1
    loss: float | None
    tokens_per_s: float
    seconds_left: float | None


class ProgressListener:
    """Is called at the events of a run. This one does nothing; subclasses show them."""

    def __enter__(self) -> "ProgressListener":
        """Begin to show the training."""
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def on_read(self, done: int, total: int) -> None:
        """So many bytes of the text are read, to train a tokenizer; it is read several times."""

    def on_tokenised(self, done: int, total: int) -> None:
        """So many bytes of the text are tokenised."""

    def on_step(self, status: Status) -> None:
        """A step was taken."""

    def on_log(self, step: int, values: dict[str, Any]) -> None:
        """A line was written to metrics.jsonl."""

    def on_evaluation(
        self, status: Status, values: dict[str, float], best: bool, sample: str | None
    ) -> None:
        """The model was evaluated."""

    def say(self, line: str) -> None:
        """Show a message."""


class ProgressLines(ProgressListener):
    """One plain line at each evaluation, on stderr."""

    def on_evaluation(
        self, status: Status, values: dict[str, float], best: bool, sample: str | None
    ) -> None:
        self.show(_summarize(status, values, best))

    def say(self, line: str) -> None:
        self.show(translate(line))

    def show(self, line: str) -> None:
        """Print a line that is in the language of the user."""
        print(line, file=sys.stderr, flush=True)


class ProgressBar(ProgressLines):
    """A bar with the loss, tokens a second, the time left and a small curve of the loss."""

    def __init__(self, console: Any, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        self._clock, self._drawn = clock, -math.inf
        self._part, self._part_done, self._part_since = "", 0, 0.0
        self._bar = Progress(
            TextColumn("step {task.fields[step]}"),
            BarColumn(bar_width=None),
            TextColumn("loss {task.fields[loss]} {task.fields[curve]}"),
            TextColumn("{task.fields[speed]} tokens/s"),
            TextColumn("{task.fields[left]} left"),
            console=console,
            expand=True,
            auto_refresh=False,
            transient=True,
        )
        self._row = self._bar.add_task(
            "", total=1.0, step=0, loss="-", curve="", speed="-", left="-"
        )
        self._losses: list[float] = []

    def __enter__(self) -> "ProgressBar":
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def on_read(self, done: int, total: int) -> None:
        self._show_part("reading", done, total)

    def on_tokenised(self, done: int, total: int) -> None:
        self._show_part("tokenising", done, total)

    def _show_part(self, what: str, done: int, total: int) -> None:
        """Rewrite a line with the share that is done of the files' bytes, and the time left."""
        now = self._clock()
        if what != self._part or done < self._part_done:  # another, or from the beginning again
            self._part, self._part_since = what, now
        self._part_done = done
        since = now - self._part_since
        if since > 1 and (done >= total or now - self._drawn >= DRAW_SECONDS):
            self._drawn = now
            share = f"{100 * done / max(total, 1):.0f} %"
            left = format_seconds(since * (total - done) / max(done, 1))
            line = f"reading the text: {share}, {left} left"
            if what == "tokenising":
                line = f"tokenising the text: {share}, {left} left"
            shown = "" if done >= total else translate(line)
            print(f"\x1b[2K{shown}\r", end="", file=sys.stderr, flush=True)

    def on_log(self, step: int, values: dict[str, Any]) -> None:
        if "loss" in values:
            self._losses.append(values["loss"])

    def on_step(self, status: Status) -> None:
        if self._clock() - self._drawn < DRAW_SECONDS:
            return
        self._drawn = self._clock()
        self._bar.update(
            self._row,
            completed=status.done,
            step=f"{status.step:,}",
            loss="-" if status.loss is None else f"{status.loss:.3f}",
            curve=sparkline(self._losses, 16),
            speed=f"{status.tokens_per_s:,.0f}",
            left="-" if status.seconds_left is None else format_seconds(status.seconds_left),
        )
        self._bar.refresh()

    def on_evaluation(
        self, status: Status, values: dict[str, float], best: bool, sample: str | None
    ) -> None:
        super().on_evaluation(status, values, best, sample)
        if sample is not None:
            self._bar.console.print(
                f"  {escape_controls(' '.join(sample.split()))}",
                style="dim",
                overflow="ellipsis",
                no_wrap=True,
                markup=False,
                highlight=False,
            )

    def show(self, line: str) -> None:
        self._bar.console.print(
            escape_controls(line), markup=False, highlight=False, soft_wrap=True
        )


def new_listener() -> ProgressListener:
    """Return a bar on a terminal, otherwise lines; both on stderr."""
    if not sys.stderr.isatty():
        return ProgressLines()
    from rich.console import Console

    plain = bool(os.environ.get("NO_COLOR"))
    console = Console(stderr=True, color_system=None if plain else "auto", highlight=False)
    return ProgressBar(console)


def _summarize(status: Status, values: dict[str, float], best: bool) -> str:
    parts = [translate(f"step {status.step:>6,}")]
    if status.loss is not None:
        parts.append(f"loss {status.loss:.4f}")
    parts += [f"{name} {value:.4f}" for name, value in values.items()]
    if best:
        parts[-1] += " *"
    if status.tokens_per_s:
        parts.append(translate(f"{status.tokens_per_s:,.0f} tokens/s"))
    if status.seconds_left:
        parts.append(translate(f"{format_seconds(status.seconds_left)} left"))
    return "  ".join(parts)


def sparkline(values: Sequence[float], width: int) -> str:
    """Draw the values as a line of small bars, each the mean of equally many.

    >>> sparkline([8, 7, 6, 5, 4, 3, 2, 1], 4)
    '█▆▃▁'
    """
    n = min(width, len(values))
    if not n:
        return ""
    cuts = [len(values) * i // n for i in range(n + 1)]
    least = min(values)  # without it, rounding would draw a curve of equal values
    means = [sum(value - least for value in values[a:b]) / (b - a) for a, b in pairwise(cuts)]
    low, high = min(means), max(means)
    return "".join("▁▂▃▄▅▆▇█"[round(7 * (mean - low) / (high - low or 1.0))] for mean in means)


def format_seconds(seconds: float) -> str:
    """
    >>> format_seconds(59.6), format_seconds(600), format_seconds(7200)
    ('1:00', '10:00', '2:00:00')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
