"""Claim 15, made true and false."""

import pytest

from glasshead.lab.claims.c15_feed_forward import CLAIM
from glasshead.lab.claims.claim import Budget, Verdict
from glasshead.lab.claims.drawing import render
from tests.lab.claims.cases import measured

FEW = Budget(quick=True, seeds=(0,))


@pytest.fixture(scope="module")
def honest():
    return measured(CLAIM, FEW, steps=3, table_steps=120)


def test_it_holds_for_a_table_to_be_learned_by_heart(honest):
    assert CLAIM.judge(honest).verdict in {Verdict.HOLDS, Verdict.HOLDS_WHEN}


def test_two_layers_of_attention_have_the_parameters_of_the_feed_forward(honest):
    sizes = honest["table"]["parameters"]
    assert abs(sizes["more attention"] / sizes["feed-forward"] - 1) < 0.02
    assert sizes["feed-forward"] > 1.5 * sizes["attention"]


def test_it_does_not_hold_when_the_feed_forward_is_none():
    evidence = measured(CLAIM, FEW, steps=3, table_steps=3, feed_forward="none")
    finding = CLAIM.judge(evidence)
    assert finding.verdict is Verdict.FAILS
    assert finding.numbers["table: more right than attention alone"].value == 0


def gaining(evidence, more_attention):
    """The evidence with a gain on the text, and a control of the same size that gets so much."""
    best = evidence["rates"].index(evidence["best"]["residual attention"])
    base = evidence["losses"]["residual attention"][best]
    wide = [[loss - 0.1 for loss in base]] * len(evidence["rates"])
    right = {"attention": [0.2], "feed-forward": [0.6], "more attention": more_attention}
    table = {**evidence["table"], "right": right}
    return {**evidence, "losses": {**evidence["losses"], "residual wide": wide}, "table": table}


def test_it_holds_where_the_text_gains_too_and_size_alone_does_not_do_it(honest):
    assert CLAIM.judge(gaining(honest, [0.5])).verdict is Verdict.HOLDS


def test_it_holds_only_against_fewer_parameters_where_attention_uses_them_better(honest):
    assert CLAIM.judge(gaining(honest, [0.9])).verdict is Verdict.HOLDS_WHEN


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_it_is_drawn(honest, lang):
    assert render(CLAIM, honest, lang).startswith(b"\x89PNG")
