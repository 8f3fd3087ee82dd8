"""The parts of every model: feed-forwards, norms, positions, and the blocks made of them.

A block is attention, then a feed-forward; in a decoder that has something to translate, a look at
the encoder's output in between. Each has the same things around it (`Sublayer`):

    pre    x + f(norm(x))        today's models
    post   norm(x + f(x))        the paper
    none   x + f(x)
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from glasshead.attention.cache import Cache
from glasshead.attention.mask import Mask
from glasshead.attention.multihead import MultiHeadAttention
from glasshead.attention.norm import RMSNorm
from glasshead.attention.position import (
    ALiBiPositions,
    LearnedPositions,
    Positions,
    RotaryPositions,
    Rotation,
    SinusoidalPositions,
    SplitSinusoidalPositions,
)
from glasshead.errors import ConfigError, did_you_mean

__all__ = [
    "FEED_FORWARDS", "NORMS", "Activated", "Block", "CrossBlock", "FeedForward", "GatedFeedForward",
    "Sublayer", "check_numbers", "choose", "ff_width", "gelu", "gelu_tanh", "new_positions",
    "squared_relu",
]  # fmt: skip

if TYPE_CHECKING:
    from glasshead.model.gpt import GPTConfig
    from glasshead.model.transformer import TransformerConfig

    AnyConfig: TypeAlias = GPTConfig | TransformerConfig

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


class _GELU(torch.autograd.Function):
    """x times the normal distribution function, whose exponential is its own gradient's too.

    For compiled code on a GPU, where F.gelu's erf takes longer than reading and writing x. The
    distribution function is within 1e-7 (Abramowitz and Stegun, 7.1.26).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        below, _ = _normal(x.float())
        return (x * below).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        below, density = _normal(x.float())
        return (grad * (below + x * density)).to(x.dtype)


def _normal(x: Tensor) -> tuple[Tensor, Tensor]:
    """The share of a normal distribution below x, and its density there."""
    t = 1 / (1 + 0.3275911 * math.sqrt(0.5) * x.abs())
    power = torch.exp(-0.5 * x * x)
    tail = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (
        -1.453152027 + t * 1.061405429)))) * (0.5 * power)  # fmt: skip
    return torch.where(x < 0, tail, 1 - tail), power * (1 / math.sqrt(2 * math.pi))


def gelu(x: Tensor) -> Tensor:
    if x.is_cuda and torch.compiler.is_compiling():
        return _GELU.apply(x)
    return F.gelu(x)


def gelu_tanh(x: Tensor) -> Tensor:
    """GPT-2's: the distribution function by a tanh, which is a sigmoid by another name."""
    if x.is_cuda and torch.compiler.is_compiling():
        wide = x.float()
        u = math.sqrt(8 / math.pi) * (wide + 0.044715 * wide * wide * wide)
        return (wide * torch.sigmoid(u)).to(x.dtype)
    return F.gelu(x, approximate="tanh")


def _bent_by(activation: Callable[[Tensor], Tensor]) -> Callable[[int, int, bool], nn.Module]:
    return lambda d_model, d_ff, bias: FeedForward(d_model, d_ff, bias, activation)


