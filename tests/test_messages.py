"""Messages and help in the user's language: the catalogue fits the code, data stay the same."""

import json
import re
import unicodedata

import pytest

from glasshead.cli import COMMANDS
from glasshead.cli.help import wrap
from glasshead.messages import DRAFT, HOLE, language, translate
from tools.messages import explain_missing, known_templates, read_catalogue, update

CATALOGUE = read_catalogue()


@pytest.fixture
def chinese(monkeypatch):
    monkeypatch.setenv("GLASSHEAD_LANG", "zh")


def fill(template, values):
    return HOLE.sub(lambda hole: values[int(hole[1])], template)


def test_the_catalogue_has_every_template_of_the_code():
    known = known_templates()
    if missing := explain_missing(known, CATALOGUE):
        pytest.fail(missing, pytrace=False)
    assert len(known) > 1000
    assert "there is no command '{0}'" in known  # an f-string
    assert "did you mean '{0}'?" in known  # what a function returns
    assert "length of the training in steps" in known  # the comment of a field
    assert "the picture {0} has no suffix, which is no kind of picture" in known  # a local name


def test_a_new_message_is_named_with_the_line_to_add():
    known = {"the run {0} is new": "a.py", "no file {0}": "b.py", "the key {0} is known": "c.py"}
    before = {"the run {0} is old": "运行 {0} 是旧的", "the key {0} is known": "键 {0} 已知"}
    text = explain_missing(known, before)
    assert "2 messages have no Chinese" in text
    assert "python -m tools.messages --update" in text
    assert '\n"no file {0}": "",  # b.py\n' in text
    assert '\n"the run {0} is new": "?运行 {0} 是旧的",  # a.py' in text  # a draft
    assert "is known" not in text
    after = update(known, before)
    assert after == dict(zip(known, ["?运行 {0} 是旧的", "", "键 {0} 已知"], strict=True))
    assert explain_missing(known, after) == text
    assert explain_missing(known, dict.fromkeys(known, "中文")) == ""


def test_chinese_has_the_values_of_the_english():
    for english, text in CATALOGUE.items():
        holes = HOLE.findall(text)
        assert {*holes} <= {*HOLE.findall(english)}, english
        assert len(holes) == len({*holes}), english


# Messages whose Chinese names the values in another order, which a person has compared.
IN_ANOTHER_ORDER = (
    "'{0}' has no {1} vector for",
    "'{0}' in --rungs '{1}'",
    "'{0}' is not JSON: {1} at line {2}, column {3}",
    "'{0}': number {1} of {2} is {3}",
    "character {0} (U+{1}) at line",
    "config.json asks for {0} GB of tables",
    "the loss is {0} at step {1}",
    "the model has {0} {1}s",
    "the text has half of a surrogate pair",
    "the tokenizer keeps only {0} of the text's {1} bytes",
    "{0} cannot be found in {1}",
    "{0} cannot be recorded exactly",
    "{0} is a {1} trained on '{2}'",
    "{0} is {1} at {2}, {3} of {4} numbers",
    "{0} lacks '{1}' ({2} of {3} tensors",
    "{0} rotates {1} of {2} dimensions",
    "{0} steps in a row up to step {1} were not finite",
    "{0}.{1} ({2}) of {3} has no attention",
)


def test_chinese_has_the_values_in_the_order_of_the_english():
    """Two values that change places, such as a length and its limit, still look like a message."""
    for english, text in CATALOGUE.items():
        holes = HOLE.findall(text)
        ordered = holes == [hole for hole in HOLE.findall(english) if hole in holes]
        assert ordered or english.startswith(IN_ANOTHER_ORDER), (
            f"{english}: if {text} means the same, add its beginning to IN_ANOTHER_ORDER"
        )


@pytest.mark.parametrize("wrong", ["[\u4e00-\u9fff][,;:!?]", "[,;:] ?[\u4e00-\u9fff]", r"\s$|^\s"])
def test_chinese_has_full_width_punctuation(wrong):
    assert [text for text in CATALOGUE.values() if re.search(wrong, text)] == []


