"""Claim 11 on one small translator of each kind, and what would make it false."""

import copy

import pytest
import torch

from glasshead.lab.claims.c11_word_order import ARMS, CLAIM, judge, moved_words
from glasshead.lab.claims.drawing import render
from glasshead.lab.claims.translators import (
    Reach,
    TranslatorPlan,
    limit_reach,
    trace_translations,
    untrained_translator,
)
from glasshead.lab.claims.verdict import Verdict
from glasshead.text.tinyworld import World
from tests.lab.claims.cases import LANGS, evidence_fixture, measure_small

evidence = evidence_fixture(11)


def test_with_a_short_sighted_encoder_cross_attention_puts_words_in_order(evidence):
    assert judge(evidence).verdict is Verdict.HOLDS


@pytest.mark.deep
def test_cross_attention_that_sees_no_farther_than_the_control_refutes_it():
    blind = {"cross": ARMS["neither"], "neither": ARMS["neither"]}
    assert judge(measure_small(11, arms=blind)).verdict is Verdict.FAILS


def test_translators_that_learned_nothing_say_nothing():
    found = measure_small(11, settings=TranslatorPlan(2, 0), n_stories=5)
    assert judge(found).verdict is Verdict.UNCLEAR


def test_an_arm_that_is_crippled_on_purpose_need_not_have_learned_its_task(evidence):
    evidence = copy.deepcopy(evidence)
    arms = evidence["pairs"]["de,en"]["arms"]
    arms["neither"]["right kept"] = [0.5]
    assert judge(evidence).verdict is Verdict.HOLDS
    arms["cross"]["right kept"] = [0.5]
    label = "cannot tell: the translator with free cross-attention did not learn its own task"
    assert judge(evidence).label.en == label


def test_cross_attention_that_does_no_better_than_the_control_refutes_it(evidence):
    evidence = copy.deepcopy(evidence)
    arms = evidence["pairs"]["de,en"]["arms"]
    for figure in ("exact", "right moved", "points moved"):
        arms["cross"][figure] = arms["neither"][figure]
    assert judge(evidence).verdict is Verdict.FAILS


def test_a_map_no_better_than_the_diagonal_leaves_only_the_translation(evidence):
    evidence = copy.deepcopy(evidence)
    found = evidence["pairs"]["de,en"]
    found["arms"]["cross"]["points moved"] = [found["diagonal"]["points moved"]]
    finding = judge(evidence)
    assert finding.verdict is Verdict.HOLDS_WHEN
    evidence["pairs"]["zh,de"] = copy.deepcopy(found)
    evidence["pairs"]["zh,de"]["arms"]["cross"]["exact"] = found["arms"]["neither"]["exact"]
    assert judge(evidence).words.en.startswith("Holds only for de→en.")
    found["arms"]["cross"]["right kept"] = [0.5]
    assert judge(evidence).verdict is Verdict.UNCLEAR


def test_words_move_where_their_links_cross():
    assert moved_words(frozenset({(0, 0), (1, 1), (2, 2)})) == set()
    assert moved_words(frozenset({(0, 1), (1, 0), (2, 2)})) == {0, 1}


def test_a_reach_bounds_what_is_looked_at_and_is_gone_afterwards():
    langs, story = ("de", "en"), World().story("test", 3)
    model = untrained_translator(langs, 3)
    near = trace_translations(model, Reach(cross=1, encoder=1), langs, [story]).maps[0]
    places = torch.arange(near.shape[3]) - torch.arange(near.shape[2])[:, None]
    assert near[..., places.abs() > 1].abs().max() == 0
    far = trace_translations(model, Reach(), langs, [story]).maps[0]
    assert far[..., places.abs() > 1].max() > 0
    with limit_reach(model, Reach(encoder=1)):
        bounded = model.encode(torch.arange(3, 16)[None]).x
    assert not torch.equal(bounded, model.encode(torch.arange(3, 16)[None]).x)


@LANGS
def test_it_can_be_drawn(evidence, lang):
    assert render(CLAIM, evidence, lang)[1:4] == b"PNG"
