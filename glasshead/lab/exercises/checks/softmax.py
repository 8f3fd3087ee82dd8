"""Exercise 1: softmax over the last dimension."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from glasshead.lab.exercises.judging import Inputs, PrintedNumbers, Wrong, compare, expect
from glasshead.lab.exercises.learner import LearnerFile

SHINY = (0.7842, 1.3569, 1.2487)


def check(mine: LearnerFile) -> Iterator[PrintedNumbers]:
    compare(mine, "softmax(scores)", mine.softmax, right, cases(), WRONG)
    shiny = mine.softmax(torch.tensor(SHINY))
    yield expect("shiny", [0.229134, 0.406265, 0.364602], shiny, digits=4)


def right(scores: Tensor) -> Tensor:
    return torch.softmax(scores, -1)


def cases() -> Iterator[Inputs]:
    yield {"scores": torch.tensor([1.0, 2.0, 0.0])}
    yield {"scores": torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, 1.0]])}
    yield {"scores": torch.randn(2, 3, 5)}
    yield {"scores": torch.tensor([1000.0, 1001.0, 999.0])}
    yield {"scores": torch.tensor([[-1000.0, -1001.0], [0.5, 900.0]])}


def _dims(s: Tensor, over: str) -> tuple[int, ...]:
    every = tuple(range(s.ndim))
    return {"row": (-1,), "queries": every[-2:-1] or (0,), "first": (0,), "all": every}[over]


def _shares(shift: str, total: str) -> Callable[[Tensor], Tensor]:
    """Return exp(s - maximum over `shift`) / the sum over `total`."""

    def compute(s: Tensor) -> Tensor:
        top = s.amax(_dims(s, shift), keepdim=True) if shift else torch.zeros(())
        powers = (s - top).exp()
        return powers / powers.sum(_dims(s, total), keepdim=True) if total else powers

    return compute


def _lost(s: Tensor, shift: str = "", at_top: bool = False, at_sum: bool = True) -> Tensor:
    """Lose the last dimension of the maximum or of the sum."""
    top = s.amax(-1, keepdim=not at_top) if shift else torch.zeros(())
    powers = (s - top).exp()
    return powers / powers.sum(-1, keepdim=not at_sum)


SHIFTS = ("row", "", "all", "first", "queries")
WRONG: list[Wrong] = [
    ("softmax-overflow", _shares("", "row")),
    ("global-max", _shares("all", "row")),
    *(("softmax-over-queries", _shares(shift, "queries")) for shift in SHIFTS),
    *(("softmax-first", _shares(shift, "first")) for shift in SHIFTS),
    *(("softmax-over-all", _shares(shift, "all")) for shift in SHIFTS),
    *(("no-sum", _shares(shift, "")) for shift in SHIFTS),
    ("fixed-dimension", lambda s: torch.softmax(s, 1)),
    ("fixed-dimension", lambda s: s.exp() / s.exp().sum(1)),
    ("fixed-dimension", lambda s: s.exp() / s.exp().sum(1, keepdim=True)),
    ("no-exp", lambda s: s / s.sum(-1, keepdim=True)),
    ("keepdim", lambda s: _lost(s, "row")),
    ("keepdim", lambda s: _lost(s)),
    ("keepdim", lambda s: _lost(s, "row", at_top=True)),
    ("keepdim", lambda s: _lost(s, "row", at_top=True, at_sum=False)),
    ("logarithm", lambda s: torch.log_softmax(s, -1)),
    ("sigmoid", torch.sigmoid),
]


def parts(mine: LearnerFile) -> dict[str, Any]:
    """Return the parts of the small model that are the learner's."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.mT / q.shape[-1] ** 0.5
        seen = torch.ones(scores.shape[-2:]).tril().bool()
        return mine.softmax(scores.masked_fill(~seen, -torch.inf)) @ v

    return {"attend": attend}
