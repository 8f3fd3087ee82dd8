"""Claim 18, made true and false."""

import pytest

from glasshead.lab.claims.c18_dropout import CLAIM
from glasshead.lab.claims.claim import Budget, Verdict
from glasshead.lab.claims.drawing import render
from tests.lab.claims.cases import measured

FEW = Budget(quick=True, seeds=(0, 1))
SMALL = {"sizes": (300,), "steps": 60, "rates": (1e-2,)}


@pytest.fixture(scope="module")
def none():
    """Dropout of nothing: both sides are the same. So short a text is soon known by heart."""
    return measured(CLAIM, FEW, **SMALL, dropouts=(0.0,))


def curves(off, on):
    """Losses (seen, unseen) at the end, without and with dropout."""
    sides = {"0": off, "0.0": on}
    return {"at": [60], **{
        which: {side: [[ends[n]]] * 2 for side, ends in sides.items()}
        for n, which in enumerate(("train", "val"))
    }}  # fmt: skip


def with_curves(evidence, small, pushed, large):
    texts = {"300": small, "9000": large}
    for text in texts.values():
        text["rates"] = evidence["texts"]["300"]["rates"]
    pushed["rate"] = evidence["pushed"]["rate"]
    return {**evidence, "sizes": [300, 9000], "texts": texts, "pushed": pushed}


HELPS = ((0.5, 2.0), (0.9, 1.8))
NOTHING = ((0.5, 2.0), (0.5, 2.0))
NEITHER = ((1.0, 1.0), (1.0, 1.0))
HURTS = ((1.0, 1.0), (1.1, 1.1))


def test_it_does_not_hold_when_dropout_drops_nothing(none):
    finding = CLAIM.judge(none)
    assert finding.numbers["gap without dropout, 300 characters"].low > 0.2
    assert finding.verdict is Verdict.FAILS


def test_dropout_keeps_a_net_from_learning_a_text_by_heart():
    evidence = measured(
        CLAIM, Budget(True, (0,)), sizes=(2_000,), steps=150, rates=(1e-2,), dropouts=(0.5,)
    )
    narrower = CLAIM.judge(evidence).numbers["gap narrower by, 2,000 characters, rate 0.01"]
    assert narrower.low > 0.02


def test_one_cannot_tell_where_nothing_over_fits():
    evidence = measured(CLAIM, Budget(True, (0,)), sizes=(50_000,), steps=9, rates=(1e-2,))
    assert CLAIM.judge(evidence).verdict is Verdict.UNCLEAR


@pytest.mark.parametrize(
    ("small", "pushed", "large", "verdict"),
    [
        (HELPS, HELPS, NEITHER, Verdict.HOLDS),
        (HELPS, HELPS, HURTS, Verdict.HOLDS_WHEN),
        (((0.5, 2.0), (0.9, 2.0)), HELPS, HURTS, Verdict.HOLDS_WHEN),
        (NOTHING, NOTHING, HURTS, Verdict.FAILS),
    ],
)
def test_the_verdict_goes_by_unseen_text(none, small, pushed, large, verdict):
    evidence = with_curves(none, *(curves(*ends) for ends in (small, pushed, large)))
    assert CLAIM.judge(evidence).verdict is verdict


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_it_is_drawn(none, lang):
    assert render(CLAIM, none, lang).startswith(b"\x89PNG")
