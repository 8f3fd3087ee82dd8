"""Claim 8, made true and false."""

import torch

from glasshead.lab.claims.c08_parallel import CLAIM, at_once, one_by_one
from glasshead.lab.claims.claim import Budget, Verdict
from glasshead.lab.claims.drawing import render
from glasshead.model.gpt import GPT, GPTConfig
from tests.lab.claims.cases import measured

FEW = Budget(quick=True, seeds=(0, 1))
SMALL = {"lengths": (13, 31), "seconds": 0.01, "device": "cpu"}


def with_times(evidence, attention, lstm):
    """The evidence with other seconds a step: what decides, without a clock."""
    times = {side: [[s * (1 + 0.01 * n) for n in range(3)] for s in values]
             for side, values in (("attention", attention), ("lstm", lstm))}  # fmt: skip
    return {**evidence, "seconds": dict.fromkeys(evidence["seconds"], times)}


def test_one_position_at_a_time_computes_the_same():
    torch.manual_seed(0)
    model, ids = GPT(GPTConfig(13, max_len=11, n_layers=2, d_model=16)), torch.randint(13, (3, 7))
    torch.testing.assert_close(one_by_one(model, ids), at_once(model, ids))


def test_it_does_not_hold_when_positions_are_computed_one_by_one():
    evidence = measured(CLAIM, FEW, **SMALL, forward=one_by_one)
    assert CLAIM.judge(evidence).verdict is Verdict.FAILS


def test_the_verdict_goes_by_the_lengths_at_which_it_is_faster():
    evidence = measured(CLAIM, FEW, **SMALL)
    assert CLAIM.judge(with_times(evidence, [1, 1], [2, 3])).verdict is Verdict.HOLDS
    assert CLAIM.judge(with_times(evidence, [1, 4], [2, 3])).verdict is Verdict.HOLDS_WHEN
    assert CLAIM.judge(with_times(evidence, [3, 4], [2, 3])).verdict is Verdict.FAILS
    assert (
        "one text 13; full batch 13" in CLAIM.judge(with_times(evidence, [1, 4], [2, 3])).words.en
    )


def test_what_was_not_measured_is_not_claimed_and_a_batch_of_one_text_is_called_so():
    evidence = measured(CLAIM, FEW, **SMALL)
    words = CLAIM.judge(with_times(evidence, [3, 4], [2, 3])).words.en
    assert "No GPU was measured" in words
    assert "full batch is one text" not in words
    long = {**with_times(evidence, [1, 1], [2, 3]), "lengths": [13, 4096], "texts": [157, 1]}
    assert "From 4096 tokens on, a full batch is one text." in CLAIM.judge(long).words.en


def test_both_sides_are_of_one_size_and_drawn():
    evidence = measured(CLAIM, FEW, **SMALL)
    sizes = evidence["parameters"].values()
    assert max(sizes) / min(sizes) < 1.02
    for lang in ("en", "zh"):
        assert render(CLAIM, evidence, lang).startswith(b"\x89PNG")
