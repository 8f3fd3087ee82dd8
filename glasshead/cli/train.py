"""`glasshead train`: a model of your own text."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glasshead.cli.flags import with_flags

if TYPE_CHECKING:
    from glasshead.model.gpt import GPT
    from glasshead.text.tokenizer import Tokenizer
    from glasshead.train.config import TrainConfig
    from glasshead.train.progress import Watch
    from glasshead.train.task import Outcome

__all__ = ["train"]

SAMPLE_TOKENS = 80


@with_flags(
    Text=("train/language.py", "TextConfig"),
    Training=("train/config.py", "TrainConfig"),
    Model=("model/gpt.py", "GPTConfig"),
)
def train(
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT...", help="Files, folders, patterns; .gz, .xz, .jsonl; - for stdin."
        ),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(metavar="NAME", help="nano, tiny, small or gpt2 [default: nano]")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the preset and do nothing.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="The folder to make [default: runs/TEXT-PRESET]"),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Go on with a run, exactly.")
    ] = None,
    from_: Annotated[
        Path | None,
        typer.Option("--from", metavar="RUN", help="A new run that begins with its parameters."),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where tokenised texts are kept [default: ~/.cache/glasshead]"
        ),
    ] = None,
    **flags: Any,
) -> None:
    """Train a model on your text. What is not given comes from the preset; --show prints it.

    \b
    Examples:
      glasshead train my.txt
      glasshead train books/ --preset tiny --minutes 20 --out runs/books
      glasshead train --resume runs/books
      glasshead train mine.txt --from runs/books --steps 500
      glasshead train --preset small --show

    It ends with the run's folder on stdout. Ctrl-C, or SIGTERM, saves and ends.
    """
    from glasshead.errors import ConfigError, InputError
    from glasshead.machine import settle_half_precision
    from glasshead.train.presets import find_preset

    given = {name: value for name, value in flags.items() if value is not None}
    chosen = find_preset(preset or "nano")
    for one, value, other, there in (
        ("--from", from_, "--resume", resume),
        ("--preset", preset, "--resume", resume),
        ("--out", out, "--resume", resume),
        ("--preset", preset, "--from", from_),
    ):
        if value is not None and there is not None:
            raise ConfigError(
                f"{one} {value} and {other} {there} cannot go together",
                hint="--resume RUN goes on with a run; --from RUN begins a new one with its model",
            )
    if not texts and resume is None and not show:
        raise InputError("no text to train on", hint="name a file: glasshead train my.txt")
    settle_half_precision()  # before torch computes anything
    from glasshead.train import runs

    if show:
        print(runs.shown(chosen, given))
        return
    place = runs.Place(cache or _cache(), _watch(), _sample, _tokenising())
    if resume is not None:
        trainer = runs.resume(resume, texts or [], given, place)
    else:
        out = out or runs.free_name(Path("runs"), _name(texts or [], from_, preset))
        if from_ is not None:
            trainer = runs.begin_from(from_, texts or [], given, out, place)
        else:
            trainer = runs.begin(texts or [], chosen, given, out, place)
    assert trainer.run
    path = trainer.run.path
    place.watch.say(f"{path}: {trainer.model!r}, {_settings(trainer.config)}")
    outcome = trainer.train()
    place.watch.say(_ending(outcome, path))
    print(path)
    if outcome.signal:
        raise typer.Exit(128 + outcome.signal)


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "glasshead" / "tokens"


def _name(texts: list[str], origin: Path | None, preset: str | None) -> str:
    """my.txt.xz by nano -> my-nano"""
    first = "stdin" if texts[0] == "-" else Path(texts[0]).absolute().name.split(".")[0]
    return f"{first or 'text'}-{origin.name if origin else preset or 'nano'}"


def _watch() -> "Watch":
    from glasshead.train.progress import Bar, Lines

    if not sys.stderr.isatty():
        return Lines()
    from rich.console import Console

    plain = bool(os.environ.get("NO_COLOR"))
    return Bar(Console(stderr=True, color_system=None if plain else "auto", highlight=False))


def _tokenising() -> Callable[[int, int], None]:
    """Shows on a terminal how far tokenising is, if it takes a while."""
    started, shown = time.monotonic(), sys.stderr.isatty()

    def progress(done: int, total: int) -> None:
        if shown and time.monotonic() - started > 1:
            end = "\n" if done >= total else ""
            print(f"\rtokenising {100 * done / max(total, 1):.0f} %", end=end, file=sys.stderr)

    return progress


def _sample(model: "GPT", tokenizer: "Tokenizer") -> str:
    from glasshead.generate.sampling import SamplingConfig
    from glasshead.generate.stream import start_ids, stream

    config = SamplingConfig(temperature=0.8)
    pieces = stream(model, tokenizer, [start_ids(tokenizer)], config, max_tokens=SAMPLE_TOKENS)
    return "".join(piece.text for piece in pieces)


def _settings(config: "TrainConfig") -> str:
    threads = f", threads {config.threads}" if config.device == "cpu" else ""
    compiled = ", compiled" if config.compile == "on" else ""
    return f"{config.precision} on {config.device}{threads}{compiled}"


def _ending(outcome: "Outcome", path: Path) -> str:
    from glasshead.train.progress import clock

    p = outcome.progress
    if outcome.signal:
        return (
            f"stopped by {outcome.signal.name} at step {p.step:,} and saved; "
            f"to go on: glasshead train --resume {path}"
        )
    best = (
        "" if p.best_loss is None else f"; best val_loss {p.best_loss:.4f} at step {p.best_step:,}"
    )
    skipped = f"; {p.skipped} steps skipped, not finite" if p.skipped else ""
    return f"{outcome.reason} at step {p.step:,} after {clock(p.seconds)}{best}{skipped}"
