"""Build the learner's modules, and read their parameters."""

from typing import Any

import numpy as np
import torch
from torch import nn

from glasshead.lab.check.pipeline import Projections
from glasshead.lab.exercises.learner import LearnerFile, Trouble, TroubleFound

__all__ = ["Mixer", "build", "count_parameters", "projections_of"]


def build(mine: LearnerFile, name: str, *args: Any, needs: tuple[str, ...] = ()) -> Any:
    """Construct a class of the learner's; raise TroubleFound if it lacks one of its parts."""
    made = mine.call(getattr(mine, name), *args)
    lacking = [part for part in needs if not hasattr(made, part)]
    if lacking:
        known = ", ".join(n for n, _ in made.named_children()) or "-"
        values = {"what": name, "got": known, "want": ", ".join(needs)}
        raise TroubleFound(Trouble("parameters", values))
    made.eval()
    with torch.no_grad():
        for parameter in made.parameters():  # far from 0 and 1, so that each of them shows
            parameter.copy_(parameter + 0.3 * torch.randn(parameter.shape))
    return made


def count_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def projections_of(module: Any, n_heads: int = 1, out: bool = False) -> Projections:
    """Read query, key and value, and the output projection, for the checker's reference."""

    def matrix(layer: Any) -> np.ndarray[Any, Any]:
        return layer.weight.detach().double().numpy().T

    def bias(layer: Any) -> Any:
        return 0.0 if layer.bias is None else layer.bias.detach().double().numpy()

    q, k, v = module.query, module.key, module.value
    more: dict[str, Any] = {"out": matrix(module.out), "out_bias": bias(module.out)} if out else {}
    return Projections(
        n_heads, n_heads, matrix(q), matrix(k), matrix(v), q_bias=bias(q), k_bias=bias(k),
        v_bias=bias(v), **more,
    )  # fmt: skip


class Mixer(nn.Module):
    """A stand-in for attention and feed-forward that is neither linear nor symmetric."""

    def __init__(self, width: int, past: bool = True) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.past = past
        with torch.no_grad():
            self.layer.weight.normal_()

    def forward(self, x: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(self.layer(x))
        if self.past:
            y = y.cumsum(1)
        if len(more) == 1:  # keep
            y = y * (1.0 + more[0][..., None])
        if len(more) == 2:  # memory, keep
            y = y + (more[0] * (1.0 + more[1][..., None])).sum(1, keepdim=True).sin()
        return y
