"""Claim 3, made true and false by masks that leak."""

import torch

from glasshead.attention.mask import Mask
from glasshead.lab.claims.c03_causal import CLAIM, run_unmasked
from glasshead.lab.claims.claim import Budget
from glasshead.lab.claims.models import features_under
from glasshead.lab.claims.verdict import Verdict
from glasshead.model.gpt import GPT, GPTConfig
from tests.lab.claims.cases import verdict_of

ONE = Budget(quick=True, seeds=(0,))


def test_it_holds():
    assert verdict_of(CLAIM, ONE) is Verdict.HOLDS


def test_it_does_not_hold_without_a_mask():
    assert verdict_of(CLAIM, ONE, forward=run_unmasked) is Verdict.FAILS


def test_it_does_not_hold_when_the_mask_leaks_one_position():
    def leaking(model, ids):
        T = ids.shape[1]
        mask = Mask(dense=torch.ones(T, T).tril(1).bool())
        return model.logits(features_under(model, ids, mask))

    assert verdict_of(CLAIM, ONE, forward=leaking) is Verdict.FAILS


def test_it_does_not_hold_when_only_the_gradient_leaks():
    def leaking(model, ids):
        future = model.embedding(ids).flip(1).cumsum(1).flip(1)
        none = (future - future.detach()) @ model.head.weight.T
        return model(ids) + none

    assert verdict_of(CLAIM, ONE, forward=leaking) is Verdict.FAILS


def test_it_does_not_hold_when_one_kind_of_model_alone_leaks():
    def leaking(model, ids):
        return run_unmasked(model, ids) if model.config.positions == "alibi" else model(ids)

    assert verdict_of(CLAIM, ONE, forward=leaking) is Verdict.FAILS


def test_under_its_own_mask_a_gpt_gives_what_it_gives():
    for positions in ("none", "learned", "rotary", "alibi"):
        model = GPT(
            GPTConfig(29, max_len=23, n_layers=2, n_heads=2, d_model=28, positions=positions)
        )
        ids = torch.randint(29, (3, 17))
        torch.testing.assert_close(
            features_under(model, ids, Mask(causal=True)), model.features(ids)
        )
