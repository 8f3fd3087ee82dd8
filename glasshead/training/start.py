"""How a run begins: on new data, from where it stopped, or from another run's parameters.

What it is trained on is a `Dataset`: one a line in DATASETS, and everything else follows.
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from glasshead.checkpoint import KINDS, RunConfig, RunFolder, load, load_parameters, parameters
from glasshead.errors import CheckpointError, ConfigError, InputError, did_you_mean
from glasshead.training.config import TrainConfig
from glasshead.training.dataset import Context, Dataset, Sources, TrainingData, of
from glasshead.training.language import TextDataset
from glasshead.training.loop import Trainer
from glasshead.training.presets import Preset
from glasshead.training.pronouns import PronounDataset
from glasshead.training.task import Task
from glasshead.training.translation import PairDataset
from glasshead.training.world_pairs import WorldDataset

__all__ = [
    "DATASETS",
    "Context",
    "check_same_settings",
    "describe_settings",
    "find_dataset",
    "fine_tune",
    "join_run",
    "resume_run",
    "start_run",
    "unused_path",
]

DATASETS: dict[str, Dataset[Any, Any]] = {
    dataset.name: dataset
    for dataset in (TextDataset(), PairDataset(), PronounDataset(), WorldDataset())
}

LARGEST = 10**6  # vocabulary; those in use have a quarter of it
# What may change when a run goes on: how long, and on which machine.
CHANGEABLE = (
    *("steps", "minutes", "patience", "save_every"),
    *("device", "threads", "parallel", "graph"),
)
# What may change of a model whose parameters are there already.
SHAPELESS = {
    "dropout",
    "weight_dropout",
    "max_len",
    "window",
    "softcap",
    "logit_softcap",
    "backend",
}


def find_dataset(name: str) -> Dataset[Any, Any]:
    if name not in DATASETS:
        raise ConfigError(f"there is no task '{name}'", hint=did_you_mean(name, DATASETS))
    return DATASETS[name]


def start_run(
    dataset: Dataset[Any, Any],
    sources: Sources,
    preset: Preset,
    flags: dict[str, Any],
    out: Path,
    context: Context,
) -> Trainer:
    """A new run: the preset's settings, and the flags over them."""
    settings = _settings(dataset, preset, flags)
    _check_graph(dataset, flags, context)
    config = dataset.settings(settings, flags)
    train = _train_config(dataset, of(TrainConfig, settings))
    made_of, make = _made_of(dataset), KINDS[dataset.kind][1]
    shape = of(made_of, settings)
    made_of(**{**shape, "vocab_size": 1})  # wrong settings before long reading
    _need_sources(dataset, sources)
    training_data = dataset.read(sources, config, context, vocab_size=settings.get("vocab_size"))
    torch.manual_seed(train.seed)
    model = make(made_of(**{**shape, **dataset.model_settings(training_data.tokenizer)}))
    return _start(dataset, model, training_data, config, train, {}, out, context)


def describe_settings(dataset: Dataset[Any, Any], preset: Preset, flags: dict[str, Any]) -> str:
    """What `begin` would take, as JSON. The vocabulary's size is null where the text decides."""
    settings = _settings(dataset, preset, flags)
    size = settings.get("vocab_size")
    made_of = _made_of(dataset)
    model = made_of(**{**of(made_of, settings), "vocab_size": size or 1})
    parts = {
        "says": preset.says,
        dataset.name: asdict(dataset.config(**of(dataset.config, settings))),
        "train": asdict(_train_config(dataset, of(TrainConfig, settings))),
        "model": {**asdict(model), "vocab_size": size},
    }
    return json.dumps(parts, indent=2)


def fine_tune(
    dataset: Dataset[Any, Any] | None,
    path: Path,
    sources: Sources,
    flags: dict[str, Any],
    out: Path,
    context: Context,
) -> Trainer:
    """A new run with the model, the tokenizer, the settings and, without another, the dataset
    of a run."""
    loaded = load(path)
    dataset = dataset or _subject_of(loaded.config, path)
    if loaded.config.kind != dataset.kind:
        raise CheckpointError(
            f"{path} is a {loaded.config.kind}, but {dataset.name} trains a {dataset.kind}",
            hint=f"name the run of a {dataset.kind}",
        )
    _check_flags(dataset, flags)
    _check_graph(dataset, flags, context)
    made_of, make = _made_of(dataset), KINDS[dataset.kind][1]
    changes = of(made_of, flags)
    if fixed := {*changes} - SHAPELESS | {*of(dataset.config, flags)} & dataset.fixed:
        raise ConfigError(
            f"{_flag(min(fixed))} cannot change with --from: {path} has its parameters already",
            hint="leave it out, or begin a new run without --from",
        )
    here = {"device": "auto", "precision": "auto", "compile": "auto", "graph": "auto",
            "threads": None}  # fmt: skip
    saved = {**loaded.config.train, **here, "eval_every": None}
    train = _train_config(dataset, {**saved, **of(TrainConfig, _lengths(flags))}, path)
    own = loaded.config.data.get(dataset.name, {})
    config = _checked(dataset.config, path, {**own, **of(dataset.config, flags)})
    _need_sources(dataset, sources)
    training_data = dataset.read(sources, config, context, tokenizer=loaded.tokenizer)
    model = make(made_of(**{**loaded.config.model, **changes}))
    load_parameters(model, parameters(loaded.model), path / "model.safetensors")
    kept = {name: loaded.config.data[name] for name in ("imported",) if name in loaded.config.data}
    origin = {"from": str(path), "from_step": loaded.step, **kept}
    return _start(dataset, model, training_data, config, train, origin, out, context)


