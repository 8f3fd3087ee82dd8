"""From a sentence to vectors to numbers to tables."""

import io
import json
import re
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from glasshead.attention.steps import attend
from glasshead.errors import GlassheadError, InputError, NotFiniteError
from glasshead.lab.vectors import TEXTBOOK, from_spelling, read_vectors
from glasshead.lab.walkthrough import as_json, find, split_words, walk
from glasshead.lab.walkthrough_tables import tables


def lines(walked, lang="en", width=80, ascii_only=False):
    console = Console(width=width, file=io.StringIO())
    for part in tables(walked, lang, width, ascii_only):
        console.print(part)
    return console.file.getvalue().splitlines()


# --- words ---


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("Hello shiny sun!", ["Hello", "shiny", "sun"]),
        ("  «Don't»\tstop -- (now) ", ["Don't", "stop", "now"]),
        ("那个小猫 它 饿坏了", ["那个小猫", "它", "饿坏了"]),
        ("那个小猫，它 饿坏了。", ["那个小猫", "它", "饿坏了"]),
        ("小猫，它饿了！", ["小", "猫", "它", "饿", "了"]),
        ("GPT很好", ["GPT", "很", "好"]),
        ("ねこ", ["ね", "こ"]),
        ("안녕하세요", ["안녕하세요"]),
        ("小猫\u3000它", ["小猫", "它"]),
        ("😀 [bold] \x1b[1m", ["😀", "bold", "1m"]),
        ("cafe\u0301", ["café"]),
    ],
)
def test_words(sentence, words):
    assert split_words(sentence) == words


@pytest.mark.parametrize("sentence", ["", "   ", "!!! …", "。", "\udcff", "a " * 513])
def test_a_sentence_that_cannot_be_used(sentence):
    with pytest.raises(InputError) as caught:
        split_words(sentence)
    assert caught.value.hint


@given(st.text())
def test_any_text_is_words_or_an_input_error(text):
    try:
        words = split_words(text)
    except InputError:
        return
    assert all(words)
    assert not any(c.isspace() or unicodedata.category(c) == "Cc" for c in "".join(words))


# --- the word that asks ---


def test_the_query_is_the_first_of_its_kind_unless_numbered():
    words = split_words("小猫 它 公园 它 饿坏了 C#2")
    assert [find(words, q) for q in ("它", "它#1", "它#2", "小猫#1", "C#2", "饿坏了。")] == [
        1,
        1,
        3,
        0,
        5,
        4,
    ]


@pytest.mark.parametrize(
    ("query", "message", "hint"),
    [
        ("hello", "'hello' is not a word of the sentence", "did you mean 'Hello'?"),
        ("月亮", "'月亮' is not a word of the sentence", "choose one of: Hello, it"),
        ("it#3", "'it' occurs 2 times in the sentence, so there is no 'it#3'", "it#1 to it#2"),
        ("it#0", "'it' occurs 2 times in the sentence, so there is no 'it#0'", "it#1 to it#2"),
        ("Hello#2", "'Hello' occurs once in the sentence", "choose Hello#1"),
        ("it#" + "9" * 5000, "is not a word of the sentence", "choose one of"),
        ("", "'' is not a word of the sentence", "choose one of"),
    ],
)
def test_a_query_that_is_not_there(query, message, hint):
    with pytest.raises(InputError) as caught:
        find(["Hello", "it", "it"], query)
    assert message in str(caught.value)
    assert hint in caught.value.hint


# --- vectors ---


def test_the_textbook_sentences_have_the_textbook_vectors():
    walked = walk("Hello shiny sun!", query="shiny", scaled=False)
    assert walked.sources == ["textbook"] * 3
    np.testing.assert_allclose(walked.steps.context[1], [0.39896, 0.38542, 0.86095], atol=5e-6)
    assert walk("Your journey starts with one step").sources == ["textbook"] * 6


@given(st.text(st.characters(codec="utf-8")))
def test_spelling_gives_three_numbers_of_two_decimals(word):
    vector = from_spelling(word)
    assert vector == from_spelling(word)
    assert len(vector) == 3
    assert all(0 <= x < 1 and x == round(x, 2) for x in vector)


def test_spelling_vectors_do_not_change_between_versions():
    assert from_spelling("它") == (0.81, 0.07, 0.13)


def test_an_unknown_word_is_said_to_have_no_meaning():
    walked = walk("Hello moon")
    assert walked.sources == ["textbook", "spelling"]
    text = " ".join(lines(walked))
    assert "without any meaning: moon." in text
    assert "没有任何含义的向量：moon。" in " ".join(lines(walked, "zh"))
    assert "meaning" not in " ".join(lines(walk("Hello sun")))


def test_a_file_with_one_vector_a_word(tmp_path):
    path = tmp_path / "v.json"
    path.write_text('{"小猫": [1, 0], "它": [0.5, 2e-1], "more": [3, 4]}', encoding="utf-8")
    walked = walk("小猫 它", vectors=path)
    x = np.array([[1, 0], [0.5, 0.2]])
    np.testing.assert_array_equal(walked.steps.context, attend(x, x, x).context)
    assert walked.sources == ["file", "file"]


