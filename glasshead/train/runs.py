"""How a run begins: on a text, from where it stopped, or from another run's parameters."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from glasshead.checkpoint import Run, RunConfig, load, load_parameters, parameters
from glasshead.errors import CheckpointError, ConfigError, InputError
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.text.corpus import Report
from glasshead.text.store import keep_streams
from glasshead.text.tokenizer import Tokenizer
from glasshead.train.config import TrainConfig
from glasshead.train.language import Corpus, LanguageTask, TextConfig, new_tokenizer, read_corpus
from glasshead.train.loop import Trainer
from glasshead.train.presets import Preset
from glasshead.train.progress import Watch

__all__ = ["Place", "begin", "begin_from", "free_name", "resume", "shown"]

# What may change when a run goes on: how long, and on which machine.
CHANGEABLE = ("steps", "minutes", "patience", "save_every", "device", "threads")
# What may change of a model whose parameters are there already.
SHAPELESS = ("dropout", "max_len", "window", "softcap", "logit_softcap", "backend")


@dataclass(frozen=True, eq=False)
class Place:
    """Where a run reads and writes, and who watches."""

    cache: Path  # a folder for tokenised texts
    watch: Watch
    sampler: Callable[[GPT, Tokenizer], str] | None = None
    progress: Callable[[int, int], object] = lambda done, total: None  # bytes tokenised


def begin(
    texts: Sequence[str | Path], preset: Preset, flags: dict[str, Any], out: Path, place: Place
) -> Trainer:
    """A new run: the preset's settings, and the flags over them."""
    settings = {**preset.model, **preset.train, **_lengths(flags)}
    text = TextConfig(**_of(TextConfig, settings))
    if settings.get("vocab_size"):
        if text.tokenizer == "auto":
            text = replace(text, tokenizer="bpe")
        elif text.tokenizer != "bpe" and "vocab_size" in flags:
            raise ConfigError(
                f"vocab_size ({flags['vocab_size']}) is for bpe; a {text.tokenizer} tokenizer "
                "has as many ids as there are",
                hint="leave --vocab-size out, or add --tokenizer bpe",
            )
    train = TrainConfig(**_of(TrainConfig, settings))
    GPTConfig(**{**_of(GPTConfig, settings), "vocab_size": 1})  # wrong settings before long reading
    sources = _kept(texts, place)
    tokenizer = new_tokenizer(sources, text, settings.get("vocab_size"))
    corpus = _corpus(sources, tokenizer, text, place)
    torch.manual_seed(train.seed)
    model = GPT(GPTConfig(**{**_of(GPTConfig, settings), "vocab_size": tokenizer.vocab_size}))
    return _start(model, tokenizer, corpus, train, _data(sources, text, corpus), out, place)


def shown(preset: Preset, flags: dict[str, Any]) -> str:
    """What `begin` would take, as JSON. The vocabulary's size is null where the text decides."""
    settings = {**preset.model, **preset.train, **_lengths(flags)}
    size = settings.get("vocab_size")
    model = GPTConfig(**{**_of(GPTConfig, settings), "vocab_size": size or 1})
    parts = {
        "says": preset.says,
        "text": asdict(TextConfig(**_of(TextConfig, settings))),
        "train": asdict(TrainConfig(**_of(TrainConfig, settings))),
        "model": {**asdict(model), "vocab_size": size},
    }
    return json.dumps(parts, indent=2)


def begin_from(
    path: Path, texts: Sequence[str | Path], flags: dict[str, Any], out: Path, place: Place
) -> Trainer:
    """A new run with the model, the tokenizer and the training settings of another."""
    loaded = load(path)
    if not isinstance(loaded.model, GPT):
        raise CheckpointError(f"{path} is not a language model", hint="name the run of one")
    changes = _of(GPTConfig, flags)
    if fixed := {*changes, *_of(TextConfig, flags)} - {*SHAPELESS, "split", "val_share", "field"}:
        raise ConfigError(
            f"{_flag(min(fixed))} cannot change with --from: {path} has its parameters already",
            hint="leave it out, or begin a new run without --from",
        )
    here = {"device": "auto", "precision": "auto", "compile": "auto", "threads": None}
    saved = {**loaded.config.train, **here, "eval_every": None}
    train = _checked(TrainConfig, path, {**saved, **_of(TrainConfig, _lengths(flags))})
    text = TextConfig(**_of(TextConfig, flags))
    sources = _kept(texts, place)
    corpus = _corpus(sources, loaded.tokenizer, text, place)
    model = GPT(replace(loaded.model.config, **changes))
    load_parameters(model, parameters(loaded.model), path / "model.safetensors")
    data = {**_data(sources, text, corpus), "from": str(path), "from_step": loaded.step}
    return _start(model, loaded.tokenizer, corpus, train, data, out, place)


