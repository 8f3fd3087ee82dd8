"""`glasshead ask`: answers inside of the world, and outside of it says so."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import glasshead
from bench.ask import inside, measure, outside
from glasshead.errors import InputError
from glasshead.lab.ask import AnswerCalibration, Asked, PronounAnswer, Respondent
from glasshead.lab.ask_tables import show
from glasshead.lab.demo_training import TrainingJob, train_all
from glasshead.text.tinyworld import World

STORY = World.seed_story().text("zh")


@pytest.fixture(scope="module")
def untrained(tmp_path_factory):
    """A reader after one step: it has learned nothing."""
    path = tmp_path_factory.mktemp("runs") / "reader"
    flags = {"stories": 67, "val_stories": 5, "steps": 1, "eval_every": 1, "seed": 3, "world": 3}
    train_all([TrainingJob("reader", "refer", "reader", path, flags)], lambda *_: None)
    return path


def test_a_reader_that_has_not_learned_is_not_sure_of_an_answer(untrained):
    asked = Respondent(untrained).ask(STORY)
    assert (asked.is_inside, asked.outside) == (False, "unsure")
    assert asked.confidence <= asked.least
    assert [one.index for one in asked.answers] == [4, 26]


def test_what_is_outside_gets_no_answer_from_any_model(untrained):
    respondent = Respondent(untrained)
    found = {text: respondent.ask(text).outside for _, text in outside("zh", 40)}
    assert "" not in found.values()
    assert {"shape", "ambiguous", "unknown"} <= set(found.values())
    assert "unsure" not in found.values()  # the grammar tells, before the model is asked


def test_the_command_says_why_there_is_no_answer(cli, untrained):
    code, out, _ = cli("ask", untrained, "它饿坏了。")
    assert code == 0
    assert out.startswith("Outside of what this model can know")
    assert "它的小世界里没有“恐龙”" in cli("ask", untrained, "恐龙饿坏了。", "--lang", "zh").out
    found = json.loads(cli("ask", untrained, "它饿坏了。", "--json").out)
    assert (found["inside"], found["outside"], found["answers"]) == (False, "shape", [])


def test_a_run_of_another_kind_cannot_be_asked(cli, tmp_path):
    run = glasshead.train("小猫饿了。\n" * 30, steps=2, d_model=16, max_len=8, quiet=True,
                          out=tmp_path / "gpt")  # fmt: skip
    with pytest.raises(InputError, match="no reader or translator"):
        glasshead.ask(run, STORY)
    assert "no sentence" in cli("ask", run.path, " ").err


def test_calibration_is_never_surer_than_the_model_and_answers_above_its_mistakes():
    torch.manual_seed(0)
    answers = torch.randint(0, 7, (211,))
    logits = torch.nn.functional.one_hot(answers, 7) * 3.0
    logits[:31] = torch.nn.functional.one_hot((answers[:31] + 1) % 7, 7) * 6.0  # sure and wrong
    found = AnswerCalibration.fit(logits, answers, (0, 0))
    assert found.temperature > 1
    sure = found.probabilities(logits).max(-1).values
    assert found.least == pytest.approx(sure[:31].max().item())
    right = AnswerCalibration.fit(logits[31:], answers[31:], (0, 0))
    assert right.temperature == 1
    assert right.least == 0.5


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_an_answer_shows_the_arc_and_what_cutting_it_changes(lang):
    answer = PronounAnswer(4, "它", "小猫", 0.99, 2, 0.9, "蝴蝶", 0.8)
    asked = Asked("", "zh", "", words=("那", "个", "小猫", "，", "它"), answers=(answer,),
                  confidence=0.99, least=0.5)  # fmt: skip
    lines = [line.plain for line in show(asked, lang)]
    assert "小猫" in lines[1]
    assert "它 → 小猫" in lines[2]
    assert "蝴蝶" in lines[3]
    same = replace(asked, answers=(replace(answer, cut_word="小猫"),))
    assert list(show(same, lang))[3].plain != lines[3]


@pytest.mark.deep
def test_trained_models_answer_inside_and_say_outside(tmp_path):
    """500 sentences of the world and 200 outside of it, for a reader and a translator."""
    jobs = [
        TrainingJob("reader", "refer", "reader", tmp_path / "reader", {"seed": 1, "world": 1}),
        TrainingJob("translator", "world", "translator", tmp_path / "translator",
                    {"seed": 1, "world": 1}),
    ]  # fmt: skip
    train_all(jobs, lambda *_: None)
    for name, least in (("reader", 0.98), ("translator", 0.95)):
        found = measure(Respondent(Path(tmp_path / name)), inside(500))
        told, of = found.outside
        assert of == 200
        assert told >= 0.95 * of
        assert found.confident == ()
        assert found.right >= least * 500
