"""The lessons: each runs, says the same in both languages, and keeps its word when changed."""

import ast
import importlib
import io
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from glasshead.errors import InputError
from glasshead.lab.lesson_page import LessonMarkdown
from glasshead.lab.lessons import (
    Code,
    Lesson,
    apply_try,
    find_lesson,
    lessons,
    read_lesson,
    run_cell,
)
from glasshead.lab.line_breaks import line_breaks
from glasshead.lab.texts import Words

ROOT = Path(__file__).resolve().parents[1]
ALL = lessons()
# These train a model for some seconds.
TRAINING = (7, 8, 9, 10)
TO_RUN = [
    pytest.param(
        lesson,
        id=lesson.path.stem,
        marks=[pytest.mark.deep] if lesson.number in TRAINING else [],
    )
    for lesson in ALL
]


def texts(lesson):
    return [cell for cell in lesson.cells if isinstance(cell, Words)]


def codes(lesson):
    return [cell for cell in lesson.cells if isinstance(cell, Code)]


@pytest.fixture
def out(tmp_path, monkeypatch):
    monkeypatch.setenv("GLASSHEAD_LESSON_OUT", str(tmp_path / "课 out"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path / "课 out"


def test_there_are_twelve_in_order():
    assert [lesson.number for lesson in ALL] == list(range(1, 13))
    assert all(len(lesson.path.read_text(encoding="utf-8").splitlines()) < 250 for lesson in ALL)


@pytest.mark.parametrize("lesson", TO_RUN)
def test_a_lesson_does_what_it_says(lesson, out, capsys):
    """Its asserts hold every figure of its text; so they do after the change that it proposes."""
    names: dict[str, object] = {}
    said = []
    [change] = [code for code in codes(lesson) if apply_try(code)]
    assert change == codes(lesson)[-1]
    with torch.random.fork_rng():
        for code in codes(lesson):
            run_cell(lesson, code, names)
            said.append(capsys.readouterr().out)
            assert said[-1] or "print(" not in code.source
        run_cell(lesson, apply_try(change), names)
    assert capsys.readouterr().out != said[-1]
    drawn = re.findall(r'"(\w+\.svg)"', "".join(code.source for code in codes(lesson)))
    assert sorted(path.name for path in out.glob("*.svg")) == sorted(drawn)


@pytest.mark.parametrize("lesson", ALL, ids=lambda lesson: lesson.path.stem)
def test_what_a_lesson_imports_exists_and_its_code_compiles(lesson):
    for code in codes(lesson):
        for node in ast.walk(ast.parse(code.source)):
            if isinstance(node, ast.ImportFrom):
                module = importlib.import_module(node.module)
                missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
                assert missing == [], node.module
    assert [code for code in codes(lesson) if apply_try(code)] == codes(lesson)[-1:]
    compile(apply_try(codes(lesson)[-1]).source, lesson.path, "exec")


@pytest.mark.parametrize("lesson", ALL, ids=lambda lesson: lesson.path.stem)
def test_both_languages_state_the_same_figures(lesson):
    for text in texts(lesson):
        zh, en = (set(re.findall(r"\d+(?:,\d{3})*(?:\.\d+)?", each)) for each in (text.zh, text.en))
        assert zh == en
        assert text.zh.count("\n#") == text.en.count("\n#")  # headings
        assert re.findall(r"`.+?`", text.zh) == re.findall(r"`.+?`", text.en)


@pytest.mark.parametrize("lesson", ALL, ids=lambda lesson: lesson.path.stem)
def test_the_chinese_is_written_as_chinese(lesson):
    for text in texts(lesson):
        assert re.search("[\u4e00-\u9fff]", text.zh)
        assert not re.search("[\u4e00-\u9fff][,;:?!]", text.zh)
        assert not re.search("[，。：；？！、] |[\u4e00-\u9fff]\n[\u4e00-\u9fff]", text.zh)


@pytest.mark.parametrize("lang", ["zh", "en"])
@pytest.mark.parametrize("lesson", ALL, ids=lambda lesson: lesson.path.stem)
def test_a_lesson_fits_a_terminal(lesson, lang):
    page = io.StringIO()
    console = Console(file=page, width=80, color_system=None)
    for text in texts(lesson):
        console.print(LessonMarkdown(text[lang]))
    lines = page.getvalue().splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert not [line for line in lines if "**" in line]  # emphasis that Markdown did not see
    assert not [line for line in lines if line.lstrip()[:1] in tuple("，。：；？！、）”")]
    code = [line for cell in codes(lesson) for line in cell.source.splitlines()]
    assert [line for line in code if cell_len(line) > 77] == []


@given(st.text("看见，。“” ab(%", max_size=40), st.integers(2, 12))
def test_broken_lines_fit_and_lose_nothing(text, width):
    ends = [0, *line_breaks(text, width), len(text)]
    lines = [text[a:b] for a, b in pairwise(ends)]
    assert "".join(lines) == text
    assert all(cell_len(line.rstrip()) <= width for line in lines)


def test_a_line_that_ends_in_chinese_goes_on_without_a_space(tmp_path):
    path = tmp_path / "01_x.py"
    path.write_text(
        "# zh:\n# 一，\n# 二**三**\n# 四 q\n# 五。\n# 1. 六\n# en:\n# a\n# b\n\n\nx = 1\n"
    )
    text, code = read_lesson(path).cells
    assert text == Words("a\nb", "一，二**三**四 q\n五。\n1. 六")
    assert code == Code("x = 1", 12)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("# zh:\n# 一\nx = 1\n", "line 3: the English text is missing"),
        ("# zh:\n# 一\n", "line 3: the English text is missing"),
        ("x = 1\n", "does not start with a text"),
        ("", "does not start with a text"),
    ],
)
def test_what_is_no_lesson_is_refused(tmp_path, source, problem):
    path = tmp_path / "01_x.py"
    path.write_text(source)
    with pytest.raises(InputError, match=problem):
        read_lesson(path)


