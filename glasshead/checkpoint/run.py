"""A trained model, and the config.json that describes it."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.errors import CheckpointError, did_you_mean, nearest
from glasshead.files.checksums import check_content
from glasshead.files.reading import read_small
from glasshead.machine import check_memory
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.model.transformer import Encoder, Reader, Transformer, TransformerConfig
from glasshead.text.tokenizer import Tokenizer

__all__ = [
    "FORMAT", "KINDS", "MOST_METRICS", "Run", "RunConfig", "check_model_memory", "check_parameters",
    "load_parameters", "parameters", "read_config", "read_metrics",
]  # fmt: skip

FORMAT = 1
MOST_TABLES = 1 << 28  # bytes of what a model computes once, such as rotary angles
_DIFFERENT = "config.json and this file are of different runs; put back the one that was changed"
MOST_METRICS = 1 << 30  # bytes of metrics.jsonl: five million lines

# Each kind of model: its config, and the module that it configures.
KINDS: dict[str, tuple[type[Any], Callable[[Any], nn.Module]]] = {
    "gpt": (GPTConfig, GPT),
    "transformer": (TransformerConfig, Transformer),
    "reader": (TransformerConfig, Reader),
    "encoder": (TransformerConfig, Encoder),
}


@dataclass(frozen=True)
class RunConfig:
    """config.json: the kind of model and its settings, how it is trained, and on what."""

    kind: str
    model: dict[str, Any]
    train: dict[str, Any]
    data: dict[str, Any]

    @property
    def lowercase(self) -> bool:
        """Whether the model is a translator that was trained on lowercase text."""
        return bool(self.data.get("pairs", {}).get("lowercase", False))

    def new_model_of(self, shapes: Mapping[str, Tensor], file: Path) -> nn.Module:
        """Make the model; raise CheckpointError before, unless `shapes` of a file are its own.

        Settings that were damaged or made up could otherwise ask for any amount of memory.
        """
        for name, value in self.model.items():
            most = len(shapes) if name in ("n_layers", "n_decoder_layers") else 2**40
            if isinstance(value, int | float) and value > most:
                raise CheckpointError(
                    f"config.json has {name} {value}, which does not fit {file}", hint=_DIFFERENT
                )
        with torch.device("meta"):
            model = self.new_model()
        check_parameters(parameters(model), shapes, file)
        size = sum(tensor.nbytes for tensor in shapes.values())
        tables = sum(buffer.nbytes for buffer in model.buffers())
        if tables > size + MOST_TABLES:
            raise CheckpointError(
                f"config.json asks for {tables / 1e9:,.1f} GB of tables beside the parameters of "
                f"{file}",
                hint=_DIFFERENT,
            )
        check_model_memory(model, file.parent)
        return self.new_model()

    def new_model(self) -> nn.Module:
        """Make the model, with random parameters."""
        if self.kind not in KINDS:
            raise CheckpointError(
                f"unknown kind of model '{self.kind}'", did_you_mean(self.kind, KINDS)
            )
        config, make = KINDS[self.kind]
        try:
            return make(config(**self.model))
        except (TypeError, ArithmeticError, RuntimeError) as error:  # of settings edited by hand
            raise CheckpointError(
                f"config.json does not describe a {self.kind}: {error}",
                hint="put back its 'model' settings, or install a newer glasshead",
            ) from None


def check_model_memory(model: nn.Module, path: str | Path) -> None:
    """Raise ConfigError if a model, which may be on the meta device, is larger than free memory."""
    size = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
    check_memory(size, f"the model {path}", "close other programs, or take a smaller model")


@dataclass(frozen=True, eq=False)
class Run:
    """A trained model, ready for use: what `glasshead.load` and `glasshead.train` return.

    >>> import glasshead
    >>> run = glasshead.train("小猫饿了。\\n" * 30, steps=2, d_model=16, max_len=8, quiet=True)
    >>> run.model.config.d_model, run.tokenizer.encode_ids("饿了").tolist()
    (16, [5, 2])
    >>> [line["step"] for line in run.metrics if "val_loss" in line]
    [0, 2]
    """

    model: nn.Module  # in evaluation mode
    tokenizer: Tokenizer
    config: RunConfig
    path: Path
    step: int  # of the parameters, which are the best so far

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl; none if the model was not trained here."""
        return read_metrics(self.path)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Read metrics.jsonl of a run's folder, without lines that are not metrics."""
    found = []
    try:
        lines = read_small(folder / "metrics.jsonl", MOST_METRICS, within=folder).splitlines()
    except OSError:
        return []
    for line in lines:
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(values, dict) and type(values.get("step")) is int:
            found.append(values)
    return found