def test_a_file_with_queries_keys_and_values(tmp_path):
    q, k, v = [[1.0, 2.0]], [[3.0, 4.0]], [[5.0, 6.0, 7.0]]
    path = tmp_path / "qkv.json"
    path.write_text(json.dumps({"q": {"a": q[0]}, "k": {"a": k[0]}, "v": {"a": v[0]}}))
    s = walk("a", vectors=path).steps
    assert (s.q.tolist(), s.k.tolist(), s.v.tolist()) == (q, k, v)
    assert s.context.tolist() == v


def test_words_named_q_k_and_v_are_words(tmp_path):
    path = tmp_path / "v.json"
    path.write_text('{"q": [1, 0], "k": [0, 1], "v": [1, 1]}')
    assert walk("q k v", vectors=path).steps.q.tolist() == [[1, 0], [0, 1], [1, 1]]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_the_usual_encodings_of_json_are_read(tmp_path, encoding):
    path = tmp_path / "v.json"
    path.write_text('{"它": [1]}', encoding=encoding)
    assert read_vectors(path).q == {"它": (1.0,)}


BAD_FILES = {
    "empty": ("", "is empty"),
    "blank": (" \n", "is empty"),
    "not JSON": ('{"a": [1,\n 2}', "is not JSON: Expecting ',' delimiter at line 2, column 3"),
    "cut off": ('{"a": [1', "at line 1, column 9"),
    "a list": ("[1, 2]", "holds a list of 2, not a JSON object"),
    "a number": ("7", "holds the number 7, not a JSON object"),
    "null": ("null", "holds null, not a JSON object"),
    "no words": ("{}", "holds no words"),
    "a string": ('{"a": "0.5"}', "'a' is the string '0.5', not a list of numbers"),
    "no numbers": ('{"a": []}', "'a' is an empty list"),
    "strings within": ('{"a": [1, "2"]}', "number 2 of 'a' is the string '2'"),
    "true": ('{"a": [true]}', "number 1 of 'a' is true"),
    "null within": ('{"a": [null]}', "number 1 of 'a' is null"),
    "lists within": ('{"a": [[1, 2]]}', "number 1 of 'a' is a list of 2"),
    "lengths": ('{"a": [1, 2], "b": [1]}', "'b' has 1 numbers but 'a' has 2"),
    "twice": ('{"a": [1], "a": [2]}', "'a' occurs twice"),
    "missing": ('{"A": [1]}', "has no q vector for 'a'"),
    "deep": ("[" * 100_000, "nested too deeply"),
    "deep objects": ('{"a":' * 100_000, "nested too deeply"),
    "q alone": ('{"q": {"a": [1]}}', "holds objects under 'q', not under q, k and v"),
    "mixed": ('{"a": [1], "b": {"c": [1]}}', "holds objects under 'a', 'b'"),
    "k is a list": ('{"q": {"a": [1]}, "k": [1], "v": {"a": [1]}}', "holds k: a list of 1"),
    "v is empty": ('{"q": {"a": [1]}, "k": {"a": [1]}, "v": {}}', "holds v: no words"),
    "missing in v": ('{"q": {"a": [1]}, "k": {"a": [1]}, "v": {"b": [1]}}', "no v vector for 'a'"),
    "q and k differ": (
        '{"q": {"a": [1]}, "k": {"a": [1, 2]}, "v": {"a": [1]}}',
        "q has vectors of 1 numbers but k has vectors of 2",
    ),
    "NaN": ('{"a": [0, NaN]}', "number 2 of 'a' is nan"),
    "Infinity": ('{"a": [-Infinity]}', "number 1 of 'a' is -inf"),
    "too large": ('{"a": [1e999]}', "number 1 of 'a' is inf"),
    "too many digits": ('{"a": [' + "9" * 5000 + "]}", "number 1 of 'a' is inf"),
    "too large to multiply": ('{"a": [1e200]}', "q · k is inf"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_vectors_file_is_named_with_its_value_and_a_hint(tmp_path, name):
    content, message = BAD_FILES[name]
    path = tmp_path / "bad.json"
    path.write_text(content)
    with pytest.raises(GlassheadError) as caught:
        walk("a", vectors=path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_nan_in_a_file_is_a_not_finite_error(tmp_path):
    path = tmp_path / "v.json"
    path.write_text('{"a": [NaN]}')
    with pytest.raises(NotFiniteError):
        read_vectors(path)


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "v.json"
    path.write_bytes(b'{"a\xff": [1]}')
    with pytest.raises(InputError, match="is not text: byte 3 is 0xff"):
        read_vectors(path)


def test_a_missing_file_and_a_folder(tmp_path):
    (tmp_path / "vectors.json").write_text("{}")
    with pytest.raises(InputError, match="there is no file") as caught:
        read_vectors(tmp_path / "vektors.json")
    assert "did you mean" in caught.value.hint
    assert "vectors.json" in caught.value.hint
    with pytest.raises(InputError, match="is a folder, not a file"):
        read_vectors(tmp_path)
    with pytest.raises(InputError, match="there is no file"):
        read_vectors(tmp_path / "no" / "such" / "folder.json")


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_json_is_vectors_or_a_clear_error(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("any") / "v.json"
    path.write_text(json.dumps(data))
    try:
        walked = walk("a", vectors=path)
    except GlassheadError:
        return
    assert np.isfinite(walked.steps.context).all()


# --- JSON out ---


def test_json_has_every_number_and_null_for_hidden_scores():
    walked = walk("Your journey starts with one step", query="journey", causal=True)
    data = json.loads(json.dumps(as_json(walked), allow_nan=False))
    s = walked.steps
    for name in ("q", "k", "v", "scores", "scaled", "weights", "context"):
        np.testing.assert_array_equal(data[name], getattr(s, name))
    assert data["masked"][0] == [s.scaled[0, 0], None, None, None, None, None]
    query = data["query"]
    assert (query["word"], query["index"], query["occurrence"], query["occurrences"]) == (
        "journey",
        1,
        1,
        1,
    )
    np.testing.assert_allclose(np.sum(query["weighted"], axis=0), query["context"], atol=1e-15)
    assert as_json(walk("a b"))["query"] is None


# --- tables ---


@pytest.mark.parametrize("lang", ["zh", "en"])
@pytest.mark.parametrize("query", [None, "它"])
def test_columns_are_straight_with_chinese_words(lang, query):
    walked = walk("那个小猫 它 饿坏了 sun 😀", query=query, causal=True)
    rows = [line for line in lines(walked, lang) if line.split(" ")[0] in walked.labels]
    tables_seen = 0
    for start in range(0, len(rows), 5):
        ends = {
            tuple(cell_len(row[: m.end()]) for m in re.finditer(r"\d\.\d+|-inf", row))
            for row in rows[start : start + 5]
        }
        assert len(ends) == 1
        tables_seen += 1
    assert tables_seen == (6 if query is None else 5)


@pytest.mark.parametrize("stem", ["词", "国际化词语"])
@pytest.mark.parametrize(("n", "width"), [(2, 60), (7, 61), (11, 80), (23, 79), (31, 211)])
def test_no_line_is_wider_than_the_terminal_and_no_number_is_cut(stem, n, width):
    walked = walk(" ".join(f"{stem}{i}" for i in range(n)), causal=True)
    found = lines(walked, "en", width)
    assert max(map(cell_len, found)) <= width
    assert "…" not in "".join(found)
    rows = [line.split() for line in found if line.startswith(f"{stem}0 ")]
    shown = [x for row in rows for x in row[1:]]
    # word 0: its vector and its context, and one row each of scores, scaled, masked and weights
    assert len(shown) == 3 + 4 * n + 3


def test_one_row_in_detail():
    found = "\n".join(lines(walk("Hello shiny sun!", query="shiny", scaled=False)))
    for number in ("0.7842", "1.3569", "1.2487", "0.2291", "0.4063", "0.3646", "2.4614"):
        assert number in found
    assert "0.3990  0.3854  0.8610" in found
    assert "left out (--no-scale)" in found
    assert "Query: shiny, word 2 of 3." in found


def test_hidden_keys_are_named():
    found = "\n".join(lines(walk("Hello shiny sun", query="shiny", causal=True)))
    assert "-inf   hidden" in found
    assert "看不见" in "\n".join(lines(walk("Hello shiny sun", query="shiny", causal=True), "zh"))


def test_which_of_several_words_is_meant_is_said():
    found = " ".join(lines(walk("它 饿 它", query="它"), "zh"))
    assert "它#1，第 1 个词" in found
    assert "它 出现了 2 次" in found


def test_a_bar_is_as_long_as_its_weight():
    found = lines(walk("Hello shiny sun", query="shiny", scaled=False))
    bars = [sum(line.count(c) for c in "█▉▊▋▌▍▎▏") for line in found if "█" in line]
    assert bars == [6, 10, 9]  # of 24, the last cell partly filled
    assert "".join(lines(walk("Hello shiny sun", query="shiny"), ascii_only=True)).count("#") > 20


def test_markup_in_a_word_stays_a_word():
    assert "a[bold]b" in "".join(lines(walk("a[bold]b :x:y", query="a[bold]b")))


def test_long_vectors_and_large_numbers_are_cut_to_what_can_be_read(tmp_path):
    path = tmp_path / "v.json"
    path.write_text(json.dumps({"a": [1e6, -1e-7, 0.0, 1.5] + [0.1] * 61}))
    found = "\n".join(lines(walk("a", vectors=path)))
    assert "1.00e+06  -1.00e-07  0.0000  1.5000  +61 more" in found


def test_every_textbook_vector_is_three_wide():
    assert {len(vector) for vector in TEXTBOOK.values()} == {3}