def run_all(lesson):
    names: dict[str, object] = {}
    for code in codes(lesson):
        run_cell(lesson, code, names)


def changed(old, new):
    """Lesson 1 with something else in one of its cells."""
    lesson = find_lesson(1)
    cells = [
        Code(cell.source.replace(old, new), cell.line) if isinstance(cell, Code) else cell
        for cell in lesson.cells
    ]
    return Lesson(1, lesson.path, tuple(cells))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("[2.0, 0.0, 0.0]", "[3.0, 0.0, 0.0]", "AssertionError: assert products.tolist()"),
        ("[2.0, 0.0, 0.0]", "[2.0, 0.0]", "ValueError: operands could not be broadcast"),
        ("cat * butterfly", "cat *", "SyntaxError: invalid syntax"),
    ],
)
def test_a_change_that_breaks_a_lesson_is_named_with_its_line(old, new, problem, capsys):
    lesson = changed(old, new)
    with pytest.raises(InputError) as caught:
        run_all(lesson)
    lines = lesson.path.read_text(encoding="utf-8").splitlines()
    at = int(re.search(r"^lesson 1, line (\d+): ", str(caught.value))[1])
    assert problem in str(caught.value)
    assert lines[at - 1].split(" ")[0] in ("assert", "products")


def test_the_list_has_every_title(cli):
    for lang in ("zh", "en"):
        listed = cli("lesson", "--lang", lang).out.splitlines()
        assert listed == [f"{lesson.number:>2}  {lesson.title(lang)}" for lesson in ALL]


@pytest.mark.parametrize(("lang", "words"), [("zh", "点积"), ("en", "dot product")])
def test_a_lesson_in_the_terminal_has_text_code_and_output(cli, lang, words):
    code, said, problems = cli("lesson", "1", "--lang", lang)
    assert (code, problems) == (0, "")
    at = [said.index(part) for part in (words, "products = cat * butterfly", "[4. 0. 0.] → 4.0")]
    assert at == sorted(at)
    assert "# zh:" not in said
    assert "glasshead lesson 2" in said.splitlines()[-1]
    assert max(map(cell_len, said.splitlines())) <= 80


def test_the_source_is_the_script(cli, tmp_path):
    source = cli("lesson", "1", "--source").out
    assert source == find_lesson(1).path.read_text(encoding="utf-8")
    script = tmp_path / "mine.py"
    script.write_text(source, encoding="utf-8")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("[4. 0. 0.] → 4.0\n[4. 4. 0.] 猫 cat\n")


def test_a_lesson_that_is_not_there(cli):
    outcome = cli("lesson", "13")
    assert outcome.code == 2
    assert outcome.err == "error: there is no lesson 13\n\nhint: they are 1 to 12\n"


def at_a_terminal(keys, *args):
    """What `glasshead lesson` writes when a person types these keys."""
    pty = pytest.importorskip("pty")  # not on Windows
    person, terminal = pty.openpty()
    os.write(person, keys)
    command = [sys.executable, "-m", "glasshead", "lesson", *args]
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, cwd=ROOT):
        os.close(terminal)
        said = b""
        while True:
            try:
                part = os.read(person, 4096)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            said += part
    os.close(person)
    return said.decode()


def test_at_a_terminal_it_waits_for_enter():
    said = at_a_terminal(b"\n\nq\n", "1", "--lang", "en")
    assert said.count("Enter to continue") == 3
    assert "The length is" not in said  # which comes after the third
