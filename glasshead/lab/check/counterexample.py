"""The smallest input on which the target is wrong, in small whole numbers."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from glasshead.lab.check.calling import CallError
from glasshead.lab.check.checking import Examination
from glasshead.lab.check.comparing import equal, reference
from glasshead.lab.check.pipeline import Array, Case

__all__ = ["Counterexample", "find_counterexample"]


@dataclass(frozen=True, eq=False)
class Counterexample:
    """Inputs, what the target returned and what is right, in the layout (B, H, T, D), (B, T, C)."""

    case: Case
    got: Array
    expected: Array

    @property
    def place(self) -> tuple[int, ...]:
        """Return where the two differ most."""
        gap = np.abs(np.nan_to_num(self.got - self.expected, nan=np.inf))
        return tuple(int(n) for n in np.unravel_index(np.argmax(gap), gap.shape))

    def as_json(self) -> dict[str, Any]:
        case = self.case
        out: dict[str, Any] = {"q": case.q, "k": case.k, "v": case.v}
        if case.k is case.q:
            out = {"x": case.q}
        if case.allowed is not None:
            out["allowed"] = case.allowed
        if case.keys is not None:
            out["keys"] = case.keys
        out = {name: value.tolist() for name, value in out.items()}
        return out | {
            "causal": case.causal,
            "got": _finite_list(self.got),
            "expected": _finite_list(self.expected),
            "place": list(self.place),
        }


def _finite_list(values: Array) -> Any:
    """Return nested lists in which what is no number is a string, as JSON needs it."""
    if values.ndim == 0:
        return float(values) if np.isfinite(values) else str(float(values))
    return [_finite_list(row) for row in values]


def find_counterexample(found: Examination) -> Counterexample | None:
    """Try inputs from the smallest on, until the target deviates from the reference."""
    wrong = [
        case for case, answer in found.seen
        if answer.out.shape == (work := reference(case, found.reading)).context.shape
        and not equal(answer.out, work, found.reading.tolerance)
    ]  # fmt: skip
    if not wrong:
        return None
    best: Counterexample | None = None
    templates = sorted(wrong, key=lambda c: c.q.size + c.k.size)[:3]
    for template, finite in product(templates, (True, False)):
        for small in _smaller(template, found):
            try:
                answer = found.caller(small)
                work = reference(small, found.reading)
            except (CallError, ValueError, IndexError):
                continue
            tolerance = max(found.reading.tolerance, 1e-3)  # a difference that can be seen
            if answer.out.shape != work.context.shape:
                continue
            if finite and not np.isfinite(answer.out).all():
                continue
            if not equal(answer.out, work, tolerance):
                made = Counterexample(found.reading.case(small), answer.out, work.context)
                if best is None or _size(made.case) < _size(best.case):
                    best = made
                break
        if best is not None:
            return best
    first = wrong[0]
    answer = next(answer for case, answer in found.seen if case is first)
    expected = reference(first, found.reading).context
    return Counterexample(found.reading.case(first), answer.out, expected)


def _size(case: Case) -> int:
    return case.q.size + case.k.size


def _smaller(case: Case, found: Examination) -> Iterator[Case]:
    """Yield cases of the same kind, the smallest first, with values from -2 to 2."""
    B, T, S = case.sizes
    heads = case.q.ndim == 4
    H, D = (case.q.shape[1], case.q.shape[-1]) if heads else (1, case.q.shape[-1])
    widths = [d for d in (1, 2, 4) if d <= D] if heads else [D]
    grouped = heads and case.k.shape[1] != H
    tried = []
    for b in range(1, min(B, 2) + 1):
        for h in [H] if grouped or not heads else range(1, min(H, 2) + 1):
            for t in range(1, min(T, 4) + 1):
                for s in [t] if T == S else range(t, min(S, 4) + 1):
                    tried += [(b, h, t, s, d) for d in widths]
    for b, h, t, s, d in sorted(tried, key=lambda n: (n[0] * n[1] * (n[2] + n[3]) * n[4], n)):
        for seed in range(3):
            rng = np.random.default_rng([seed, b, h, t, s, d])

            def draw(like: Array, count: int, h: int = h, b: int = b, d: int = d) -> Array:
                if not heads:
                    shape: tuple[int, ...] = (b, count, like.shape[-1])
                else:
                    shape = (b, like.shape[1] if grouped else h, count, d)
                return rng.integers(-2, 3, shape).astype(np.float64)  # noqa: B023

            if case.past:
                x = draw(case.q, t + 1)
                yield replace(case, q=x[..., 1:, :], k=x, v=x, past=1)
                continue
            q = draw(case.q, t)
            k, v = (q, q) if case.k is case.q else (draw(case.k, s), draw(case.v, s))
            yield replace(case, q=q, k=k, v=v, **_masks(case, b, t, s))


def _masks(case: Case, b: int, t: int, s: int) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if case.allowed is not None:
        allowed = np.tril(np.ones((t, s), bool), s - t)
        out["allowed"] = np.broadcast_to(allowed, (b, t, s))
    if case.keys is not None:
        keys = np.ones((b, s), bool)
        keys[0, -1] = s == 1
        out["keys"] = keys
    return out
