"""Read a text in three pieces: what the first call has kept must serve the second.

A cache is a parameter that a call returns anew (`past`, `layer_past`), or a state of the object
that a flag turns on (`use_cache`).
"""

from dataclasses import replace

from glasshead.lab.check.calling import CallError
from glasshead.lab.check.cases import inputs
from glasshead.lab.check.checking import Examination
from glasshead.lab.check.comparing import Seen, explain, fits
from glasshead.lab.check.mistakes import Mistake
from glasshead.lab.check.pipeline import Case

__all__ = ["ONE_TOKEN", "examine_cache"]

ONE_TOKEN = "cache-one-token"  # right for one new token, wrong for several at once


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
