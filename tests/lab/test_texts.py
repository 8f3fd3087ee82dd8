"""Texts in two languages: both say the same, and fit on a line of the editor."""

import string

import pytest
from rich.cells import cell_len

from docs._build.imports import PACKAGE
from glasshead.lab.texts import Words, join_sentences, join_words, read_texts

FILES = sorted(PACKAGE.rglob("*.toml"))


def fields(text):
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_both_languages_have_the_same_figures_and_no_line_is_too_wide(path):
    assert max(map(cell_len, path.read_text(encoding="utf-8").splitlines())) <= 100
    if path.stem == "errata":
        return
    for name, words in read_texts(str(path)).items():
        assert fields(words.en) == fields(words.zh), name
        assert words.en
        assert words.zh


def test_a_value_is_put_in_the_language_of_its_text():
    text = Words("{n} of {what}", "{what}：{n}")
    assert text.format(n=3, what=Words("heads", "头")) == Words("3 of heads", "头：3")


def test_sentences_are_joined_with_a_space_in_english_only():
    one, other = Words("One.", "一。"), Words("Two.", "二。")
    assert join_sentences([one, Words("", ""), other]) == Words("One. Two.", "一。二。")
    assert join_words([one, 7], "; ", "；") == Words("One.; 7", "一。；7")


def test_names_in_a_table_get_its_name(tmp_path):
    (tmp_path / "some.toml").write_text('a = "x"\n[b]\nc = { en = "e", zh = "z" }\n')
    found = read_texts(str(tmp_path / "some.py"))
    assert found == {"a": Words("x", "x"), "b.c": Words("e", "z")}
