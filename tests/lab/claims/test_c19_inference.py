"""Claim 19, made true and false."""

import pytest

from glasshead.lab.claims.c19_inference import CLAIM, plain
from glasshead.lab.claims.claim import Budget, Verdict
from glasshead.model.gpt import GPT
from tests.lab.claims.cases import verdict_of

ONE = Budget(quick=True, seeds=(0,))


def leave_on(model):
    model.train()


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({}, Verdict.HOLDS_WHEN),
        ({"left": GPT.eval}, Verdict.HOLDS),  # a training that cleans up behind itself
        ({"off": leave_on}, Verdict.FAILS),  # eval() that does nothing
        ({"decode": plain}, Verdict.FAILS),  # a generate that leaves dropout on
        ({"dropout": 0.0}, Verdict.UNCLEAR),  # nothing to put off
    ],
    ids=["as it is", "training puts it off", "left on", "generates with it on", "no dropout"],
)
def test_the_verdict_follows_the_switch(change, verdict):
    assert verdict_of(CLAIM, ONE, steps=20, **change) is verdict
