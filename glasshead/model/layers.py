"""The parts of every model: feed-forwards, norms, and what stands around each of a block's layers.

A block is attention, then a feed-forward, each with the same things around it (`Sublayer`):

    pre    x + f(norm(x))        today's models
    post   norm(x + f(x))        the paper
    none   x + f(x)
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from glasshead.attention.norm import RMSNorm
from glasshead.errors import ConfigError, did_you_mean

__all__ = [
    "FEED_FORWARDS",
    "NORMS",
    "Activated",
    "FeedForward",
    "GatedFeedForward",
    "Sublayer",
    "choose",
    "squared_relu",
]

Choice = TypeVar("Choice")


class FeedForward(nn.Module):
    """Widen, bend, narrow: each position on its own."""

    def __init__(
        self, d_model: int, d_ff: int, bias: bool, activation: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.up = nn.Linear(d_model, d_ff, bias=bias)
        self.down = nn.Linear(d_ff, d_model, bias=bias)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.up(x)))


class GatedFeedForward(nn.Module):
    """SwiGLU: one widened copy gates the other."""

    def __init__(self, d_model: int, d_ff: int, bias: bool) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, d_ff, bias=bias)
        self.up = nn.Linear(d_model, d_ff, bias=bias)
        self.down = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Activated(nn.Module):
    """One linear layer and a ReLU: the ladder's first feed-forward, before it is widened."""

    def __init__(self, d_model: int, d_ff: int, bias: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.linear(x))


class _SquaredReLU(torch.autograd.Function):
    """Its gradient is 2 relu(x): one product where autograd would make five passes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        positive = x.clamp(min=0)
        ctx.save_for_backward(positive)
        return positive.square()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (positive,) = ctx.saved_tensors
        return (grad * positive).mul_(2)


def squared_relu(x: Tensor) -> Tensor:
    if torch.compiler.is_compiling():  # which fuses it anyway
        return F.relu(x).square()
    return _SquaredReLU.apply(x)


def _bent_by(activation: Callable[[Tensor], Tensor]) -> Callable[[int, int, bool], nn.Module]:
    return lambda d_model, d_ff, bias: FeedForward(d_model, d_ff, bias, activation)


FEED_FORWARDS: dict[str, Callable[[int, int, bool], nn.Module]] = {
    "relu": _bent_by(F.relu),
    "gelu": _bent_by(F.gelu),
    "gelu-tanh": _bent_by(lambda x: F.gelu(x, approximate="tanh")),
    "relu2": _bent_by(squared_relu),
    "swiglu": GatedFeedForward,
    "linear-relu": Activated,
}

NORMS: dict[str, Callable[..., nn.Module]] = {"layer": nn.LayerNorm, "rms": RMSNorm}


def choose(table: dict[str, Choice], name: str, what: str) -> Choice:
    """The entry of that name; a ConfigError with a hint if there is none."""
    if name not in table:
        raise ConfigError(f"unknown {what} '{name}'", hint=did_you_mean(name, table))
    return table[name]


class Sublayer(nn.Module):
    """What stands around attention and around the feed-forward: norm, dropout, residual."""

    def __init__(
        self,
        d_model: int,
        *,
        norm: str,
        norm_place: str,
        eps: float,
        residual: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        make = choose(NORMS, norm, "norm")
        choose({"pre": 0, "post": 0, "none": 0}, norm_place, "norm_place")
        self.before = make(d_model, eps=eps) if norm_place == "pre" else nn.Identity()
        self.after = make(d_model, eps=eps) if norm_place == "post" else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        self.residual = residual

    def forward(self, x: Tensor, layer: Callable[[Tensor], Tensor]) -> Tensor:
        change = self.dropout(layer(self.before(x)))
        return self.after(x + change if self.residual else change)
