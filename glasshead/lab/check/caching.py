"""Read a text in two pieces: what the first call has kept must serve the second.

A cache is a parameter that a call returns anew (`past`, `layer_past`), or a state of the object
that a flag turns on (`use_cache`).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from glasshead.lab.check.calling import CallError
from glasshead.lab.check.cases import inputs
from glasshead.lab.check.checking import Examination
from glasshead.lab.check.comparing import Seen, explain, fits
from glasshead.lab.check.mistakes import Mistake
from glasshead.lab.check.pipeline import Case
from glasshead.lab.check.roles import words_of
from glasshead.lab.check.target import CheckTarget

__all__ = ["ONE_TOKEN", "examine_cache", "flags", "kept"]

ONE_TOKEN = "cache-one-token"  # right for one new token, wrong for several at once


def flags(target: CheckTarget, past: int) -> dict[str, Any]:
    """Return the arguments that turn a cache on, and where the new tokens stand."""
    out: dict[str, Any] = {}
    for each in target.parameters:
        if each.role == "uses_cache":
            out[each.name] = True
        elif words_of(each.name) in ("startpos", "offset", "inputpos"):
            out[each.name] = past
    return out


def kept(target: CheckTarget, raw: Any) -> dict[str, Any]:
    """Return the arguments for the next call, found in what a call returned."""
    names = [each.name for each in target.parameters if each.role == "cache"]
    if not names:
        return {}
    if isinstance(raw, Mapping):
        rest = [value for name, value in raw.items() if words_of(name) in map(words_of, names)]
    else:
        rest = [each for each in raw[1:] if each is not None] if isinstance(raw, tuple) else []
    whole = [each for each in rest if not hasattr(each, "shape")]
    values = rest[-len(names) :] if len(names) > 1 else whole[-1:] or [tuple(rest)][: len(rest)]
    if len(values) != len(names):
        raise CallError("it returns no cache")
    return dict(zip(names, values, strict=True))


def examine_cache(found: Examination) -> Examination:
    """Compare one new token after a cache, and then several, with the whole text."""
    roles = {each.role for each in found.target.parameters}
    plain = found.seen[0][0]
    takes = bool(roles & {"cache", "uses_cache"}) and plain.k is plain.q
    if found.mistake is not None or not found.compared or not takes:
        return found
    seen: list[Seen] = []
    skipped = dict(found.skipped)
    for new in (1, 3):
        case = _case(found, 3, new)
        try:
            seen.append((case, found.caller(case)))
        except CallError as error:
            skipped[case.name] = str(error)
    found = replace(found, seen=[*found.seen, *seen], skipped=skipped)
    wrong = [each for each in seen if not fits(each, found.reading)]
    if not wrong:
        return found
    named = explain(seen, [found.reading], False)
    mistake = named[0] if named else Mistake("cache-ignored", {})
    if wrong[0] is not seen[0] and mistake.name in ("cache-ignored", "causal-missing"):
        # It was made for one token at a time, as generation needs it.
        return replace(found, seen=found.seen[:-1], notes=[*found.notes, ONE_TOKEN])
    return replace(found, mistake=mistake)


def _case(found: Examination, past: int, new: int) -> Case:
    width = found.seen[0][0].q.shape[-1]
    whole = inputs(found.caller.layout, f"cache {past}+{new}", past + new, None, width=width)
    x = whole.q
    return replace(whole, q=x[..., past:, :], k=x, v=x, past=past)
