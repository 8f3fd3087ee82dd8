"""Claim 1, made true and false."""

from glasshead.lab.claims.c01_scale import CLAIM, ONE_HOT
from glasshead.lab.claims.verdict import Verdict
from tests.lab.claims.cases import measure_as_json, verdict_of


def test_it_holds_only_for_queries_and_keys_of_variance_one():
    finding = CLAIM.judge(measure_as_json(CLAIM))
    assert finding.label.en == "holds only when queries and keys have a variance of about 1"
    assert "standard deviation 2" in finding.words.en


def test_it_holds_where_no_other_spread_is_asked_about():
    assert verdict_of(CLAIM, spreads=(1.0,)) is Verdict.HOLDS


def test_it_does_not_hold_when_the_scale_does_nothing():
    assert verdict_of(CLAIM, scale=lambda D: 1.0) is Verdict.FAILS


def test_a_weaker_scale_does_not_mend_it():
    assert verdict_of(CLAIM, scale=lambda D: D**-0.25) is Verdict.FAILS


def test_it_does_not_hold_when_queries_and_keys_are_small():
    assert verdict_of(CLAIM, spreads=(0.1,)) is Verdict.FAILS


def test_it_does_not_hold_when_queries_and_keys_are_so_large_that_no_scale_helps():
    # Narrow heads are sharp as well: then it is not the width.
    assert verdict_of(CLAIM, spreads=(10.0,)) is Verdict.FAILS


def test_it_holds_only_when_the_spread_is_large_enough():
    # Random queries and keys are sharp still, those of a layer no more.
    finding = CLAIM.judge(measure_as_json(CLAIM, spreads=(0.5,)))
    assert finding.verdict is Verdict.HOLDS_WHEN
    assert finding.words.en.startswith("Holds only for: random queries and keys.")


def test_it_is_unclear_when_seeds_fall_on_both_sides_of_the_threshold():
    evidence = measure_as_json(CLAIM, spreads=(1.0,))
    for source in evidence["top"].values():
        source["raw"][-1] = [ONE_HOT - 0.05, ONE_HOT + 0.01, ONE_HOT + 0.07]
    assert CLAIM.judge(evidence).verdict is Verdict.UNCLEAR
