"""`glasshead steps`, as it is typed."""

import json
import os
import subprocess
import sys

import pytest

from tests.cli.test_cli import is_a_mistake


def test_the_textbook_example(cli):
    code, out, err = cli("steps", "Hello shiny sun!", "--query", "shiny", "--no-scale")
    assert (code, err) == (0, "")
    for numbers in ("0.7842", "0.4063", "0.3990  0.3854  0.8610"):
        assert numbers in out


def test_the_whole_matrices_without_a_query(cli):
    code, out, err = cli("steps", "Your journey starts with one step", "--no-scale")
    assert (code, err) == (0, "")
    weights = "journey   0.1385    0.2379   0.2333   0.1240   0.1082   0.1581"
    assert weights in out
    assert "journey   0.4419  0.6515  0.5683" in out


@pytest.mark.parametrize("lang", ["zh", "en"])
@pytest.mark.parametrize("args", [[], ["--causal"], ["--query", "sun"], ["--no-scale"]])
def test_four_steps_are_numbered_and_the_mask_is_not(cli, lang, args):
    lines = cli("steps", "Hello shiny sun!", "--lang", lang, *args).out.splitlines()
    titles = [line for line in lines if line[:3] in ("1. ", "2. ", "3. ", "4. ", "5. ")]
    assert [title[0] for title in titles] == ["1", "2", "3", "4"]
    assert any(line.startswith({"zh": "掩码", "en": "Mask"}[lang]) for line in lines)


def test_words_need_no_quotes(cli):
    assert cli("steps", "Hello", "shiny", "sun!") == cli("steps", "Hello shiny sun!")


def test_words_that_begin_with_a_dash_go_behind_two(cli):
    assert cli("steps", "--", "-5 degrees").code == 0


@pytest.mark.parametrize(
    ("env", "args", "title"),
    [
        ({"LANG": "zh_CN.UTF-8"}, [], "1. 分数"),
        ({"LANG": "en_GB.UTF-8"}, [], "1. Scores"),
        ({"LANG": "C"}, [], "1. Scores"),
        ({"LANG": "en_GB.UTF-8", "LC_ALL": "zh_TW"}, [], "1. 分数"),
        ({"LANG": "zh_CN.UTF-8"}, ["--lang", "en"], "1. Scores"),
        ({"LANG": "en_GB.UTF-8"}, ["--lang", "zh"], "1. 分数"),
    ],
)
def test_the_language_is_asked_for_or_the_locale_s(cli, monkeypatch, env, args, title):
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert title in cli("steps", "它 sun", *args).out


def test_json_is_one_object_and_nothing_else(cli):
    code, out, err = cli("steps", "小猫 它", "--query", "它", "--causal", "--json")
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert data["words"] == ["小猫", "它"]
    assert data["sources"] == ["spelling", "spelling"]
    assert (data["scale"], data["causal"]) == (True, True)
    assert data["masked"][0][1] is None
    assert data["weights"][0] == [1.0, 0.0]
    assert data["query"]["index"] == 1
    assert "小猫" in out


def test_vectors_of_one_s_own(cli, tmp_path):
    path = tmp_path / "v.json"
    path.write_text('{"a": [1, 0], "b": [0, 1]}')
    data = json.loads(cli("steps", "a b", "--vectors", path, "--json").out)
    assert data["q"] == [[1, 0], [0, 1]]
    assert data["scores"] == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("", "is empty"),
        ("{", "is not JSON"),
        ("[]", "not a JSON object"),
        ('{"b": [1]}', "has no q vector for 'a'"),
        ('{"a": [1], "b": [1, 2]}', "'b' has 2 numbers but 'a' has 1"),
        ('{"a": ["x"]}', "the string 'x'"),
        ('{"a": [NaN]}', "is nan"),
        ('{"a": {"b": {"c": 1}}}', "not under q, k and v"),
        ('{"a\\n": 1}', r"'a\n' is the number 1"),
    ],
)
def test_a_bad_vectors_file(cli, tmp_path, content, error):
    path = tmp_path / "v.json"
    path.write_text(content)
    first, _ = is_a_mistake(cli("steps", "a", "--vectors", path))
    assert error in first


def test_a_missing_vectors_file(cli, tmp_path):
    (tmp_path / "vectors.json").write_text("{}")
    first, hint = is_a_mistake(cli("steps", "a", "--vectors", tmp_path / "vector.json"))
    assert "there is no file" in first
    assert "did you mean" in hint


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ([""], "the sentence '' has no words"),
        (["?!"], "the sentence '?!' has no words"),
        (["\udcff"], r"character 1 is '\udcff'"),
        (["小猫 它", "--query", "蝴蝶"], "'蝴蝶' is not a word of the sentence"),
        (["小猫 它", "--query", "它#2"], "'它' occurs once in the sentence, so there is no '它#2'"),
    ],
)
def test_a_bad_sentence_or_query(cli, args, error):
    first, _ = is_a_mistake(cli("steps", *args))
    assert error in first


def program(*args, **env):
    command = [sys.executable, "-m", "glasshead", "steps", *args]
    environment = {**os.environ, "COLUMNS": "80", **env}
    return subprocess.run(command, capture_output=True, check=False, env=environment)


def test_colour_is_for_terminals_and_no_color_is_honoured():
    args = ("Hello moon", "--query", "moon")
    assert b"\x1b[" not in program(*args).stdout
    assert b"\x1b[" in program(*args, FORCE_COLOR="1", TERM="xterm").stdout
    assert b"\x1b[" not in program(*args, FORCE_COLOR="1", TERM="xterm", NO_COLOR="1").stdout


def test_a_terminal_without_unicode_still_gets_its_tables_and_valid_json():
    done = program("它 sun😀", "--query", "它", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"####" in done.stdout
    done = program("它 sun😀", "--json", PYTHONIOENCODING="ascii")
    assert json.loads(done.stdout)["words"] == ["它", "sun😀"]
