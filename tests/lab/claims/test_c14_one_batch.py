"""Claim 14, made true and false; its loop gives what the batch gives."""

import time

import torch

from glasshead.attention.multihead import MultiHeadAttention
from glasshead.lab.claims.c14_one_batch import CAUSAL, CLAIM, InOneBatch, Looped
from glasshead.lab.claims.claim import Budget, Verdict
from tests.lab.claims.cases import verdict_of

# Of two seeds the interval is so wide that a busy machine hides any difference.
FIVE = Budget(quick=True, seeds=(0, 1, 2, 3, 4))
SMALL = {"sizes": ((1, 4),), "seconds": 0.04}


class Slowed(InOneBatch):
    def forward(self, x):
        time.sleep(0.02)
        return super().forward(x)


def test_the_loop_computes_the_same():
    layer = MultiHeadAttention(28, 4)
    x = torch.randn(3, 11, 28)
    torch.testing.assert_close(Looped(layer)(x), InOneBatch(layer)(x))


def test_each_head_of_the_loop_has_parameters_of_its_own():
    layer = MultiHeadAttention(28, 4)
    loop = Looped(layer)
    shapes = [tuple(p.shape) for p in loop.heads.parameters()]
    assert shapes == [(7, 28)] * 3 * 4
    assert sum(p.numel() for p in loop.parameters()) == sum(p.numel() for p in layer.parameters())
    assert {p.data_ptr() for p in loop.parameters()}.isdisjoint(
        p.data_ptr() for p in layer.parameters()
    )


def test_it_holds_on_a_text_of_four_words():
    assert verdict_of(CLAIM, FIVE, **SMALL) is Verdict.HOLDS


def test_it_does_not_hold_when_the_batch_is_slowed_down():
    assert verdict_of(CLAIM, FIVE, batch=Slowed, **SMALL) is Verdict.FAILS


def test_it_does_not_hold_when_both_are_the_loop():
    assert verdict_of(CLAIM, FIVE, batch=Looped, **SMALL) is not Verdict.HOLDS


def test_it_holds_only_at_some_sizes():
    class SlowWhenLong(Slowed):
        def forward(self, x):
            return super().forward(x) if x.shape[1] > 4 else self.layer(x, mask=CAUSAL).out

    sizes = {"sizes": ((1, 4), (1, 5)), "seconds": 0.04}
    assert verdict_of(CLAIM, FIVE, batch=SlowWhenLong, **sizes) is Verdict.HOLDS_WHEN
