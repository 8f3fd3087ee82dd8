"""How much memory training takes at least, which is checked before anything is allocated."""

import math
from dataclasses import replace
from typing import Any

import torch

from glasshead.checkpoint import KINDS
from glasshead.machine import check_memory, free_memory
from glasshead.training.config import TrainConfig

__all__ = ["check_training_memory", "count_numbers"]

# Numbers that the backward pass of a block keeps for each token, in units of d_model: inputs of two
# norms, of four products and of attention. It is a lower bound: what fits is never refused.
KEPT = 12


def check_training_memory(kind: str, shape: Any, train: TrainConfig, tokens: int) -> None:
    """Raise ConfigError if a model of this config cannot be trained in the memory that is free.

    Args:
        tokens: in a batch.
    """
    states = {"adamw": 2, "muon": 1}[train.optimizer] + bool(train.ema)
    copies = 4 * (2 + states)  # bytes of a parameter, its gradient and what the optimizer keeps
    stacks = [n for n in ("n_layers", "n_decoder_layers") if getattr(shape, n, None)]
    small = replace(shape, **dict.fromkeys(stacks, 1))
    one = count_numbers(kind, small)  # of each, one layer
    layers = sum(
        (count_numbers(kind, replace(small, **{name: 2})) - one) * (getattr(shape, name) - 1)
        for name in (stacks if math.isfinite(one) else ())
    )
    needed, free = copies * (one + layers), free_memory(train.device)
    fitting = 1 + (free / copies - one) / layers * (shape.n_layers - 1) if layers else 0
    check_memory(
        needed,
        f"training {needed / copies:,.0f} parameters",
        f"--n-layers {int(fitting)} would fit"
        if fitting >= 1
        else "choose a smaller --d-model or --vocab-size; glasshead plan says what a model needs",
        train.device,
    )
    of_token = 4 * KEPT * shape.d_model * shape.n_layers
    fits = (free - needed) / max(1, of_token * tokens)  # this part of a batch
    check_memory(
        needed + of_token * tokens,
        f"a batch of {tokens:,} tokens",
        f"--batch-size {int(train.batch_size * fits)} would fit, with --accumulate for more"
        if train.batch_size * fits >= 1
        else "choose a smaller --max-len, --d-model or --n-layers",
        train.device,
    )


def count_numbers(kind: str, shape: Any) -> float:
    """Return how many parameters and tables a model has, without making it."""
    try:
        with torch.device("meta"):
            model = KINDS[kind][1](shape)
    except RuntimeError:  # more than torch can count
        return math.inf
    return float(sum(t.numel() for t in (*model.parameters(), *model.buffers())))