FEED_FORWARDS: dict[str, Callable[[int, int, bool], nn.Module]] = {
    "relu": _bent_by(F.relu),
    "gelu": _bent_by(gelu),
    "gelu-tanh": _bent_by(gelu_tanh),
    "relu2": _bent_by(squared_relu),
    "silu": _bent_by(F.silu),
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


def check_numbers(config: "AnyConfig") -> None:
    """Raise ConfigError for a number that no model can have."""
    for name in _COUNTS:
        value = getattr(config, name, None)
        if value is not None and not value >= 1:
            raise ConfigError(f"{name} ({value}) must be at least 1", hint=f"try {name}=8")
    for name in ("norm_eps", "rope_base"):
        if not 0 < getattr(config, name) < math.inf:
            raise ConfigError(
                f"{name} ({getattr(config, name)}) must be more than 0 and finite",
                hint="leave it out",
            )
    for name in ("dropout", "weight_dropout"):
        if not 0 <= getattr(config, name) < 1:
            raise ConfigError(
                f"{name} ({getattr(config, name)}) must be at least 0 and less than 1",
                hint="try 0.1",
            )


_COUNTS = (
    *("vocab_size", "max_len", "n_heads", "n_kv_heads", "d_model", "d_head", "d_ff"),
    *("n_decoder_layers", "window"),
)


def new_positions(config: "AnyConfig") -> Positions:
    d_head = config.d_head or config.d_model // config.n_heads
    kinds: dict[str, Callable[[], Positions]] = {
        "none": Positions,
        "learned": lambda: LearnedPositions(config.max_len, config.d_model),
        "sinusoidal": lambda: SinusoidalPositions(config.d_model),
        "sinusoidal-split": lambda: SplitSinusoidalPositions(config.d_model),
        "rotary": lambda: RotaryPositions(d_head, config.rope_base, config.rope_scaling),
        "alibi": lambda: ALiBiPositions(config.n_heads),
    }
    return choose(kinds, config.positions, "positions")()


def ff_width(config: "AnyConfig") -> int:
    if config.d_ff is not None:
        return config.d_ff
    if config.feed_forward == "swiglu":  # three matrices: 8/3 keeps the size of two at 4
        return 8 * round(config.d_model / 3)
    return 4 * config.d_model


def _around(config: "AnyConfig", dropout: float) -> Sublayer:
    c = config
    return Sublayer(
        c.d_model,
        norm=c.norm,
        norm_place=c.norm_place,
        eps=c.norm_eps,
        residual=c.residual,
        dropout=dropout,
    )


def _attention(config: "AnyConfig") -> MultiHeadAttention:
    c = config
    return MultiHeadAttention(
        c.d_model,
        c.n_heads,
        n_kv_heads=c.n_kv_heads,
        d_head=c.d_head,
        qkv_bias=c.qkv_bias,
        out_bias=c.bias if c.out_bias is None else c.out_bias,
        project=c.project,
        qk_norm=c.qk_norm,
        qk_eps=c.qk_eps,
        softcap=c.softcap,
        dropout=c.weight_dropout,
        backend=c.backend,
    )


class Block(nn.Module):
    """Attention, then a feed-forward; each with its norm, dropout and residual around it."""

    def __init__(self, config: "AnyConfig") -> None:
        super().__init__()
        c = config
        # Without a projection there is nothing whose output could be dropped.
        self.around_attention = _around(c, c.dropout if c.project else 0.0)
        self.attention = _attention(c)
        self.feed_forward: nn.Module | None = None
        if c.feed_forward != "none":
            self.around_feed_forward = _around(c, c.dropout)
            make = choose(FEED_FORWARDS, c.feed_forward, "feed_forward")
            self.feed_forward = make(c.d_model, ff_width(c), c.bias)

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        rotation: Rotation | None = None,
        slopes: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        return self._think(self._look(x, mask, rotation, slopes, cache))

    def _look(
        self,
        x: Tensor,
        mask: Mask,
        rotation: Rotation | None,
        slopes: Tensor | None,
        cache: Cache | None,
    ) -> Tensor:
        def look(h: Tensor) -> Tensor:
            return self.attention(h, mask=mask, rotation=rotation, slopes=slopes, cache=cache).out

        return self.around_attention(x, look)

    def _think(self, x: Tensor) -> Tensor:
        if self.feed_forward is None:
            return x
        return self.around_feed_forward(x, self.feed_forward)


class CrossBlock(Block):
    """A block that also looks at a memory, between its attention and its feed-forward."""

    def __init__(self, config: "AnyConfig") -> None:
        super().__init__(config)
        self.around_cross = _around(config, config.dropout)
        self.cross = _attention(config)

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        mask: Mask,
        memory: Tensor,
        memory_mask: Mask,
        rotation: Rotation | None = None,
        slopes: Tensor | None = None,
        caches: tuple[Cache, Cache] | None = None,
    ) -> Tensor:
        own, other = caches or (None, None)
        x = self._look(x, mask, rotation, slopes, own)
        x = self.around_cross(x, lambda h: self.cross(h, memory, mask=memory_mask, cache=other).out)
        return self._think(x)
