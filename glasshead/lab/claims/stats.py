"""Bootstrap intervals and effect sizes, from a handful of seeds.

With three to five seeds a bootstrap interval is about the range of the values and covers less than
the 95 % it aims at; so claims ask for an effect of a size fixed beforehand, never for "not zero"
alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = [
    "Interval",
    "at_least",
    "cohens_d",
    "difference",
    "geometric_mean",
    "longest_run",
    "mean",
    "ratio",
]

RESAMPLES = 10_000
SEED = 0  # of the resampling: the same numbers always give the same interval
COVERS = 0.95
LARGEST = 1000.0  # a larger effect size says nothing more, and JSON has no infinity


@dataclass(frozen=True)
class Interval:
    """A value, and the range that it would have with other seeds.

    >>> str(Interval(0.932, 0.911, 0.954)), f"{Interval(0.932, 0.911, 0.954):.1%}"
    ('0.93 [0.91, 0.95]', '93.2% [91.1%, 95.4%]')
    """

    value: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        value, low, high = (format(x, spec or ".2f") for x in (self.value, self.low, self.high))
        return f"{value} [{low}, {high}]"

    def __str__(self) -> str:
        return format(self, "")

    def __neg__(self) -> "Interval":
        return Interval(-self.value, -self.high, -self.low)


def mean(values: Sequence[float]) -> Interval:
    """
    >>> f"{mean([0.5, 0.7, 0.9]):.1f}"
    '0.7 [0.5, 0.9]'
    """
    xs = _array(values)
    return _interval(xs.mean(), xs[_draws(len(xs))].mean(axis=1))


def difference(a: Sequence[float], b: Sequence[float]) -> Interval:
    """Return the mean of a minus that of b, where a[i] and b[i] come from the same seed."""
    xs, ys = _pairs(a, b)
    return mean((xs - ys).tolist())


def ratio(a: Sequence[float], b: Sequence[float]) -> Interval:
    """Return the mean of a over that of b, which is positive: for times, norms and counts."""
    xs, ys = _pairs(a, b)
    at = _draws(len(xs))
    return _interval(xs.mean() / ys.mean(), xs[at].mean(axis=1) / ys[at].mean(axis=1))


def geometric_mean(values: Sequence[float]) -> Interval:
    """Average ratios in logs, so that twice and half cancel out.

    >>> f"{geometric_mean([0.5, 2.0]):.1f}"
    '1.0 [0.5, 2.0]'
    """
    logs = mean(np.log(_array(values)).tolist())
    return Interval(*(float(np.exp(x)) for x in (logs.value, logs.low, logs.high)))


def at_least(interval: Interval, threshold: float) -> bool | None:
    """Return whether the value reaches the threshold; None if the interval contains it."""
    if interval.low >= threshold:
        return True
    return False if interval.high < threshold else None


def longest_run(xs: Sequence[int], passed: Sequence[bool]) -> int:
    """Return the largest x up to which all have passed, 0 if the first has not.

    >>> longest_run([4, 8, 16, 32], [True, True, False, True])
    8
    """
    reached = 0
    for x, one in zip(xs, passed, strict=True):
        if not one:
            break
        reached = x
    return reached


def cohens_d(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the mean of a minus that of b in pooled standard deviations, at most 1000 in size.

    >>> cohens_d([1.0, 2.0, 3.0], [2.0, 3.0, 4.0])
    -1.0
    """
    xs, ys = _array(a), _array(b)
    apart = xs.mean() - ys.mean()
    squares = ((xs - xs.mean()) ** 2).sum() + ((ys - ys.mean()) ** 2).sum()
    pooled = np.sqrt(squares / max(len(xs) + len(ys) - 2, 1))
    if apart == 0:
        return 0.0
    # A tiny spread is only the rounding of equal numbers.
    return float(apart / max(pooled, abs(apart) / LARGEST))


def _array(values: Sequence[float]) -> np.ndarray:
    xs = np.asarray(values, dtype=np.float64)
    if xs.ndim != 1 or not len(xs):
        raise ValueError(f"expected one number per seed, got an array of shape {xs.shape}")
    return xs


def _pairs(a: Sequence[float], b: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    if len(a) != len(b):
        raise ValueError(f"paired values need equal lengths, got {len(a)} and {len(b)}")
    return _array(a), _array(b)


def _draws(n: int) -> np.ndarray:
    return np.random.default_rng(SEED).integers(n, size=(RESAMPLES, n))  # (resamples, n)


def _interval(value: float, drawn: np.ndarray) -> Interval:
    tail = (1 - COVERS) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return Interval(float(value), float(low), float(high))