def parameters(model: nn.Module) -> dict[str, Tensor]:
    """Return all that the model has learned by name; a tensor with two names (a tied head) once."""
    found: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        found.setdefault(id(tensor), (name, tensor.detach()))
    return dict(found.values())


@torch.no_grad()
def load_parameters(model: nn.Module, tensors: Mapping[str, Tensor], file: Path) -> None:
    """Copy the tensors into the model; raise CheckpointError if they are not exactly its own."""
    own = parameters(model)
    check_parameters(own, tensors, file)
    for name, tensor in own.items():
        tensor.copy_(tensors[name])


def check_parameters(own: Mapping[str, Tensor], given: Mapping[str, Tensor], file: Path) -> None:
    """Raise CheckpointError unless the tensors of a file have the names and shapes of our own."""
    hint = _DIFFERENT
    if odd := sorted(own.keys() ^ given.keys()):
        what = "lacks" if odd[0] in own else "has an unknown"
        more = f" and {len(odd) - 1} more do not fit" if len(odd) > 1 else ""
        raise CheckpointError(f"{file} {what} '{odd[0]}'{more}", hint)
    for name, mine in own.items():
        theirs = given[name]
        if mine.shape != theirs.shape or mine.is_floating_point() != theirs.is_floating_point():
            raise CheckpointError(
                f"{file} has '{name}' as {theirs.dtype} of shape {tuple(theirs.shape)}, "
                f"but config.json makes it {mine.dtype} of shape {tuple(mine.shape)}",
                hint,
            )


def read_config(path: Path) -> RunConfig:
    """Read config.json of a run's folder."""
    if not path.is_dir():
        hint = _suggest_run(path)
        if path.exists() and path.suffix.lower() == ".gguf":
            hint = f"make it a run: glasshead import {path} -o runs/{path.stem}"
        what = "is a file, not a run" if path.exists() else "does not exist"
        raise CheckpointError(f"{path} {what}", hint=hint)
    file = path / "config.json"
    try:
        content = read_small(file, within=path)
        data = json.loads(content)
    except OSError as error:
        raise CheckpointError(
            f"{path} is not a run: cannot read config.json: {error.strerror}",
            hint="restore it from a backup" if os.path.lexists(file) else _suggest_run(path),
        ) from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{file} is not JSON: {error}", hint="restore it from a backup; nothing else is lost"
        ) from None
    form = data.get("format") if isinstance(data, dict) else None
    if not isinstance(form, int):
        raise CheckpointError(
            f"{path} is not a run: its config.json has no format",
            hint=f"to make a run of a Hugging Face folder: glasshead import {path} -o RUN",
        )
    if form > FORMAT:
        raise CheckpointError(
            f"{path} has format {form}, but this glasshead reads up to {FORMAT}",
            hint="install a newer glasshead",
        )
    check_content(file, content)
    parts = {name: data.get(name) for name in ("model", "train", "data")}
    if not isinstance(data.get("kind"), str) or not all(
        isinstance(part, dict) for part in parts.values()
    ):
        raise CheckpointError(
            f"{file} lacks one of kind, model, train, data", hint="restore it from a backup"
        )
    return RunConfig(data["kind"], **parts)


def _suggest_run(path: Path) -> str:
    """Return a hint that names runs in the path, beside it and in runs/."""
    inside, beside = (
        {
            file.parent.name: str(file.parent)
            for folder in folders
            for file in sorted(folder.glob("*/config.json"))
        }
        for folders in ([path], [Path("runs"), path.parent])
    )
    near = nearest(path.name, beside)
    if near and not inside:
        return f"did you mean '{beside[near]}'?"
    known = list(inside.values() or beside.values())
    if not known:
        return "to make a run: glasshead train my.txt"
    few = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
    return f"choose one of: {few}"
