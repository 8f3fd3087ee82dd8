"""Exercise 3: the causal mask, and attention with a mask."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from glasshead.lab.exercises.attention import as_case, attention_mistakes
from glasshead.lab.exercises.judging import Inputs, PrintedNumbers, Wrong, compare, expect, fail
from glasshead.lab.exercises.learner import LearnerFile
from glasshead.lab.exercises.textbook import CAUSAL, JOURNEY, projections

SIZES = ((3, 3), (5, 5), (3, 7), (1, 5))


def check(mine: LearnerFile) -> Iterator[PrintedNumbers]:
    sizes = ({"T": T, "S": S} for T, S in SIZES)
    compare(mine, "causal_mask(T, S)", mine.causal_mask, right_mask, sizes, WRONG_MASKS)
    compare(mine, "masked_attention(q, k, v, allowed)", mine.masked_attention, right, cases(),
            list(wrong()))  # fmt: skip
    _check_empty_rows(mine)
    q, k, v = (torch.tensor(JOURNEY) @ w.T for w in projections(123))
    yield expect("causal", CAUSAL, mine.masked_attention(q, k, v, mine.causal_mask(6, 6)))


def right_mask(T: int, S: int) -> Tensor:
    return torch.ones(T, S).tril(S - T).bool()


def right(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    scores = q @ k.mT / q.shape[-1] ** 0.5
    weights = torch.softmax(scores.masked_fill(~allowed, -torch.inf), -1)
    return weights.nan_to_num(0.0) @ v


def cases() -> Iterator[Inputs]:
    for T, S in ((2, 2), (5, 7)):
        q, k, v = torch.randn(T, 3), torch.randn(S, 3), torch.randn(S, 3)
        yield {"q": q, "k": k, "v": v, "allowed": right_mask(T, S)}
    some = torch.rand(5, 7) < 0.5
    some[:, 2] = True
    q, k, v = torch.randn(3, 5, 11), torch.randn(3, 7, 11), torch.randn(3, 7, 11)
    yield {"q": q, "k": k, "v": v, "allowed": some}


def _check_empty_rows(mine: LearnerFile) -> None:
    allowed = right_mask(5, 7)
    allowed[2] = False
    q, k, v = torch.randn(5, 11), torch.randn(7, 11), torch.randn(7, 11)
    with torch.no_grad():
        out = mine.call(mine.masked_attention, q, k, v, allowed)
    if not torch.isfinite(out).all():
        raise fail("nan-empty-row", mine.masked_attention)
    if not torch.allclose(out[2], torch.zeros(11), atol=1e-6):
        raise fail("empty-row-uniform", mine.masked_attention)


def wrong() -> Iterator[Wrong]:
    yield "mask-times-infinity", lambda q, k, v, a: torch.full_like(q, torch.nan)
    for clean in (False, True):  # whether hidden weights are set to 0 afterwards
        yield "mask-inverted", _masked(lambda s, a: s.masked_fill(a, -torch.inf), clean)
        yield "mask-multiplied", _masked(lambda s, a: s * a, clean)
        yield "mask-after-softmax", _masked(lambda s, a: s, clean)
        yield "mask-added", _masked(lambda s, a: s + a, clean)
    yield from attention_mistakes(as_case)


def _masked(change: Callable[[Tensor, Tensor], Tensor], clean: bool) -> Callable[..., Tensor]:
    def compute(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
        weights = torch.softmax(change(q @ k.mT / q.shape[-1] ** 0.5, allowed), -1)
        return (weights.masked_fill(~allowed, 0.0) if clean else weights) @ v

    return compute


def _triangle(shift: Callable[[int, int], int], keep: bool = True) -> Callable[[int, int], Tensor]:
    def mask(T: int, S: int) -> Tensor:
        lower = torch.ones(T, S).tril(shift(T, S)).bool()
        return lower if keep else ~lower

    return mask


WRONG_MASKS: list[Wrong] = [
    ("causal-start-aligned", _triangle(lambda T, S: 0)),
    ("causal-inverted", _triangle(lambda T, S: 0, keep=False)),
    ("causal-inverted", _triangle(lambda T, S: -1, keep=False)),
    ("causal-inverted", _triangle(lambda T, S: S - T, keep=False)),
    ("causal-inverted", _triangle(lambda T, S: S - T - 1, keep=False)),
    ("causal-strict", _triangle(lambda T, S: -1)),
    ("causal-strict", _triangle(lambda T, S: S - T - 1)),
    ("causal-leaks-next", _triangle(lambda T, S: 1)),
    ("causal-leaks-next", _triangle(lambda T, S: S - T + 1)),
    ("causal-missing", lambda T, S: torch.ones(T, S, dtype=torch.bool)),
    ("square-mask", lambda T, S: torch.ones(T, T).tril().bool()),
    ("square-mask", lambda T, S: torch.ones(T, T).tril(S - T).bool()),
    ("square-mask", lambda T, S: torch.ones(S, S).tril().bool()),
    ("additive-mask", lambda T, S: torch.zeros(T, S).masked_fill(~right_mask(T, S), -torch.inf)),
]


def parts(mine: LearnerFile) -> dict[str, Any]:
    """Return the parts of the small model that are the learner's."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        allowed = mine.causal_mask(q.shape[-2], k.shape[-2])
        return mine.masked_attention(q, k, v, allowed)

    return {"attend": attend}
