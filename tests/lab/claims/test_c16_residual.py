"""Claim 16, made true and false."""

import pytest

from glasshead.lab.claims.c16_residual import CLAIM
from glasshead.lab.claims.claim import Budget, Verdict
from glasshead.lab.claims.drawing import render
from tests.lab.claims.cases import measured

FEW = Budget(quick=True, seeds=(0, 1))
SMALL = {"depths": (1, 6), "depth": 4, "steps": 40, "rates": (3e-3,)}


@pytest.fixture(scope="module")
def honest():
    return measured(CLAIM, FEW, **SMALL)


def test_it_holds(honest):
    assert CLAIM.judge(honest).verdict is Verdict.HOLDS


def test_it_does_not_hold_when_the_residual_is_cut():
    evidence = measured(CLAIM, FEW, depths=(1, 6), depth=4, steps=3, rates=(3e-3,), residual=False)
    assert CLAIM.judge(evidence).verdict is Verdict.FAILS


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


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_it_is_drawn(honest, lang):
    assert render(CLAIM, honest, lang).startswith(b"\x89PNG")
