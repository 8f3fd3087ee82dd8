"""Tokens become words, and maps of tokens maps of words."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glasshead.errors import InputError
from glasshead.observe.words import (
    Word,
    characters,
    decode_tokens,
    find_word,
    merge,
    visible,
    words,
)
from glasshead.text.tokenizer import BPETokenizer, ByteTokenizer

MIXED = "It's the 小猫's day — “naïve”, 3 o'clock.\n한국어 단어 👩‍👧 e\u0301té\tend "

byte_tokens = st.lists(st.binary(max_size=4), max_size=23)


def texts(found):
    return [word.text for word in found]


def cut(text, places):
    data = text.encode()
    ends = sorted({0, len(data), *(p % (len(data) + 1) for p in places)})
    return [data[a:b] for a, b in pairwise(ends)]


@given(byte_tokens)
def test_every_token_is_in_exactly_one_word(tokens):
    for found in (characters(tokens), words(tokens)):
        assert [n for word in found for n in range(word.start, word.stop)] == list(
            range(len(tokens))
        )
        assert all(word.start < word.stop for word in found)


@given(st.text(max_size=17), st.lists(st.integers(0, 99), max_size=11))
def test_however_a_text_is_cut_its_characters_come_together_again(text, places):
    assert "".join(texts(characters(cut(text, places)))) == text


@given(st.lists(st.integers(0, 200), max_size=29))
def test_however_a_text_is_cut_no_word_is_broken(places):
    whole = texts(words(cut(MIXED, range(200))))
    coarse = texts(words(cut(MIXED, places)))
    # Larger tokens can only hold several words together, never part them.
    assert "".join("".join(coarse).split()) == "".join("".join(whole).split())
    assert len(coarse) <= len(whole)


def test_words_of_many_scripts():
    assert texts(words(cut(MIXED, range(200)))) == [
        "It's", "the", "小", "猫", "'", "s", "day", "—", "“", "naïve", "”", ",", "3", "o'clock",
        ".", "\n", "한국어", "단어", "👩‍👧", "e\u0301té", "end",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (["'", "hello", "'", " he"], ["'", "hello", "'", "he"]),
        (["the", " dogs", "'", " tails"], ["the", "dogs", "'", "tails"]),
        (["<bos>", "It", "<eos>"], ["<bos>", "It", "<eos>"]),
        (["[CLS]", "un", "believ", "able", "[SEP]"], ["[CLS]", "unbelievable", "[SEP]"]),
        (["小猫", "饿", "坏了"], ["小猫", "饿", "坏了"]),  # what the tokenizer keeps together
        (["a", "\n", "\n", "b"], ["a", "\n", "\n", "b"]),
        (["T", "", "he"], ["The"]),
        (["", "x"], ["x"]),
        ([" "], [" "]),
        (["a", " ", " "], ["a"]),
        ([], []),
    ],
)
def test_where_words_begin_and_end(tokens, expected):
    assert texts(words(tokens)) == expected


def test_bytes_that_never_become_text_are_shown_as_bytes():
    tokens = [b"\xe5\xb0", "a", b"\x80", b"b\xe5", b"\x8f", b"\xff"]
    assert texts(characters(tokens)) == ["⟨E5 B0⟩", "a", "⟨80⟩", "b⟨E5 8F⟩", "⟨FF⟩"]


@given(
    st.integers(0, 2**16),
    st.lists(st.integers(1, 4), min_size=1, max_size=7),
    st.lists(st.integers(1, 4), min_size=1, max_size=7),
)
def test_merging_adds_over_keys_and_averages_over_queries(seed, row_sizes, col_sizes):
    def spans(sizes):
        ends = torch.tensor([0, *sizes]).cumsum(0).tolist()
        return [Word("w", a, b) for a, b in pairwise(ends)]

    rows, cols = spans(row_sizes), spans(col_sizes)
    shape = (2, 3, sum(row_sizes), sum(col_sizes))
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(shape, generator=generator, dtype=torch.float64).softmax(-1)
    merged = merge(weights, rows, cols)
    assert merged.shape == (2, 3, len(rows), len(cols))
    torch.testing.assert_close(merged.sum(-1), torch.ones_like(merged[..., 0]))
    for i, row in enumerate(rows):
        for j, col in enumerate(cols):
            block = weights[..., row.start : row.stop, col.start : col.stop]
            torch.testing.assert_close(merged[..., i, j], block.sum(-1).mean(-1))


def test_a_tokenizer_spells_its_tokens():
    tokenizer = BPETokenizer.train("小猫小猫", vocab_size=259, specials=["<eos>"])
    ids = [*tokenizer.encode_ids("小猫a").tolist(), tokenizer.specials["<eos>"]]
    tokens = decode_tokens(tokenizer, ids)
    assert tokens[-2:] == ["a", "<eos>"]
    assert texts(words(tokens)) in (["小", "猫", "a", "<eos>"], ["小猫", "a", "<eos>"])
    data = b"".join(t.encode() if isinstance(t, str) else t for t in tokens[:-1])
    assert data.decode() == "小猫a"
    assert decode_tokens(ByteTokenizer(), list("é".encode())) == [b"\xc3", b"\xa9"]


CAT = words(["那", "小", "猫", "说", "它", "饿", "，", "它", "走", "了"])


@pytest.mark.parametrize(
    ("wanted", "start", "stop"),
    [("它", 7, 8), ("它#1", 4, 5), ("它#2", 7, 8), ("小猫", 1, 3), ("小 猫#1", 1, 3), ("那", 0, 1)],
)
def test_a_word_is_found_at_its_last_place_or_the_one_that_is_named(wanted, start, stop):
    found = find_word(wanted, CAT)
    assert (found.start, found.stop) == (start, stop)


def test_a_word_with_a_number_sign_can_be_meant_itself():
    among = words(["C", "#", "1", " and", " C", " C"])
    assert (find_word("C#1", among).start, find_word("C#1", among).stop) == (0, 3)


@pytest.mark.parametrize(
    ("wanted", "message", "hint"),
    [
        ("tha", "'tha' is not in the text", "did you mean 'the'?"),
        ("狗", "'狗' is not in the text", "choose one of: the cat ↵"),
        ("cat#3", "'cat' has no occurrence number 3", "it occurs 2 times: cat#1 is the first"),
        ("cat#0", "'cat' has no occurrence number 0", "it occurs 2 times: cat#1 is the first"),
    ],
)
def test_a_word_that_is_not_there(wanted, message, hint):
    with pytest.raises(InputError) as caught:
        find_word(wanted, words(["the", " cat", "\n", "cat"]))
    assert str(caught.value) == message
    assert caught.value.hint == hint


@given(st.text())
def test_whatever_it_is_it_can_be_seen_on_one_line(text):
    shown = visible(text)
    assert shown.strip(" \u3000")
    assert all(c.isprintable() or c == "\u3000" for c in shown)
