"""`glasshead demo`, as it is typed, with hardly any training."""

import contextlib
import io
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import pytest

import glasshead
from glasshead.cli import run
from glasshead.lab import demo
from glasshead.model.transformer import Reader, Transformer
from glasshead.text.tinyworld import World
from tests.cli.test_cli import is_a_mistake

VOID = {"meta", "input", "br", "rect", "path", "circle"}


class Ran(NamedTuple):
    out: Path
    said: str
    err: str


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A demo of a few steps, where an earlier one and something else lie."""
    out = tmp_path_factory.mktemp("somewhere") / "runs" / "demo"
    (out / "reader").mkdir(parents=True)
    (out / "mine").mkdir()
    (out / "demo.json").write_text('{"glasshead": "demo"}')
    said, err = io.StringIO(), io.StringIO()
    args = ["--steps", "3", "--stories", "7", "--seed", "2", "--lang", "en", "--out", str(out)]
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(err),
    ):
        patch.setenv("COLUMNS", "80")
        patch.setattr(demo, "SEEN", 11)
        assert run(["demo", *args]) == 0
    return Ran(out, said.getvalue(), err.getvalue())


def test_it_leaves_three_runs_figures_and_a_page(ran):
    out = ran.out
    names = ("reader", "reader-en", "translator")
    reader, english, translator = (glasshead.load(out / name) for name in names)
    assert isinstance(reader.model, Reader)
    assert english.config.data["refer"]["lang"] == "en"
    assert isinstance(translator.model, Transformer)
    found = json.loads((out / "demo.json").read_text())
    assert found["stories"] == 7
    assert found["seed"] == 2
    assert len(found["translator"]["errors"]) == 2
    assert sorted(p.name for p in out.iterdir()) == [
        "demo.json",
        "mine",
        "reader",
        "reader-en",
        "report.html",
        "translator",
    ]


def test_the_reader_of_the_users_language_shows_its_sentence_before_the_rest(ran):
    said = ran.err
    assert World.seed_story().text("en") in said
    before, after = said.split(World.seed_story().text("en"))
    assert "measuring" in after
    assert "English reader: 100%" in before
    assert "Sentences that it knows" in after  # three steps teach nothing, and it says so


class Page(HTMLParser):
    """Fails on tags that do not close, and keeps all that could be loaded from elsewhere."""

    def __init__(self):
        super().__init__()
        self.open, self.loads, self.said = [], [], []

    def handle_starttag(self, tag, attrs):
        self.loads += [value for name, value in attrs if name in ("src", "href", "srcset")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.said.append(data)


def test_the_page_is_whole_in_both_languages_and_loads_nothing(ran):
    html = (ran.out / "report.html").read_text(encoding="utf-8")
    page = Page()
    page.feed(html)
    assert page.open == []
    assert page.loads == []
    for word in ("http", "url(", "@import", "<script"):
        assert word not in html
    assert html.count("<svg") == 2 * html.count("<figure")  # each once light and once dark
    said = " ".join(page.said)
    assert "这说明什么" in said
    assert "What this shows" in said
    assert 'id="show-en" checked' in html
    assert "{" not in said.replace(page.said[page.said.index(_style(page))], "")


def _style(page):
    return next(text for text in page.said if ":root" in text)


def test_it_shows_the_sentence_the_figures_and_that_three_steps_teach_nothing(ran):
    for words in (
        "1  What each 它 stands for",
        "那个小猫，它(→",
        "Das Kätzchen dort, es hat gestern im Park",
        "5  Over 7 unseen stories",
        "have not learned their tasks",
        f"open {ran.out}",
    ):
        assert words in ran.said.replace("\n", " ")
    assert ran.said.split("glasshead ")[-1].startswith(f"serve {ran.out}")
    assert "reader: 100%" in ran.err
    assert "translator: 100%" in ran.err


def test_its_translator_translates(cli, ran):
    code, said, _ = cli("translate", ran.out / "translator", World.seed_story().text("zh"))
    assert code == 0
    assert said


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (["--steps", "0"], "--steps '"),
        (["--stories", "0"], "--stories '"),
        (["--lang", "fr"], "'--lang'"),
        (["--seed", "-1"], "--seed '"),
    ],
)
def test_mistakes_are_told_in_one_line(cli, args, error):
    assert error in is_a_mistake(cli("demo", *args))[0]


def test_a_folder_that_is_something_else_is_refused_before_training(cli, tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    assert "is not an earlier demo" in is_a_mistake(cli("demo", "--out", tmp_path))[0]
    assert (tmp_path / "precious.txt").read_text() == "mine"
