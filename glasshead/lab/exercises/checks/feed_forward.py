"""Exercise 8: feed-forward."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.lab.exercises.judging import PrintedNumbers, Wrong, compare, expect, fail
from glasshead.lab.exercises.learner import LearnerFile
from glasshead.lab.exercises.modules import build, count_parameters

NEEDS = ("up", "down")


def check(mine: LearnerFile) -> Iterator[PrintedNumbers]:
    layer = build(mine, "FeedForward", 7, needs=NEEDS)
    for name, want in (("up", (28, 7)), ("down", (7, 28))):
        shape = tuple(getattr(layer, name).weight.shape)
        if shape == tuple(reversed(want)):
            raise fail("up-and-down", mine.FeedForward)
        if shape != want:
            got = f"{shape[1]} → {shape[0]}"
            raise fail("wrong-width", mine.FeedForward, name=name, got=got,
                       want=f"{want[1]} → {want[0]}")  # fmt: skip

    def right(x: Tensor) -> Tensor:
        return layer.down(torch.relu(layer.up(x))).detach()

    cases = ({"x": torch.randn(B, T, 7)} for B, T in ((1, 2), (3, 5)))
    compare(mine, "FeedForward(7)(x)", layer, right, cases, list(wrong(layer)))
    yield expect("parameters", 8352.0, count_parameters(mine.FeedForward(32)), digits=0)


def wrong(layer: Any) -> Iterator[Wrong]:
    def by(way: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        return lambda x: way(x).detach()

    yield "no-relu", by(lambda x: layer.down(layer.up(x)))
    yield "relu-last", by(lambda x: torch.relu(layer.down(layer.up(x))))
    yield "relu-twice", by(lambda x: torch.relu(layer.down(torch.relu(layer.up(x)))))
    yield "relu-first", by(lambda x: layer.down(layer.up(torch.relu(x))))
    yield "residual-inside", by(lambda x: x + layer.down(torch.relu(layer.up(x))))
    yield "other-function", by(lambda x: layer.down(nn.functional.gelu(layer.up(x))))
    yield "other-function", by(lambda x: layer.down(torch.tanh(layer.up(x))))
    yield "other-function", by(lambda x: layer.down(torch.sigmoid(layer.up(x))))
    yield "other-function", by(lambda x: layer.down(torch.softmax(layer.up(x), -1)))


def parts(mine: LearnerFile) -> dict[str, Any]:
    """Return the parts of the small model that are the learner's."""
    from glasshead.lab.exercises.looking import WIDTH

    return {"feed_forward": lambda: mine.FeedForward(WIDTH)}
