"""Exercise 4: one head."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.lab.exercises.attention import as_case, attention_mistakes, right_attention
from glasshead.lab.exercises.judging import PrintedNumbers, compare, expect
from glasshead.lab.exercises.learner import LearnerFile
from glasshead.lab.exercises.modules import build, projections_of
from glasshead.lab.exercises.textbook import CAUSAL, JOURNEY, SELF_ATTENTION, projections

NEEDS = ("query", "key", "value")


def check(mine: LearnerFile) -> Iterator[PrintedNumbers]:
    for causal in (False, True):
        head = build(mine, "Head", 11, 5, causal, needs=NEEDS)

        def make(x: Tensor, causal: bool = causal) -> Any:
            return as_case(x, x, x, causal=causal, projected=True)

        params = projections_of(head)
        cases = ({"x": torch.randn(B, T, 11)} for B, T in ((1, 3), (2, 7), (5, 1)))
        what = f"Head(11, 5, causal={causal})(x)"
        right = right_attention(make, params)
        compare(mine, what, head, right, cases, list(attention_mistakes(make, params)))
    for seed, name, causal, numbers in (
        (789, "self", False, SELF_ATTENTION),
        (123, "causal", True, CAUSAL),
    ):
        head = build(mine, "Head", 3, 2, causal, needs=NEEDS)
        with torch.no_grad():
            for layer, matrix in zip(NEEDS, projections(seed), strict=True):
                getattr(head, layer).weight.copy_(matrix)
            yield expect(name, numbers, head(torch.tensor(JOURNEY)[None])[0])


class HeadsBeside(nn.Module):
    """Several heads of the learner's, side by side, and an output projection."""

    def __init__(self, heads: list[nn.Module], width: int) -> None:
        super().__init__()
        self.heads = nn.ModuleList(heads)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.cat([head(x) for head in self.heads], -1))


def parts(mine: LearnerFile) -> dict[str, Any]:
    """Return the parts of the small model that are the learner's."""
    from glasshead.lab.exercises.looking import HEAD_WIDTH, HEADS, WIDTH

    def attention(_: Any) -> nn.Module:
        return HeadsBeside([mine.Head(WIDTH, HEAD_WIDTH) for _ in range(HEADS)], WIDTH)

    return {"attention": attention}
