"""Exercise 6: many heads in one batch."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.lab.exercises.attention import as_case, attention_mistakes, right_attention
from glasshead.lab.exercises.judging import PrintedNumbers, compare, expect
from glasshead.lab.exercises.learner import LearnerFile
from glasshead.lab.exercises.modules import build, projections_of
from glasshead.lab.exercises.textbook import JOURNEY, MULTI_HEAD, multi_head_layers

NEEDS = ("query", "key", "value", "out")


def check(mine: LearnerFile) -> Iterator[PrintedNumbers]:
    layer = build(mine, "MultiHead", 21, 33, 3, needs=NEEDS)
    params = projections_of(layer, 3, out=True)
    cases = ({"x": torch.randn(B, T, 21)} for B, T in ((1, 2), (2, 7), (5, 1)))
    compare(mine, "MultiHead(21, 33, 3)(x)", layer, right_attention(make, params), cases,
            list(attention_mistakes(make, params)))  # fmt: skip
    layer = build(mine, "MultiHead", 3, 2, 2, needs=NEEDS)
    matrices, out, bias = multi_head_layers()
    with torch.no_grad():
        for name, matrix in zip(NEEDS, [*matrices, out], strict=True):
            getattr(layer, name).weight.copy_(matrix)
        layer.out.bias.copy_(bias)
        yield expect("two", MULTI_HEAD, layer(torch.tensor(JOURNEY)[None])[0])


def make(x: Tensor) -> Any:
    return as_case(x, x, x, causal=True, projected=True)


def parts(mine: LearnerFile) -> dict[str, Any]:
    """Return the parts of the small model that are the learner's."""
    from glasshead.lab.exercises.looking import HEADS, WIDTH

    def attention(_: Any) -> nn.Module:
        made: nn.Module = mine.MultiHead(WIDTH, WIDTH, HEADS)
        return made

    return {"attention": attention}
