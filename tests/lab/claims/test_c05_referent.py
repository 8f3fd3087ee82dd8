"""Claim 5 on one small reader of each kind, and what makes it false."""

import copy

import pytest
import torch

from glasshead.lab.claims.c05_referent import CLAIM, judge
from glasshead.lab.claims.claim import Budget
from glasshead.lab.claims.drawing import render
from glasshead.lab.claims.readers import (
    GENDER,
    NAME,
    SHUFFLED,
    Training,
    answered_batch,
    classes_of,
    referents,
    seen_stories,
    train_readers,
    untrained_reader,
)
from glasshead.lab.claims.verdict import Verdict
from glasshead.training.pronouns import NOWHERE
from tests.lab.claims.cases import BARELY, LANGS, evidence_fixture, measure_small

BUDGET = Budget(True, (1,))


evidence = evidence_fixture(5)


def test_a_pronoun_looks_at_the_word_that_must_be_named_and_less_if_its_gender_will_do(evidence):
    assert judge(evidence).verdict is Verdict.HOLDS_WHEN


@pytest.mark.deep
def test_another_word_than_the_pronoun_does_not_look_at_the_referent():
    first = measure_small(5, whose=lambda story: 0)
    assert judge(first).verdict is Verdict.FAILS


def test_readers_that_learned_nothing_say_nothing():
    found = measure_small(5, training=BARELY, n_stories=13)
    assert judge(found).verdict is Verdict.UNCLEAR


def changed(evidence, **readers):
    evidence = copy.deepcopy(evidence)
    for name, figures in readers.items():
        evidence["readers"][name] |= figures
    return evidence


def test_it_holds_for_all_if_the_task_makes_no_difference(evidence):
    named = {k: evidence["readers"][NAME][k] for k in ("accuracy", "share", "weight")}
    assert judge(changed(evidence, gender=named)).verdict is Verdict.HOLDS


@pytest.mark.parametrize(
    ("figures", "verdict"),
    [
        ({"share": [0.7]}, Verdict.FAILS),
        ({"weight": [0.3]}, Verdict.FAILS),
        ({"accuracy": [0.5]}, Verdict.UNCLEAR),
        ({"share": [0.8, 0.99]}, Verdict.UNCLEAR),
    ],
)
def test_a_low_share_or_weight_refutes_it_and_an_unlearned_task_says_nothing(
    evidence, figures, verdict
):
    n = max(map(len, figures.values()))
    alike = {k: evidence["readers"][NAME][k] * n for k in ("accuracy", "share", "weight")}
    others = {name: {"share": evidence["readers"][name]["share"] * n,
                     "weight": evidence["readers"][name]["weight"] * n}
              for name in (GENDER, "untrained")}  # fmt: skip
    assert judge(changed(evidence, name=alike | figures, **others)).verdict is verdict


def test_with_another_optimizer_that_does_not_show_it_the_optimizer_is_a_condition(evidence):
    named = {k: evidence["readers"][NAME][k] for k in ("accuracy", "share", "weight")}
    with_adamw = copy.deepcopy(evidence)
    with_adamw["readers"]["name, adamw"] = named | {"share": [0.76]}
    finding = judge(with_adamw)
    assert finding.label.en.endswith("the task needs the word itself and Muon trains the reader")
    # Also where the task makes no difference.
    finding = judge(changed(with_adamw, gender=named))
    assert finding.label.en == "holds only when Muon trains the reader"


def test_no_better_than_before_training_is_not_learned_attention(evidence):
    before = {"share": evidence["readers"][NAME]["share"]}
    assert judge(changed(evidence, untrained=before)).verdict is Verdict.FAILS


def test_looking_elsewhere_in_the_documents_own_sentence_refutes_it(evidence):
    elsewhere = [float(at != evidence["referent"]) for at in range(len(evidence["words"]))]
    assert judge(changed(evidence, name={"sentence": [elsewhere]})).verdict is Verdict.FAILS


def test_a_gender_that_was_not_learned_says_nothing(evidence):
    assert judge(changed(evidence, gender={"accuracy": [0.5]})).verdict is Verdict.UNCLEAR


@LANGS
def test_it_can_be_drawn(evidence, lang):
    assert render(CLAIM, evidence, lang)[1:4] == b"PNG"


@pytest.mark.parametrize(("answers", "n"), [(NAME, len(set(referents()))), (GENDER, 3), ("7", 7)])
def test_classes_are_as_many_as_asked_for_and_named_by_one_of_their_words(answers, n):
    classes = classes_of(answers)[referents()]
    assert len(set(classes.tolist())) == n
    torch.testing.assert_close(classes_of(answers)[classes], classes)


def test_answers_by_class_stay_where_the_pronouns_are():
    batch, by_gender = answered_batch(seen_stories(11)), answered_batch(seen_stories(11), GENDER)
    assert torch.equal(by_gender.answers == NOWHERE, batch.answers == NOWHERE)
    assert len(set(by_gender.answers[by_gender.answers != NOWHERE].tolist())) <= 3


def test_readers_of_two_tasks_start_alike_and_are_trained_once():
    nothing = Training(0, 0)
    kinds = [(task, (5,), nothing) for task in (NAME, GENDER, SHUFFLED)]
    made = [some[0] for some in train_readers(BUDGET, kinds).values()]
    for one in made:
        for name, start in untrained_reader(5).named_parameters():
            assert torch.equal(one.model.get_parameter(name), start)
    assert [some[0] for some in train_readers(BUDGET, kinds).values()] == made