def test_every_message_is_recognised_with_its_values(chinese):
    """A template that another one hides would be rendered with the values of the other."""
    for english, text in CATALOGUE.items():
        values = [f"<v{i}>" for i in range(english.count("{"))]
        if text[:1] not in ("", DRAFT) and "}{" not in english:
            assert translate(fill(english, values)) == fill(text, values)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_MESSAGES": "en_GB"}, "en"),
        ({"LANG": "en_GB", "LC_MESSAGES": "en_GB", "LC_ALL": "zh_TW"}, "zh"),
        ({"LC_ALL": "zh_CN.UTF-8", "GLASSHEAD_LANG": "en"}, "en"),
        ({"LC_ALL": "en_US.UTF-8", "GLASSHEAD_LANG": "ZH"}, "zh"),
        ({"LC_ALL": "zh_CN.UTF-8", "GLASSHEAD_LANG": ""}, "zh"),
    ],
)
def test_the_variable_decides_then_the_locale(monkeypatch, env, expected):
    for name in ("GLASSHEAD_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert language() == expected


def test_another_language_is_a_mistake(cli, monkeypatch):
    monkeypatch.setenv("GLASSHEAD_LANG", "fr")
    code, out, err = cli("--help")
    assert (code, out) == (2, "")
    assert "GLASSHEAD_LANG (fr) must be en or zh" in err


def test_an_error_and_its_hint_are_chinese(cli, chinese):
    code, out, err = cli("stpes")
    assert (code, out) == (2, "")
    assert err == "错误：没有 stpes 这个命令\n\n提示：是不是想用 steps？\n"
    assert cli("demo", "--seed").err.endswith("提示：见 glasshead demo --help\n")
    assert cli("export").err.endswith("；或者见 glasshead export --help\n")


def test_values_that_are_messages_are_translated_and_others_stay(chinese):
    assert translate("/a b/c is damaged: invalid UTF-8 at byte 3") == (
        "/a b/c 已损坏：第 3 个字节不是有效的 UTF-8"
    )
    assert translate("nothing like this is known") == "nothing like this is known"
    assert translate("x 1: did you mean 'a; b'?; give more text") == (
        "x 1：是不是想用 a; b？；提供更多文本"
    )


@pytest.mark.parametrize("word", ["", *COMMANDS])
def test_chinese_help_fits_80_columns_and_keeps_options_and_examples(cli, monkeypatch, word):
    command = [word, "--help"] if word else ["--help"]
    english = cli(*command).out
    monkeypatch.setenv("GLASSHEAD_LANG", "zh")
    text = cli(*command).out
    assert "用法：glasshead" in text
    examples = r"^    (?:glasshead|echo) .+$"
    assert re.findall(examples, text, re.M) == re.findall(examples, english, re.M)
    options = r"^  (?:-\w, )?--[\w-]+(?: / --[\w-]+)?"
    shown = [
        re.findall(options, one.partition(f"\n{heading}\n")[2], re.M)
        for one, heading in ((text, "选项："), (english, "Options:"))
    ]
    assert shown[0] == shown[1] != []
    for line in text.splitlines():
        cells = sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in line)
        assert cells <= 80 or line.strip().startswith(("glasshead", "echo"))  # an example
        assert not re.match(r"\s*[，。、；：！？）”》]", line)
    prose = re.sub(examples, "", text, flags=re.M)
    assert re.findall(r"\b[A-Z][a-z]+ [a-z]+ [a-z]+\b", prose) == []


@pytest.mark.parametrize("width", [7, 12, 20, 80])
def test_lines_are_broken_by_cells_and_lose_nothing(width):
    text = "两个词元（token）：“它”指谁？ see --help，再看 runs/demo 里的 report.html。"
    lines = wrap(text, width)
    assert "".join("".join(lines).split()) == "".join(text.split())
    longest = max(sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in x) for x in lines)
    assert longest <= max(width, len("report.html") + 2)


def test_output_for_programs_is_the_same_in_both_languages(cli, monkeypatch):
    english = cli("world", "--show", "2", "--json")
    monkeypatch.setenv("GLASSHEAD_LANG", "zh")
    assert cli("world", "--show", "2", "--json") == english
    assert json.loads(english.out.splitlines()[0])
