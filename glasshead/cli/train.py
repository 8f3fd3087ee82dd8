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
    from glasshead.training.config import TrainConfig
    from glasshead.training.loop import Trainer
    from glasshead.training.progress import ProgressListener
    from glasshead.training.start import Context
    from glasshead.training.task import Outcome

__all__ = ["train"]

SAMPLE_TOKENS = 80


@with_flags(
    without={"pad"},  # the tokenizer decides
    Text=("training/language.py", "TextConfig"),
    Pairs=("training/parallel_corpus.py", "PairConfig"),
    Stories_to_read=("training/pronouns.py", "PronounConfig"),
    Stories_to_translate=("training/world_pairs.py", "WorldConfig"),
    Training=("training/config.py", "TrainConfig"),
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
            "--pairs",
            metavar="SRC TGT",
            help="Learn to translate: two files, line by line, or a .tsv; may be repeated.",
        ),
    ] = None,
    val: Annotated[
        list[str] | None,
        typer.Option(
            "--val", metavar="SRC TGT", help="Pairs to validate on, instead of some of --pairs."
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            "--task",
            metavar="NAME",
            help="text, pairs, refer (what pronouns stand for) or world (translate "
            "stories), which need no files [default: by what is named]",
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            "--preset",
            metavar="NAME",
            help="nano, tiny, small, llama, gpt2; for pairs: pairs, pairs-tiny, marian; for refer: "
            "reader; for world: translator [default: the first]",
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the preset and do nothing.")] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="RUN", help="The folder to make [default: runs/TEXT-PRESET]"),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", metavar="RUN", help="Go on with a run, exactly.")
    ] = None,
    from_: Annotated[
        Path | None,
        typer.Option("--from", metavar="RUN", help="A new run that begins with its parameters."),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            "--cache",
            metavar="DIR",
            help="Where tokenised texts are kept [default: ~/.cache/glasshead]",
        ),
    ] = None,
    **flags: Any,
) -> None:
    """Train a model on your text, or to translate.

    A run comes out: a folder with the model, its tokenizer and how it went, whose name is printed
    at the end. What is not given comes from the preset; `--show` prints that.

    \b
    Examples:
      glasshead train my.txt
      glasshead train books/ --preset tiny --minutes 20 --out runs/books
      glasshead train --resume runs/books
      glasshead train mine.txt --from runs/books --steps 500
      glasshead train --pairs my.de my.en --val val.de val.en --stop-on bleu
      glasshead train --pairs my.tsv --languages zh,en --lowercase
      glasshead train --task refer
      glasshead train --preset small --show

    Several GPUs train one model by `torchrun --standalone --nproc-per-node 8 -m glasshead train
    my.txt`, with the same losses; --parallel says how they share it.

    Ctrl-C, or SIGTERM, saves and ends; --resume goes on as if nothing had happened. Then:
    glasshead generate RUN "Once upon", or glasshead serve RUN.
    """
    from glasshead.errors import ConfigError
    from glasshead.machine import settle_half_precision
    from glasshead.training.presets import PRESETS, find_preset, presets_for

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
    for text in texts or []:
        if all((Path(text) / name).is_file() for name in ("config.json", "tokenizer.json")):
            raise ConfigError(
                f"{text} is the folder of a model, not of texts",
                hint=f"to go on with it: --resume {text}; to give it another text: --from {text}",
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
    from glasshead.checkpoint.processes import join_processes
    from glasshead.generation.beam import greedy_decoder
    from glasshead.training.progress import ProgressListener
    from glasshead.training.start import (
        Context,
        check_same_settings,
        describe_settings,
        find_dataset,
        fine_tune,
        join_run,
        resume_run,
        start_run,
    )

    known = named or task or (PRESETS[preset].task if preset in PRESETS else None)
    dataset = find_dataset(known or "text")
    size = preset or presets_for(dataset.name)[0]
    if show:
        print(describe_settings(dataset, find_preset(size, dataset.name), given))
        return
    sources = {"sources": [*(texts or pairs or [])], "val": val or []}
    sources = {name: files for name, files in sources.items() if files}
    first = sources.get("sources", [dataset.name])[0]
    out = out or _unused_path(_name(first, from_.name if from_ else size), resume)

    def begin(context: "Context") -> "Trainer":
        if resume is not None:
            return resume_run(resume, sources, given, context, named)
        if _under_torchrun() and (out / "config.json").exists():  # it starts anew what was killed
            if from_ is None:
                check_same_settings(dataset, find_preset(size, dataset.name), given, out)
            return resume_run(out, {} if first == "-" else sources, given, context, named)
        if from_ is not None:
            return fine_tune(dataset if known else None, from_, sources, given, out, context)
        chosen = find_preset(size, dataset.name)
        return start_run(dataset, sources, chosen, given, out, context)

    if given.get("parallel", "auto") != "auto" and not _under_torchrun():
        raise ConfigError(
            f"--parallel {given['parallel']} is for several processes, and this is one",
            hint="torchrun --standalone --nproc-per-node 2 -m glasshead train ...",
        )
    with join_processes() as processes:
        listener = _watch() if processes.first else ProgressListener()
        context = Context(
            cache or _cache(), listener, _sample, greedy_decoder, _tokenising(), processes
        )
        trainer = begin(context) if processes.first else join_run(context)
        assert trainer.run
        path = trainer.run.path
        listener.say(f"{path}: {trainer.model!r}, {_settings(trainer.config, processes.size)}")
        outcome = trainer.train()
        listener.say(_ending(outcome, path))
    if processes.first:
        print(path)
    if outcome.signal:
        raise typer.Exit(128 + outcome.signal)


def _under_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def _unused_path(name: str, resume: Path | None) -> Path:
    """A folder for a run that was given none."""
    from glasshead.errors import ConfigError
    from glasshead.training.start import unused_path

    path = unused_path(Path("runs"), name)
    if resume is None and os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0":
        raise ConfigError(
            "torchrun --max-restarts would not find the run again without --out",
            hint=f"add --out {path}",
        )
    return path


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


def _watch() -> "ProgressListener":
    from glasshead.training.progress import ProgressBar, ProgressLines

    if not sys.stderr.isatty():
        return ProgressLines()
    from rich.console import Console

    plain = bool(os.environ.get("NO_COLOR"))
    return ProgressBar(
        Console(stderr=True, color_system=None if plain else "auto", highlight=False)
    )


def _tokenising() -> Callable[[int, int], None]:
    """Shows on a terminal how far tokenising is, if it takes a while."""
    started, shown = time.monotonic(), sys.stderr.isatty()

    def progress(done: int, total: int) -> None:
        if shown and time.monotonic() - started > 1:
            end = "\n" if done >= total else ""
            print(f"\rtokenising {100 * done / max(total, 1):.0f} %", end=end, file=sys.stderr)

    return progress


def _sample(model: "GPT", tokenizer: "Tokenizer") -> str:
    from glasshead.generation.sampling import SamplingConfig
    from glasshead.generation.stream import start_ids, stream

    config = SamplingConfig(temperature=0.8)
    pieces = stream(model, tokenizer, [start_ids(tokenizer)], config, max_tokens=SAMPLE_TOKENS)
    return "".join(piece.text for piece in pieces)


def _settings(config: "TrainConfig", processes: int = 1) -> str:
    threads = f", threads {config.threads}" if config.device == "cpu" else ""
    compiled = ", compiled" if config.compile == "on" else ""
    way = "fsdp" if config.parallel == "fsdp" else "ddp"
    several = f", {processes} processes ({way})" if processes > 1 else ""
    return f"{config.precision} on {config.device}{threads}{compiled}{several}"


def _ending(outcome: "Outcome", path: Path) -> str:
    from glasshead.training.progress import clock

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
