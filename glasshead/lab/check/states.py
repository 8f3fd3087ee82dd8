"""What shows between calls: state that is kept or shared, and which functions run in a call."""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from glasshead.lab.check.calling import CallError, copied
from glasshead.lab.check.cases import inputs
from glasshead.lab.check.checking import Examination
from glasshead.lab.check.memory import reset
from glasshead.lab.check.pipeline import Array, Case

__all__ = ["Remark", "changes_between_calls", "equal_bits", "plain_case", "rotation_remarks",
           "state_remarks"]  # fmt: skip


@dataclass(frozen=True)
class Remark:
    """Something found beside the comparison. A mistake, or a warning about a right target."""

    name: str
    mistake: bool
    values: dict[str, Any]


def plain_case(found: Examination) -> Case:
    return next((case for case, _ in found.seen if case.name == "plain"), found.seen[0][0])


def changes_between_calls(found: Examination) -> str:
    """Name the reason why two calls give two results, or ""."""
    try:
        case = plain_case(found)
        same_object = found.caller.having(target=copied(found.target), fresh=False)
        if equal_bits(same_object(case).out, same_object(case).out):
            return "state-kept" if _keeps_state(found, case) else ""
        copies = [found.caller.having(target=copied(found.target)) for _ in range(2)]
        same = equal_bits(*(each(case).out for each in copies))
    except CallError:
        return ""
    return "state-kept" if same and found.target.owner is not None else "dropout-at-inference"


def _keeps_state(found: Examination, case: Case) -> bool:
    """Say whether a longer text comes out otherwise, or not at all, after a shorter one."""
    roles = {each.role for each in found.target.parameters}
    if found.target.owner is None or found.caller.stepwise or roles & {"cache", "uses_cache"}:
        return False
    used = found.caller.having(target=copied(found.target), fresh=False)
    one, layout = case.k is case.q, found.caller.layout
    longer = inputs(layout, "longer text", 8, None if one else 8,
                    width=case.q.shape[-1])  # fmt: skip
    alone = found.caller(longer).out
    used(inputs(layout, "plain", 3, None if one else 3, width=case.q.shape[-1]))
    try:
        return not equal_bits(used(longer).out, alone)
    except CallError:
        return True


def state_remarks(found: Examination, case: Case) -> Iterator[Remark]:
    """Find out whether two objects that read token by token see each other's tokens."""
    if not found.caller.stepwise:
        return
    copies = [copied(found.target) for _ in range(2)]
    mine, other = (found.caller.having(target=t, fresh=False, stepwise=False) for t in copies)
    alone = found.caller(case).out[..., -1:, :]
    for each in copies:
        reset(each)
    try:
        for n in range(case.sizes[1]):
            token = case.q[..., n : n + 1, :]
            foreign = token + 1.0
            other(replace(case, q=foreign, k=foreign, v=foreign))
            last = mine(replace(case, q=token, k=token, v=token)).out
        same = np.allclose(last, alone)
    except CallError:
        same = False
    if not same:
        yield Remark("state-shared", True, {})


def rotation_remarks(found: Examination, case: Case) -> Iterator[Remark]:
    """Find out whether a rotation runs, though the result is that of no positions at all."""
    if found.mistake is not None and found.mistake.name != "causal-start-aligned":
        return
    if not found.compared or "position" in found.reading.steps:
        return
    if any(re.search(r"rotat\w*|rope|rotary", name, re.I) for name in _functions(found, case)):
        yield Remark("rotary-no-effect", True, {})


def _functions(found: Examination, case: Case) -> set[str]:
    """Return the names of the target's own functions that run in a call."""
    names: set[str] = set()

    def see(frame: Any, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code.co_filename == found.target.path:
            names.add(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        found.caller(case)
    finally:
        sys.setprofile(before)
    return names - {found.target.name}


def equal_bits(a: Array, b: Array) -> bool:
    return bool(np.array_equal(a, b, equal_nan=True))
