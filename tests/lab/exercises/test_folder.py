"""The learner's folder: nothing is overwritten, progress is kept; the check in its own process."""

import json
import sys

import pytest

from glasshead.errors import InputError
from glasshead.lab.exercises.catalog import exercises, find_exercise
from glasshead.lab.exercises.child import run_check
from glasshead.lab.exercises.folder import ExerciseFolder

SOFTMAX = find_exercise("softmax")


@pytest.fixture
def folder(tmp_path):
    return ExerciseFolder(tmp_path / "我的 exercises")


def test_a_file_is_never_overwritten(folder):
    assert folder.start(SOFTMAX, "en")
    folder.file(SOFTMAX).write_text("mine")
    assert not folder.start(SOFTMAX, "zh")
    assert folder.file(SOFTMAX).read_text() == "mine"


def test_progress_is_resumed_and_a_change_after_passing_shows(folder):
    folder.start(SOFTMAX, "en")
    assert folder.state(SOFTMAX) == "started"
    folder.note(SOFTMAX, hint=True)
    folder.note(SOFTMAX, right=False)
    folder.note(SOFTMAX, right=True)
    again = ExerciseFolder(folder.path)
    assert again.state(SOFTMAX) == "passed"
    assert (again.of(SOFTMAX).hints, again.of(SOFTMAX).checks) == (1, 2)
    assert again.current(None).number == 2
    with open(again.file(SOFTMAX), "a") as file:
        file.write("# more\n")
    assert again.state(SOFTMAX) == "changed"
    assert again.current(None) == SOFTMAX


def test_when_all_are_passed_one_must_be_named(folder):
    for each in exercises():
        folder.start(each, "en")
        folder.note(each, right=True)
    with pytest.raises(InputError, match="all exercises are passed"):
        folder.current(None)
    assert folder.current("2").number == 2


@pytest.mark.parametrize("text", ["", "[1]", '{"softmax": {"colour": 1}}', '{"softmax": 3}'])
def test_damaged_progress_is_explained(folder, text):
    folder.start(SOFTMAX, "en")
    folder.progress.write_text(text)
    with pytest.raises(InputError, match=r"progress.json cannot be read") as error:
        folder.state(SOFTMAX)
    assert "rm " in error.value.hint


def test_a_folder_that_is_a_file_is_explained(tmp_path):
    (tmp_path / "mine").write_text("")
    with pytest.raises(InputError, match=r"mine"):
        ExerciseFolder(tmp_path / "mine").start(SOFTMAX, "en")


def test_without_a_file_there_is_nothing_to_check(folder):
    with pytest.raises(InputError) as error:
        folder.require(SOFTMAX)
    assert error.value.hint == "glasshead exercise start 1 writes it"


def test_an_endless_loop_is_one_line_with_its_place(folder):
    folder.start(SOFTMAX, "en")
    path = folder.file(SOFTMAX)
    path.write_text("def softmax(scores):\n    while True:\n        n = 1\n")
    report = run_check(SOFTMAX, path, limit=1)
    assert report.trouble["name"] == "time-limit"
    assert report.trouble["line"] in (2, 3)
    assert report.trouble["code"] in ("while True:", "n = 1")


def test_a_crash_is_one_line_and_prints_do_not_disturb(folder):
    folder.start(SOFTMAX, "en")
    path = folder.file(SOFTMAX)
    path.write_text("import os\nprint('{')\ndef softmax(scores):\n    os.kill(os.getpid(), 9)\n")
    report = run_check(SOFTMAX, path)
    assert report.trouble["name"] == "process-ended"
    reason = "exit code 9" if sys.platform == "win32" else "SIGKILL"
    assert report.trouble["values"] == {"reason": reason}
    assert json.dumps(report.as_json())
