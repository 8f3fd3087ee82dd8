"""Exercise 13: cross-attention with a padding mask."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from rich.console import RenderableType
from torch import Tensor, nn

from glasshead.lab.check.pipeline import Case
from glasshead.lab.exercises.attention import as_case, attention_mistakes, right_attention
from glasshead.lab.exercises.judging import Inputs, PrintedNumbers, Wrong, compare, fail
from glasshead.lab.exercises.learner import LearnerFile
from glasshead.lab.exercises.modules import build, projections_of
from glasshead.lab.texts import Language

NEEDS = ("query", "key", "value", "out")


def check(mine: LearnerFile) -> Iterator[PrintedNumbers]:
    yield from ()
    layer = build(mine, "CrossAttention", 22, 2, needs=NEEDS)
    params = projections_of(layer, 2, out=True)
    what = "CrossAttention(22, 2)(x, memory, keep)"
    wrong = [
        *own_mistakes(layer),
        *attention_mistakes(make, params, two=False),
        *attention_mistakes(causal, params),
    ]
    compare(mine, what, layer, right_attention(make, params), cases(), wrong)
    _check_padding_only(mine, layer)


def _cross(
    layer: Any, x: Tensor, memory: Tensor, keep: Tensor, *, keys: str = "memory",
    values: str = "memory", mask: str = "keep", clean: bool = False,
) -> Tensor:  # fmt: skip
    given = {"x": x, "memory": memory}
    q, k, v = (
        projection(y).unflatten(-1, (2, -1)).transpose(1, 2)
        for projection, y in (
            (layer.query, x), (layer.key, given[keys]), (layer.value, given[values])
        )
    )  # fmt: skip
    hidden = ~keep[:, None, None, :]
    allowed = {
        "keep": ~hidden, "inverted": hidden, "queries": keep[:, None, :, None],
        "ignored": torch.ones_like(hidden),
    }[mask]  # fmt: skip
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~allowed, -torch.inf)
    weights = torch.softmax(scores, -1)
    if clean:
        weights = weights.masked_fill(hidden if mask != "queries" else ~allowed, 0.0)
    out = (weights @ v).transpose(1, 2).flatten(2)
    return layer.out(out).detach()


def own_mistakes(layer: Any) -> Iterator[Wrong]:
    for clean in (False, True):
        ways: list[tuple[str, dict[str, Any]]] = [
            ("mask-inverted", {"mask": "inverted"}),
            ("padding-on-queries", {"mask": "queries"}),
            ("cross-from-x", {"keys": "x"}),
            ("cross-from-x", {"values": "x"}),
            ("cross-from-x", {"keys": "x", "values": "x"}),
        ]
        for name, changes in ways:
            yield name, partial(_cross, layer, clean=clean, **changes)


def make(x: Tensor, memory: Tensor, keep: Tensor) -> Case:
    case = as_case(x, memory, memory, projected=True)
    return replace(case, keys=keep.numpy())


def causal(x: Tensor, memory: Tensor, keep: Tensor) -> Case:
    """A causal mask, where there must be none."""
    return replace(make(x, memory, keep), causal=True)


def cases() -> Iterator[Inputs]:
    for B, T, S in ((1, 2, 2), (3, 5, 7), (3, 7, 5)):
        lengths = torch.tensor([S - 1, S, 2])[:B]
        keep = torch.arange(S) < lengths[:, None]
        yield {"x": torch.randn(B, T, 22), "memory": torch.randn(B, S, 22), "keep": keep}


def _check_padding_only(mine: LearnerFile, layer: Any) -> None:
    keep = torch.ones(3, 7, dtype=torch.bool)
    keep[1] = False
    with torch.no_grad():
        out = mine.call(layer, torch.randn(3, 5, 22), torch.randn(3, 7, 22), keep)
    if not torch.isfinite(out).all():
        raise fail("nan-empty-row", layer)
    if not torch.allclose(out[1], layer.out.bias.expand(5, 22), atol=1e-6):
        raise fail("padding-averaged", layer)


def look(mine: LearnerFile, lang: Language) -> Iterator[RenderableType]:
    """Learn to write sentences backwards with the learner's cross-attention."""
    from glasshead.lab.exercises.reversing import ReversalModel, show_reversal

    def cross() -> nn.Module:
        made: nn.Module = mine.CrossAttention(32, 4)
        return made

    return show_reversal(ReversalModel(cross), lang)
