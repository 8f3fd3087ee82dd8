"""How a run starts: on new data, from where it stopped, or with another run's parameters."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from glasshead.checkpoint import KINDS, RunConfig, RunFolder, load, load_parameters, parameters
from glasshead.errors import CheckpointError, ConfigError, InputError, did_you_mean
from glasshead.files.writing import what_to_do
from glasshead.machine import pick_device
from glasshead.training.config import TrainConfig
from glasshead.training.dataset import Context, Dataset, Sources, select_fields
from glasshead.training.language import TextDataset
from glasshead.training.loop import Trainer
from glasshead.training.memory import check_training_memory
from glasshead.training.presets import Preset
from glasshead.training.pronouns import PronounDataset
from glasshead.training.translation import PairDataset
from glasshead.training.world_pairs import WorldDataset

__all__ = [
    "DATASETS", "Context", "check_same_settings", "describe_settings", "find_dataset", "fine_tune",
    "join_run", "resume_run", "start_run", "unused_path",
]  # fmt: skip

DATASETS: dict[str, type[Dataset]] = {
    dataset.name: dataset for dataset in (TextDataset, PairDataset, PronounDataset, WorldDataset)
}

LARGEST = 10**6  # vocabulary; those in use have a quarter of it
# Settings that may change when a run is resumed: how long it trains, and on which machine.
CHANGEABLE = (
    "steps", "minutes", "patience", "save_every", "device", "threads", "parallel", "graph",
    "watch_heads",
)  # fmt: skip
# Settings of a model that may change when it has parameters already.
SHAPELESS = {
    "dropout", "weight_dropout", "max_len", "window", "softcap", "logit_softcap", "backend"
}  # fmt: skip


def find_dataset(name: str) -> type[Dataset]:
    if name not in DATASETS:
        raise ConfigError(f"unknown task '{name}'", hint=did_you_mean(name, DATASETS))
    return DATASETS[name]


def start_run(
    dataset: type[Dataset],
    sources: Sources,
    preset: Preset,
    flags: dict[str, Any],
    out: Path,
    context: Context,
) -> Trainer:
    """Start a new run with the settings of a preset, which flags override."""
    settings = _merge_settings(dataset, preset, flags, context)
    config = dataset.make_config(settings, flags)
    train = _make_train_config(dataset, select_fields(TrainConfig, settings))
    model_config, model_class = KINDS[dataset.kind]
    shape = select_fields(model_config, settings)
    model_config(**{**shape, "vocab_size": 1})  # report wrong settings before reading for long
    _check_sources(dataset, sources)
    least = model_config(**{**shape, "vocab_size": settings.get("vocab_size") or 1})
    _check_memory(dataset, least, train, config)
    data = dataset(sources, config, context, vocab_size=settings.get("vocab_size"))
    shape["vocab_size"] = data.tokenizer.vocab_size
    if dataset.kind != "gpt":
        shape["pad"] = data.tokenizer.specials["<pad>"]
    _check_memory(dataset, model_config(**shape), train, config)
    torch.manual_seed(train.seed)
    return _create_run(data, model_class(model_config(**shape)), train, {}, out)


def fine_tune(
    dataset: type[Dataset] | None,
    path: Path,
    sources: Sources,
    flags: dict[str, Any],
    out: Path,
    context: Context,
) -> Trainer:
    """Start a new run with the model, the tokenizer and the settings of another.

    Without a dataset, use the one that the other run was trained on.
    """
    run = load(path)
    dataset = dataset or _dataset_of(run.config, path)
    if run.config.kind != dataset.kind:
        raise CheckpointError(
            f"{path} is a {run.config.kind}, but --task {dataset.name} trains a {dataset.kind}",
            hint=f"name the run of a {dataset.kind}",
        )
    flags = _check_flags(dataset, flags, context)
    model_config, model_class = KINDS[dataset.kind]
    changes = select_fields(model_config, flags)
    if fixed := changes.keys() - SHAPELESS | flags.keys() & dataset.fixed:
        raise ConfigError(
            f"{_option(min(fixed))} cannot change: the parameters of {path} depend on it",
            hint=f"leave it out, or start a new run without --from {path}",
        )
    # Decided anew, for this machine.
    auto = dict.fromkeys(("device", "precision", "compile", "graph"), "auto")
    saved = {**run.config.train, **auto, "threads": None, "eval_every": None}
    train = _make_train_config(dataset, {**saved, **select_fields(TrainConfig, flags)}, path)
    own = {**run.config.data.get(dataset.name, {}), **select_fields(dataset.config_class, flags)}
    config = _from_saved(dataset.config_class, own, path)
    _check_sources(dataset, sources)
    _check_memory(dataset, model_config(**{**run.config.model, **changes}), train, config)
    data = dataset(sources, config, context, tokenizer=run.tokenizer)
    model = model_class(model_config(**{**run.config.model, **changes}))
    load_parameters(model, parameters(run.model), path / "model.safetensors")
    origin = {"from": str(path), "from_step": run.step}
    if "imported" in run.config.data:
        origin["imported"] = run.config.data["imported"]
    return _create_run(data, model, train, origin, out)


def resume_run(
    path: Path,
    sources: Sources,
    flags: dict[str, Any],
    context: Context,
    task_name: str | None = None,
) -> Trainer:
    """Continue a run from its last checkpoint.

    Args:
        sources: its files, if they were moved.
        task_name: what these files are for, text or pairs; it must be the task of the run.
    """
    run = RunFolder.open(path)
    dataset = _dataset_of(run.config, path)
    if task_name not in (None, dataset.name):
        raise ConfigError(
            f"{path} was trained on {dataset.name}, not on {task_name}",
            hint=f"leave the files out: glasshead train --resume {path}",
        )
    if dataset.example and "sources" not in run.config.data:
        raise CheckpointError(
            f"{path} was imported, not trained here: there is no training to resume",
            hint=f"start a new run with its model: {dataset.example} --from {path}",
        )
    run.check_checkpoints()
    saved = _saved_settings(dataset, run.config)
    for name, value in flags.items():
        if name not in CHANGEABLE and value != saved.get(name):
            raise ConfigError(
                f"{_option(name)} {value} differs from the run's {saved.get(name)}",
                hint=f"--resume can change {', '.join(map(_option, CHANGEABLE))}; "
                f"to change others, start a new run with --from {path}",
            )
    changes = {name: value for name, value in flags.items() if name in CHANGEABLE}
    changes = _check_flags(dataset, changes, context)
    if "device" in changes:
        changes = {"graph": "auto", **changes}
    model, about = run.new_model(), run.config.data
    train = _make_train_config(dataset, {**run.config.train, **changes}, path).resolve_auto(model)
    context.processes.check_device(train.device)
    shape: Any = model.config
    config = _from_saved(dataset.config_class, about.get(dataset.name, {}), path)
    _check_memory(dataset, shape, train, config)
    files: dict[str, Any] = {name: about[name] for name in ("sources", "val") if name in about}
    data = dataset({**files, **sources}, config, context, tokenizer=run.tokenizer())
    if data.fingerprint != about.get("fingerprint"):
        raise CheckpointError(
            f"{path} was started with other {dataset.name} than this",
            hint=f"put the files back as they were, or start a new run with --from {path}",
        )
    task = data.task(model, train)
    if changes and context.processes.first:
        try:
            run.save_config(replace(run.config, train=asdict(train)))
        except OSError as error:
            raise CheckpointError(
                f"cannot write {path}/config.json: {error.strerror}",
                hint=f"nothing is lost: {what_to_do(error)}, then glasshead train --resume {path}",
            ) from None
    if context.processes.first:
        context.processes.broadcast(run.path)
    return Trainer(task, train, run, context.listener, context.processes)


def join_run(context: Context) -> Trainer:
    """Take part in the run that the first process starts or resumes."""
    return resume_run(context.processes.broadcast(), {}, {}, context)


def describe_settings(dataset: type[Dataset], preset: Preset, flags: dict[str, Any]) -> str:
    """Return all settings of a new run as JSON; vocab_size is null if the text decides it."""
    settings = _merge_settings(dataset, preset, flags)
    size, model_config = settings.get("vocab_size"), KINDS[dataset.kind][0]
    model = model_config(**{**select_fields(model_config, settings), "vocab_size": size or 1})
    own = dataset.config_class(**select_fields(dataset.config_class, settings))
    train = _make_train_config(dataset, select_fields(TrainConfig, settings))
    parts = {
        "says": preset.says,
        dataset.name: asdict(own),
        "train": asdict(train),
        "model": {**asdict(model), "vocab_size": size},
    }
    return json.dumps(parts, indent=2)


def check_same_settings(
    dataset: type[Dataset], preset: Preset, flags: dict[str, Any], out: Path
) -> None:
    """Raise CheckpointError unless `start_run` would make the run that is in `out`."""
    saved = _saved_settings(dataset, RunFolder.open(out).config)
    for name, value in _merge_settings(dataset, preset, flags).items():
        # None and "auto" are decided when a run is made.
        if value not in (None, "auto", saved.get(name)) and name not in CHANGEABLE:
            raise CheckpointError(
                f"{out} exists already, with {_option(name)} {saved.get(name)} instead of {value}",
                hint=f"continue it: glasshead train --resume {out}; or choose another --out",
            )


def unused_path(folder: Path, name: str) -> Path:
    """Return the first of folder/name, folder/name-2, folder/name-3, ... that does not exist."""
    number = 1
    while (path := folder / (f"{name}-{number}" if number > 1 else name)).exists():
        number += 1
    return path


def _check_memory(dataset: type[Dataset], shape: Any, train: TrainConfig, config: Any) -> None:
    tokens = train.batch_size * (shape.max_len if dataset.same_shapes else 1)
    train = replace(train, device=str(pick_device(train.device)))
    check_training_memory(dataset.kind, shape, train, getattr(config, "max_tokens", tokens))


def _create_run(
    data: Dataset, model: nn.Module, train: TrainConfig, origin: dict[str, Any], out: Path
) -> Trainer:
    """Create the folder of a new run, and the trainer that fills it."""
    train, context = train.resolve_auto(model), data.context
    context.processes.check_device(train.device)
    task = data.task(model, train)
    about = {
        "task": data.name,
        **{name: [str(Path(s).absolute()) for s in some] for name, some in data.sources.items()},
        data.name: asdict(data.config),
        "fingerprint": data.fingerprint,
        **({"excerpts": found} if (found := data.excerpts()) else {}),
        **origin,
    }
    shape: Any = model.config
    run_config = RunConfig(data.kind, asdict(shape), asdict(train), about)
    run = RunFolder.create(out, run_config, data.tokenizer, model)
    context.processes.broadcast(run.path)  # to those that wait in `join_run`
    return Trainer(task, train, run, context.listener, context.processes)


def _merge_settings(
    dataset: type[Dataset], preset: Preset, flags: dict[str, Any], context: Context | None = None
) -> dict[str, Any]:
    """Return all settings of a new run by name."""
    flags = _check_flags(dataset, flags, context)
    return {**preset.model, **preset.train, **preset.data, **flags}


def _check_flags(
    dataset: type[Dataset], flags: dict[str, Any], context: Context | None
) -> dict[str, Any]:
    """Raise if flags do not fit. Of steps and minutes, the one that is given replaces the other."""
    for name in flags.keys() - _setting_names(dataset):
        others = [one.name for one in DATASETS.values() if name in _setting_names(one)]
        raise ConfigError(
            f"{_option(name)} {flags[name]} has no effect on {dataset.name}",
            hint=f"leave it out; it is for {' and '.join(others)}",
        )
    if "steps" in flags and "minutes" in flags:
        raise ConfigError(
            f"--steps {flags['steps']} and --minutes {flags['minutes']} exclude each other",
            hint="give one of them",
        )
    size, n_processes = flags.get("vocab_size"), context.processes.size if context else 1
    if size is not None and not 1 <= size <= LARGEST:
        raise ConfigError(
            f"vocab_size ({size}) must be at least 1 and at most {LARGEST}",
            hint="for example --vocab-size 8000",
        )
    if flags.get("graph") == "on" and not (dataset.same_shapes and n_processes == 1):
        reason = (
            f"batches of {dataset.name} differ in shape"
            if not dataset.same_shapes
            else f"{n_processes} processes train together"
        )
        raise ConfigError(f"--graph on is not possible: {reason}", hint="leave --graph out")
    if "steps" in flags:
        return {**flags, "minutes": None}
    return {**flags, "steps": None} if "minutes" in flags else flags


def _setting_names(dataset: type[Dataset]) -> set[str]:
    """Return the names of all settings that have an effect on a run of this dataset."""
    configs: tuple[Any, ...] = (dataset.config_class, TrainConfig, KINDS[dataset.kind][0])
    return {field.name for config in configs for field in fields(config)} - dataset.unused - {"pad"}


def _check_sources(dataset: type[Dataset], sources: Sources) -> None:
    if dataset.example and not sources.get("sources"):
        raise InputError(f"no {dataset.name} to train on", hint=f"name a file: {dataset.example}")


def _make_train_config(
    dataset: type[Dataset], values: dict[str, Any], path: Path | None = None
) -> TrainConfig:
    """Make the config of a new run, or of the one that `path` has saved."""
    train: TrainConfig = _from_saved(TrainConfig, values, path) if path else TrainConfig(**values)
    if train.stop_on not in dataset.metrics:
        raise ConfigError(
            f"stop_on ({train.stop_on}) is not measured on {dataset.name}",
            hint=f"choose one of: {', '.join(dataset.metrics)}",
        )
    return train


def _from_saved(config: Any, values: Mapping[str, Any], path: Path) -> Any:
    try:
        return config(**values)
    except TypeError as error:
        raise CheckpointError(
            f"{path}/config.json has settings that this glasshead does not know: {error}",
            hint="put back the original config.json, or install a newer glasshead",
        ) from None


def _saved_settings(dataset: type[Dataset], config: RunConfig) -> dict[str, Any]:
    """Return all settings of a run by name; one that did not exist yet has its default."""
    configs: tuple[Any, ...] = (TrainConfig, KINDS[dataset.kind][0], dataset.config_class)
    usual = {f.name: f.default for c in configs for f in fields(c) if f.default is not MISSING}
    return {**usual, **config.train, **config.model, **config.data.get(dataset.name, {})}


def _dataset_of(config: RunConfig, path: Path) -> type[Dataset]:
    task = config.data.get("task", "text")  # old runs have no task
    if task not in DATASETS or DATASETS[task].kind != config.kind:
        raise CheckpointError(
            f"{path} is a {config.kind} trained on '{task}', which cannot be trained further",
            hint=f"name a run that was trained on one of: {', '.join(DATASETS)}",
        )
    return DATASETS[task]


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
