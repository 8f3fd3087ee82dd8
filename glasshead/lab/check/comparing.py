"""Find the list of steps that computes what the target computed."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from glasshead.lab.check import wrong_steps
from glasshead.lab.check.calling import CallAnswer, learned
from glasshead.lab.check.mistakes import MISTAKES, Mistake, pairs
from glasshead.lab.check.pipeline import Array, Case, Projections, Step, Work, run
from glasshead.lab.check.variants import rotary

__all__ = ["Seen", "TargetReading", "explain", "find_deviation", "fits", "reference"]

Seen = tuple[Case, CallAnswer]
NONE = Mistake("", {})
NUMBERS_OF = 4  # for so many readings a scale, a fill value or a base is searched


@dataclass(frozen=True, eq=False)
class TargetReading:
    """How the target is understood: its projections, legitimate variants, and whether causal."""

    params: Projections = field(default_factory=Projections)
    steps: dict[str, Step] = field(default_factory=dict)
    causal: bool = False  # built in; a flag of the caller's is in the case
    flag: bool = False
    tolerance: float = 1e-8
    options: dict[str, Any] = field(default_factory=dict)  # a window that is built in
    one_memory: bool = False  # keys and values are made of the same tensor
    learned: tuple[str, ...] = ()  # what the caller gives: "sinks", "relative"

    def padded_queries_free(self) -> "TargetReading":
        """Accept any value where a query is padding: nothing reads what it gets."""
        return replace(self, options={**self.options, "padded_queries_free": True})

    def case(self, case: Case) -> Case:
        causal = case.causal if self.flag else self.causal
        given = {role: learned(role, case) for role in self.learned}
        v = case.k if self.one_memory else case.v
        return replace(case, causal=causal, v=v, options={**self.options, **given, **case.options})


def reference(case: Case, reading: TargetReading, mistake: Mistake = NONE) -> Work:
    return run(reading.case(case), reading.params, {**reading.steps, **mistake.steps})


def fits(seen: Seen, reading: TargetReading, mistake: Mistake = NONE) -> bool:
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
    return bool(np.allclose(out[sure], want[sure], rtol=0, atol=tolerance * size, equal_nan=True))


def explain(
    seen: Sequence[Seen], readings: Sequence[TargetReading], deep: bool
) -> tuple[Mistake, TargetReading] | None:
    """Return the mistake, or the two, with which one reading computes all that was seen."""
    for reading in readings:
        usable = [m for m in MISTAKES if _can_show(m, reading, seen)]
        ordered = sorted(seen, key=lambda each: fits(each, reading))  # what is wrong comes first
        for mistake in usable:
            if _explains(ordered, reading, mistake):
                return mistake, reading
    for reading in readings[:NUMBERS_OF]:
        found = _fit_number(seen, reading)
        if found is not None:
            return found, reading
    return _explain_by_two(seen, readings[0]) if deep and readings else None


def _explain_by_two(
    seen: Sequence[Seen], reading: TargetReading
) -> tuple[Mistake, TargetReading] | None:
    """Return two mistakes that explain all, else the one that explains the plainest cases."""
    ordered = sorted(seen, key=lambda each: fits(each, reading))
    if fits(ordered[0], reading):
        return None
    usable = [m for m in MISTAKES if _can_show(m, reading, seen)]
    alone = [m for m in usable if fits(ordered[0], reading, m)]
    usual = {each.name: each for each in reversed(usable)}
    shows = [m for m in usual.values() if not _same_result(ordered[0][0], reading, m)][::-1]
    # One of the two explains the first case alone, or both have an effect on it.
    for mistake in (*pairs(alone, usual.values()), *pairs(shows, shows)):
        if _explains(ordered, reading, mistake):
            return mistake, reading
    plainest = [(case, answer) for case, answer in ordered if _is_plain(case)]
    wrong = [each for each in plainest if not fits(each, reading)]
    if len(wrong) < 2:
        return None
    for mistake in alone:
        if _explains([*wrong, *plainest], reading, mistake):
            return mistake, reading
    return None


def _is_plain(case: Case) -> bool:
    _, T, S = case.sizes
    return T == S and case.allowed is None and case.keys is None and not case.past


def _same_result(case: Case, reading: TargetReading, mistake: Mistake) -> bool:
    try:
        work = reference(case, reading, mistake)
    except (ValueError, IndexError, ZeroDivisionError):
        return False
    right = reference(case, reading).context
    return work.context.shape == right.shape and np.array_equal(work.context, right, equal_nan=True)


def _explains(seen: Sequence[Seen], reading: TargetReading, mistake: Mistake) -> bool:
    """Say whether all fits, and not only because each row may have any value."""
    if not all(fits(each, reading, mistake) for each in seen):
        return False
    work = reference(seen[0][0], reading, mistake)  # the case that shows that something is wrong
    return work.unsure is None or not work.unsure.all()


def _can_show(mistake: Mistake, reading: TargetReading, seen: Iterable[Seen]) -> bool:
    if mistake.family == "causal":
        return _is_causal(reading, seen)
    if mistake.family == "cache":
        return any(case.past for case, _ in seen)
    if mistake.family in ("rotary", "norm"):
        return "position" in reading.steps
    if mistake.family in ("sink", "relative"):
        return mistake.family.replace("sink", "sinks") in reading.learned
    if mistake.name.startswith("bias-"):
        biases = (reading.params.q_bias, reading.params.k_bias, reading.params.v_bias)
        return any(isinstance(each, np.ndarray) for each in biases)
    return mistake.family != "alibi" or "bias" in reading.steps


def _is_causal(reading: TargetReading, seen: Iterable[Seen]) -> bool:
    return reading.causal or any(case.causal for case, _ in seen)


def _fit_number(seen: Sequence[Seen], reading: TargetReading) -> Mistake | None:
    """Find a scale, or the number that hidden scores are set to, that explains what was seen."""

    def scaled(value: float) -> Mistake:
        return Mistake("scale-wrong", {"scale": wrong_steps.scale_by(lambda w: value)})

    def hidden(change: Any, part: str) -> Any:
        def make(value: float) -> Mistake:
            step = wrong_steps.mask_by(change(value), part)
            return Mistake("mask-fill-weak", {"mask": step})

        return make

    ranges: list[tuple[Any, Any]] = [(scaled, np.geomspace(1e-2, 30, 60))]
    for part in wrong_steps.PARTS:
        for change in (wrong_steps.fill, wrong_steps.lower):
            ranges.append((hidden(change, part), np.linspace(-30, 10, 60)))
    if "position" in reading.steps:
        for style in ("halves", "pairs"):
            ranges.append((_rotated(style), np.geomspace(3, 3e7, 60)))
    wrong = [each for each in seen if not fits(each, reading)][:2]
    if not wrong:
        return None
    for make, grid in ranges:
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


def _rotated(style: str) -> Callable[[float], Mistake]:
    def make(base: float) -> Mistake:
        return Mistake("rotary-frequencies", {"position": rotary(style, base, offset=False)})

    return make


def _error(seen: Seen, reading: TargetReading, mistake: Mistake) -> float:
    case, answer = seen
    try:
        work = reference(case, reading, mistake)
    except (ValueError, IndexError):
        return float("inf")
    if work.context.shape != answer.out.shape:
        return float("inf")
    return float(np.abs(np.nan_to_num(work.context - answer.out, nan=1e9)).sum())


def find_deviation(seen: Sequence[Seen], reading: TargetReading) -> Seen | None:
    """Return the first case on which the target does not compute what it should."""
    return next((each for each in seen if not fits(each, reading)), None)
