"""Small settings for the claims, and the evidence that they gave.

Judges are tested on evidence that is stored in `evidence/`. The deep tests measure it again with
the same settings and run the same tests on the new evidence. After a change of what a claim
measures, store it anew: `python -m tests.lab.claims.cases 5 9 12`.
"""

import json
import sys
from pathlib import Path

import pytest

from glasshead.lab.claims import load_claim
from glasshead.lab.claims.claim import Budget, result_seeds
from glasshead.lab.claims.readers import Training
from glasshead.lab.claims.store import StoredResult, code_hash, machine_facts
from glasshead.lab.claims.translators import TranslatorPlan

QUICK = Budget(quick=True, seeds=(0, 1, 2))
FOLDER = Path(__file__).with_name("evidence")

READER = Training(600, 0)  # the same for claims 5, 9 and 12, so that it is trained once
BARELY = Training(2, 0)
# Claim: its seeds, and what to change to measure it in seconds.
SMALL = {
    5: ((1,), {"training": READER, "n_stories": 101}),
    6: ((0, 1), {"distances": (2, 40), "steps": 150, "rates": (3e-3,)}),
    9: ((1,), {"training": READER, "n_stories": 29}),
    10: ((0,), {"longest": 12, "steps": 200, "rates": (1e-2,), "tasks": ("copy",)}),
    11: ((1,), {"settings": TranslatorPlan(220, 0), "n_stories": 61}),
    12: ((1,), {"training": READER, "n_stories": 31}),
    15: ((0,), {"steps": 40, "table_steps": 120, "rates": (1e-2,)}),
    16: ((0, 1), {"depths": (1, 8), "depth": 4, "steps": 40, "rates": (3e-3,)}),
    # Without the norm, and with dropout of nothing: both sides are the same.
    17: ((0, 1), {"depths": (1, 2), "steps": 20, "norm_place": "none"}),
    18: ((0, 1), {"sizes": (300,), "steps": 60, "rates": (1e-2,), "dropouts": (0.0,)}),
}
# One language is enough to see that a figure can be drawn from evidence.
LANGS = pytest.mark.parametrize("lang", ["en", pytest.param("zh", marks=pytest.mark.deep)])


def measure_small(number, **change):
    """Measure a claim with its small setting, with one thing changed."""
    seeds, settings = SMALL[number]
    return measure_as_json(load_claim(number), Budget(True, seeds), **{**settings, **change})


def stored_evidence(number):
    """The evidence that `measure_small` gave when it was last stored."""
    return json.loads((FOLDER / f"{number:02}.json").read_text(encoding="utf-8"))


def evidence_fixture(number):
    """Make a fixture: the stored evidence of a claim and, in the deep tests, new evidence."""

    def evidence(request):
        return stored_evidence(number) if request.param == "stored" else measure_small(number)

    sources = ["stored", pytest.param("new", marks=pytest.mark.deep)]
    return pytest.fixture(evidence, scope="module", params=sources)


def verdict_of(claim, budget=QUICK, **change):
    """The verdict of the claim when one thing is changed, through JSON as it is stored."""
    return claim.judge(measure_as_json(claim, budget, **change)).verdict


def measure_as_json(claim, budget=QUICK, **change):
    return json.loads(json.dumps(claim.measure(budget, **change), allow_nan=False))


def make_result(number, quick=True):
    """A real result of a claim that takes no time: 3, 4 or 13."""
    claim = load_claim(number)
    evidence = measure_as_json(claim, Budget(quick=True, seeds=result_seeds(2)))
    versions, machine = machine_facts(threads=1)
    return StoredResult(
        number=number,
        quick=quick,
        seeds=result_seeds(2),
        evidence=evidence,
        finding=claim.judge(evidence),
        code=code_hash(number),
        seconds=1.5,
        when="2025-01-02 03:04",
        versions=versions,
        machine=machine,
    )


def store_again(numbers):
    for number in numbers:
        text = json.dumps(measure_small(number), ensure_ascii=False)
        (FOLDER / f"{number:02}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    store_again([int(word) for word in sys.argv[1:]] or SMALL)
