"""Claim 16, made true and false."""

import pytest

from glasshead.lab.claims.c16_residual import CLAIM
from glasshead.lab.claims.drawing import render
from glasshead.lab.claims.verdict import Verdict
from tests.lab.claims.cases import LANGS, evidence_fixture, measure_small

honest = evidence_fixture(16)


def test_it_holds(honest):
    assert CLAIM.judge(honest).verdict is Verdict.HOLDS


@pytest.mark.deep
def test_it_does_not_hold_when_the_residual_is_cut():
    finding = CLAIM.judge(measure_small(16, residual=False))
    assert finding.verdict is Verdict.FAILS
    assert finding.numbers["one layer below character frequencies by"].low > 0.1


def test_one_cannot_tell_from_a_training_that_taught_nothing():
    finding = CLAIM.judge(measure_small(16, steps=1, residual=False))
    assert finding.verdict is Verdict.UNCLEAR
    assert "so one cannot tell" in finding.words.en


@pytest.mark.parametrize("side", ["without", "with"])
def test_one_cannot_tell_where_a_gradient_straddles_the_threshold(honest, side):
    first, _ = honest["gradient"][side]
    deep = [[1e-5 * first[0], first[1]]]
    gradient = {**honest["gradient"], side: [first, *deep]}
    assert CLAIM.judge({**honest, "gradient": gradient}).verdict is Verdict.UNCLEAR


def test_one_seed_of_two_that_bursts_does_not_tell(honest):
    first, last = honest["gradient"]["with"]
    gradient = {**honest["gradient"], "with": [first, [1e5 * first[0], last[1]]]}
    assert CLAIM.judge({**honest, "gradient": gradient}).verdict is Verdict.UNCLEAR


def test_it_does_not_hold_when_nothing_vanishes_without(honest):
    gradient = {**honest["gradient"], "without": honest["gradient"]["with"]}
    assert CLAIM.judge({**honest, "gradient": gradient}).verdict is Verdict.FAILS


def test_it_does_not_hold_when_the_deep_net_learns_nothing_all_the_same(honest):
    losses = {**honest["losses"], "with": [honest["unigram"]] * 2}
    assert CLAIM.judge({**honest, "losses": losses}).verdict is Verdict.FAILS


def test_it_holds_only_with_norms_when_gradients_burst(honest):
    first, last = honest["gradient"]["with"]
    gradient = {**honest["gradient"], "with": [first, [1e5 * value for value in last]]}
    assert CLAIM.judge({**honest, "gradient": gradient}).verdict is Verdict.HOLDS_WHEN


@LANGS
def test_it_is_drawn(honest, lang):
    assert render(CLAIM, honest, lang).startswith(b"\x89PNG")
