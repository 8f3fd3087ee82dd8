"""Every error has a hint, and a hint names what was meant where something is near."""

import ast
import pickle
from functools import cache
from pathlib import Path

import pytest

import glasshead
from glasshead import errors
from glasshead.errors import GlassheadError, did_you_mean, near_file

PACKAGE = Path(glasshead.__file__).parent
# The class -> which argument is the hint.
CLASSES = {
    name: 1
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, GlassheadError)
} | {"Unreadable": 2, "NotCallable": 1}  # the last makes its hint itself


@cache
def code():
    """(where, node) of all that the package says."""
    return [
        (f"{file.relative_to(PACKAGE)}:{node.lineno}", node)
        for file in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call | ast.ClassDef)
    ]


def name_of(node):
    return getattr(node, "attr", getattr(node, "id", ""))


def hint_of(call):
    for keyword in call.keywords:
        if keyword.arg == "hint":
            return ast.unparse(keyword.value)
    place = CLASSES[name_of(call.func)]
    return ast.unparse(call.args[place]) if len(call.args) > place else "''"


def test_every_error_has_a_hint():
    calls = [(where, node) for where, node in code() if isinstance(node, ast.Call)]
    made = [(where, call) for where, call in calls if name_of(call.func) in CLASSES]
    assert len(made) > 300  # or the search finds nothing
    assert [where for where, call in made if hint_of(call) in ("''", '""')] == []


def test_every_class_of_errors_is_known_to_the_test_above():
    for where, node in code():
        if isinstance(node, ast.ClassDef) and {name_of(base) for base in node.bases} & {*CLASSES}:
            assert node.name in CLASSES, where


def test_an_error_keeps_its_hint_between_processes():
    sent = pickle.loads(pickle.dumps(errors.BusyError("too many", hint="wait", retry_after=7)))
    assert (str(sent), sent.hint, sent.retry_after) == ("too many", "wait", 7)


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("trian", "did you mean 'train'?"),
        ("TRAIN", "did you mean 'train'?"),
        ("月亮", "choose one of: train, Look"),
        ("look", "did you mean 'Look'?"),
    ],
)
def test_a_word_is_answered_with_the_nearest_choice_or_all(word, hint):
    assert did_you_mean(word, ["train", "Look"]) == hint


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("poem.txt", "did you mean '{0}/poems.txt'?"),
        ("Poems.TXT", "did you mean '{0}/poems.txt'?"),
        ("poems", "did you mean '{0}/poems.txt'?"),
        ("春江.tx", "did you mean '{0}/春江.txt'?"),
        ("nothing.like.it", "look again"),
        ("buks/one.txt", "there is no folder {0}/buks either; did you mean '{0}/books'?"),
        ("no/such/place", "there is no folder {0}/no/such either; "
                          "there is no folder {0}/no either; look again"),
    ],
)  # fmt: skip
def test_a_path_is_answered_with_what_has_nearly_its_name(tmp_path, name, hint):
    for file in ("poems.txt", "春江.txt"):
        (tmp_path / file).touch()
    (tmp_path / "books").mkdir()
    assert near_file(tmp_path / name, "look again") == hint.format(tmp_path)


def test_a_path_in_a_folder_that_is_gone_has_a_hint(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert near_file("a.txt", "look again") == "look again"


def test_a_link_to_nowhere_is_not_its_own_hint(tmp_path):
    (tmp_path / "poems.txt").symlink_to(tmp_path / "elsewhere")
    assert near_file(tmp_path / "poems.txt", "look again") == "look again"
