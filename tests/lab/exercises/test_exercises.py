"""The exercises: solutions pass, starters fail clearly, wrong answers get their names."""

import re
from pathlib import Path

import pytest

from glasshead.lab.check.report import TEXTS as OF_CHECK
from glasshead.lab.exercises.catalog import HINTS, exercises, find_exercise, hints
from glasshead.lab.exercises.report import TEXTS, check_file, show_report
from glasshead.lab.texts import LANGUAGES
from tests.lab.exercises.answers import RIGHT, WRONG

ALL = exercises()
NAMES = [each.name for each in ALL]
HAN = re.compile("[\u4e00-\u9fff]")


@pytest.fixture
def checked(tmp_path):
    """Check an exercise with the given text as the learner's file."""

    def check(name, text):
        path = tmp_path / "练习 mine.py"
        path.write_text(text, encoding="utf-8")
        return check_file(find_exercise(name), path)

    return check


def lines(report, lang="en"):
    return "\n".join(line.plain for line in show_report(report, lang))


def edited(name, old, new):
    solution = find_exercise(name).solution("en")
    assert old in solution, (name, old)
    return solution.replace(old, new)


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_passes_and_the_starter_is_not_written_yet(name, checked):
    exercise = find_exercise(name)
    report = checked(name, exercise.solution("zh"))
    assert report.ok, lines(report)
    assert "✓" in lines(report)
    report = checked(name, exercise.starter("en"))
    assert report.trouble["name"] == "not-written"
    assert report.trouble["code"] == "raise NotImplementedError"
    assert "is not written yet" in lines(report)


@pytest.mark.parametrize(
    ("name", "mistake", "old", "new"),
    [pytest.param(n, *wrong, id=f"{n}-{k}-{wrong[0]}") for n in NAMES
     for k, wrong in enumerate(WRONG[n])],
)  # fmt: skip
def test_a_wrong_answer_gets_the_name_of_the_mistake(name, mistake, old, new, checked):
    report = checked(name, edited(name, old, new))
    assert not report.ok
    assert report.trouble["name"] == mistake, lines(report)
    for lang in LANGUAGES:
        assert "{" not in report.words("title")[lang]
        assert report.words("why")[lang]
    assert HAN.search(lines(report, "zh"))


@pytest.mark.parametrize(
    ("name", "old", "new"), [(n, *right) for n in NAMES for right in RIGHT.get(n, [])]
)
def test_a_right_answer_in_another_style_passes(name, old, new, checked):
    report = checked(name, edited(name, old, new))
    assert report.ok, lines(report)


@pytest.mark.parametrize("name", NAMES)
def test_both_languages_have_the_same_structure(name):
    exercise = find_exercise(name)
    assert len(WRONG[name]) >= 3
    for words in (exercise.why, exercise.after):
        assert words.en.count("\n\n") == words.zh.count("\n\n")
        assert HAN.search(words.zh)
        assert not HAN.search(words.en)
    assert exercise.why.en.startswith("# ")
    assert exercise.why.zh.startswith("# ")
    code = [re.sub(r"#.*", "#", exercise.solution(lang)) for lang in LANGUAGES]
    assert code[0] == code[1]
    assert HAN.search(exercise.starter("zh"))
    assert not HAN.search(exercise.starter("en"))
    assert len(list(hints(exercise))) == HINTS
    for key, words in exercise.texts.items():
        if key not in ("lesson",):
            assert HAN.search(words.zh), key
            assert words.en != words.zh
        assert set(re.findall(r"{\w+}", words.en)) == set(re.findall(r"{\w+}", words.zh)), key


@pytest.mark.parametrize("name", NAMES)
def test_each_mistake_that_a_check_can_name_has_texts(name):
    exercise = find_exercise(name)
    source = Path(exercise.module.__file__).read_text(encoding="utf-8")
    known = {**OF_CHECK, **TEXTS, **exercise.texts}
    named = {
        "".join(found)
        for found in re.findall(
            r'(?m)^ *\*?\(*"([a-z-]+)", |fail\(\s*"([a-z-]+)"|yield "([a-z-]+)", ', source
        )
    }
    for mistake in named | {wrong[0] for wrong in WRONG[name]}:
        for part in ("title", "why"):
            assert f"mistake.{mistake}.{part}" in known, mistake


def test_an_unknown_exercise_is_explained():
    with pytest.raises(ValueError, match="there is no exercise 99"):
        find_exercise("99")
    with pytest.raises(ValueError, match="no exercise 'softmx'") as error:
        find_exercise("softmx")
    assert "softmax" in error.value.hint


def test_the_check_is_the_same_twice(checked):
    text = edited("scores", " / q.shape[-1] ** 0.5", "")
    assert checked("scores", text) == checked("scores", text)


@pytest.mark.parametrize(
    ("text", "mistake", "says"),
    [
        ("x = 1\n", "name-missing", "no 'softmax'"),
        ("import sys\nsys.exit()\n", "exits", "ends the program"),
        ("raise ValueError('no {good}')\n", "raised", "ValueError: no {good}"),
        ("def softmax(s):\n    return s.numpy()\n", "wrong-return", "ndarray"),
        ("def softmax(s):\n    return s + s.new_ones(13)\n", "shapes-clash", "size of tensor"),
        ("def softmax(s):\n    return s[..., :1]\n", "shape", "(1)"),
        ("def softmax(s):\n    return s * 0 / 0\n", "nan", "NaN"),
        ("def softmax(s):\n    return s * 2\n", "unknown", "other numbers"),
    ],
)
def test_what_is_no_known_mistake_is_explained_too(text, mistake, says, checked):
    report = checked("softmax", text)
    assert report.trouble["name"] == mistake
    assert says in lines(report)
