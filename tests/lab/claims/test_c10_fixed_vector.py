"""Claim 10, made true and false."""

import pytest

from glasshead.lab.claims.c10_fixed_vector import CLAIM, OneVector
from glasshead.lab.claims.claim import Budget, Verdict
from glasshead.lab.claims.drawing import render
from tests.lab.claims.cases import measured

FEW = Budget(quick=True, seeds=(0,))
SMALL = {"longest": 12, "steps": 200, "rates": (1e-2,)}


@pytest.fixture(scope="module")
def honest():
    return measured(CLAIM, FEW, **SMALL)


def test_it_holds_up_to_the_trained_length(honest):
    finding = CLAIM.judge(honest)
    assert finding.verdict is Verdict.HOLDS_WHEN
    assert "for copying" in finding.words.en


def test_all_sides_are_of_one_size(honest):
    sizes = honest["parameters"]
    assert sizes["attention"] == sizes["one vector"]
    assert abs(sizes["lstm"] / sizes["attention"] - 1) < 0.02


def test_it_does_not_hold_when_attention_too_sees_one_vector():
    finding = CLAIM.judge(measured(CLAIM, FEW, **SMALL, attention=OneVector))
    assert finding.verdict is Verdict.FAILS
    assert finding.numbers["right at 1, attention"].low > 0.9  # one symbol does go through


def test_one_cannot_tell_from_a_training_that_taught_nothing():
    finding = CLAIM.judge(measured(CLAIM, FEW, **{**SMALL, "steps": 1}))
    assert finding.verdict is Verdict.UNCLEAR
    assert "not learned by both" in finding.words.en


def test_one_cannot_tell_where_some_seeds_reach_beyond_and_some_do_not(honest):
    accuracy = {side: [row * 2 for row in rows] for side, rows in honest["accuracy"].items()}
    accuracy["attention"] = [[1.0, 1.0]] * (len(honest["lengths"]) - 1) + [[1.0, 0.3]]
    assert CLAIM.judge({**honest, "accuracy": accuracy}).verdict is Verdict.UNCLEAR


def test_it_holds_without_a_when_where_attention_reaches_beyond(honest):
    right = [[1.0] for _ in honest["lengths"]]
    accuracy = {**honest["accuracy"], "attention": right}
    assert CLAIM.judge({**honest, "accuracy": accuracy}).verdict is Verdict.HOLDS


def test_it_does_not_hold_when_short_sentences_are_all_there_is(honest):
    at = honest["lengths"].index(honest["longest"])
    accuracy = {side: [*rows[:at], rows[0], *rows[at + 1 :]]
                for side, rows in honest["accuracy"].items()}  # fmt: skip
    assert CLAIM.judge({**honest, "accuracy": accuracy}).verdict is Verdict.FAILS


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_it_is_drawn(honest, lang):
    assert render(CLAIM, honest, lang).startswith(b"\x89PNG")
