"""Attention in float64 as a list of small steps, each of which can be replaced.

The steps as they stand are the reference. A mistake is the same list with one step replaced, and so
is a legitimate variant: rotary positions, a window, a softcap.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["STEPS", "Array", "Case", "Projections", "Step", "Work", "run", "softmax"]

Array = NDArray[Any]
Bools = NDArray[Any]  # of bool


@dataclass(frozen=True, eq=False)
class Case:
    """One input, in one layout: heads (B, H, T, D) or, to be projected and split, (B, T, C)."""

    name: str
    q: Array
    k: Array
    v: Array
    causal: bool = False
    allowed: Bools | None = None  # (B or 1, T, S) from the caller
    keys: Bools | None = None  # (B, S) from the caller: False for padding
    past: int = 0  # so many keys come from a cache
    options: Mapping[str, Any] = field(default_factory=dict)  # window, softcap, ...

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Return B, T, S."""
        return self.q.shape[0], self.q.shape[-2], self.k.shape[-2]


@dataclass(frozen=True, eq=False)
class Projections:
    """What is learned: matrices to be multiplied from the right, (C, H * D), and biases.

    A matrix that is None does nothing.
    """

    n_heads: int = 1
    n_kv_heads: int = 1
    q: Array | None = None
    k: Array | None = None
    v: Array | None = None
    out: Array | None = None
    q_bias: Array | float = 0.0
    k_bias: Array | float = 0.0
    v_bias: Array | float = 0.0
    out_bias: Array | float = 0.0


@dataclass(eq=False)
class Work:
    """What the steps read and write."""

    case: Case
    params: Projections
    q: Array
    k: Array
    v: Array
    scores: Array = field(default_factory=lambda: np.zeros(0))
    allowed: Bools = field(default_factory=lambda: np.ones(0, bool))
    weights: Array = field(default_factory=lambda: np.zeros(0))
    context: Array = field(default_factory=lambda: np.zeros(0))
    unsure: Bools | None = None  # (B, T) rows that attend to nothing: any value is accepted

    @property
    def width(self) -> int:
        """Return C, the width of all heads together."""
        return self.q.shape[1] * self.q.shape[-1]


Step = Callable[[Work], None]


def project(w: Work) -> None:
    """(B, T, C) -> (B, T, H * D)."""
    p = w.params
    w.q, w.k, w.v = (
        apply_matrix(w.q, p.q, p.q_bias),
        apply_matrix(w.k, p.k, p.k_bias),
        apply_matrix(w.v, p.v, p.v_bias),
    )


def apply_matrix(x: Array, matrix: Array | None, bias: Array | float) -> Array:
    return x if matrix is None else x @ matrix + bias


def split(w: Work) -> None:
    """(B, T, H * D) -> (B, H, T, D)."""
    w.q, w.k, w.v = (
        split_heads(w.q, w.params.n_heads),
        split_heads(w.k, w.params.n_kv_heads),
        split_heads(w.v, w.params.n_kv_heads),
    )


def split_heads(x: Array, n_heads: int) -> Array:
    return x.reshape(*x.shape[:-1], n_heads, -1).swapaxes(1, 2)


def position(w: Work) -> None:
    """Rotate q and k: nothing unless a variant does."""


def repeat(w: Work) -> None:
    """Give each query head its key head: head h of H uses h // (H / H_kv)."""
    groups = w.q.shape[1] // max(w.k.shape[1], 1)
    w.k, w.v = np.repeat(w.k, groups, axis=1), np.repeat(w.v, groups, axis=1)


def compare(w: Work) -> None:
    w.scores = w.q @ w.k.swapaxes(-1, -2)  # (B, H, T, S)


def scale(w: Work) -> None:
    w.scores = w.scores * w.case.options.get("scale", w.q.shape[-1] ** -0.5)


def bias(w: Work) -> None:
    """Squash the scores and add biases, where the case asks for it."""
    _, T, S = w.case.sizes
    if cap := w.case.options.get("softcap"):
        w.scores = np.tanh(w.scores / cap) * cap
    if (slopes := w.case.options.get("slopes")) is not None:
        w.scores = w.scores - slopes[:, None, None] * np.abs(distance(T, S))
    if (table := w.case.options.get("relative")) is not None:
        w.scores = w.scores + by_distance(table, -distance(T, S))


