"""Exercise 7: dropout on the weights."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from glasshead.lab.exercises.judging import PrintedNumbers, compare, fail
from glasshead.lab.exercises.learner import LearnerFile
from glasshead.lab.exercises.looking import HEADS, LookAttention

P = 0.25
MANY = 20_000


def check(mine: LearnerFile) -> Iterator[PrintedNumbers]:
    yield from ()
    _check_dropout(mine)
    _check_off(mine)
    _check_dropped(mine)


def _check_dropout(mine: LearnerFile) -> None:
    x = torch.rand(MANY) + 1.0
    off = mine.call(mine.dropout, x, P, False)
    if not torch.equal(off, x):
        name = "always-scaled" if torch.allclose(off, x * off[0] / x[0]) else "dropout-at-inference"
        raise fail(name, mine.dropout)
    compare(mine, "dropout(x, 0.0, True)", partial(mine.dropout, p=0.0, training=True),
            lambda x: x, [{"x": torch.randn(3, 5)}])  # fmt: skip
    out = mine.call(mine.dropout, x, P, True)
    if out is None or out.shape != x.shape:
        shape = "None" if out is None else str(tuple(out.shape))
        raise fail("shape", mine.dropout, what="dropout(x, p, training)", got=shape, want="(20000)")
    zeros = (out == 0).double().mean().item()
    if zeros == 0:
        raise fail("dropout-missing", mine.dropout, p=P)
    if zeros == 1 or torch.equal(out, mine.call(mine.dropout, x, P, True)):
        raise fail("same-each-time", mine.dropout)
    rows = mine.call(mine.dropout, torch.ones(300, 7), P, True)
    if torch.equal(rows, rows[:1].expand(300, 7)):
        raise fail("same-each-time", mine.dropout)
    ratio = (out / x)[out != 0]
    if abs(zeros - (1 - P)) < 0.02 and abs(zeros - P) > 0.02:
        raise fail("keeps-p", mine.dropout)
    if abs(zeros - P) > 0.02:
        raise fail("wrong-share", mine.dropout, got=f"{zeros:.2f}", want=P)
    if torch.allclose(ratio, torch.ones(())):
        raise fail("not-made-up", mine.dropout)
    if not torch.allclose(ratio, torch.tensor(1 / (1 - P))):
        raise fail("wrong-factor", mine.dropout, got=f"{ratio.mean().item():.3f}", want="1.333")


def _check_off(mine: LearnerFile) -> None:
    from glasshead.lab.exercises.attention import as_case, attention_mistakes

    q, k, v = torch.randn(3, 5, 11), torch.randn(3, 7, 11), torch.randn(3, 7, 11)
    off = partial(mine.attention, p=P, training=False)
    cases = [{"q": q[:1, :2, :3], "k": k[:1, :2, :3], "v": v[:1, :2]}, {"q": q, "k": k, "v": v}]
    weights = [(name, partial(_with_weights, way)) for name, way in attention_mistakes(as_case)]
    compare(mine, "attention(q, k, v, p, training=False)", off, right, cases, weights,
            place=mine.attention)  # fmt: skip


def _check_dropped(mine: LearnerFile) -> None:
    q, k = torch.randn(13, 5, 3), torch.randn(13, 7, 3)
    before = right(q, k, k)[1]
    out, weights = mine.call(mine.attention, q, k, torch.eye(7).expand(13, 7, 7), P, True)
    kept = out.abs() > 1e-12
    if torch.allclose(out, before):
        raise fail("dropout-missing", mine.attention, p=P)
    if not torch.allclose(out, before * kept / (1 - P)):
        raise fail("dropout-on-scores", mine.attention, p=P)
    if not torch.allclose(weights, before):
        raise fail("weights-after-dropout", mine.attention)
    out, _ = mine.call(mine.attention, q, k, torch.ones(13, 7, 3), P, True)
    if not torch.allclose(out, out[..., :1].expand(out.shape)):
        raise fail("dropout-on-context", mine.attention)


def right(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    weights = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1)
    return weights @ v, weights


def _with_weights(way: Any, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    eye = torch.eye(k.shape[-2]).expand(*k.shape[:-2], -1, -1)
    return way(q, k, v).values, way(q, k, eye).values


def parts(mine: LearnerFile) -> dict[str, Any]:
    """Return the parts of the small model that are the learner's."""

    def attention(parts: Any) -> Any:
        return DroppingAttention(parts, mine.dropout)

    return {"attention": attention}


class DroppingAttention(LookAttention):
    """Self-attention whose weights are dropped by the learner's function."""

    def __init__(self, parts: Any, dropout: Any) -> None:
        super().__init__(parts)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self.parts.split(f(x), HEADS) for f in (self.query, self.key, self.value))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        seen = torch.ones(scores.shape[-2:]).tril().bool()
        weights = torch.softmax(scores.masked_fill(~seen, -torch.inf), -1)
        return self.out(self.parts.merge(self.dropout(weights, 0.2, self.training) @ v))
