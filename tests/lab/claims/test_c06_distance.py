"""Claim 6, made true and false."""

import pytest

from glasshead.lab.claims.c06_distance import CLAIM
from glasshead.lab.claims.drawing import render
from glasshead.lab.claims.verdict import Verdict
from tests.lab.claims.cases import LANGS, evidence_fixture, measure_small

honest = evidence_fixture(6)


def test_it_holds_against_the_usual_lstm(honest):
    assert CLAIM.judge(honest).verdict in {Verdict.HOLDS, Verdict.HOLDS_WHEN}


def test_all_sides_are_of_one_size(honest):
    sizes = honest["parameters"].values()
    assert max(sizes) / min(sizes) < 1.02


@pytest.mark.deep
def test_it_does_not_hold_when_attention_cannot_look_that_far():
    finding = CLAIM.judge(measure_small(6, window=8))
    assert finding.verdict is Verdict.FAILS
    assert finding.numbers["attention, 2 apart"].low > 0.9  # it did learn what it can see


def test_one_cannot_tell_from_a_training_that_taught_nothing():
    finding = CLAIM.judge(measure_small(6, steps=2))
    assert finding.verdict is Verdict.UNCLEAR
    assert "all are right" not in finding.words.en
    assert "not both learned" in finding.words.en


def test_a_training_that_diverges_is_data():
    finding = CLAIM.judge(measure_small(6, distances=(2, 3), steps=3, rates=(1e30,)))
    assert finding.verdict is Verdict.UNCLEAR
    assert "counts as nothing learned: attention at distance 3 (seed 0, 1)" in (finding.words.en)
    assert finding.numbers["attention, 3 apart"].value == 0


def test_a_distance_learned_beyond_one_that_was_not_does_not_count(honest):
    right, wrong = [1.0, 1.0], [0.1, 0.1]
    accuracy = {"attention": [right, wrong, right], "lstm": [right, wrong, wrong],
                "open lstm": [right, right, wrong]}  # fmt: skip
    rates = {**honest["rates"], "50": honest["rates"]["40"]}
    words = CLAIM.judge(
        {**honest, "distances": [2, 40, 50], "accuracy": accuracy, "rates": rates}
    ).words.en
    assert "right up to distances 2, 2 and 40" in words


def test_an_lstm_that_is_right_farther_away_but_not_nearer_was_given_a_bad_rate(honest):
    right, wrong = [1.0, 1.0], [0.1, 0.1]
    accuracy = {"attention": [right] * 3, "lstm": [right, wrong, wrong],
                "open lstm": [right, wrong, [0.6, 0.6]]}  # fmt: skip
    rates = {**honest["rates"], "50": honest["rates"]["40"]}
    evidence = {**honest, "distances": [2, 40, 50], "accuracy": accuracy, "rates": rates}
    label = CLAIM.judge(evidence).label.en
    assert label == "cannot tell: LSTM with open gates got a bad rate at a shorter distance"


def test_a_rate_at_the_edge_is_mentioned(honest):
    assert "edge" not in CLAIM.judge(honest).words.en
    last = {**honest["rates"]["40"], "lstm": {"best": 0.01, "edge": True, "tried": {}}}
    words = CLAIM.judge({**honest, "rates": {**honest["rates"], "40": last}}).words
    assert "may lie beyond: LSTM at distance 40 (0.01)." in words.en
    assert "边缘" in words.zh


def test_it_does_not_hold_where_the_lstm_remembers_as_well(honest):
    near = {side: [rows[0], rows[0]] for side, rows in honest["accuracy"].items()}
    assert CLAIM.judge({**honest, "accuracy": near}).verdict is Verdict.FAILS


def test_it_holds_only_against_shut_gates_when_open_ones_reach_as_far(honest):
    accuracy = {**honest["accuracy"], "open lstm": honest["accuracy"]["attention"]}
    assert CLAIM.judge({**honest, "accuracy": accuracy}).verdict is Verdict.HOLDS_WHEN


def judged(honest, shares, lstm):
    """The verdict if the far gradient is such a share of the near one, for each seed."""
    right = honest["accuracy"]["attention"]
    gradient = {side: [[1.0, 1.0, share] for share in shares] for side in honest["gradient"]}
    accuracy = {"attention": right, "open lstm": right, "lstm": [right[0], lstm]}
    return CLAIM.judge({**honest, "gradient": gradient, "accuracy": accuracy}).verdict


@pytest.mark.parametrize(
    ("shares", "lstm", "verdict"),
    [
        ([1e-5, 1e-4], [0.1, 0.1], Verdict.FAILS),  # it fades
        ([1e-2, 1e-1], [0.1, 0.1], Verdict.HOLDS_WHEN),
        ([1e-4, 1e-1], [0.1, 0.1], Verdict.UNCLEAR),  # some seeds fade
        ([1e-2, 1e-1], [0.1, 1.0], Verdict.UNCLEAR),  # some seeds of the other remember
        ([1e-2, 1e-1], [0.9, 1.0], Verdict.FAILS),
        ([1e-4, 1e-1], [0.9, 1.0], Verdict.FAILS),
    ],
)
def test_one_cannot_tell_while_a_threshold_lies_between_the_seeds(honest, shares, lstm, verdict):
    assert judged(honest, shares, lstm) is verdict


@LANGS
def test_it_is_drawn(honest, lang):
    assert render(CLAIM, honest, lang).startswith(b"\x89PNG")