def resume_run(
    path: Path, sources: Sources, flags: dict[str, Any], context: Context, named: str | None = None
) -> Trainer:
    """The same run, from where it stopped. Sources are named only if they were moved: as text or
    as pairs, which `named` says."""
    run = RunFolder.open(path)
    data, dataset = run.config.data, _subject_of(run.config, path)
    if named not in (None, dataset.name):
        raise ConfigError(
            f"{path} was trained on {dataset.name}, not on {named}", hint="leave the files out"
        )
    _check_graph(dataset, flags, context)
    saved = _saved(dataset, run.config)
    for name, value in flags.items():
        if name not in CHANGEABLE and value != saved.get(name):
            raise ConfigError(
                f"{_flag(name)} {value} differs from the run's {saved.get(name)}",
                hint="--resume goes on exactly, and lets only these change: "
                f"{', '.join(map(_flag, CHANGEABLE))}; --from begins a new run",
            )
    changes = _lengths({name: value for name, value in flags.items() if name in CHANGEABLE})
    if "device" in changes:
        changes = {"graph": "auto", **changes}
    train = _train_config(dataset, {**run.config.train, **changes}, path)
    config = _checked(dataset.config, path, data.get(dataset.name, {}))
    tokenizer, model = run.tokenizer(), run.config.new_model()
    kept: dict[str, Any] = {name: data[name] for name in ("sources", "val") if name in data}
    training_data = dataset.read({**kept, **sources}, config, context, tokenizer=tokenizer)
    if training_data.fingerprint != data.get("fingerprint"):
        raise CheckpointError(
            f"{path} began with other {dataset.name} than this",
            hint="put the files back as they were, or begin a new run with --from",
        )
    settled = train.resolve_auto(model)
    context.processes.check_device(settled.device)
    task = dataset.task(model, training_data, config, settled, context)
    if changes and context.processes.first:
        try:
            run.save_config(replace(run.config, train=asdict(settled)))
        except OSError as error:
            raise CheckpointError(
                f"cannot write {path}/config.json: {error.strerror}",
                hint="make room and try again; nothing is lost",
            ) from None
    return _trainer(task, settled, run, context)


def join_run(context: Context) -> Trainer:
    """What another process began, or goes on with, in this one."""
    return resume_run(context.processes.broadcast(), {}, {}, context)


def check_same_settings(
    dataset: Dataset[Any, Any], preset: Preset, flags: dict[str, Any], out: Path
) -> None:
    """That `begin` would make the run again that is there."""
    saved = _saved(dataset, RunFolder.open(out).config)
    for name, value in _settings(dataset, preset, flags).items():
        # What is decided only when it is made may be anything.
        if value not in (None, "auto", saved.get(name)) and name not in CHANGEABLE:
            raise CheckpointError(
                f"{out} exists already, with {_flag(name)} {saved.get(name)} instead of {value}",
                hint=f"go on with it: --resume {out}; or choose another --out",
            )


def unused_path(folder: Path, name: str) -> Path:
    """A path in the folder that is not taken: name, name-2, name-3, ..."""
    number = 1
    while (path := folder / (f"{name}-{number}" if number > 1 else name)).exists():
        number += 1
    return path


def _subject_of(config: RunConfig, path: Path) -> Dataset[Any, Any]:
    task = config.data.get("task", "text")  # which runs had before there were others
    if task not in DATASETS or DATASETS[task].kind != config.kind:
        raise CheckpointError(
            f"{path} is a {config.kind} that was trained on '{task}': there is no more of that",
            hint=f"name a run that was trained on one of: {', '.join(DATASETS)}",
        )
    return DATASETS[task]


