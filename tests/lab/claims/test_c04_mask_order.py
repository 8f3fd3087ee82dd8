"""Claim 4, made true and false."""

from glasshead.lab.claims.c04_mask_order import CLAIM, mask_after, measure, renormalise
from glasshead.lab.claims.verdict import Verdict
from tests.lab.claims.cases import QUICK, verdict_of


def test_it_holds():
    assert verdict_of(CLAIM) is Verdict.HOLDS


def test_it_does_not_hold_when_the_early_mask_comes_late():
    assert verdict_of(CLAIM, early=mask_after) is Verdict.FAILS


def test_it_does_not_hold_when_the_late_mask_is_followed_by_a_division():
    assert verdict_of(CLAIM, late=renormalise) is Verdict.FAILS


def test_masked_early_no_row_sees_its_future_and_the_last_row_has_none():
    leaks = measure(QUICK)["leaks"]
    assert leaks["before"] == [0.0] * len(QUICK.seeds)
    assert min(leaks["after"]) > 0
