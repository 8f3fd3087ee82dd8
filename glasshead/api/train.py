"""Train a model, from Python or for `glasshead train`: the same engine, files and bits."""

import os
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from glasshead.api.training_data import TextOrPairs, find_sources
from glasshead.checkpoint import KINDS, Run, load
from glasshead.checkpoint.processes import Processes, join_processes
from glasshead.errors import ConfigError, did_you_mean
from glasshead.generation.beam import greedy_decoder
from glasshead.generation.sampling import SamplingConfig
from glasshead.generation.stream import start_ids, stream
from glasshead.machine import settle_half_precision
from glasshead.model.gpt import GPT
from glasshead.text.tokenizer import Tokenizer
from glasshead.training import start
from glasshead.training.config import TrainConfig
from glasshead.training.dataset import Dataset
from glasshead.training.loop import Trainer
from glasshead.training.presets import PRESETS, find_preset, presets_for
from glasshead.training.progress import ProgressListener, format_seconds, new_listener
from glasshead.training.task import Outcome

__all__ = ["TrainRequest", "run_training", "train"]

SAMPLE_TOKENS = 80


def train(
    data: TextOrPairs | None = None,
    *,
    preset: str | None = None,
    out: str | Path | None = None,
    task: str | None = None,
    val: TextOrPairs | None = None,
    from_: str | Path | Run | None = None,
    resume: str | Path | Run | None = None,
    cache: str | Path | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Run:
    r"""Train a model on a text, or on pairs of sentences to translate, as `glasshead train` does.

    >>> import glasshead
    >>> poem = "春江潮水连海平，\n海上明月共潮生。\n" * 20
    >>> run = glasshead.train(poem, steps=3, n_layers=1, d_model=16, max_len=8, quiet=True)
    >>> run.path.parent.name, run.model.config.d_model, len(run.metrics) > 0
    ('runs', 16, True)
    >>> pairs = [(f"{i} plus {j}", str(i + j)) for i in range(9) for j in range(9)]
    >>> run = glasshead.train(pairs, preset="pairs-tiny", steps=2, d_model=16, quiet=True)
    >>> run.config.kind
    'transformer'

    The data can be

    - a text: a string with a line break is the text itself; any other string, and any `Path`, is
      a file, a folder or a pattern such as "books/*.txt" (.gz, .xz and .jsonl are read too);
    - several texts: a sequence of such strings and paths;
    - pairs to translate: a .tsv file with source and target on each line, or a sequence of
      (source, target); with `task="pairs"` or a preset for pairs also two files whose lines
      belong together;
    - nothing, where `task` or `preset` needs no data, and with `resume`.

    Args:
        data: what to train on.
        preset: ready settings: nano, tiny, small, llama or gpt2; for pairs: pairs, pairs-tiny or
            marian; without data: reader or translator. By default the first that fits.
        out: the folder to create; by default runs/NAME-PRESET.
        task: text, pairs, refer or world; by default what `data` or `preset` implies.
        val: pairs to validate on, instead of some of `data`.
        from_: a run whose model and tokenizer the new run starts with.
        resume: a run to continue exactly; only `steps`, `minutes` and where it runs may change.
        cache: a folder for tokenised texts; by default ~/.cache/glasshead/tokens.
        quiet: show no progress on stderr.
        settings: the other options of `glasshead train`, such as `steps=500` or `d_model=256`.

    Returns:
        The run with its best parameters, as `glasshead.load` returns it.

    Raises:
        GlassheadError: the data or a setting cannot be used; `error.hint` says what would help.
        KeyboardInterrupt: stopped by Ctrl-C, after the run was saved; `resume` continues it.
    """
    folder = default_cache() if cache is None else Path(cache)
    known, sources = find_sources(data, task, preset, folder)
    request = TrainRequest(
        sources,
        find_sources(val, "pairs", preset, folder)[1],
        known,
        preset,
        None if out is None else Path(out),
        _path_of(resume),
        _path_of(from_),
        folder,
        _check_settings(settings),
    )
    with join_processes() as processes:
        path, outcome = run_training(
            request, ProgressListener() if quiet else new_listener(), processes
        )
    if outcome.signal == signal.SIGINT:
        raise KeyboardInterrupt(f"{path} is saved; to continue: glasshead.train(resume='{path}')")
    if outcome.signal:
        raise SystemExit(128 + outcome.signal)
    return load(path)


@dataclass(frozen=True)
class TrainRequest:
    """What to train on, and how: the arguments of `train`, with files for all data."""

    sources: Sequence[str | Path] = ()
    val: Sequence[str | Path] = ()
    task: str | None = None
    preset: str | None = None
    out: Path | None = None
    resume: Path | None = None
    from_: Path | None = None
    cache: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def known_task(self) -> str | None:
        """The task that is named, or that the preset is for."""
        return self.task or (PRESETS[self.preset].task if self.preset in PRESETS else None)

    @property
    def dataset(self) -> type[Dataset]:
        return start.find_dataset(self.known_task or "text")

    @property
    def preset_name(self) -> str:
        return self.preset or presets_for(self.dataset.name)[0]

    def check(self) -> None:
        """Raise if there is no such task, or two of the arguments exclude each other."""
        if self.task:
            start.find_dataset(self.task)
        for one, value, other, run in (
            ("--from", self.from_, "--resume", self.resume),
            ("--preset", self.preset, "--resume", self.resume),
            ("--out", self.out, "--resume", self.resume),
            ("--task", None if self.sources else self.task, "--resume", self.resume),
            ("--preset", self.preset, "--from", self.from_),
        ):
            if value and run:
                raise ConfigError(
                    f"{one} {value} and {other} {run} cannot go together",
                    hint="--resume RUN continues a run; --from RUN starts a new one with its model",
                )
        if self.sources and self.task not in (None, "text", "pairs"):
            raise ConfigError(
                f"--task {self.task} and {self.sources[0]} cannot go together",
                hint=f"{self.task} needs no files: leave one of them out",
            )
        for source in self.sources:
            if all((Path(source) / name).is_file() for name in ("config.json", "tokenizer.json")):
                raise ConfigError(
                    f"{source} is the folder of a model, not of texts",
                    hint=f"to continue it: --resume {source}; "
                    f"to train it on another text: --from {source}",
                )
        if self.val and not self.resume and self.known_task != "pairs":
            raise ConfigError(f"--val {self.val[0]} is for --pairs", hint="name both, or neither")
        if self.settings.get("parallel", "auto") != "auto" and not _under_torchrun():
            raise ConfigError(
                f"--parallel {self.settings['parallel']} is for several processes, and this is one",
                hint="torchrun --standalone --nproc-per-node 2 -m glasshead train ...",
            )


def run_training(
    request: TrainRequest, listener: ProgressListener, processes: Processes
) -> tuple[Path, Outcome]:
    """Train a new run, or continue one, to its end; return its folder and how it ended."""
    request.check()
    settle_half_precision()  # before torch computes anything
    if not processes.first:
        listener = ProgressListener()
    context = start.Context(
        request.cache or default_cache(), listener, _sample, greedy_decoder, processes
    )
    trainer = _new_trainer(request, context) if processes.first else start.join_run(context)
    assert trainer.run
    path = trainer.run.path
    listener.say(f"{path}: {trainer.model!r}, {_describe(trainer.config, processes.size)}")
    outcome = trainer.train()
    listener.say(_describe_end(outcome, path))
    return path, outcome


def _new_trainer(request: TrainRequest, context: start.Context) -> Trainer:
    settings = dict(request.settings)
    files = {"sources": request.sources, "val": request.val}
    sources = {name: list(some) for name, some in files.items() if some}
    task = request.task if request.sources else None
    if request.resume is not None:
        return start.resume_run(request.resume, sources, settings, context, task)
    dataset = request.dataset
    first = str(next(iter(request.sources), dataset.name))
    origin = request.from_.name if request.from_ else request.preset_name
    out = request.out or _free_path(first, origin)
    if _under_torchrun() and (out / "config.json").exists():  # it restarts what was killed
        if request.from_ is None:
            preset = find_preset(request.preset_name, dataset.name)
            start.check_same_settings(dataset, preset, settings, out)
        return start.resume_run(out, {} if first == "-" else sources, settings, context, task)
    if request.from_ is not None:
        known = dataset if request.known_task else None
        return start.fine_tune(known, request.from_, sources, settings, out, context)
    preset = find_preset(request.preset_name, dataset.name)
    return start.start_run(dataset, sources, preset, settings, out, context)


def default_cache() -> Path:
    """The folder for tokenised texts."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "glasshead" / "tokens"


def _path_of(run: str | Path | Run | None) -> Path | None:
    return run.path if isinstance(run, Run) else None if run is None else Path(run)


def _check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that are not None, if each exists and has the right type."""
    types: dict[str, Any] = {}
    for dataset in start.DATASETS.values():
        for config in (dataset.config_class, TrainConfig, KINDS[dataset.kind][0]):
            types |= get_type_hints(config)
    given = {name: value for name, value in settings.items() if value is not None}
    for name, value in given.items():
        if name not in types:
            raise ConfigError(f"train has no setting '{name}'", hint=did_you_mean(name, types))
        kind = types[name]
        if not isinstance(value, kind) and not (isinstance(value, int) and isinstance(0.0, kind)):
            wanted = getattr(kind, "__name__", str(kind)).removesuffix(" | None")
            raise ConfigError(
                f"{name} ({value!r}) is of type {type(value).__name__}", hint=f"it must be {wanted}"
            )
    return given


def _free_path(first: str, origin: str) -> Path:
    """The folder of a run that was given none."""
    path = start.unused_path(Path("runs"), _name(first, origin))
    if os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0":
        raise ConfigError(
            "torchrun --max-restarts would not find the run again without --out",
            hint=f"add --out {path}",
        )
    return path


def _name(first: str, origin: str) -> str:
    """
    >>> _name("books/my.txt.xz", "nano")
    'my-nano'
    """
    stem = "stdin" if first == "-" else Path(first).absolute().name.split(".")[0]
    return f"{re.sub('-[0-9a-f]{20}$', '', stem) or 'text'}-{origin}"  # without keep_text's digest


def _under_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def _sample(model: GPT, tokenizer: Tokenizer) -> str:
    config = SamplingConfig(temperature=0.8)
    pieces = stream(model, tokenizer, [start_ids(tokenizer)], config, max_tokens=SAMPLE_TOKENS)
    return "".join(piece.text for piece in pieces)


def _describe(config: TrainConfig, processes: int) -> str:
    threads = f", threads {config.threads}" if config.device == "cpu" else ""
    compiled = ", compiled" if config.compile == "on" else ""
    way = "fsdp" if config.parallel == "fsdp" else "ddp"
    several = f", {processes} processes ({way})" if processes > 1 else ""
    return f"{config.precision} on {config.device}{threads}{compiled}{several}"


def _describe_end(outcome: Outcome, path: Path) -> str:
    p = outcome.progress
    if outcome.signal:
        return (
            f"stopped by {outcome.signal.name} at step {p.step:,} and saved; "
            f"to continue: glasshead train --resume {path}"
        )
    found = ", ".join(f"{name} {value:.4f}" for name, value in p.best.items())
    best = f"; best {found} at step {p.best_step:,}" if found else ""
    skipped = f"; {p.skipped} steps skipped, not finite" if p.skipped else ""
    return f"{outcome.reason} at step {p.step:,} after {format_seconds(p.seconds)}{best}{skipped}"
