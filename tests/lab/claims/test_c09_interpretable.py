"""Claim 9 on one small reader of each kind, and what would make it false."""

import copy

import pytest
import torch

from glasshead.lab.claims.c09_interpretable import CLAIM, _stories, judge
from glasshead.lab.claims.drawing import render
from glasshead.lab.claims.readers import GENDER, LANG, NAME
from glasshead.lab.claims.verdict import Verdict
from tests.lab.claims.cases import BARELY, LANGS, evidence_fixture, measure_small

evidence = evidence_fixture(9)


def test_the_answer_rests_on_the_word_looked_at_but_not_on_one_head(evidence):
    finding = judge(evidence)
    assert finding.verdict is Verdict.HOLDS_WHEN
    assert "the only place" in finding.words.en


@pytest.mark.deep
def test_hiding_the_word_that_is_not_looked_at_refutes_it():
    swapped = measure_small(9, choose=lambda weights: weights.argmin(1))
    assert judge(swapped).verdict is Verdict.FAILS


def test_it_does_not_hold_where_hiding_either_word_changes_as_much(evidence):
    evidence = copy.deepcopy(evidence)
    for reader in (NAME, GENDER):
        evidence["readers"][reader] |= {"accuracy": [1.0]}
        for place in ("best", "all"):
            evidence["readers"][reader] |= {f"looked, {place}": [0.1], f"other, {place}": [0.1]}
    assert judge(evidence).verdict is Verdict.FAILS


def test_readers_that_learned_nothing_say_nothing():
    found = measure_small(9, training=BARELY, n_stories=7)
    assert judge(found).verdict is Verdict.UNCLEAR


def test_it_holds_if_every_head_and_task_rests_on_the_word(evidence):
    evidence = copy.deepcopy(evidence)
    for reader in (NAME, GENDER):
        evidence["readers"][reader] |= {"accuracy": [1.0]}
        for place in ("best", "all"):
            evidence["readers"][reader] |= {f"looked, {place}": [0.9], f"other, {place}": [0.1]}
    assert judge(evidence).verdict is Verdict.HOLDS
    evidence["readers"][GENDER]["looked, best"] = [0.2]
    assert judge(evidence).words.en.startswith("Holds only when the map is read as pointing")
    evidence["readers"][GENDER]["accuracy"] = [0.5]
    assert judge(evidence).verdict is Verdict.UNCLEAR


def test_both_nouns_are_as_often_meant_and_as_far_away():
    stories, pairs = _stories(23)
    pronouns = torch.tensor([story.pronouns[LANG][-1].index for story in stories])
    meant = torch.tensor([story.pronouns[LANG][-1].referent_index for story in stories])
    is_actor = meant == pairs[:, 0]
    assert is_actor.sum() * 2 == len(stories)
    other = torch.where(is_actor, pairs[:, 1], pairs[:, 0])
    apart = ((pronouns - meant).sum() - (pronouns - other).sum()).abs() / len(stories)
    assert apart < 0.5
    assert all(story.actor.gender != story.thing.gender for story in stories)


@LANGS
def test_it_can_be_drawn(evidence, lang):
    assert render(CLAIM, evidence, lang)[1:4] == b"PNG"
