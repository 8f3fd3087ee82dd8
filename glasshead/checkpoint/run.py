"""The folder of one run, and the trained model in it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.checkpoint.files import atomic_folder, atomic_write, read_tensors, write_tensors
from glasshead.checkpoint.state import State, States, first_whole, read_state
from glasshead.errors import CheckpointError, did_you_mean, nearest
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.model.transformer import Encoder, Reader, Transformer, TransformerConfig
from glasshead.text.tokenizer import Tokenizer, load_tokenizer

__all__ = [
    "KINDS",
    "Run",
    "RunConfig",
    "RunFolder",
    "State",
    "load",
    "load_parameters",
    "parameters",
]

FORMAT = 1

# One line a kind of model: its config and the module made of it.
KINDS: dict[str, tuple[type[Any], Callable[[Any], nn.Module]]] = {
    "gpt": (GPTConfig, GPT),
    "transformer": (TransformerConfig, Transformer),
    "reader": (TransformerConfig, Reader),
    "encoder": (TransformerConfig, Encoder),
}


@dataclass(frozen=True)
class RunConfig:
    """config.json: what the run's model is, how it is trained, on what."""

    kind: str
    model: dict[str, Any]
    train: dict[str, Any]
    data: dict[str, Any]

    @property
    def reads_small_letters(self) -> bool:
        return bool(self.data.get("pairs", {}).get("lowercase", False))

    def new_model(self) -> nn.Module:
        """The model, its parameters drawn anew."""
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
                hint="put back its 'model' settings; a newer glasshead may know others",
            ) from None


@dataclass(frozen=True, eq=False)
class Run:
    """A trained model, ready for use: what `glasshead.load` and `glasshead.train` return.

    >>> import glasshead
    >>> run = glasshead.train("小猫饿了。\\n" * 30, steps=2, d_model=16, max_len=8, quiet=True)
    >>> run.model.config.d_model, run.tokenizer.encode_ids("饿了").tolist()
    (16, [5, 2])
    >>> [line["step"] for line in run.metrics if "val_loss" in line]
    [0, 1, 2]
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

    @property
    def reads_small_letters(self) -> bool:
        """Whether it is a translator that was trained on small letters only."""
        return self.config.reads_small_letters


def load(path: str | Path) -> Run:
    """The best parameters of a run, its tokenizer and its config."""
    run = RunFolder.open(path)
    model = run.config.new_model()

    def read(file: Path) -> int:
        if file.parent == run.path:
            tensors, about = read_tensors(file)
            load_parameters(model, tensors, file)
            return int(about.get("step", 0))
        state = read_state(file)
        load_parameters(model, state.part("model."), file)
        return int(state.progress["step"])

    _, step = first_whole([run.path / "model.safetensors", *run.states], read)
    tokenizer, vocab_size = run.tokenizer(), run.config.model.get("vocab_size")
    if isinstance(vocab_size, int) and tokenizer.vocab_size > vocab_size:
        raise CheckpointError(
            f"{run.path}/tokenizer.json has {tokenizer.vocab_size} ids, the model {vocab_size}",
            hint="it is another run's tokenizer; put back this run's own",
        )
    return Run(model.eval(), tokenizer, run.config, run.path, step)


class RunFolder(States):
    """One run's folder."""

    def __init__(self, path: Path, config: RunConfig) -> None:
        super().__init__(path)
        self.config = config

    @classmethod
    def create(
        cls, path: str | Path, config: RunConfig, tokenizer: Tokenizer, model: nn.Module
    ) -> "RunFolder":
        """A new folder with the model as it is at the start. It appears whole, or not at all."""
        return cls.make(path, config, tokenizer, lambda run: run.save_model(model, step=0))

    @classmethod
    def make(
        cls,
        path: str | Path,
        config: RunConfig,
        tokenizer: Tokenizer,
        fill: Callable[["RunFolder"], None],
    ) -> "RunFolder":
        """A new folder; `fill` writes the model into it."""
        path = Path(path)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise CheckpointError(
                f"{path} exists already",
                hint=f"go on with it: glasshead train --resume {path}; or choose another --out"
                if (path / "config.json").exists()
                else "choose another --out",
            )
        with atomic_folder(path) as made:
            (made / "state").mkdir()
            run = cls(made, config)
            with atomic_write(made / "tokenizer.json") as file:
                file.write(tokenizer.to_json().encode())
            run.save_config(config)
            fill(run)
        return cls(path, config)

    @classmethod
    def open(cls, path: str | Path) -> "RunFolder":
        path = Path(path)
        if not path.is_dir():
            what = "is not a run but a file" if path.exists() else "does not exist"
            hint = _near_run(path)
            if path.exists() and path.suffix.lower() == ".gguf":
                hint = f"make it one: glasshead import {path} -o runs/{path.stem}"
            raise CheckpointError(f"{path} {what}", hint=hint)
        return cls(path, _read_config(path))

    def tokenizer(self) -> Tokenizer:
        return load_tokenizer(self.path / "tokenizer.json")

    def save_config(self, config: RunConfig) -> None:
        self.config = config
        text = json.dumps({"format": FORMAT, **asdict(config)}, indent=2, ensure_ascii=False)
        with atomic_write(self.path / "config.json") as file:
            file.write(f"{text}\n".encode())

    def save_model(self, model: nn.Module, step: int) -> None:
        self.save_tensors(parameters(model), step)

    def save_tensors(
        self,
        tensors: Mapping[str, Tensor],
        step: int = 0,
        read: Callable[[str], Tensor] | None = None,
    ) -> None:
        """The model's parameters; with `read` one at a time, as `write_tensors` has it."""
        with atomic_write(self.path / "model.safetensors") as file:
            write_tensors(file, tensors, {"format": "pt", "step": str(step)}, read)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Read metrics.jsonl of a run's folder, without the half line that a kill may leave."""
    file, found = folder / "metrics.jsonl", []
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        try:
            values = json.loads(line)
        except ValueError:
            continue
        if isinstance(values, dict):
            found.append(values)
    return found


