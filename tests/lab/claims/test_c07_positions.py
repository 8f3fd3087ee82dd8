"""Claim 7, made true and false."""

import pytest

from glasshead.attention.mask import Mask
from glasshead.lab.claims import c07_positions
from glasshead.lab.claims.c07_positions import CLAIM
from glasshead.lab.claims.claim import Budget, Verdict
from tests.lab.claims.cases import verdict_of

TWO = Budget(quick=True, seeds=(0, 1))
FAST = {"steps": 80, "rates": (1e-2,)}


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Five words instead of twelve are learned in a few dozen steps."""
    monkeypatch.setattr(c07_positions, "T", 5)


def test_it_holds_only_when_no_mask_tells_the_order():
    assert verdict_of(CLAIM, TWO, **FAST) is Verdict.HOLDS_WHEN


def test_it_holds_when_the_third_model_has_no_mask_either():
    assert verdict_of(CLAIM, TWO, mask=Mask(), **FAST) is Verdict.HOLDS


def test_it_does_not_hold_when_the_bare_model_has_positions_after_all():
    assert verdict_of(CLAIM, TWO, bare="learned", **FAST) is Verdict.FAILS


def test_without_training_one_cannot_tell():
    assert verdict_of(CLAIM, TWO, steps=1, rates=(1e-2,)) is Verdict.UNCLEAR
