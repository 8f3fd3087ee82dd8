"""Claim 18, made true and false."""

import pytest

from glasshead.lab.claims.c18_dropout import CLAIM
from glasshead.lab.claims.claim import Budget
from glasshead.lab.claims.drawing import render
from glasshead.lab.claims.verdict import Verdict
from tests.lab.claims.cases import LANGS, evidence_fixture, measure_as_json

# Dropout of nothing: both sides are the same. So short a text is soon known by heart.
none = evidence_fixture(18)


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


@pytest.mark.deep
def test_dropout_keeps_a_net_from_learning_a_text_by_heart():
    evidence = measure_as_json(
        CLAIM, Budget(True, (0,)), sizes=(2_000,), steps=100, rates=(1e-2,), dropouts=(0.5,)
    )
    narrower = CLAIM.judge(evidence).numbers["50%: gap narrower by, 2,000 characters, rate 0.01"]
    assert narrower.low > 0.02


def test_one_cannot_tell_where_nothing_over_fits():
    evidence = measure_as_json(CLAIM, Budget(True, (0,)), sizes=(50_000,), steps=2, rates=(1e-2,),
                        dropouts=(0.2,))  # fmt: skip
    assert CLAIM.judge(evidence).verdict is Verdict.UNCLEAR


@pytest.mark.parametrize(
    ("small", "pushed", "large", "verdict"),
    [
        (HELPS, HELPS, NEITHER, Verdict.HOLDS),
        (HELPS, HELPS, HURTS, Verdict.HOLDS_WHEN),
        (((0.5, 2.0), (0.9, 2.0)), HELPS, HURTS, Verdict.HOLDS_WHEN),
        (NOTHING, NOTHING, HURTS, Verdict.FAILS),
        (NEITHER, NEITHER, NEITHER, Verdict.UNCLEAR),
    ],
)
def test_the_verdict_goes_by_unseen_text(none, small, pushed, large, verdict):
    evidence = with_curves(none, *(curves(*ends) for ends in (small, pushed, large)))
    assert CLAIM.judge(evidence).verdict is verdict


def both_rates(evidence, low, high):
    """Two amounts of dropout, each with its curves (small, pushed, large)."""
    some = [with_curves(evidence, *(curves(*ends) for ends in sides)) for sides in (low, high)]
    for one, other in zip(
        [*some[0]["texts"].values(), some[0]["pushed"]],
        [*some[1]["texts"].values(), some[1]["pushed"]],
        strict=True,
    ):
        for which in ("train", "val"):
            one[which] = {"0": one[which]["0"], "0.1": one[which]["0.0"],
                          "0.2": other[which]["0.0"]}  # fmt: skip
        if "rates" in one:
            one["rates"] = dict.fromkeys(("0", "0.1", "0.2"), one["rates"]["0"])
    return {**some[0], "dropout": ["0", "0.1", "0.2"]}


ALL, FEW_ONLY = (HELPS, HELPS, NEITHER), (NOTHING, NOTHING, NEITHER)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (ALL, ALL, Verdict.HOLDS),
        (ALL, FEW_ONLY, Verdict.HOLDS_WHEN),
        (FEW_ONLY, ALL, Verdict.HOLDS_WHEN),
        (FEW_ONLY, FEW_ONLY, Verdict.FAILS),
    ],
)
def test_10_and_20_percent_both_count(none, low, high, verdict):
    finding = CLAIM.judge(both_rates(none, low, high))
    assert finding.verdict is verdict
    if verdict is Verdict.HOLDS_WHEN:
        only = "10%" if low is ALL else "20%"
        assert f"So it holds only for {only}, at the best rates and when" in finding.words.en


@LANGS
def test_it_is_drawn(none, lang):
    assert render(CLAIM, none, lang).startswith(b"\x89PNG")
