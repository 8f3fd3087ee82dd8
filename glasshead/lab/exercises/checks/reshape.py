"""Exercise 5: split the width into heads, and merge them."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from glasshead.lab.exercises.judging import Inputs, PrintedNumbers, Wrong, compare, fail
from glasshead.lab.exercises.learner import LearnerFile, TroubleFound


def check(mine: LearnerFile) -> Iterator[PrintedNumbers]:
    compare(mine, "split_heads(x, n_heads)", mine.split_heads, split, wide(), WRONG_SPLITS)
    compare(mine, "merge_heads(x)", mine.merge_heads, merge, cut(), WRONG_MERGES)
    try:
        mine.call(mine.split_heads, torch.randn(2, 5, 8), 3)
    except TroubleFound:
        return
    yield from ()
    raise fail("not-divisible", mine.split_heads)


def split(x: Tensor, n_heads: int) -> Tensor:
    return x.reshape(*x.shape[:2], n_heads, -1).transpose(1, 2)


def merge(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


def wide() -> Iterator[Inputs]:
    yield {"x": torch.arange(8.0).reshape(1, 2, 4), "n_heads": 2}
    yield {"x": torch.randn(5, 7, 33), "n_heads": 3}


def cut() -> Iterator[Inputs]:
    yield {"x": torch.arange(8.0).reshape(1, 2, 2, 2)}
    yield {"x": torch.randn(5, 3, 7, 11)}


WRONG_SPLITS: list[Wrong] = [
    ("heads-split", lambda x, n: x.reshape(x.shape[0], n, x.shape[1], -1)),
    ("not-swapped", lambda x, n: x.reshape(*x.shape[:2], n, -1)),
    ("interleaved", lambda x, n: x.reshape(*x.shape[:2], -1, n).permute(0, 3, 1, 2)),
    ("wrong-swap", lambda x, n: x.reshape(*x.shape[:2], n, -1).transpose(0, 2)),
    ("wrong-swap", lambda x, n: x.reshape(*x.shape[:2], n, -1).transpose(2, 3)),
    ("wrong-swap", lambda x, n: x.reshape(*x.shape[:2], n, -1).transpose(1, 3)),
    ("width-and-heads", lambda x, n: x.reshape(*x.shape[:2], -1, n).transpose(1, 2)),
]
WRONG_MERGES: list[Wrong] = [
    ("heads-merge", lambda x: x.reshape(x.shape[0], x.shape[2], -1)),
    ("interleaved", lambda x: x.permute(0, 2, 3, 1).flatten(2)),
    ("not-joined", lambda x: x.transpose(1, 2)),
    ("heads-in-length", lambda x: x.flatten(1, 2)),
]


def parts(mine: LearnerFile) -> dict[str, Any]:
    """Return the parts of the small model that are the learner's."""
    return {"split": mine.split_heads, "merge": mine.merge_heads}
