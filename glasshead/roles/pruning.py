"""Remove the heads that a model needs least, and measure what that costs.

Importance is measured on one half of the text (`observe/importance.py`, by gradient), the loss on
the other half. A removed head outputs nothing: its columns of the projection after attention are 0,
so the model keeps its shape and can be exported as before.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshead.attention.multihead import MultiHeadAttention
from glasshead.errors import ConfigError, InputError
from glasshead.model.gpt import GPT
from glasshead.observe.ablation import ablating
from glasshead.observe.importance import head_gradients
from glasshead.observe.layers import find_layers
from glasshead.roles.proof import Head
from glasshead.roles.subject import Subject

__all__ = ["PruneStep", "measure_pruning", "remove_heads"]


@dataclass(frozen=True)
class PruneStep:
    """What the model loses without a share of its heads."""

    share: float
    heads: tuple[Head, ...]  # that are removed, the least important first
    loss: float  # nats for each token, on text that importance was not measured on


def measure_pruning(
    subject: Subject,
    texts: Sequence[str],
    shares: Sequence[float],
    tokens: int = 128,
    most: int = 32,
) -> list[PruneStep]:
    """Return a step for each share of heads, and one for none; read at most `most` windows."""
    model = subject.model
    if not isinstance(model, GPT):
        raise InputError(f"{subject.name} is no language model", hint="name one that predicts text")
    for share in shares:
        if not 0 < share < 1:
            raise ConfigError(f"the share {share} is not between 0 and 1", hint="try 0.2")
    ids = [i for text in texts for i in subject.encode(text)]
    n = min(tokens, subject.longest - len(subject.before))
    rows = [[*subject.before, *ids[at : at + n]] for at in range(0, len(ids) - n + 1, n)]
    if len(rows) < 2:
        raise InputError(
            f"the text has {len(ids)} tokens, but 2 windows of {n} are needed",
            hint="give more text, or fewer --tokens",
        )
    windows = torch.tensor(rows[:: max(1, len(rows) // most)][:most], device=subject.device)
    chosen_on, measured_on = windows[::2], windows[1::2]
    gradients = head_gradients(model, lambda: _loss(model, chosen_on))
    scores = torch.stack(list(gradients.values()))  # (L, H)
    order = scores.flatten().argsort().tolist()
    heads = [divmod(i, scores.shape[1]) for i in order]
    steps = []
    with torch.no_grad():
        for share in (0.0, *shares):
            removed = tuple(heads[: round(share * len(heads))])
            with ablating(model, heads=removed):
                steps.append(PruneStep(share, removed, _loss(model, measured_on).item()))
    return steps


def remove_heads(model: nn.Module, heads: Sequence[Head]) -> None:
    """Set the output of heads to 0 in the parameters of one of our models, in place."""
    layers = {layer.index: module for layer, module in find_layers(model)}
    with torch.no_grad():
        for layer, head in heads:
            module = layers[layer]
            if not isinstance(module, MultiHeadAttention) or not isinstance(module.out, nn.Linear):
                raise InputError(
                    f"layer {layer} has no projection after its attention",
                    hint="choose a model with project=True",
                )
            module.out.weight.unflatten(1, (module.n_heads, -1))[:, head] = 0


def _loss(model: GPT, ids: Tensor) -> Tensor:
    logits = model(ids[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())
