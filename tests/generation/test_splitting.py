"""Cutting: nothing is lost, what fits stays whole, and cuts fall where they hurt least."""

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glasshead.generation.splitting import join, split

alphabet = st.sampled_from('ab c.d,e。！？，、\n\t"”）!?;:…é小猫🦋\u0301')
texts = st.one_of(st.text(alphabet, max_size=200), st.text(max_size=80))


def at_most(n: int):
    return lambda part: len(part.strip()) <= n


@given(texts, st.integers(1, 30))
def test_the_parts_are_the_text_and_each_fits(text, n):
    parts = split(text, at_most(n), list)
    assert "".join(parts) == text
    assert all(parts)
    assert all(len(part.strip()) <= n for part in parts)


@given(texts)
def test_nothing_is_lost_even_where_nothing_fits(text):
    assert "".join(split(text, lambda part: False, list)) == text


@given(st.text(min_size=1, max_size=80))
def test_what_fits_stays_whole(text):
    assert split(text, at_most(len(text)), list) == [text]


@pytest.mark.parametrize(
    ("text", "n", "parts"),
    [
        ("Eins. Zwei! Drei?", 12, ["Eins. ", "Zwei! ", "Drei?"]),
        ("一二三。四五六！七八九？", 8, ["一二三。", "四五六！", "七八九？"]),
        ("他说：“走。”她走了。", 7, ["他说：“走。”", "她走了。"]),
        ('He said "go." She went.', 14, ['He said "go." ', "She went."]),
        ("It is 3.14 now. Yes.", 16, ["It is 3.14 now. ", "Yes."]),
        ("one two, three four. Five.", 11, ["one two, ", "three four. ", "Five."]),
        ("一二，三，四五六，七八。", 6, ["一二，三，", "四五六，", "七八。"]),
        ("1,000 men, more", 10, ["1,000 men, ", "more"]),
        ("alpha beta gamma", 11, ["alpha beta ", "gamma"]),
        ("Oh... no. ... yes.", 10, ["Oh... ", "no. ", "... yes."]),
        ("abcdefgh", 3, ["abc", "def", "gh"]),
        ("ab. abcdefgh cd.", 5, ["ab. ", "abcde", "fgh ", "cd."]),
        ("", 3, []),
    ],
)
def test_cuts_fall_at_sentences_then_clauses_then_spaces_then_anywhere(text, n, parts):
    assert split(text, at_most(n), list) == parts


def test_a_very_long_text_is_measured_few_times():
    calls = []

    def fits(part: str) -> bool:
        calls.append(len(part))
        return len(part) <= 50

    text = "no end in sight " * 5000
    assert "".join(split(text, fits, list)) == text
    assert sum(calls) < 40 * len(text)


@pytest.fixture
def not_hung():
    """Ends a test that has computed for two minutes."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def stop(*_):
        raise AssertionError("the test hangs")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, 120)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)


@pytest.mark.parametrize("row", [".", ",", '."', "!", "ab "])
def test_a_row_of_marks_is_cut_however_long_it_is(not_hung, row):
    """In a tenth of a second; were the time its length squared, in ten minutes."""
    text = row * 256_000 + "x"
    assert "".join(split(text, at_most(50), list)) == text


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        (["Eins.", "Zwei."], "Eins. Zwei."),
        (["一。", "二。"], "一。二。"),
        (["", "Zwei."], "Zwei."),
        (["Eins.", "", "Drei."], "Eins. Drei."),
        (["OK。", "Yes"], "OK。Yes"),
        (["하나.", "둘."], "하나. 둘."),
        ([], ""),
    ],
)
def test_translations_are_joined_as_their_script_is_written(parts, whole):
    assert join(parts) == whole
