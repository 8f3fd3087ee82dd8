"""Wrong sums of a softmax: by blocks, with sinks, divided by another row's sum."""

import numpy as np

from glasshead.lab.check import pipeline as p
from glasshead.lab.check.pipeline import Array, Step, Work


def _finite(top: Array) -> Array:
    return np.where(np.isfinite(top), top, 0.0)


def divide_by_other_rows(whole: bool) -> Step:
    """Divide column j by the sum of row j: keepdims is missing.

    Args:
        whole: subtract the largest of all scores instead of each row's.
    """

    def step(w: Work) -> None:
        axis = (-2, -1) if whole else -1
        powers = np.exp(w.scores - _finite(w.scores.max(axis, keepdims=True)))
        w.weights = powers / powers.sum(-1)[..., None, :]

    return step


def online(block: int, values: bool, sums: bool) -> Step:
    """Read keys block by block; do not rescale what was added when a larger score comes.

    Args:
        values: whether the sum of the values is not rescaled.
        sums: whether the sum of the powers is not rescaled.
    """

    def step(w: Work) -> None:
        S = w.scores.shape[-1]
        tops = np.maximum.accumulate(w.scores, axis=-1)
        last = [min((j // block + 1) * block, S) - 1 for j in range(S)]  # of each key's block
        stale = np.exp(w.scores - _finite(tops[..., last]))
        right = np.exp(w.scores - _finite(tops[..., -1:]))
        total = (stale if sums else right).sum(-1, keepdims=True)
        w.weights = (stale if values else right) / np.where(total > 0, total, 1.0)

    return step


def sink(counts_for_top: bool, shifted: bool) -> Step:
    """Add the sink's power to the sum of the others without subtracting their maximum.

    Args:
        counts_for_top: whether the maximum that is subtracted is also over the sink.
        shifted: subtract it from the sink too, but leave the sink's score out of the softmax.
    """

    def step(w: Work) -> None:
        sinks = w.case.options.get("sinks")
        if sinks is None:
            p.normalize(w)
            return
        column = np.broadcast_to(sinks[:, None, None], (*w.scores.shape[:-1], 1))
        top = _finite(w.scores.max(-1, keepdims=True))
        top = np.maximum(top, column) if counts_for_top else top
        powers = np.exp(w.scores - top)
        added = 0.0 if shifted else np.exp(column)
        w.weights = powers / (powers.sum(-1, keepdims=True) + added)

    return step


def multiply_added(scores: Array, allowed: Array) -> Array:
    """Multiply by a mask of 0 and -inf that was to be added: a row with +inf becomes NaN."""
    with np.errstate(invalid="ignore"):
        out = scores * np.where(allowed, 0.0, -np.inf)
    return np.where(np.isposinf(out).any(-1, keepdims=True), np.nan, out)


def empty_slots(size: int) -> Step:
    """Attend to all slots of a cache: those that are empty score 0 and have no value."""

    def step(w: Work) -> None:
        free = np.maximum(size - w.allowed.sum(-1, keepdims=True), 0)
        top = np.maximum(_finite(w.scores.max(-1, keepdims=True)), 0.0)
        powers = np.exp(w.scores - top)
        w.weights = powers / (powers.sum(-1, keepdims=True) + free * np.exp(-top))

    return step
