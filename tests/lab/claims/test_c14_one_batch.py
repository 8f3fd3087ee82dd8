"""Claim 14, made true and false; its loop gives what the batch gives.

Calls of torch stand for seconds: a loop over eight heads makes eight times as many.
"""

import pytest
import torch

from glasshead.attention.multihead import MultiHeadAttention
from glasshead.lab.claims import c14_one_batch
from glasshead.lab.claims.c14_one_batch import CAUSAL, CLAIM, InOneBatch, Looped
from glasshead.lab.claims.claim import Budget
from glasshead.lab.claims.verdict import Verdict
from tests.lab.calls import count_by_turns
from tests.lab.claims.cases import measure_as_json, verdict_of

FEW = Budget(quick=True, seeds=(0, 1))
SMALL = {"sizes": ((1, 4),)}


@pytest.fixture(autouse=True)
def counted(monkeypatch):
    monkeypatch.setattr(c14_one_batch, "time_by_turns", count_by_turns)


class Slowed(InOneBatch):
    """A thousand calls more than it needs."""

    def forward(self, x):
        for _ in range(1000):
            x = x + 0
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


def test_it_holds_where_the_loop_takes_longer():
    assert verdict_of(CLAIM, FEW, **SMALL) is Verdict.HOLDS


def test_it_does_not_hold_when_the_batch_is_slowed_down():
    assert verdict_of(CLAIM, FEW, batch=Slowed, **SMALL) is Verdict.FAILS


def test_it_does_not_hold_when_both_are_the_loop():
    assert verdict_of(CLAIM, FEW, batch=Looped, **SMALL) is Verdict.FAILS


def test_it_holds_only_at_some_sizes():
    class SlowWhenLong(Slowed):
        def forward(self, x):
            return super().forward(x) if x.shape[1] > 4 else self.layer(x, mask=CAUSAL).out

    sizes = ((1, 4), (1, 5))
    assert verdict_of(CLAIM, FEW, batch=SlowWhenLong, sizes=sizes) is Verdict.HOLDS_WHEN


def test_one_cannot_tell_where_seeds_disagree():
    evidence = measure_as_json(CLAIM, FEW, **SMALL)
    times = {"batch": [[1.0, 1.0]], "loop": [[1.0, 2.0]]}
    evidence["seconds"] = dict.fromkeys(evidence["seconds"], times)
    assert CLAIM.judge(evidence).verdict is Verdict.UNCLEAR


@pytest.mark.deep
def test_seconds_are_measured_for_each_size_side_and_seed(monkeypatch):
    monkeypatch.undo()  # the clock again; what it says decides nothing here
    evidence = measure_as_json(CLAIM, FEW, sizes=((1, 4), (1, 5)), seconds=0.01)
    for sides in evidence["seconds"].values():
        assert all(len(sides[side]) == 2 for side in ("batch", "loop"))
        assert all(s > 0 for times in sides.values() for some in times for s in some)
        assert all(len(some) == 2 for times in sides.values() for some in times)
