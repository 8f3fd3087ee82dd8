"""Judge a module that the reference cannot imitate: by what changes when an input changes."""

import re
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
        rng = np.random.default_rng(3)
        seen = np.zeros((5, 5), bool)
        for j in range(5):
            k, v = case.k.copy(), case.v.copy()
            k[..., j, :] += rng.normal(0, 0.5, k.shape[-1])  # a norm would remove a constant
            v[..., j, :] += rng.normal(0, 0.5, v.shape[-1])
            q = k if one else case.q
            moved = caller(replace(case, q=q, k=k, v=k if one else v)).out
            gap = np.abs(moved - first).max(axis=-1)  # (B, T) or (B, H, T)
            seen[:, j] = gap.reshape(-1, 5).max(0) > 1e-9
        if name := name_pattern(seen, one, causal_hint(found.target)):
            out.append(name)
        if one and _loses_residual(found, case, first):
            out.append("residual-lost")
    except CallError:
        pass
    return out


def _loses_residual(found: Examination, case: Case, first: Array) -> bool:
    """Say whether a block gives the same for an input of twice the size: a norm ate it all."""
    text = found.target.text
    if not re.search(r"block|layer\b|residual|skip|\bx \+", f"{found.target.name} {text}", re.I):
        return False
    if not re.search(r"\+", found.target.source):
        return False
    x = case.q * 2
    twice = found.caller(replace(case, q=x, k=x, v=x)).out
    return bool(np.abs(twice - first).max() < 1e-4 * (1 + np.abs(first).max()))


def _mixes_batch(found: Examination, case: Case, first: Array) -> bool:
    q, k, v = case.q.copy(), case.k.copy(), case.v.copy()
    rng = np.random.default_rng(4)
    for x in (q, k, v):
        x[-1] += rng.normal(0, 1.0, x[-1].shape)
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
