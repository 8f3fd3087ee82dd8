"""Exercise 12: rotary positions."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from glasshead.lab.check.variants import rotate
from glasshead.lab.exercises.judging import Inputs, PrintedNumbers, Wrong, compare
from glasshead.lab.exercises.learner import LearnerFile


def check(mine: LearnerFile) -> Iterator[PrintedNumbers]:
    yield from ()
    compare(mine, "rotate(x, positions)", mine.rotate, turn("halves"), cases(), list(wrong()))


def turn(style: str, base: float = 10_000.0, sign: int = 1) -> Callable[[Tensor, Tensor], Tensor]:
    def compute(x: Tensor, positions: Tensor) -> Tensor:
        return torch.from_numpy(rotate(x.numpy(), sign * positions.numpy(), style, base))

    return compute


def cases() -> Iterator[Inputs]:
    yield {"x": torch.tensor([[1.0, 2.0]]), "positions": torch.tensor([1])}
    yield {"x": torch.randn(3, 6), "positions": torch.arange(3)}
    yield {"x": torch.randn(2, 3, 5, 14), "positions": torch.arange(5) + 11}


def _turn_by(angles: Callable[[Tensor, int], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    def compute(x: Tensor, positions: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        turned = angles(positions, x.shape[-1])
        cos, sin = turned.cos(), turned.sin()
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    return compute


def _by(power: Callable[[Tensor, int], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    return _turn_by(lambda at, D: at[:, None] * 10_000.0 ** power(torch.arange(D // 2), D))


def wrong() -> Iterator[Wrong]:
    yield "rotary-pairs", turn("pairs")
    yield "rotary-direction", turn("halves", sign=-1)
    yield "rotary-pairs", turn("pairs", sign=-1)
    yield "rotary-from-zero", lambda x, at: turn("halves")(x, torch.arange(len(at)))
    yield "speeds", _by(lambda i, D: 2 * i / D)
    yield "speeds", _by(lambda i, D: -i / D)
    yield "speeds", _by(lambda i, D: -4 * i / D)
    yield "speeds", _by(lambda i, D: -2 * (i + 1) / D)
    yield "speeds", _turn_by(lambda at, D: at[:, None] * torch.ones(D // 2))
    yield "sign-both", _reflect(-1.0, -1.0)
    yield "sign-both", _reflect(1.0, 1.0)
    yield "only-half", lambda x, at: turn("halves")(x, at)[..., : x.shape[-1] // 2]


def _reflect(first: float, second: float) -> Callable[[Tensor, Tensor], Tensor]:
    def compute(x: Tensor, at: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        angles = at[:, None] * 10_000.0 ** (-torch.arange(half) / half)
        a, b = x.chunk(2, -1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([a * cos + first * b * sin, b * cos + second * a * sin], -1)

    return compute


def parts(mine: LearnerFile) -> dict[str, Any]:
    """Return the parts of the small model that are the learner's."""
    from glasshead.lab.exercises.looking import causal

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k = (mine.rotate(x, torch.arange(x.shape[-2])) for x in (q, k))
        return causal(q, k, v)

    return {"attend": attend}