def _start(
    dataset: Dataset[Any, Any],
    model: nn.Module,
    training_data: TrainingData[Any],
    config: Any,
    train: TrainConfig,
    origin: dict[str, Any],
    out: Path,
    context: Context,
) -> Trainer:
    settled = train.resolve_auto(model)
    context.processes.check_device(settled.device)
    task = dataset.task(model, training_data, config, settled, context)
    places = {
        name: [str(Path(source).absolute()) for source in some]
        for name, some in training_data.sources.items()
    }
    data = {
        "task": dataset.name,
        **places,
        dataset.name: asdict(config),
        "fingerprint": training_data.fingerprint,
        **origin,
    }
    shape: Any = model.config
    about = RunConfig(dataset.kind, asdict(shape), asdict(settled), data)
    return _trainer(
        task, settled, RunFolder.create(out, about, training_data.tokenizer, model), context
    )


def _trainer(task: Task, train: TrainConfig, run: RunFolder, context: Context) -> Trainer:
    if context.processes.first:
        context.processes.broadcast(run.path)  # who waits in `follow` for it
    return Trainer(task, train, run, context.listener, context.processes)


def _settings(dataset: Dataset[Any, Any], preset: Preset, flags: dict[str, Any]) -> dict[str, Any]:
    """All settings of a new run by name, the flags over the preset's."""
    _check_flags(dataset, flags)
    size = flags.get("vocab_size")
    if size is not None and not 1 <= size <= LARGEST:
        raise ConfigError(
            f"vocab_size ({size}) must be at least 1 and at most {LARGEST}", hint="8000 is usual"
        )
    return {**preset.model, **preset.train, **preset.data, **_lengths(flags)}


def _saved(dataset: Dataset[Any, Any], config: RunConfig) -> dict[str, Any]:
    """All settings of a run by name: a setting that is younger than the run has its default."""
    configs: tuple[Any, ...] = (TrainConfig, _made_of(dataset), dataset.config)
    usual = {f.name: f.default for c in configs for f in fields(c) if f.default is not MISSING}
    return {**usual, **config.train, **config.model, **config.data.get(dataset.name, {})}


def _check_flags(dataset: Dataset[Any, Any], flags: Mapping[str, Any]) -> None:
    """Every flag means something for this dataset."""

    def meant(some: Dataset[Any, Any]) -> set[str]:
        configs: tuple[Any, ...] = (some.config, TrainConfig, _made_of(some))
        return {field.name for config in configs for field in fields(config)} - some.unused

    for name in flags.keys() - meant(dataset):
        others = [other.name for other in DATASETS.values() if name in meant(other)]
        raise ConfigError(
            f"{_flag(name)} {flags[name]} has no meaning for {dataset.name}",
            hint=f"leave it out; it is for {' and '.join(others)}",
        )


def _check_graph(dataset: Dataset[Any, Any], flags: Mapping[str, Any], context: Context) -> None:
    """A step is recorded where it can be; who asks for it is told where it cannot."""
    against = ""
    if not dataset.alike:
        against = f"batches of {dataset.name} differ in shape"
    elif context.processes.size > 1:
        against = f"{context.processes.size} processes train together"
    if against and flags.get("graph") == "on":
        raise ConfigError(
            f"--graph on: a step cannot be recorded where {against}", hint="leave --graph out"
        )


def _need_sources(dataset: Dataset[Any, Any], sources: Sources) -> None:
    if dataset.example and not sources.get("sources"):
        raise InputError(f"no {dataset.name} to train on", hint=f"name a file: {dataset.example}")


def _train_config(
    dataset: Dataset[Any, Any], values: dict[str, Any], path: Path | None = None
) -> TrainConfig:
    train = _checked(TrainConfig, path, values) if path else TrainConfig(**values)
    if train.stop_on not in dataset.measures:
        raise ConfigError(
            f"stop_on ({train.stop_on}) is not measured on {dataset.name}",
            hint=f"choose one of: {', '.join(dataset.measures)}",
        )
    return train


def _made_of(dataset: Dataset[Any, Any]) -> Any:
    """The config of its model."""
    return KINDS[dataset.kind][0]


def _lengths(flags: dict[str, Any]) -> dict[str, Any]:
    """Steps given mean no minutes, and the other way round."""
    if "steps" in flags and "minutes" in flags:
        raise ConfigError(
            f"--steps {flags['steps']} and --minutes {flags['minutes']} cannot both be kept",
            hint="give one of them",
        )
    none = {"steps": None} if "minutes" in flags else {"minutes": None} if "steps" in flags else {}
    return {**flags, **none}


def _checked(config: Any, path: Path, values: dict[str, Any]) -> Any:
    try:
        return config(**values)
    except TypeError as error:
        raise CheckpointError(
            f"{path}/config.json has settings that are none: {error}",
            hint="take it from a copy; a newer glasshead may know them",
        ) from None


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
