"""Find the list of steps that computes what the target computed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from glasshead.lab.check.calling import Answer
from glasshead.lab.check.mistakes import MISTAKES, Mistake, pairs
from glasshead.lab.check.pipeline import Array, Case, Projections, Step, Work, run

__all__ = ["Reading", "Seen", "explain", "find_deviation", "fits", "reference"]

Seen = tuple[Case, Answer]
NONE = Mistake("", {})


@dataclass(frozen=True, eq=False)
class Reading:
    """How the target is understood: its projections, legitimate variants, and whether causal."""

    params: Projections = field(default_factory=Projections)
    steps: dict[str, Step] = field(default_factory=dict)
    causal: bool = False  # built in; a flag of the caller's is in the case
    flag: bool = False
    tolerance: float = 1e-8
    notes: tuple[str, ...] = ()

    def case(self, case: Case) -> Case:
        return case if self.flag else replace(case, causal=self.causal)


def reference(case: Case, reading: Reading, mistake: Mistake = NONE) -> Work:
    return run(reading.case(case), reading.params, {**reading.steps, **mistake.steps})


def fits(seen: Seen, reading: Reading, mistake: Mistake = NONE) -> bool:
    """Say whether the target computed what the steps compute, up to rounding."""
    case, answer = seen
    try:
        work = reference(case, reading, mistake)
    except (ValueError, IndexError, ZeroDivisionError):
        return False
    return equal(answer.out, work, reading.tolerance)


def equal(out: Array, work: Work, tolerance: float) -> bool:
    want = work.context
    if out.shape != want.shape:
        return False
    sure = np.ones(out.shape, bool)
    if work.unsure is not None and work.unsure.shape == (out.shape[0], out.shape[-2]):
        rows = work.unsure if out.ndim == 3 else work.unsure[:, None]
        sure = np.broadcast_to(~rows[..., None], out.shape)
    size = 1.0 + float(np.abs(want[sure & np.isfinite(want)]).max(initial=0.0))
    return bool(
        np.allclose(out[sure], want[sure], rtol=0, atol=tolerance * size, equal_nan=True)
    )


def explain(
    seen: Sequence[Seen], readings: Sequence[Reading], deep: bool
) -> tuple[Mistake, Reading] | None:
    """Return the mistake, or the two, with which one reading computes all that was seen."""
    for reading in readings:
        usable = [m for m in MISTAKES if not m.needs or _is_causal(reading, seen)]
        for mistake in usable:
            if all(fits(each, reading, mistake) for each in seen):
                return mistake, reading
        found = _fit_number(seen, reading)
        if found is not None:
            return found, reading
    if deep:
        for reading in readings[:4]:
            for mistake in pairs(MISTAKES):
                if mistake.needs and not _is_causal(reading, seen):
                    continue
                if all(fits(each, reading, mistake) for each in seen):
                    return mistake, reading
    return None


def _is_causal(reading: Reading, seen: Iterable[Seen]) -> bool:
    return reading.causal or any(case.causal for case, _ in seen)


def _fit_number(seen: Sequence[Seen], reading: Reading) -> Mistake | None:
    """Find a scale, or the number that hidden scores are set to, that explains what was seen."""

    def scaled(value: float) -> Mistake:
        def step(w: Work) -> None:
            w.scores = w.scores * value

        return Mistake("scale-wrong", {"scale": step})

    def filled(value: float) -> Mistake:
        def step(w: Work) -> None:
            w.scores = np.where(w.allowed, w.scores, value)
            w.unsure = None

        return Mistake("mask-fill-weak", {"mask": step})

    def lowered(value: float) -> Mistake:
        def step(w: Work) -> None:
            w.scores = np.where(w.allowed, w.scores, w.scores + value)
            w.unsure = None

        return Mistake("mask-fill-weak", {"mask": step})

    ranges = [(scaled, np.geomspace(1e-2, 30, 60)), (filled, np.linspace(-30, 10, 60)),
              (lowered, np.linspace(-30, 10, 60))]  # fmt: skip
    for make, grid in ranges:
        wrong = [each for each in seen if not fits(each, reading)][:2]
        if not wrong:
            return None
        errors = [sum(_error(each, reading, make(float(x))) for each in wrong) for x in grid]
        best = int(np.argmin(errors))
        if not np.isfinite(errors[best]):
            continue
        low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, len(grid) - 1)])
        ratio = (5**0.5 - 1) / 2
        for _ in range(60):
            a, b = high - ratio * (high - low), low + ratio * (high - low)
            at_a, at_b = (sum(_error(e, reading, make(x)) for e in wrong) for x in (a, b))
            low, high = (low, b) if at_a < at_b else (a, high)
        found = make((low + high) / 2)
        loose = replace(reading, tolerance=max(reading.tolerance, 1e-5))
        if all(fits(each, loose, found) for each in seen):
            return found
    return None


def _error(seen: Seen, reading: Reading, mistake: Mistake) -> float:
    case, answer = seen
    work = reference(case, reading, mistake)
    if work.context.shape != answer.out.shape:
        return float("inf")
    return float(np.abs(np.nan_to_num(work.context - answer.out, nan=1e9)).sum())


def find_deviation(seen: Sequence[Seen], reading: Reading) -> Seen | None:
    """Return the first case on which the target does not compute what it should."""
    return next((each for each in seen if not fits(each, reading)), None)


