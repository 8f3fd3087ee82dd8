"""Claim 15, made true and false."""

import pytest

from glasshead.lab.claims.c15_feed_forward import CLAIM
from glasshead.lab.claims.drawing import render
from glasshead.lab.claims.verdict import Verdict
from tests.lab.claims.cases import LANGS, evidence_fixture, measure_small

honest = evidence_fixture(15)


def test_it_holds_for_a_table_to_be_learned_by_heart(honest):
    assert CLAIM.judge(honest).verdict in {Verdict.HOLDS, Verdict.HOLDS_WHEN}


def test_two_layers_of_attention_have_the_parameters_of_the_feed_forward(honest):
    sizes = honest["table"]["parameters"]
    assert abs(sizes["more attention"] / sizes["feed-forward"] - 1) < 0.02
    assert sizes["feed-forward"] > 1.5 * sizes["attention"]


@pytest.mark.deep
def test_it_does_not_hold_when_the_feed_forward_is_none():
    finding = CLAIM.judge(measure_small(15, feed_forward="none"))
    assert finding.verdict is Verdict.FAILS
    assert finding.numbers["text: attention below character frequencies by"].low > 0.1
    assert finding.numbers["table: more right than attention alone"].value == 0


def test_one_cannot_tell_from_a_training_that_taught_nothing():
    finding = CLAIM.judge(measure_small(15, steps=1, table_steps=1))
    assert finding.verdict is Verdict.UNCLEAR
    assert "Too little was learned" in finding.words.en


def test_a_training_that_diverges_is_data():
    finding = CLAIM.judge(measure_small(15, steps=2, table_steps=2, rates=(1e30,)))
    assert finding.verdict is Verdict.UNCLEAR
    for side in ("attention on the text", "feed-forward on the table"):
        assert f"{side} (seed 0)" in finding.words.en


def test_the_best_rate_may_lie_beyond_those_compared_at(honest):
    """Of that side only, the loss there counts where best rates are compared."""
    search = {**honest["search"], "residual wide": {"best": 0.03, "edge": False, "tried": {}}}
    base = honest["losses"]["residual attention"]["0.01"]
    losses = {**honest["losses"]}
    losses["residual wide"] = {**losses["residual wide"], "0.03": [base[0] - 0.5]}
    finding = CLAIM.judge({**honest, "search": search, "losses": losses})
    assert finding.numbers["text, best rates: loss lower by"].value == pytest.approx(0.5)


def gaining(evidence, more_attention):
    """The evidence with a gain on the text, and a control of the same size that gets so much."""
    base = evidence["losses"]["residual attention"]
    wide = {lr: [loss - 0.1 for loss in some] for lr, some in base.items()}
    right = {"attention": [0.2], "feed-forward": [0.6], "more attention": more_attention}
    table = {**evidence["table"], "right": right}
    return {**evidence, "losses": {**evidence["losses"], "residual wide": wide}, "table": table}


def test_it_holds_where_the_text_gains_too_and_size_alone_does_not_do_it(honest):
    assert CLAIM.judge(gaining(honest, [0.5])).verdict is Verdict.HOLDS


def test_it_holds_only_against_fewer_parameters_where_attention_uses_them_better(honest):
    finding = CLAIM.judge(gaining(honest, [0.9]))
    assert finding.verdict is Verdict.HOLDS_WHEN
    assert "only compared with fewer parameters (spent on attention" in finding.words.en


def test_as_good_as_attention_of_the_same_size_is_not_better(honest):
    assert CLAIM.judge(gaining(honest, [0.58])).verdict is Verdict.HOLDS_WHEN


def test_a_table_that_more_attention_learns_as_well_is_no_case_for_the_feed_forward(honest):
    """Only the table gains: what limits it is said as well."""
    even = {**gaining(honest, [0.9]), "losses": honest["losses"]}
    side = even["losses"]["residual attention"]
    words = CLAIM.judge({**even, "losses": {**even["losses"], "residual wide": side}}).words.en
    assert "for memorizing, not on the text and compared with fewer parameters" in words


def test_speed_is_spoken_of_only_where_it_came_out(honest):
    """A gain at the smallest rate and none at the best is speed; a gain at both is not."""
    rates, base = [1e-3, 1e-2], {"0.001": [2.5], "0.01": [2.0]}
    losses = dict.fromkeys(honest["losses"], base)
    search = {side: {**one, "best": 1e-2} for side, one in honest["search"].items()}
    two = {**honest, "rates": rates, "search": search}
    for ends, speed in (([2.3, 2.0], True), ([2.3, 1.8], False), ([2.5, 2.0], False)):
        wide = {lr: [loss] for lr, loss in zip(base, ends, strict=True)}
        finding = CLAIM.judge({**two, "losses": {**losses, "residual wide": wide}})
        assert ("learns faster" in finding.words.en) is speed


@LANGS
def test_it_is_drawn(honest, lang):
    assert render(CLAIM, honest, lang).startswith(b"\x89PNG")