def by_distance(table: Array, ahead: Array) -> Array:
    """Look up (H, 2M + 1) learned biases, the middle one for the query's own position."""
    M = table.shape[1] // 2
    return table[:, np.clip(ahead, -M, M) + M]


def allow(w: Work) -> None:
    """Which keys each query may attend to, (B, H, T, S)."""
    set_allowed(w, caller_mask(w) & causal_mask(w) & window_mask(w))


def set_allowed(w: Work, allowed: Bools) -> None:
    w.allowed = np.broadcast_to(allowed, w.scores.shape)
    w.unsure = np.any(~np.any(w.allowed, axis=-1), axis=1)
    case = w.case
    if case.options.get("padded_queries_free") and case.keys is not None and case.k is case.q:
        w.unsure = w.unsure | ~case.keys


def caller_mask(w: Work) -> Bools:
    (B, T, S), H = w.case.sizes, w.q.shape[1]
    out = np.ones((B, H, T, S), bool)
    if w.case.allowed is not None:
        out = out & w.case.allowed[:, None]
    if w.case.keys is not None:
        out = out & w.case.keys[:, None, None]
    return out


def causal_mask(w: Work, shift: int = 0) -> Bools:
    """Query i of T may see the keys up to S - T + i + shift."""
    _, T, S = w.case.sizes
    if not w.case.causal:
        return np.ones((T, S), bool)
    return distance(T, S) >= -shift


def window_mask(w: Work) -> Bools:
    _, T, S = w.case.sizes
    width = w.case.options.get("window")
    return np.ones((T, S), bool) if width is None else np.abs(distance(T, S)) < width


def distance(T: int, S: int) -> Array:
    """Return how far back each key is from each query; the last query is at the last key."""
    return (np.arange(T)[:, None] + (S - T)) - np.arange(S)


def mask(w: Work) -> None:
    w.scores = np.where(w.allowed, w.scores, -np.inf)


def normalize(w: Work) -> None:
    """Softmax over the keys; a sink is one more score, without a value."""
    sinks = w.case.options.get("sinks")
    if sinks is None:
        w.weights = softmax(w.scores)
        return
    column = np.broadcast_to(sinks[:, None, None], (*w.scores.shape[:-1], 1))
    w.weights = softmax(np.concatenate((w.scores, column), -1))[..., :-1]


def softmax(scores: Array, axis: int | tuple[int, ...] = -1) -> Array:
    """Return 0 where everything is -inf."""
    top = scores.max(axis=axis, keepdims=True)
    powers = np.exp(scores - np.where(np.isfinite(top), top, 0.0))
    total = powers.sum(axis=axis, keepdims=True)
    return powers / np.where(total > 0, total, 1.0)


def mix(w: Work) -> None:
    w.context = w.weights @ w.v  # (B, H, T, D)


def merge(w: Work) -> None:
    """(B, H, T, D) -> (B, T, H * D)."""
    w.context = merge_heads(w.context)


def merge_heads(x: Array) -> Array:
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


def project_out(w: Work) -> None:
    w.context = apply_matrix(w.context, w.params.out, w.params.out_bias)


STEPS: dict[str, Step] = {
    "project": project,
    "split": split,
    "position": position,
    "repeat": repeat,
    "compare": compare,
    "scale": scale,
    "bias": bias,
    "allow": allow,
    "mask": mask,
    "normalize": normalize,
    "mix": mix,
    "merge": merge,
    "project_out": project_out,
}
_OF_WIDTHS = {"project", "split", "merge", "project_out"}


def run(case: Case, params: Projections, replaced: Mapping[str, Step]) -> Work:
    """Compute attention with some steps replaced. `context` is in the layout of the case."""
    w = Work(case, params, case.q, case.k, case.v)
    with np.errstate(all="ignore"):
        for name, step in STEPS.items():
            if case.q.ndim == 3 or name not in _OF_WIDTHS:
                replaced.get(name, step)(w)
    return w
