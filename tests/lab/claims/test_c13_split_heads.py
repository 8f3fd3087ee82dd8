"""Claim 13, made true and false; and its counts against a count by hand."""

from glasshead.lab.claims import c13_split_heads
from glasshead.lab.claims.c13_split_heads import CLAIM, LENGTHS, C, measure
from glasshead.lab.claims.verdict import Verdict
from tests.lab.claims.cases import QUICK, measure_as_json, verdict_of


def test_it_holds_for_the_real_layer():
    assert verdict_of(CLAIM) is Verdict.HOLDS


def test_it_holds_only_when_maps_are_not_stored():
    finding = CLAIM.judge(measure_as_json(CLAIM, backend="explicit"))
    assert finding.label.en == "holds only when the maps are not stored"


def test_it_holds_only_when_exponentials_do_not_count_if_heads_are_two_wide(monkeypatch):
    monkeypatch.setattr(c13_split_heads, "HEADS", (1, 64))
    finding = CLAIM.judge(measure_as_json(CLAIM))
    assert finding.label.en == "holds only when exponentials are not counted"


def test_it_does_not_hold_when_heads_keep_the_whole_width():
    assert verdict_of(CLAIM, d_head=lambda C, H: C) is Verdict.FAILS


def test_it_holds_for_one_head(monkeypatch):
    monkeypatch.setattr(c13_split_heads, "HEADS", (1,))
    assert verdict_of(CLAIM) is Verdict.HOLDS


def test_the_counts_are_those_of_the_formula():
    counts = measure(QUICK)["counts"]["split"]
    for at, T in enumerate(LENGTHS):
        assert set(counts["parameters"][at]) == {4 * C * C + C}
        assert set(counts["products"][at]) == {T * 4 * C * C + 2 * T * T * C}
        assert counts["exponentials"][at] == [H * T * T for H in (1, 2, 4, 8, 16)]
