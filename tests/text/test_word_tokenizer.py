"""A list of words as a vocabulary, and the embedded world's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glasshead.errors import InputError
from glasshead.text.tinyworld import LANGUAGES, SPLITS, World
from glasshead.text.tinyworld.tokens import pieces, world_tokenizer
from glasshead.text.tokenizer import WordTokenizer, tokenizer_from_json
from glasshead.text.word_tokenizer import segment

TOKENIZER = world_tokenizer(*LANGUAGES)


@given(st.integers(0, 10**6), st.sampled_from(SPLITS), st.sampled_from(LANGUAGES))
def test_every_story_becomes_its_own_words_and_its_text_again(seed, split, lang):
    story = World(seed).story(split, seed % 97)
    words = pieces(story.tokens[lang], lang)
    assert "".join(words) == story.text(lang)
    ids = TOKENIZER.encode_ids(story.text(lang)).tolist()
    assert ids == TOKENIZER.ids_of(words)
    assert TOKENIZER.decode(ids) == story.text(lang)


def test_each_word_has_one_id_and_specials_come_first():
    assert TOKENIZER.specials == {"<pad>": 0, "<bos>": 1, "<eos>": 2}
    assert len(set(TOKENIZER.words)) == len(TOKENIZER.words) == TOKENIZER.vocab_size - 3


def test_it_is_read_back_from_its_file(tmp_path):
    TOKENIZER.save(tmp_path / "tokenizer.json")
    again = tokenizer_from_json((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    assert again.to_json() == TOKENIZER.to_json()
    text = World.seed_story().text("zh")
    assert again.encode(text).offsets[-1].tolist() == [len(text.encode()) - 3, len(text.encode())]


@given(st.text("ab", max_size=9), st.sets(st.text("ab", min_size=1, max_size=3), min_size=1))
def test_a_text_is_read_exactly_if_some_way_leads_to_its_end(text, known):
    ends = {0}
    for at in range(len(text)):
        ends |= {at + len(word) for word in known if at in ends and text.startswith(word, at)}
    words = segment(text, known, max(map(len, known)))
    assert (words is not None) == (len(text) in ends)
    if words is not None:
        assert "".join(words) == text
        assert known.issuperset(words)


def test_an_unknown_word_is_named_with_its_place_and_one_like_it():
    with pytest.raises(InputError, match=r"'饿掉' \(index 3\) is not one of the") as error:
        TOKENIZER.encode_ids("现在它饿掉了。")
    assert error.value.hint == "did you mean '饿坏'?"


def test_white_space_that_is_in_no_word_is_left_out():
    tokenizer = WordTokenizer(["The", " kitten", " sat", ".", " It"])
    ids = tokenizer.encode_ids("The kitten sat. The  kitten sat.\n It sat. ")
    assert tokenizer.decode(ids) == "The kitten sat.The kitten sat. It sat."
    with pytest.raises(InputError, match=r"'dog' \(index 20\)"):
        tokenizer.encode_ids("The kitten sat. The dog")


@pytest.mark.parametrize("words", [[], ["a", ""], ["a", "b", "a"]])
def test_a_vocabulary_of_empty_or_double_words_is_refused(words):
    with pytest.raises(InputError, match="distinct"):
        WordTokenizer(words)


def test_damaged_words_in_a_file_are_refused():
    text = TOKENIZER.to_json().replace('"words": [', '"words": [7, ')
    with pytest.raises(InputError, match="'words'"):
        tokenizer_from_json(text)
