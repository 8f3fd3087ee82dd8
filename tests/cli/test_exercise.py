"""`glasshead exercise`: list, start, check, hint, show."""

import json

import pytest

from glasshead.cli import run
from glasshead.lab.exercises import child
from glasshead.lab.exercises.catalog import exercises, find_exercise
from glasshead.lab.exercises.report import check_file


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Work in an empty folder, and check in this process, which is faster."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(
        child, "run_check", lambda exercise, path, limit: check_file(exercise, path)
    )
    return tmp_path


def test_a_learner_starts_fails_gets_hints_and_passes(here, capsys):
    assert run(["exercise", "start", "--lang", "en"]) == 0
    out = capsys.readouterr().out
    assert "softmax: from scores to weights" in out
    path = here / "exercises/01_softmax.py"
    assert "raise NotImplementedError" in path.read_text()
    assert run(["exercise", "check", "--lang", "en"]) == 1
    assert "softmax is not written yet" in capsys.readouterr().out
    for n in (1, 2, 3):
        assert run(["exercise", "hint", "1", "--lang", "en"]) == 0
        assert f"hint {n} of 3" in capsys.readouterr().out
    assert run(["exercise", "hint", "softmax", "--lang", "en"]) == 0
    assert "glasshead exercise show 1" in capsys.readouterr().out
    assert run(["exercise", "show", "1", "--lang", "en"]) == 0
    path.write_text(capsys.readouterr().out)
    assert run(["exercise", "check", "--lang", "en"]) == 0
    out = capsys.readouterr().out
    assert "[0.2291 0.4063 0.3646]" in out
    assert "glasshead exercise look 1" in out
    assert "glasshead exercise start 2" in out
    assert run(["exercise", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["exercises"]
    assert [row["state"] for row in rows[:2]] == ["passed", "new"]
    assert len(rows) == len(exercises())


def test_in_chinese(here, capsys):
    assert run(["exercise", "start", "2", "--lang", "zh"]) == 0
    assert "分数：点积，再缩放" in capsys.readouterr().out
    wrong = find_exercise("2").solution("zh").replace(" / q.shape[-1] ** 0.5", "")
    (here / "exercises/02_scores.py").write_text(wrong)
    assert run(["exercise", "check", "2", "--lang", "zh"]) == 1
    out = capsys.readouterr().out
    assert "分数没有缩放" in out
    assert "应为" in out
    assert run(["exercise", "list", "--lang", "zh"]) == 0
    assert "已开始" in capsys.readouterr().out


def test_json_for_programs(here, capsys):
    run(["exercise", "start", "1"])
    capsys.readouterr()
    assert run(["exercise", "check", "1", "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["right"] is False
    assert data["trouble"]["name"] == "not-written"
    assert data["title"] == "softmax is not written yet"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["check", "3"], "there is no file exercises/03_causal_mask.py"),
        (["check", "99"], "there is no exercise 99"),
        (["strat"], "strat"),
    ],
)
def test_what_cannot_be_is_explained(here, args, says, capsys):
    assert run(["exercise", *args]) == 2
    assert says in capsys.readouterr().err
