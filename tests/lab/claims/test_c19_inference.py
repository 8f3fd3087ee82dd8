"""Claim 19, made true and false."""

import pytest

from glasshead.lab.claims.c19_inference import CLAIM, decode_plainly
from glasshead.lab.claims.claim import Budget
from glasshead.lab.claims.verdict import Verdict
from glasshead.model.gpt import GPT
from tests.lab.claims.cases import verdict_of

ONE = Budget(quick=True, seeds=(0,))


def leave_on(model):
    model.train()


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({}, Verdict.HOLDS),
        pytest.param({"left": GPT.eval}, Verdict.HOLDS, marks=pytest.mark.deep),
        pytest.param({"off": leave_on}, Verdict.FAILS, marks=pytest.mark.deep),
        pytest.param({"decode": decode_plainly}, Verdict.HOLDS_WHEN, marks=pytest.mark.deep),
        pytest.param({"dropout": 0.0}, Verdict.UNCLEAR, marks=pytest.mark.deep),
    ],
    ids=["as it is", "training turns it off", "left on", "generates with it on", "no dropout"],
)
def test_the_verdict_follows_the_switch(change, verdict):
    assert verdict_of(CLAIM, ONE, steps=20, **change) is verdict


# What share of the texts differ where dropout is on, as training leaves it, after eval() and by
# the package's own generate.
@pytest.mark.parametrize(
    ("on", "left", "off", "ours", "verdict"),
    [
        (0.9, 0.9, 0.0, 0.0, Verdict.HOLDS),
        (0.9, 0.0, 0.0, 0.0, Verdict.HOLDS),  # a training that cleans up behind itself
        (0.9, 0.9, 0.2, 0.0, Verdict.FAILS),  # eval() that does nothing
        (0.9, 0.9, 0.0, 0.1, Verdict.HOLDS_WHEN),  # a generate that leaves dropout on
        (0.0, 0.0, 0.0, 0.0, Verdict.UNCLEAR),  # nothing to turn off
    ],
)
def test_the_verdict_follows_the_texts_that_differ(on, left, off, ours, verdict):
    differ = {"on": [on] * 2, "left": [left] * 2, "off": [off] * 2, "ours": [ours] * 2}
    losses = {"on": [2.5, 2.25], "off": [2.0, 2.125]}
    evidence = {"dropout": 0.2, "steps": 20, "prompts": 16, "written": 24}
    assert CLAIM.judge(evidence | {"differ": differ, "losses": losses}).verdict is verdict
