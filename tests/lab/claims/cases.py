"""What the tests of claims share."""

import json

from glasshead.lab.claims import load_claim
from glasshead.lab.claims.claim import Budget, result_seeds
from glasshead.lab.claims.store import Stored, code_of, here

QUICK = Budget(quick=True, seeds=(0, 1, 2))


def verdict_of(claim, budget=QUICK, **change):
    """The verdict of the claim when one thing is changed, through JSON as it is stored."""
    return claim.judge(measured(claim, budget, **change)).verdict


def measured(claim, budget=QUICK, **change):
    return json.loads(json.dumps(claim.measure(budget, **change), allow_nan=False))


def stored(number, quick=True):
    """A real result of a claim that takes no time: 3, 4 or 13."""
    claim = load_claim(number)
    evidence = measured(claim, Budget(quick=True, seeds=result_seeds(2)))
    versions, machine = here(threads=1)
    return Stored(
        number=number,
        quick=quick,
        seeds=result_seeds(2),
        evidence=evidence,
        finding=claim.judge(evidence),
        code=code_of(number),
        seconds=1.5,
        when="2025-01-02 03:04",
        versions=versions,
        machine=machine,
    )
