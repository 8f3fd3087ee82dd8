"""Claim 7, made true and false."""

import pytest

from glasshead.attention.mask import Mask
from glasshead.lab.claims import c07_positions
from glasshead.lab.claims.c07_positions import CLAIM
from glasshead.lab.claims.claim import Budget
from glasshead.lab.claims.verdict import Verdict
from tests.lab.claims.cases import verdict_of

TWO = Budget(quick=True, seeds=(0, 1))
FAST = {"steps": 80, "rates": (1e-2,)}


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Five words instead of twelve are learned in a few dozen steps."""
    monkeypatch.setattr(c07_positions, "T", 5)


# What was measured with the settings below, in round numbers.
EVIDENCE = {
    "moved": {"bare": [2e-7, 1e-7], "positions": [0.9, 0.8], "causal": [0.5, 0.6]},
    "right": {"bare": [0.49, 0.51], "positions": [1.0, 0.99], "causal": [1.0, 1.0]},
    "rates": {way: {"best": 1e-2, "edge": False} for way in ("bare", "positions", "causal")},
}


@pytest.mark.parametrize(
    ("moved", "right", "verdict"),
    [
        ({}, {}, Verdict.HOLDS_WHEN),
        ({}, {"causal": [0.49, 0.5]}, Verdict.HOLDS),
        ({}, {"causal": [0.5, 0.97]}, Verdict.UNCLEAR),
        ({}, {"positions": [0.6, 0.99]}, Verdict.UNCLEAR),
        ({}, {"bare": [0.9, 0.95]}, Verdict.FAILS),
        ({"bare": [1e-7, 0.3]}, {}, Verdict.FAILS),
    ],
)
def test_the_verdict_follows_what_moves_and_what_is_learned(moved, right, verdict):
    evidence = {**EVIDENCE, "moved": EVIDENCE["moved"] | moved, "right": EVIDENCE["right"] | right}
    assert CLAIM.judge(evidence).verdict is verdict


@pytest.mark.deep
def test_it_holds_only_when_no_mask_tells_the_order():
    assert verdict_of(CLAIM, TWO, **FAST) is Verdict.HOLDS_WHEN


@pytest.mark.deep
def test_it_holds_when_the_third_model_has_no_mask_either():
    assert verdict_of(CLAIM, TWO, mask=Mask(), **FAST) is Verdict.HOLDS


@pytest.mark.deep
def test_it_does_not_hold_when_the_bare_model_has_positions_after_all():
    assert verdict_of(CLAIM, TWO, bare="learned", **FAST) is Verdict.FAILS


def test_without_training_one_cannot_tell():
    assert verdict_of(CLAIM, TWO, steps=1, rates=(1e-2,)) is Verdict.UNCLEAR
