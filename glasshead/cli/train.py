"""`glasshead train`: a model of your own text, or of your own translations."""

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
    without={"pad"},  # the tokenizer decides
    Text=("train/language.py", "TextConfig"),
    Pairs=("train/parallel.py", "PairConfig"),
    Stories_to_read=("train/refer.py", "ReferConfig"),
    Stories_to_translate=("train/world_pairs.py", "WorldConfig"),
    Training=("train/config.py", "TrainConfig"),
    Model=("model/gpt.py", "GPTConfig"),
    Encoder_and_decoder=("model/transformer.py", "TransformerConfig"),
)
def train(
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT...", help="Files, folders, patterns; .gz, .xz, .jsonl; - for stdin."
        ),
    ] = None,
    pairs: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SRC TGT",
            help="Learn to translate: two files, line by line, or a .tsv; may be repeated.",
        ),
    ] = None,
    val: Annotated[
        list[str] | None,
        typer.Option(metavar="SRC TGT", help="Pairs to validate on, instead of some of --pairs."),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="text, pairs, refer (what pronouns stand for) or world (translate "
            "stories), which need no files [default: by what is named]",
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="nano, tiny, small, llama, gpt2; for pairs: pairs, pairs-tiny, marian; for refer: "
            "reader; for world: translator [default: the first]",
        ),
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
    """Train a model on your text, or to translate. What is not given comes from the preset.

    \b
    Examples:
      glasshead train my.txt
      glasshead train books/ --preset tiny --minutes 20 --out runs/books
      glasshead train --resume runs/books
      glasshead train mine.txt --from runs/books --steps 500
      glasshead train --pairs my.de my.en --val val.de val.en --stop-on bleu --patience 5
      glasshead train --pairs my.tsv --languages zh,en --lowercase
      glasshead train --task refer
      glasshead train --preset small --show

    It ends with the run's folder on stdout. Ctrl-C, or SIGTERM, saves and ends.
    """
    from glasshead.errors import ConfigError
    from glasshead.machine import settle_half_precision
    from glasshead.train.presets import PRESETS, find_preset, presets_for

    given = {name: value for name, value in flags.items() if value is not None}
    for one, value, other, there in (
        ("--from", from_, "--resume", resume),
        ("--preset", preset, "--resume", resume),
        ("--out", out, "--resume", resume),
        ("--task", task, "--resume", resume),
        ("--preset", preset, "--from", from_),
        ("TEXT", _words(texts), "--pairs", _words(pairs)),
    ):
        if value and there:
            raise ConfigError(
                f"{one} {value} and {other} {there} cannot go together",
                hint="--resume RUN goes on with a run; --from RUN begins a new one with its model"
                if there in (resume, from_)
                else "a run is trained on one or the other",
            )
    if val and not pairs and not resume:
        raise ConfigError(f"--val {_words(val)} is for --pairs", hint="name both, or neither")
    named = "pairs" if pairs else "text" if texts else None
    if task and named and task != named:
        raise ConfigError(
            f"--task {task} and {named} {_words(pairs or texts)} cannot go together",
            hint="leave one of them out",
        )
    settle_half_precision()  # before torch computes anything
    from glasshead.generate.beam import greedy_decoder
    from glasshead.train import runs

    known = named or task or (PRESETS[preset].task if preset in PRESETS else None)
    subject = runs.find_subject(known or "text")
    size = preset or presets_for(subject.name)[0]
    if show:
        print(runs.shown(subject, find_preset(size, subject.name), given))
        return
    sources = {"sources": [*(texts or pairs or [])], "val": val or []}
    sources = {name: files for name, files in sources.items() if files}
    place = runs.Place(cache or _cache(), _watch(), _sample, greedy_decoder, _tokenising())
    if resume is not None:
        trainer = runs.resume(resume, sources, given, place, named)
    else:
        first = sources.get("sources", [subject.name])[0]
        out = out or runs.free_name(Path("runs"), _name(first, from_.name if from_ else size))
        if from_ is not None:
            trainer = runs.begin_from(subject if known else None, from_, sources, given, out, place)
        else:
            chosen = find_preset(size, subject.name)
            trainer = runs.begin(subject, sources, chosen, given, out, place)
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


def _name(first: str, origin: str) -> str:
    """
    >>> _name("books/my.txt.xz", "nano")
    'my-nano'
    """
    stem = "stdin" if first == "-" else Path(first).absolute().name.split(".")[0]
    return f"{stem or 'text'}-{origin}"


def _words(files: list[str] | None) -> str:
    return " ".join(files or [])


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
    found = ", ".join(f"{name} {value:.4f}" for name, value in p.best.items())
    best = f"; best {found} at step {p.best_step:,}" if found else ""
    skipped = f"; {p.skipped} steps skipped, not finite" if p.skipped else ""
    return f"{outcome.reason} at step {p.step:,} after {clock(p.seconds)}{best}{skipped}"