def parameters(model: nn.Module) -> dict[str, Tensor]:
    """All that the model has learned, by name; a tensor with two names (a tied head) once."""
    found: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        found.setdefault(id(tensor), (name, tensor.detach()))
    return dict(found.values())


@torch.no_grad()
def load_parameters(model: nn.Module, tensors: Mapping[str, Tensor], file: Path) -> None:
    """Copy the tensors into the model, if they are exactly those that it has."""
    own = parameters(model)
    hint = "config.json and this file are not of one run; put back the one that was changed"
    if odd := sorted(own.keys() ^ tensors.keys()):
        what = "lacks" if odd[0] in own else "has an unknown"
        raise CheckpointError(f"{file} {what} '{odd[0]}' ({len(odd)} names do not fit)", hint)
    for name, tensor in own.items():
        given = tensors[name]
        if tensor.shape != given.shape or tensor.is_floating_point() != given.is_floating_point():
            raise CheckpointError(
                f"{file} has '{name}' as {given.dtype} of shape {tuple(given.shape)}, "
                f"but config.json makes it {tensor.dtype} of shape {tuple(tensor.shape)}",
                hint,
            )
    for name, tensor in own.items():
        tensor.copy_(tensors[name])


def _near_run(path: Path) -> str:
    """A hint for a path that is no run, by the runs in it, beside it and in runs/."""
    inside, beside = (
        {file.parent.name: str(file.parent) for folder in folders for file in _runs_in(folder)}
        for folders in ([path], [Path("runs"), path.parent])
    )
    near = nearest(path.name, beside)
    if near and not inside:
        return f"did you mean '{beside[near]}'?"
    known = list(inside.values() or beside.values())
    few = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
    if not known:
        return "`glasshead train` makes a run and prints its folder"
    return f"choose one of: {few}; `glasshead import` brings others"


def _runs_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/config.json"))


def _read_config(path: Path) -> RunConfig:
    file = path / "config.json"
    try:
        data = json.loads(file.read_bytes())
    except OSError as error:
        raise CheckpointError(
            f"{path} is not a run: cannot read config.json: {error.strerror}",
            hint=_near_run(path),
        ) from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{file} is not JSON: {error}", hint="take it from a copy; nothing else is lost"
        ) from None
    form = data.get("format") if isinstance(data, dict) else None
    if not isinstance(form, int):
        raise CheckpointError(
            f"{path} is not a run: its config.json has no format",
            hint="a folder of Hugging Face becomes a run by `glasshead import`",
        )
    if form > FORMAT:
        raise CheckpointError(
            f"{path} has format {form}, but this glasshead reads up to {FORMAT}",
            hint="install a newer glasshead",
        )
    fields = {name: data.get(name) for name in ("model", "train", "data")}
    if not isinstance(data.get("kind"), str) or not all(
        isinstance(f, dict) for f in fields.values()
    ):
        raise CheckpointError(
            f"{file} lacks one of kind, model, train, data", hint="take it from a copy"
        )
    return RunConfig(data["kind"], **fields)
