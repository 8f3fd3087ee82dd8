"""Claim 12 on one small reader, and what would make it false."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glasshead.lab.attention_maps import self_attentions
from glasshead.lab.claims.c12_heads import CLAIM, divergence, judge
from glasshead.lab.claims.drawing import render
from glasshead.lab.claims.readers import untrained_reader
from glasshead.lab.claims.verdict import Verdict
from tests.lab.claims.cases import BARELY, LANGS, evidence_fixture, measure_small

evidence = evidence_fixture(12)


def test_heads_of_a_trained_reader_look_at_different_words(evidence):
    assert judge(evidence).verdict is not Verdict.FAILS
    assert evidence["apart"][0][0] > evidence["apart before"][0][0]


def test_heads_that_are_copies_of_one_refute_it():
    def copies(model):
        """Every head of a layer becomes its first, in a copy of the model."""
        model = copy.deepcopy(model)
        for layer in self_attentions(model.encoder):
            for rows in (layer.qkv.weight.data, layer.qkv.bias.data):
                heads = rows.view(3, layer.n_heads, layer.d_head, *rows.shape[1:])
                heads[:] = heads[:, :1].clone()
        return model

    same = measure_small(12, alter=copies, training=BARELY, n_stories=7)
    assert same["apart"][0] == pytest.approx([0, 0], abs=1e-6)
    # Such a reader is no longer right; that alone would be no verdict.
    same["accuracy"] = [1.0]
    assert judge(same).verdict is Verdict.FAILS


def test_heads_as_they_were_before_training_refute_it():
    same = measure_small(12, alter=lambda model: untrained_reader(1), training=BARELY, n_stories=7)
    same["accuracy"] = [1.0]  # as above
    assert judge(same).verdict is Verdict.FAILS


def test_what_can_go_decides_between_different_looks_and_different_work(evidence):
    evidence = copy.deepcopy(evidence)
    n = evidence["heads"]
    evidence |= {"accuracy": [1.0], "together": [[0.5] * n], "apart": [[0.6, 0.6]]}
    evidence |= {"unrelated": [[0.8, 0.8]], "apart before": [[0.05, 0.05]]}
    assert judge(evidence).verdict is Verdict.HOLDS
    evidence["together"] = [[1.0] * (n - 1) + [0.1]]
    assert judge(evidence).verdict is Verdict.HOLDS_WHEN
    evidence |= {"together": [[0.5] * n], "apart": [[0.6, 0.1]]}
    finding = judge(evidence)
    assert finding.verdict is Verdict.HOLDS_WHEN
    assert finding.words.en.startswith("Holds only in layer 0.")
    evidence["apart"] = [[0.2, 0.1]]
    assert judge(evidence).verdict is Verdict.FAILS
    evidence["accuracy"] = [0.5]
    assert judge(evidence).verdict is Verdict.UNCLEAR


def test_without_all_heads_the_reader_guesses(evidence):
    assert evidence["together"][0][-1] < 0.5 < evidence["accuracy"][0]
    assert len(evidence["singly"][0]) == evidence["heads"] == 8


@given(st.integers(0, 10**6))
def test_divergence_lies_between_0_and_1_and_has_no_direction(seed):
    p, q = torch.rand(2, 7, generator=torch.Generator().manual_seed(seed)).softmax(-1)
    assert -1e-6 <= divergence(p, q) <= 1
    torch.testing.assert_close(divergence(p, q), divergence(q, p))
    assert divergence(p, p).abs() < 1e-6


@LANGS
def test_it_can_be_drawn(evidence, lang):
    assert render(CLAIM, evidence, lang)[1:4] == b"PNG"