def resume(path: Path, texts: Sequence[str | Path], flags: dict[str, Any], place: Place) -> Trainer:
    """The same run, from where it stopped. Texts are named only if they were moved."""
    run = Run.open(path)
    saved = {**run.config.train, **run.config.model, **run.config.data.get("text", {})}
    for name, value in flags.items():
        if name not in CHANGEABLE and value != saved.get(name):
            raise ConfigError(
                f"{_flag(name)} {value} differs from the run's {saved.get(name)}",
                hint="--resume goes on exactly, and lets only these change: "
                f"{', '.join(map(_flag, CHANGEABLE))}; --from begins a new run",
            )
    changes = _lengths({name: value for name, value in flags.items() if name in CHANGEABLE})
    train = _checked(TrainConfig, path, {**run.config.train, **changes})
    text = _checked(TextConfig, path, run.config.data.get("text", {}))
    tokenizer, model = run.tokenizer(), run.config.new_model()
    if not isinstance(model, GPT):
        raise CheckpointError(f"{path} is not a language model", hint="name the run of one")
    sources = _kept(texts, place) if texts else run.config.data.get("sources", [])
    corpus = _corpus(sources, tokenizer, text, place)
    if corpus.fingerprint != run.config.data.get("fingerprint"):
        raise CheckpointError(
            f"the text is not the one that {path} began with",
            hint="put the files back as they were, or begin a new run with --from",
        )
    config = train.settled(model)
    task = _task(model, tokenizer, corpus, config, place)
    if changes:
        try:
            run.save_config(replace(run.config, train=asdict(config)))
        except OSError as error:
            raise CheckpointError(
                f"cannot write {path}/config.json: {error.strerror}",
                hint="make room and try again; nothing is lost",
            ) from None
    return Trainer(task, config, run, place.watch)


def free_name(folder: Path, name: str) -> Path:
    """A path in the folder that is not taken: name, name-2, name-3, ..."""
    number = 1
    while (path := folder / (f"{name}-{number}" if number > 1 else name)).exists():
        number += 1
    return path


def _start(
    model: GPT,
    tokenizer: Tokenizer,
    corpus: Corpus,
    train: TrainConfig,
    data: dict[str, Any],
    out: Path,
    place: Place,
) -> Trainer:
    config = train.settled(model)
    task = _task(model, tokenizer, corpus, config, place)
    about = RunConfig("gpt", asdict(model.config), asdict(config), data)
    run = Run.create(out, about, tokenizer, model)
    return Trainer(task, config, run, place.watch)


def _task(
    model: GPT, tokenizer: Tokenizer, corpus: Corpus, config: TrainConfig, place: Place
) -> LanguageTask:
    sampler = place.sampler
    return LanguageTask(
        model,
        corpus,
        batch_size=config.batch_size,
        eval_batches=config.eval_batches,
        seed=config.seed,
        sample=(lambda model: sampler(model, tokenizer)) if sampler else None,
    )


def _corpus(
    sources: Sequence[str | Path], tokenizer: Tokenizer, text: TextConfig, place: Place
) -> Corpus:
    report = Report()
    corpus = read_corpus(
        sources, tokenizer, text, place.cache, progress=place.progress, report=report
    )
    for line in report.summary():
        place.watch.say(line)
    return corpus


def _data(sources: Sequence[str | Path], text: TextConfig, corpus: Corpus) -> dict[str, Any]:
    """What config.json keeps of the text."""
    places = [str(Path(source).absolute()) for source in sources]
    return {"sources": places, "text": asdict(text), "fingerprint": corpus.fingerprint}


def _kept(texts: Sequence[str | Path], place: Place) -> list[str | Path]:
    try:
        place.cache.mkdir(parents=True, exist_ok=True)
        return keep_streams(texts, place.cache)
    except OSError as error:
        raise InputError(
            f"cannot write to {place.cache}: {error.strerror}", hint="choose another --cache"
        ) from None


def _lengths(flags: dict[str, Any]) -> dict[str, Any]:
    """Steps given mean no minutes, and the other way round."""
    if "steps" in flags and "minutes" in flags:
        raise ConfigError(
            f"--steps {flags['steps']} and --minutes {flags['minutes']} cannot both be kept",
            hint="give one of them",
        )
    none = {"steps": None} if "minutes" in flags else {"minutes": None} if "steps" in flags else {}
    return {**flags, **none}


_Config = TypeVar("_Config", TrainConfig, TextConfig)


def _checked(config: type[_Config], path: Path, values: dict[str, Any]) -> _Config:
    try:
        return config(**values)
    except TypeError as error:
        raise CheckpointError(
            f"{path}/config.json has settings that are none: {error}",
            hint="take it from a copy; a newer glasshead may know them",
        ) from None


def _of(config: type, settings: dict[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(config)}
    return {name: value for name, value in settings.items() if name in names}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
