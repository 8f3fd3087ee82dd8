"""A verdict on a claim is the same at both ends of every interval, or it is "cannot tell"."""

from itertools import product

import numpy as np
import pytest

from glasshead.lab.claims import load_claim, stats
from glasshead.lab.claims.stats import Interval
from glasshead.lab.claims.verdict import Verdict
from tests.lab.claims.cases import SMALL, measure_as_json, stored_evidence

FAR = 300.0  # beyond every threshold, on either side, also as an exponent
# Claims whose evidence is measured in a moment; the others' is stored.
MEASURED = (1, 2, 4)
# What each verdict allows at an end: the weaker positive one does not deny the stronger.
FITTING = {
    Verdict.HOLDS: {Verdict.HOLDS},
    Verdict.HOLDS_WHEN: {Verdict.HOLDS, Verdict.HOLDS_WHEN},
    Verdict.FAILS: {Verdict.FAILS},
    Verdict.UNCLEAR: set(Verdict),
}
MANY = 20  # intervals: above, only one at a time is changed


@pytest.mark.parametrize("number", sorted([*SMALL, *MEASURED]))
def test_what_is_decided_is_decided_at_both_ends_of_each_interval(number, monkeypatch):
    """A judge that takes the wrong end of an interval decides where one cannot tell."""
    claim = load_claim(number)
    evidence = stored_evidence(number) if number in SMALL else measure_as_json(claim)
    known, real = [], stats._interval

    def remember(value, drawn):
        known.append(real(value, drawn))
        return known[-1]

    monkeypatch.setattr(stats, "_interval", remember)
    claim.judge(evidence)
    monkeypatch.setattr(stats, "_draws", lambda n: np.zeros((1, n), int))  # they are known

    def verdict(changed):
        """The verdict where these intervals, by number, are others."""
        rest = iter(changed.get(n, one) for n, one in enumerate(known))
        monkeypatch.setattr(stats, "_interval", lambda value, drawn: next(rest))
        return claim.judge(evidence).verdict

    numbers = range(len(known))
    starts = [{}]
    if len(known) <= MANY:
        starts += [{n: Interval(x, x, x)} for n, x in product(numbers, (-FAR, FAR))]
    for start, n in product(starts, numbers):
        if n in start:
            continue
        decided = verdict({**start, n: Interval(0.0, -FAR, FAR)})
        ends = {verdict({**start, n: Interval(x, x, x)}) for x in (-FAR, FAR)}
        assert ends <= FITTING[decided], (n, start)
