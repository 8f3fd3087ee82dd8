"""Claim 13, made true and false; and its counts against a count by hand."""

from glasshead.lab.claims import c13_split_heads
from glasshead.lab.claims.c13_split_heads import CLAIM, C, T, measure
from glasshead.lab.claims.verdict import Verdict
from tests.lab.claims.cases import QUICK, verdict_of


def test_it_holds_only_when_cost_means_parameters_and_products():
    assert verdict_of(CLAIM) is Verdict.HOLDS_WHEN


def test_it_does_not_hold_when_heads_keep_the_whole_width():
    assert verdict_of(CLAIM, d_head=lambda C, H: C) is Verdict.FAILS


def test_it_holds_for_one_head(monkeypatch):
    monkeypatch.setattr(c13_split_heads, "HEADS", (1,))
    assert verdict_of(CLAIM) is Verdict.HOLDS


def test_the_counts_are_those_of_the_formula():
    counts = measure(QUICK)["counts"]["split"]
    assert set(counts["parameters"]) == {4 * C * C + C}
    assert set(counts["products"]) == {T * 4 * C * C + 2 * T * T * C}
    assert counts["exponentials"] == [H * T * T for H in (1, 2, 4, 8, 16)]
