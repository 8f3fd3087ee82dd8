"""Judge a module that the reference cannot imitate: by what changes when an input changes."""

from dataclasses import replace

import numpy as np

from glasshead.lab.check.calling import CallError
from glasshead.lab.check.cases import inputs
from glasshead.lab.check.checking import Examination
from glasshead.lab.check.conventions import causal_hint
from glasshead.lab.check.pipeline import Array, Case

__all__ = ["name_pattern", "observed_mistakes"]


def observed_mistakes(found: Examination) -> list[str]:
    """Return the mistakes that show without a reference."""
    caller, plain = found.caller, found.seen[0][0]
    one = plain.k is plain.q
    case = inputs(caller.layout, "plain", 5, None if one else 5, width=plain.q.shape[-1])
    out = []
    try:
        first = caller(case).out
        if not np.isfinite(first).all():
            return ["nan-empty-row"]
        if case.sizes[0] > 1 and _mixes_batch(found, case, first):
            return ["heads-batch-mixed"]
        seen = np.zeros((5, 5), bool)
        for j in range(5):
            k, v = case.k.copy(), case.v.copy()
            k[..., j, :] += 0.5
            v[..., j, :] -= 0.25
            q = k if one else case.q
            moved = caller(replace(case, q=q, k=k, v=k if one else v)).out
            gap = np.abs(moved - first).max(axis=-1)  # (B, T) or (B, H, T)
            seen[:, j] = gap.reshape(-1, 5).max(0) > 1e-9
        if name := name_pattern(seen, one, causal_hint(found.target)):
            out.append(name)
    except CallError:
        pass
    return out


def _mixes_batch(found: Examination, case: Case, first: Array) -> bool:
    q, k, v = case.q.copy(), case.k.copy(), case.v.copy()
    for x in (q, k, v):
        x[-1] += 1.0
    same = case.k is case.q
    changed = replace(case, q=q, k=q if same else k, v=q if same else v)
    return bool(np.abs(found.caller(changed).out[0] - first[0]).max() > 1e-9)


def name_pattern(seen: Array, one: bool, hint: bool) -> str:
    """Name the mistake that a (T, S) table of what depends on what shows, or ""."""
    T = len(seen)
    lower = np.tril(np.ones((T, T), bool))
    if (seen == np.tril(lower, -1)).all() and not one:
        return "causal-strict"
    if (seen == np.tril(np.ones((T, T), bool), 1)).all():
        return "causal-leaks-next"
    if not (seen & np.tril(lower, -1)).any() and np.triu(seen, 1).any():
        return "causal-inverted"
    if seen.all() and hint:
        return "causal-missing"
    return ""
