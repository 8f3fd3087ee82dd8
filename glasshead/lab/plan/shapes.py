"""Find the model to plan: a preset, a well-known shape or a run; and count its parameters."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from glasshead.checkpoint import RunFolder
from glasshead.errors import ConfigError, did_you_mean
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.training.optim import hidden_matrices
from glasshead.training.presets import PRESETS, presets_for

__all__ = ["SHAPES", "Counts", "count", "find_shape"]

_GPT2: dict[str, Any] = PRESETS["gpt2"].model
_LLAMA: dict[str, Any] = {
    "vocab_size": 128256,
    "max_len": 8192,
    "n_kv_heads": 8,
    "positions": "rotary",
    "rope_base": 500_000.0,
    "norm": "rms",
    "feed_forward": "swiglu",
    "bias": False,
    "head_bias": False,
}

SHAPES: dict[str, dict[str, Any]] = {
    "gpt2-medium": {**_GPT2, "n_layers": 24, "n_heads": 16, "d_model": 1024},
    "gpt2-large": {**_GPT2, "n_layers": 36, "n_heads": 20, "d_model": 1280},
    "gpt2-xl": {**_GPT2, "n_layers": 48, "n_heads": 25, "d_model": 1600},
    "llama-1b": {
        **_LLAMA, "n_layers": 16, "n_heads": 32, "d_model": 2048, "d_ff": 8192, "tied": True,
    },
    "llama-8b": {**_LLAMA, "n_layers": 32, "n_heads": 32, "d_model": 4096, "d_ff": 14336},
    "llama-70b": {**_LLAMA, "n_layers": 80, "n_heads": 64, "d_model": 8192, "d_ff": 28672},
}  # fmt: skip


def find_shape(name: str | None, flags: dict[str, Any]) -> GPTConfig:
    """Return the settings of the preset, shape or run called `name`, changed by the flags."""
    settings = {**_find_settings(name), **flags} if name else flags
    if settings.get("vocab_size") is None:
        raise ConfigError(
            f"the vocabulary size of {name or 'this model'} is not known: it depends on the text",
            hint="--vocab-size 65 for the characters of a small text, 50257 for GPT-2's",
        )
    return GPTConfig(**settings)


def _find_settings(name: str) -> dict[str, Any]:
    if name in SHAPES:
        return SHAPES[name]
    if name in presets_for("text"):
        return PRESETS[name].model
    if Path(name).is_dir():
        run = RunFolder.open(name)
        if run.config.kind != "gpt":
            raise ConfigError(
                f"{name} is a {run.config.kind}; only GPTs can be planned", hint="name a GPT"
            )
        known = {field.name for field in fields(GPTConfig)}
        return {key: value for key, value in run.config.model.items() if key in known}
    known_names = [*presets_for("text"), *SHAPES]
    raise ConfigError(
        f"'{name}' is not a preset, a known shape or the folder of a run",
        hint=did_you_mean(name, known_names),
    )


@dataclass(frozen=True)
class Counts:
    """Numbers of parameters, each counted once."""

    total: int
    embedding: int  # table of tokens
    positions: int
    blocks: int
    head: int  # 0 where it is the table of tokens
    hidden: int  # in matrices inside the blocks, which Muon takes
    tensors: int


def count(config: GPTConfig) -> Counts:
    """Count the parameters of the model itself, built on the meta device with one block for all.

    >>> count(find_shape("gpt2", {})).total
    124439808
    """
    try:
        with torch.device("meta"):
            model = GPT(replace(config, n_layers=min(config.n_layers, 1)))
    except (RuntimeError, OverflowError, TypeError) as error:  # more than torch can count
        raise ConfigError(
            f"a model of width {config.d_model:,} and {config.vocab_size:,} tokens is too large "
            "for torch",
            hint="make it smaller",
        ) from error
    hidden = hidden_matrices(model)
    block = list(model.blocks.parameters())
    params = [*model.parameters(), *block * (config.n_layers - 1)]

    def size(module: torch.nn.Module) -> int:
        return sum(p.numel() for p in module.parameters())

    return Counts(
        total=sum(p.numel() for p in params),
        embedding=size(model.embedding),
        positions=size(model.positions),
        blocks=config.n_layers * size(model.blocks),
        head=0 if config.tied else size(model.head),
        hidden=config.n_layers * sum(p.numel() for p in hidden),
        tensors=len(params),
    )
