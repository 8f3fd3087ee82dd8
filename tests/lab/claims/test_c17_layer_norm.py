"""Claim 17, made true and false."""

import pytest

from glasshead.lab.claims.c17_layer_norm import CLAIM
from glasshead.lab.claims.drawing import render
from glasshead.lab.claims.search import BURST
from glasshead.lab.claims.verdict import Verdict
from tests.lab.claims.cases import LANGS, evidence_fixture, measure_small

cut = evidence_fixture(17)  # the norm taken away: both sides are the same


def faster(evidence, depth, times):
    """The evidence with norms that get there in so many times fewer steps."""
    one = evidence["courses"][str(depth)]
    falling = [2.6 - 0.05 * n for n in range(len(one["at"]))]
    sooner = [2.6 - 0.05 * times * n for n in range(len(one["at"]))]
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
    assert "only from 2 layers on" in finding.words.en


def test_it_does_not_hold_where_the_norm_is_slower(cut):
    slower = faster(faster(cut, 1, 0.5), 2, 0.5)
    finding = CLAIM.judge(slower)
    assert finding.verdict is Verdict.FAILS
    assert finding.numbers["times fewer steps, depth 2"].value < 0.6


def shaped(evidence, decays):
    """Curves as trainings give them: they fall by halves and level off, differently each seed.

    `decays` by depth: how many looks a halving takes, without and with a norm.
    """
    looks = len(evidence["courses"]["1"]["at"])
    one = evidence["courses"]["1"]
    return {
        **evidence,
        "depths": list(decays),
        "courses": {
            str(depth): {**one, "val": {
                side: [[1.5 + 2.0 * 0.5 ** ((n + 1) / (slow + shift)) + noise
                        for n in range(looks)] for shift, noise in ((0, 0), (0.2, 0.02))]
                for side, slow in zip(("none", "norm"), both, strict=True)
            }}
            for depth, both in decays.items()
        },
    }  # fmt: skip


def test_it_holds_with_curves_that_level_off_later_without_a_norm(cut):
    finding = CLAIM.judge(shaped(cut, {1: (3.0, 1.7), 6: (4.0, 1.7)}))
    assert finding.verdict is Verdict.HOLDS
    assert 1.5 < finding.numbers["times fewer steps, depth 1"].value < 2.0


def test_only_an_unbroken_run_of_depths_is_called_or_more(cut):
    finding = CLAIM.judge(shaped(cut, {1: (3.0, 3.0), 6: (4.0, 1.7), 24: (3.0, 3.0)}))
    assert finding.verdict is Verdict.HOLDS_WHEN
    assert "layers on" not in finding.words.en
    assert "only at these depths: 6." in finding.words.en


def test_a_side_whose_loss_bursts_failed_to_train(cut):
    """The other is ahead by as much as ten looks can show; where both burst one cannot tell."""
    both = shaped(cut, {1: (3.0, 1.7), 6: (4.0, 1.7)})
    none, norm = (both["courses"]["6"]["val"][side] for side in ("none", "norm"))
    none[:] = [[3.0] * (len(curve) - 1) + [BURST] for curve in none]
    finding = CLAIM.judge(both)
    assert finding.verdict is Verdict.HOLDS
    assert "At depth 6, 2 of 2 trainings without a norm failed." in finding.words.en
    norm[:] = none
    finding = CLAIM.judge(both)
    assert finding.verdict is Verdict.UNCLEAR
    assert finding.label.en == "cannot tell: the network of 6 layers did not learn its own task"


def test_one_depth_that_holds_says_nothing_of_those_that_one_cannot_tell(cut):
    """At depth 1 the interval contains the threshold: it may hold there too."""
    both = shaped(cut, {1: (3.0, 1.7), 6: (4.0, 1.7)})
    curves = both["courses"]["1"]["val"]
    curves["norm"][1] = curves["none"][1]
    finding = CLAIM.judge(both)
    assert finding.verdict is Verdict.UNCLEAR
    assert "it holds at 6 layers; at 1 intervals contain" in finding.label.en


def test_a_norm_changes_what_is_measured():
    evidence = measure_small(17, depths=(1,), rates=(1e-2,), norm_place="pre")
    one = evidence["courses"]["1"]["val"]
    assert one["norm"] != one["none"]


@LANGS
def test_it_is_drawn(cut, lang):
    assert render(CLAIM, cut, lang).startswith(b"\x89PNG")
