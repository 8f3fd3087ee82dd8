"""Positional encodings. Attention alone has no order: it sees a set, not a sequence.

Positions             none: the base class
LearnedPositions      a vector per position, added to the embedding
SinusoidalPositions   the paper's waves, added to the embedding
SplitSinusoidalPositions   the same waves, all sines before all cosines
RotaryPositions       queries and keys rotated by an angle that grows with the position
ALiBiPositions        scores lowered in proportion to the distance
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from glasshead.attention.rope_scaling import parse_scaling
from glasshead.errors import ConfigError, ShapeError

__all__ = [
    "ALiBiPositions",
    "LearnedPositions",
    "Positions",
    "RotaryPositions",
    "Rotation",
    "SinusoidalPositions",
    "SplitSinusoidalPositions",
    "alibi_slopes",
    "sinusoids",
]


class Rotation(NamedTuple):
    """Cosine and sine of each position's angles, (T, D) or (B, 1, T, D).

    The first half of `sin` is negative: (a, b) becomes (a cos - b sin, b cos + a sin).
    """

    cos: Tensor
    sin: Tensor

    def rotate(self, x: Tensor) -> Tensor:
        """Rotate queries or keys (B, H, T, D): dimension d pairs with d + D/2."""
        wide = x if x.dtype == torch.float64 else x.float()
        a, b = wide.chunk(2, -1)
        rotated = torch.addcmul(wide * self.cos, torch.cat((b, a), -1), self.sin)
        return rotated.to(x.dtype)


class Positions(nn.Module):
    """No positions. Subclasses override one of the three places where positions can enter."""

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add positions (T,) or (B, T) to token embeddings (B, T, C)."""
        return x

    def rotation(self, positions: Tensor) -> Rotation | None:
        """Return how queries and keys are rotated, or None."""
        return None

    def slopes(self) -> Tensor | None:
        """Return (H,) how fast scores fall with distance, or None."""
        return None


class LearnedPositions(Positions):
    def __init__(self, max_len: int, d_model: int) -> None:
        super().__init__()
        self.table = nn.Embedding(max_len, d_model)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        max_len = self.table.num_embeddings
        if not torch.compiler.is_compiling() and positions.shape[-1] > max_len:
            raise ShapeError(
                f"the input has {positions.shape[-1]} tokens, but this model has only "
                f"max_len={max_len} positions",
                hint=f"use at most {max_len} tokens, or train with a larger max_len",
            )
        return x + self.table(positions)


class SinusoidalPositions(Positions):
    def __init__(self, d_model: int, base: float = 10_000.0) -> None:
        super().__init__()
        if d_model % 2:
            raise ConfigError(
                f"sinusoidal positions need an even d_model, not {d_model}",
                hint="each frequency has a sine and a cosine",
            )
        self.d_model, self.base = d_model, base

    def frequencies(self) -> Tensor:
        """Return (C / 2,) the angle that each pair of dimensions turns at each position."""
        return _frequencies(self.d_model, self.base, torch.device("cpu"))

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + sinusoids(positions, self.d_model, self.base).to(x.dtype)


class SplitSinusoidalPositions(SinusoidalPositions):
    """The layout of Marian."""

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        waves = sinusoids(positions, self.d_model, self.base)
        return x + torch.cat((waves[..., 0::2], waves[..., 1::2]), -1).to(x.dtype)


def sinusoids(positions: Tensor, d_model: int, base: float = 10_000.0) -> Tensor:
    """Return the paper's table: sin in the even dimensions, cos in the odd ones.

    >>> sinusoids(torch.tensor([0, 1]), 4)
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    angles = positions[..., None] * _frequencies(d_model, base, positions.device)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)


class RotaryPositions(Positions):
    """Rotary positions (RoPE): the product of q and k depends on their distance alone.

    `scaling` lowers the frequencies, for texts longer than in training (rope_scaling.py).
    """

    def __init__(self, d_head: int, base: float = 10_000.0, scaling: str | None = None) -> None:
        super().__init__()
        if d_head % 2:
            raise ConfigError(
                f"rotary positions need an even head width, not {d_head}",
                hint="dimensions are rotated in pairs; change d_model or n_heads",
            )
        self.d_head, self.base = d_head, base
        self.scaling = None if scaling is None else parse_scaling(scaling)

    def frequencies(self, device: torch.device | None = None) -> Tensor:
        """Return (D / 2,) the angle by which each pair is rotated at each position."""
        frequencies = _frequencies(self.d_head, self.base, device or torch.device("cpu"))
        if self.scaling is None:
            return frequencies
        return self.scaling.scale_frequencies(frequencies, self.base)

    def rotation(self, positions: Tensor) -> Rotation:
        # Computed at each call: a table would be a buffer to grow, move and cast.
        angles = positions[..., None] * self.frequencies(positions.device)
        if positions.dim() == 2:
            angles = angles[:, None]  # (B, 1, T, D / 2)
        cos, sin = angles.cos(), angles.sin()
        if self.scaling is not None and self.scaling.gain != 1:
            cos, sin = self.scaling.gain * cos, self.scaling.gain * sin
        return Rotation(torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1))


class ALiBiPositions(Positions):
    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.register_buffer("_slopes", alibi_slopes(n_heads), persistent=False)

    def slopes(self) -> Tensor:
        return self.get_buffer("_slopes")


def alibi_slopes(n_heads: int) -> Tensor:
    """Return the slopes 2^(-8/n) to 2^-8; if n is no power of two, interleave the next one's.

    >>> alibi_slopes(4)
    tensor([0.2500, 0.0625, 0.0156, 0.0039])
    """
    power = 2 ** math.floor(math.log2(n_heads))
    slopes = [2 ** (-8 * (h + 1) / power) for h in range(power)]
    finer = [2 ** (-8 * (h + 1) / (2 * power)) for h in range(0, 2 * power, 2)]
    return torch.tensor((slopes + finer)[:n_heads])


def _frequencies(width: int, base: float, device: torch.device) -> Tensor:
    steps = torch.arange(0, width, 2, device=device, dtype=torch.float32)
    return base ** (-steps / width)
