"""Small inputs on which mistakes show: all sizes differ, so that none stands for another."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from glasshead.lab.check.layouts import TensorLayout
from glasshead.lab.check.pipeline import Array, Case
from glasshead.lab.check.target import SIZES

__all__ = ["inputs", "key_mask", "make_cases", "pair_mask"]

B, T, S = 3, 5, 7


def inputs(
    layout: TensorLayout,
    name: str,
    n_queries: int,
    n_keys: int | None,
    *,
    batch: int = B,
    kv_heads: int | None = None,
    width: int | None = None,
    seed: int = 0,
    **options: Any,
) -> Case:
    """Return random q, k and v in (B, H, T, D) or (B, T, C); one sequence if n_keys is None."""
    rng = np.random.default_rng([seed, n_queries, n_keys or 0, batch])
    batch = batch if layout.batch else 1
    heads = SIZES["heads"] if "H" in layout.axes else 1

    def draw(count: int, n_heads: int) -> Array:
        shape = (batch, n_heads, count, width or SIZES["head_width"])
        if not layout.heads:
            shape = (batch, count, width or SIZES["width"])  # type: ignore[assignment]
        return rng.normal(0.0, 1.3, shape)

    q = draw(n_queries, heads)
    if n_keys is None:
        return Case(name, q, q, q, options=options)
    k, v = (draw(n_keys, kv_heads or heads) for _ in "kv")
    return Case(name, q, k, v, options=options)


def pair_mask(batch: int, n_queries: int, n_keys: int, seed: int = 0) -> Array:
    """Return random allowed pairs, (B, T, S), with at least one key in each row."""
    rng = np.random.default_rng([seed, 17])
    allowed = rng.random((batch, n_queries, n_keys)) < 0.5
    allowed[:, np.arange(n_queries), rng.integers(0, n_keys, n_queries)] = True
    allowed[:, :, 0] = True  # so that a causal row is not empty either
    allowed[:, -1, 1] = False
    return allowed


def key_mask(batch: int, n_keys: int) -> Array:
    """Return which keys are real, (B, S): each sequence has another length, of 2 or more."""
    lengths = np.array([n_keys - 2, n_keys - 1, max(n_keys - 3, 2)] * batch)[:batch]
    return np.arange(n_keys) < lengths[:, None]


def make_cases(
    layout: TensorLayout, one_sequence: bool, flag: bool, options: Sequence[str], width: int | None
) -> Iterator[Case]:
    """Yield the cases without a mask of the caller's.

    Args:
        flag: whether there is a causal flag to be turned on.
        options: which of window, softcap and slopes the target takes.
        width: C, or D, if it is not the usual one.
    """
    own = None if one_sequence else T
    plain = inputs(layout, "plain", T, own, width=width)
    yield plain
    if flag:
        yield replace(plain, name="causal", causal=True)
    if not one_sequence:
        longer = inputs(layout, "longer", 3, S, width=width)
        yield longer
        if flag:
            yield replace(longer, name="causal-longer", causal=True)
        yield inputs(layout, "one query", 1, S, width=width)
        if "H" in layout.axes:
            kv = SIZES["kv_heads"]
            yield inputs(layout, "grouped", T, S, kv_heads=kv, width=width)
    yield inputs(layout, "one token", 1, None if one_sequence else 1, width=width)
    if layout.batch:
        yield inputs(layout, "one sequence", 4, None if one_sequence else 4, batch=1, width=width)
    for name in options:
        value: Any = {"window": 3, "softcap": 1.5}.get(name)
        if name == "slopes":
            value = np.array([0.5, 0.25, 0.125, 0.0625])
        long = inputs(layout, name, 6, None if one_sequence else 6, width=width, **{name: value})
        yield replace(long, causal=flag)
