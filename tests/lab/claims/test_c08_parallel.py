"""Claim 8, made true and false.

Where seconds would decide, calls of torch stand for them or the evidence is made up.
"""

import pytest
import torch

from glasshead.lab.claims import c08_parallel
from glasshead.lab.claims.c08_parallel import CLAIM, at_once, one_by_one
from glasshead.lab.claims.claim import Budget
from glasshead.lab.claims.drawing import render
from glasshead.lab.claims.verdict import Verdict
from glasshead.model.gpt import GPT, GPTConfig
from tests.lab.calls import count_by_turns
from tests.lab.claims.cases import LANGS, measure_as_json

FEW = Budget(quick=True, seeds=(0, 1))
SMALL = {"lengths": (5, 11), "device": "cpu"}


def count(**change):
    """Measure with calls of torch in place of seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(c08_parallel, "time_by_turns", count_by_turns)
        return measure_as_json(CLAIM, FEW, **SMALL, **change)


@pytest.fixture(scope="module")
def evidence():
    return count()


def with_times(evidence, attention, lstm):
    """The evidence with other seconds a step: what decides, without a clock."""
    times = {side: [[s * (1 + 0.01 * n) for n in range(3)] for s in values]
             for side, values in (("attention", attention), ("lstm", lstm))}  # fmt: skip
    return {**evidence, "seconds": dict.fromkeys(evidence["seconds"], times)}


def test_one_position_at_a_time_computes_the_same():
    torch.manual_seed(0)
    model, ids = GPT(GPTConfig(13, max_len=11, n_layers=2, d_model=16)), torch.randint(13, (3, 7))
    torch.testing.assert_close(one_by_one(model, ids), at_once(model, ids))


def test_it_does_not_hold_when_positions_are_computed_one_by_one(evidence):
    slow = count(forward=one_by_one)
    assert CLAIM.judge(slow).verdict is Verdict.FAILS
    for kind in ("one text", "full batch"):
        calls = [made["seconds"][kind]["attention"] for made in (evidence, slow)]
        for (at_once_, *_), (one_by_one_, *_), T in zip(*calls, SMALL["lengths"], strict=True):
            assert one_by_one_ > T / 2 * at_once_
    assert slow["seconds"]["writing"] == evidence["seconds"]["writing"]


@pytest.mark.deep
def test_seconds_are_measured_for_each_length_side_and_seed():
    evidence = measure_as_json(CLAIM, FEW, **SMALL, seconds=0.01)
    for sides in evidence["seconds"].values():
        for times in sides.values():
            assert [len(some) for some in times] == [2, 2]
            assert all(s > 0 for some in times for s in some)


def test_the_verdict_goes_by_the_lengths_at_which_it_is_faster(evidence):
    assert CLAIM.judge(with_times(evidence, [1, 1], [2, 3])).verdict is Verdict.HOLDS
    assert CLAIM.judge(with_times(evidence, [1, 4], [2, 3])).verdict is Verdict.HOLDS_WHEN
    assert CLAIM.judge(with_times(evidence, [3, 4], [2, 3])).verdict is Verdict.FAILS
    words = CLAIM.judge(with_times(evidence, [1, 4], [2, 3])).words.en
    assert "one text 5; full batch 5" in words


def test_what_was_not_measured_is_not_claimed_and_a_batch_of_one_text_is_called_so(evidence):
    words = CLAIM.judge(with_times(evidence, [3, 4], [2, 3])).words.en
    assert "No GPU was measured" in words
    assert "full batch is a single text" not in words
    long = {**with_times(evidence, [1, 1], [2, 3]), "lengths": [5, 4096], "texts": [409, 1]}
    assert "From 4096 tokens on, a full batch is a single text." in CLAIM.judge(long).words.en


def test_both_sides_are_of_one_size(evidence):
    sizes = evidence["parameters"].values()
    assert max(sizes) / min(sizes) < 1.02


@LANGS
def test_it_is_drawn(evidence, lang):
    assert render(CLAIM, evidence, lang).startswith(b"\x89PNG")
