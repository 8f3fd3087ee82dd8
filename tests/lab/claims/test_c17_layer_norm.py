"""Claim 17, made true and false."""

import pytest

from glasshead.lab.claims.c17_layer_norm import CLAIM
from glasshead.lab.claims.claim import Budget, Verdict
from glasshead.lab.claims.drawing import render
from tests.lab.claims.cases import measured

FEW = Budget(quick=True, seeds=(0, 1))


@pytest.fixture(scope="module")
def cut():
    """The norm taken away: both sides are the same."""
    return measured(CLAIM, FEW, depths=(1, 2), steps=20, norm_place="none")


def faster(evidence, depth, times):
    """The evidence with norms that get there in so many times fewer steps."""
    one = evidence["courses"][str(depth)]
    falling = [5.0 - 0.1 * n for n in range(len(one["at"]))]
    sooner = [5.0 - 0.1 * times * n for n in range(len(one["at"]))]
    val = {"none": [falling, falling], "norm": [sooner, sooner]}
    courses = {**evidence["courses"], str(depth): {**one, "val": val}}
    return {**evidence, "courses": courses}


def test_it_does_not_hold_when_the_norm_is_cut(cut):
    finding = CLAIM.judge(cut)
    assert finding.verdict is Verdict.FAILS
    assert finding.numbers["times fewer steps, depth 1"].value == pytest.approx(1)


def test_it_holds_where_it_is_faster_at_every_depth(cut):
    both = faster(faster(cut, 1, 2), 2, 2)
    assert CLAIM.judge(both).verdict is Verdict.HOLDS


def test_it_holds_only_when_deep_where_it_is_faster_only_there(cut):
    finding = CLAIM.judge(faster(cut, 2, 2))
    assert finding.verdict is Verdict.HOLDS_WHEN
    assert "2 layers or more" in finding.words.en


def test_it_does_not_hold_where_the_norm_is_slower(cut):
    slower = faster(faster(cut, 1, 0.5), 2, 0.5)
    finding = CLAIM.judge(slower)
    assert finding.verdict is Verdict.FAILS
    assert finding.numbers["times fewer steps, depth 2"].value < 0.6


def test_a_norm_changes_what_is_measured():
    evidence = measured(CLAIM, FEW, depths=(1,), steps=20)
    one = evidence["courses"]["1"]["val"]
    assert one["norm"] != one["none"]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_it_is_drawn(cut, lang):
    assert render(CLAIM, cut, lang).startswith(b"\x89PNG")
