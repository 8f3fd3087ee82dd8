"""Claim 10, made true and false."""

import pytest
import torch

from glasshead.lab.claims.c10_fixed_vector import CLAIM, OneVector, _sentences
from glasshead.lab.claims.drawing import render
from glasshead.lab.claims.verdict import Verdict
from tests.lab.claims.cases import LANGS, evidence_fixture, measure_small

honest = evidence_fixture(10)


def with_accuracy(evidence, **tasks):
    """The evidence with other accuracies for these tasks, {side: rows}."""
    rates = evidence["tasks"]["copy"]["rates"]
    found = {task: {"rates": rates, "accuracy": some} for task, some in tasks.items()}
    return {**evidence, "tasks": {**evidence["tasks"], **found}}


def copied(evidence, **sides):
    return {**evidence["tasks"]["copy"]["accuracy"], **sides}


def test_it_holds_up_to_the_trained_length(honest):
    finding = CLAIM.judge(honest)
    assert finding.verdict is Verdict.HOLDS_WHEN
    assert "for copying it holds only for sentences no longer" in finding.words.en


def test_all_sides_are_of_one_size(honest):
    sizes = honest["parameters"]
    assert sizes["attention"] == sizes["one vector"]
    assert abs(sizes["lstm"] / sizes["attention"] - 1) < 0.02


@pytest.mark.deep
def test_it_does_not_hold_when_attention_too_sees_one_vector():
    evidence = measure_small(10, attention=OneVector)
    evidence["tasks"]["copy"]["plateau"]["attention"] = [True]
    finding = CLAIM.judge(evidence)
    assert finding.verdict is Verdict.FAILS
    assert finding.numbers["copy: right at 1, attention"].low > 0.9  # one symbol does go through


@pytest.mark.parametrize("rates", [(1e-2,), (1e30,)])
def test_one_cannot_tell_from_a_training_that_taught_nothing(rates):
    tasks = ("copy", "reverse")
    finding = CLAIM.judge(measure_small(10, longest=3, steps=2, rates=rates, tasks=tasks))
    assert finding.verdict is Verdict.UNCLEAR
    assert "Not both learned" in finding.words.en
    assert "for reversing one cannot tell" in finding.words.en
    assert ("diverged" in finding.words.en) is (rates == (1e30,))


def test_reversing_gives_what_was_read_from_its_end():
    source, given, target = _sentences("reverse", 7, 5, 3, 0, 0)
    assert torch.equal(target, source.flip(1))
    assert torch.equal(given[:, 1:], target[:, :-1])
    assert torch.equal(_sentences("copy", 7, 5, 3, 0, 0)[2], source)


def test_one_cannot_tell_where_some_seeds_reach_beyond_and_some_do_not(honest):
    accuracy = {side: [row * 2 for row in rows] for side, rows in copied(honest).items()}
    accuracy["attention"] = [[1.0, 1.0]] * (len(honest["lengths"]) - 1) + [[1.0, 0.3]]
    assert CLAIM.judge(with_accuracy(honest, copy=accuracy)).verdict is Verdict.UNCLEAR


def everywhere(evidence, value):
    return [[value] for _ in evidence["lengths"]]


def test_it_holds_without_a_when_where_attention_reaches_beyond(honest):
    accuracy = copied(honest, attention=everywhere(honest, 1.0))
    assert CLAIM.judge(with_accuracy(honest, copy=accuracy)).verdict is Verdict.HOLDS


def test_it_does_not_hold_when_short_sentences_are_all_there_is(honest):
    at = honest["lengths"].index(honest["longest"])
    accuracy = {side: [*rows[:at], rows[0], *rows[at + 1 :]]
                for side, rows in copied(honest).items()}  # fmt: skip
    assert CLAIM.judge(with_accuracy(honest, copy=accuracy)).verdict is Verdict.FAILS


def test_a_task_in_which_the_vector_does_as_well_limits_the_claim(honest):
    copy = copied(honest, attention=everywhere(honest, 1.0))
    alike = dict.fromkeys(copy, everywhere(honest, 1.0))
    finding = CLAIM.judge(with_accuracy(honest, copy=copy, reverse=alike))
    assert finding.verdict is Verdict.HOLDS_WHEN
    assert "So for copying it holds; for reversing it does not hold." in finding.words.en
    assert CLAIM.judge(with_accuracy(honest, copy=copy, reverse=copy)).verdict is Verdict.HOLDS
    assert CLAIM.judge(with_accuracy(honest, copy=alike, reverse=alike)).verdict is Verdict.FAILS


def test_one_cannot_tell_where_attention_could_have_gone_on_learning(honest):
    """As in the run of 2026-11-15: attention at 55 %, an LSTM at 61 %, after 1,000 steps."""
    low = copied(honest, **{side: [[1.0], *everywhere(honest, 0.5)[1:]]
                            for side in ("attention", "lstm", "one vector")})  # fmt: skip
    stopped = with_accuracy(honest, copy=low)
    finding = CLAIM.judge(stopped)
    assert finding.label.en == "cannot tell: attention, copying, did not learn its own task"
    stopped["tasks"]["copy"]["plateau"] = {"attention": [True]}
    assert CLAIM.judge(stopped).verdict is Verdict.FAILS


@LANGS
def test_it_is_drawn(honest, lang):
    both = with_accuracy(honest, reverse=copied(honest))
    assert render(CLAIM, both, lang).startswith(b"\x89PNG")
