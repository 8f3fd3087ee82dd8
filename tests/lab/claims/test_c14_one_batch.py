"""Claim 14, made true and false; its loop gives what the batch gives."""

import time

import torch

from glasshead.attention.multihead import MultiHeadAttention
from glasshead.lab.claims.c14_one_batch import CLAIM, in_one_batch, looped
from glasshead.lab.claims.claim import Budget, Verdict
from tests.lab.claims.cases import verdict_of

TWO = Budget(quick=True, seeds=(0, 1))
SMALL = {"sizes": ((1, 4),), "seconds": 0.1}


def slowed(layer, x):
    time.sleep(0.002)
    return in_one_batch(layer, x)


def test_the_loop_computes_the_same():
    layer = MultiHeadAttention(28, 4)
    x = torch.randn(3, 11, 28)
    torch.testing.assert_close(looped(layer, x), in_one_batch(layer, x))


def test_it_holds_on_a_text_of_four_words():
    assert verdict_of(CLAIM, TWO, **SMALL) is Verdict.HOLDS


def test_it_does_not_hold_when_the_batch_is_slowed_down():
    assert verdict_of(CLAIM, TWO, batch=slowed, **SMALL) is Verdict.FAILS


def test_it_does_not_hold_when_both_are_the_loop():
    assert verdict_of(CLAIM, TWO, batch=looped, **SMALL) is not Verdict.HOLDS


def test_it_holds_only_at_some_sizes():
    def slow_when_long(layer, x):
        return slowed(layer, x) if x.shape[1] > 4 else in_one_batch(layer, x)

    sizes = {"sizes": ((1, 4), (1, 5)), "seconds": 0.1}
    assert verdict_of(CLAIM, TWO, batch=slow_when_long, **sizes) is Verdict.HOLDS_WHEN
