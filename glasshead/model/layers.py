"""The parts of every model: feed-forwards, norms, positions, and the blocks made of them.

A block is attention, then a feed-forward; in the decoder of a translator, with attention to the
encoder's output in between. Each of them is wrapped in a `Sublayer`:

    pre    x + f(norm(x))        most models today
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
from glasshead.errors import ConfigError, check_range, did_you_mean

__all__ = [
    "FEED_FORWARDS",
    "NORMS",
    "Block",
    "CrossBlock",
    "FeedForward",
    "GatedFeedForward",
    "LinearReLU",
    "Sublayer",
    "check_numbers",
    "ff_width",
    "gelu",
    "gelu_tanh",
    "look_up",
    "make_positions",
    "squared_relu",
]  # fmt: skip

if TYPE_CHECKING:
    from glasshead.model.gpt import GPTConfig
    from glasshead.model.transformer import TransformerConfig

    AnyConfig: TypeAlias = GPTConfig | TransformerConfig

Choice = TypeVar("Choice")


class FeedForward(nn.Module):
    """Two linear layers with an activation between them, applied at each position."""

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
    """SwiGLU: down(silu(gate(x)) * up(x))."""

    def __init__(self, d_model: int, d_ff: int, bias: bool) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, d_ff, bias=bias)
        self.up = nn.Linear(d_model, d_ff, bias=bias)
        self.down = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class LinearReLU(nn.Module):
    """One linear layer and a ReLU: the first feed-forward of the ladder, as wide as the model."""

    def __init__(self, d_model: int, d_ff: int, bias: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.linear(x))


class _SquaredReLU(torch.autograd.Function):
    """relu(x)**2 with the gradient 2 relu(x): one product instead of autograd's five passes."""

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
    if torch.compiler.is_compiling():  # the compiler fuses it
        return F.relu(x).square()
    return _SquaredReLU.apply(x)


class _GELU(torch.autograd.Function):
    """x times the normal distribution function, whose exponential also gives the gradient.

    For compiled code on a GPU, where F.gelu's erf takes longer than reading and writing x. The
    distribution function is accurate to 1e-7 (Abramowitz and Stegun, 7.1.26).
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
    """Return the share of a normal distribution below x, and its density at x."""
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
    """GPT-2's GELU, with a tanh for the distribution function; compiled, as a sigmoid."""
    if x.is_cuda and torch.compiler.is_compiling():
        wide = x.float()
        u = math.sqrt(8 / math.pi) * (wide + 0.044715 * wide * wide * wide)
        return (wide * torch.sigmoid(u)).to(x.dtype)
    return F.gelu(x, approximate="tanh")


def _with_activation(
    activation: Callable[[Tensor], Tensor],
) -> Callable[[int, int, bool], nn.Module]:
    return lambda d_model, d_ff, bias: FeedForward(d_model, d_ff, bias, activation)


FEED_FORWARDS: dict[str, Callable[[int, int, bool], nn.Module]] = {
    "relu": _with_activation(F.relu),
    "gelu": _with_activation(gelu),
    "gelu-tanh": _with_activation(gelu_tanh),
    "relu2": _with_activation(squared_relu),
    "silu": _with_activation(F.silu),
    "swiglu": GatedFeedForward,
    "linear-relu": LinearReLU,
}

NORMS: dict[str, Callable[..., nn.Module]] = {"layer": nn.LayerNorm, "rms": RMSNorm}


def look_up(table: dict[str, Choice], name: str, what: str) -> Choice:
    """Return an entry of a table; raise ConfigError if there is none of that name."""
    if name not in table:
        raise ConfigError(f"unknown {what} '{name}'", hint=did_you_mean(name, table))
    return table[name]


class Sublayer(nn.Module):
    """Wraps attention or a feed-forward in norm, dropout and residual connection."""

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
        make = look_up(NORMS, norm, "norm")
        look_up({"pre": 0, "post": 0, "none": 0}, norm_place, "norm_place")
        self.before = make(d_model, eps=eps) if norm_place == "pre" else nn.Identity()
        self.after = make(d_model, eps=eps) if norm_place == "post" else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        self.residual = residual

    def forward(self, x: Tensor, layer: Callable[[Tensor], Tensor]) -> Tensor:
        change = self.dropout(layer(self.before(x)))
        return self.after(x + change if self.residual else change)


def check_numbers(config: "AnyConfig") -> None:
    """Raise ConfigError for a number that no model can have."""
    check_range(config, "vocab_size max_len n_heads n_kv_heads d_model d_head d_ff", least=1)
    check_range(config, "n_decoder_layers window", least=1)
    check_range(config, "norm_eps rope_base", above=0, below=math.inf)
    check_range(config, "dropout weight_dropout", least=0, below=1)


def make_positions(config: "AnyConfig") -> Positions:
    d_head = config.d_head or config.d_model // config.n_heads
    kinds: dict[str, Callable[[], Positions]] = {
        "none": Positions,
        "learned": lambda: LearnedPositions(config.max_len, config.d_model),
        "sinusoidal": lambda: SinusoidalPositions(config.d_model),
        "sinusoidal-split": lambda: SplitSinusoidalPositions(config.d_model),
        "rotary": lambda: RotaryPositions(d_head, config.rope_base, config.rope_scaling),
        "alibi": lambda: ALiBiPositions(config.n_heads),
    }
    return look_up(kinds, config.positions, "positions")()


def ff_width(config: "AnyConfig") -> int:
    """Return the width of the feed-forward."""
    if config.d_ff is not None:
        return config.d_ff
    if config.feed_forward == "swiglu":  # three matrices of 8/3 have the size of two of 4
        return 8 * round(config.d_model / 3)
    return 4 * config.d_model


def _sublayer(config: "AnyConfig", dropout: float) -> Sublayer:
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
    """Attention, then a feed-forward, each in a sublayer."""

    def __init__(self, config: "AnyConfig") -> None:
        super().__init__()
        c = config
        # Without a projection there is no output to drop.
        self.around_attention = _sublayer(c, c.dropout if c.project else 0.0)
        self.attention = _attention(c)
        self.feed_forward: nn.Module | None = None
        if c.feed_forward != "none":
            self.around_feed_forward = _sublayer(c, c.dropout)
            make = look_up(FEED_FORWARDS, c.feed_forward, "feed_forward")
            self.feed_forward = make(c.d_model, ff_width(c), c.bias)

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        rotation: Rotation | None = None,
        slopes: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        return self._feed(self._attend(x, mask, rotation, slopes, cache))

    def _attend(
        self,
        x: Tensor,
        mask: Mask,
        rotation: Rotation | None,
        slopes: Tensor | None,
        cache: Cache | None,
    ) -> Tensor:
        def attend(h: Tensor) -> Tensor:
            return self.attention(h, mask=mask, rotation=rotation, slopes=slopes, cache=cache).out

        return self.around_attention(x, attend)

    def _feed(self, x: Tensor) -> Tensor:
        if self.feed_forward is None:
            return x
        return self.around_feed_forward(x, self.feed_forward)


class CrossBlock(Block):
    """A block with attention to an encoder's output before its feed-forward."""

    def __init__(self, config: "AnyConfig") -> None:
        super().__init__(config)
        self.around_cross = _sublayer(config, config.dropout)
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
        x = self._attend(x, mask, rotation, slopes, own)
        x = self.around_cross(x, lambda h: self.cross(h, memory, mask=memory_mask, cache=other).out)
        return self._feed(x)
