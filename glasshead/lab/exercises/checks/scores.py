"""Exercise 2: scaled scores, and attention without a mask."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from glasshead.lab.exercises.attention import as_case, attention_mistakes
from glasshead.lab.exercises.judging import Inputs, PrintedNumbers, Wrong, compare, expect
from glasshead.lab.exercises.learner import LearnerFile

# The example of document 001: one query, three keys.
Q = ((0.2, 0.5, 0.1),)
K = ((0.4, 0.1, 0.6), (0.8, 0.2, 0.3), (0.1, 0.7, 0.2))
V = ((1.0, 2.0, 3.0), (4.0, 5.0, 6.0), (7.0, 8.0, 9.0))


def check(mine: LearnerFile) -> Iterator[PrintedNumbers]:
    compare(mine, "scores(q, k)", mine.scores, right, pairs(), WRONG)
    wrong = list(attention_mistakes(as_case))
    compare(mine, "attention(q, k, v)", mine.attention, right_attention, triples(), wrong)
    q, k, v = (torch.tensor(x) for x in (Q, K, V))
    products = mine.scores(q, k) * 3**0.5
    yield expect("q1.scores", [[0.19, 0.29, 0.39]], products, digits=2)
    weights = mine.attention(q, k, torch.eye(3))
    yield expect("q1.weights", [[0.31428, 0.33296, 0.35275]], weights, digits=5)
    yield expect("q1.out", [[4.11541, 5.11541, 6.11541]], mine.attention(q, k, v), digits=5)


def right(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.mT / q.shape[-1] ** 0.5


def right_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(right(q, k), -1) @ v


def pairs() -> Iterator[Inputs]:
    yield {"q": torch.tensor(Q), "k": torch.tensor(K)}
    yield {"q": torch.randn(5, 11), "k": torch.randn(7, 11)}
    yield {"q": torch.randn(3, 5, 11), "k": torch.randn(3, 7, 11)}
    yield {"q": torch.randn(5, 5, 5), "k": torch.randn(5, 5, 5)}


def triples() -> Iterator[Inputs]:
    for inputs in pairs():
        yield {**inputs, "v": torch.randn(inputs["k"].shape)}


def _reversed(k: Tensor) -> Tensor:
    return k.permute(*reversed(range(k.ndim)))  # what .T did before torch refused it


WRONG: list[Wrong] = [
    ("scale-missing", lambda q, k: q @ k.mT),
    ("scale-doubled", lambda q, k: q @ k.mT / q.shape[-1]),
    ("scale-multiplied", lambda q, k: q @ k.mT * q.shape[-1] ** 0.5),
    ("scale-length", lambda q, k: q @ k.mT / k.shape[-2] ** 0.5),
    ("scale-length", lambda q, k: q @ k.mT / q.shape[-2] ** 0.5),
    ("scale-length", lambda q, k: q @ k.mT / q.shape[0] ** 0.5),
    ("all-transposed", lambda q, k: q @ _reversed(k) / q.shape[-1] ** 0.5),
    ("all-transposed", lambda q, k: q @ k.transpose(0, 1) / q.shape[-1] ** 0.5),
    ("all-transposed", lambda q, k: q @ _reversed(k)),
    ("k-not-transposed", lambda q, k: q @ k / q.shape[-1] ** 0.5),
    ("k-not-transposed", lambda q, k: q @ k),
    ("k-not-transposed", lambda q, k: q @ k.reshape(*k.shape[:-2], *k.shape[:-3:-1])
     / q.shape[-1] ** 0.5),
    ("elementwise", lambda q, k: q * k / q.shape[-1] ** 0.5),
    ("elementwise", lambda q, k: q * k),
    ("qk-swapped", lambda q, k: k @ q.mT / q.shape[-1] ** 0.5),
    ("softmaxed", lambda q, k: torch.softmax(right(q, k), -1)),
]  # fmt: skip


def parts(mine: LearnerFile) -> dict[str, Any]:
    """Return the parts of the small model that are the learner's."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = mine.scores(q, k)
        seen = torch.ones(scores.shape[-2:]).tril().bool()
        return torch.softmax(scores.masked_fill(~seen, -torch.inf), -1) @ v

    return {"attend": attend}
