"""The learner's code in a small model: its weights are read exactly, whatever computes them."""

from dataclasses import replace

import pytest
import torch

from glasshead.lab.exercises.catalog import exercises, find_exercise
from glasshead.lab.exercises.learner import load_file
from glasshead.lab.exercises.looking import LookModel, LookParts, look, read_weights
from glasshead.lab.exercises.reversing import ReversalModel, learner_translator, show_reversal

IN_LADDER = [each.name for each in exercises() if hasattr(each.module, "parts")]
T, VOCABULARY = 7, 29


@pytest.fixture
def learner(tmp_path):
    def load(name, edit=("", "")):
        path = tmp_path / f"{name}.py"
        path.write_text(find_exercise(name).solution("en").replace(*edit), encoding="utf-8")
        return load_file(path)

    return load


def test_every_exercise_has_something_to_look_at():
    for each in exercises():
        assert hasattr(each.module, "parts") != hasattr(each.module, "look"), each.name
    assert len(IN_LADDER) == 11


@pytest.mark.parametrize("name", IN_LADDER)
def test_the_weights_of_the_learners_code_are_shown(name, learner):
    parts = replace(LookParts(), **find_exercise(name).module.parts(learner(name)))
    torch.manual_seed(3)
    model = (parts.model or LookModel)(VOCABULARY, parts)
    layers = read_weights(model, torch.randint(VOCABULARY, (1, T)))
    assert [weights.shape for weights in layers] == [(4, T, T)] * 3
    for weights in layers:
        assert torch.allclose(weights.sum(-1), torch.ones(4, T), atol=1e-5)
        assert weights.triu(1).abs().max() == 0
        assert not torch.allclose(weights[0], weights[1])


def test_a_learner_who_looks_ahead_sees_it_in_the_map(learner):
    mine = learner("head", ("if self.causal", "if False"))
    parts = replace(LookParts(), **find_exercise("head").module.parts(mine))
    [first, *_] = read_weights(LookModel(VOCABULARY, parts), torch.randint(VOCABULARY, (1, T)))
    assert first.triu(1).min(dim=-1).values[0, 0] >= 0
    assert (first[:, 0, 1:] > 0).all()


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_translator_is_trained_and_drawn(learner, lang):
    cross = learner("cross").CrossAttention
    for model in (ReversalModel(lambda: cross(32, 4)), learner_translator(learner("translator"))):
        lines = [line.plain for line in show_reversal(model, lang, steps=2)]
        assert "%" in lines[0]
        assert "j c b h a e" in lines[1]
        assert len(lines) == 3 + 6


@pytest.mark.deep
@pytest.mark.parametrize("name", ["heads", "cache", "cross", "translator"])
def test_looking_shows_a_trained_model(name, tmp_path):
    exercise = find_exercise(name)
    path = tmp_path / exercise.file_name
    path.write_text(exercise.solution("en"), encoding="utf-8")
    text = "\n".join(str(part) for part in look(exercise, path, "en"))
    if name == "cache":
        assert "the same text" in text
    elif name == "heads":
        assert "→ 1." in text  # from 6
    else:
        assert "After 500 steps" in text
        assert float(text.split("steps ")[1].split(" %")[0]) > 90
