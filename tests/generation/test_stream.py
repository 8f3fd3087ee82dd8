"""Ids to text: whole characters only, and not a letter of a stop string."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from glasshead.errors import ConfigError
from glasshead.generation import stream as stream_module
from glasshead.generation.decode import generate
from glasshead.generation.sampling import GREEDY
from glasshead.generation.stream import start_ids, stream, texts_at_once
from glasshead.generation.text_stream import TextStream
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.text.tokenizer import BPETokenizer, ByteTokenizer, CharTokenizer

BYTES = ByteTokenizer()
# Few letters, so that stop strings occur, overlap and nearly occur.
letters = st.text("ab春", max_size=20)
stops = st.lists(st.text("ab春", min_size=1, max_size=4), max_size=3)


def whole(text: str, stop: list[str]) -> str:
    """The text before the stop string that is complete first, and of several the longest."""
    for end in range(len(text) + 1):
        ends = [word for word in stop if text[:end].endswith(word)]
        if ends:
            return text[: end - max(map(len, ends))]
    return text


def read(tokenizer, text, stop):
    """The pieces that arrive, and what is left at the end."""
    reader, pieces = TextStream(tokenizer, stop), []
    for token in tokenizer.encode_ids(text).tolist():
        pieces.append(reader.push(token))
        if reader.done:
            break
    return [*pieces, reader.flush()], reader.done


@given(letters, stops)
@example("春aab", ["b", "aab", "ab"])
def test_text_stops_before_the_first_complete_stop_string(text, stop):
    pieces, done = read(BYTES, text, stop)
    assert "".join(pieces) == whole(text, stop)
    assert done == any(word in text for word in stop)


MERGED = BPETokenizer.train("ab春aab春春bba春" * 5, vocab_size=290)
CHARACTERS = CharTokenizer.train("ab春")


@given(letters, stops)
@example("bba", ["a", "b"])
@example("aab", ["b", "aa"])
def test_however_the_text_is_cut_into_tokens_it_stops_in_the_same_place(text, stop):
    expected = "".join(read(BYTES, text, stop)[0])
    assert "".join(read(MERGED, text, stop)[0]) == expected
    assert "".join(read(CHARACTERS, text, stop)[0]) == expected


def test_some_tokens_are_several_characters():
    assert len(MERGED.encode_ids("bba")) == len(MERGED.encode_ids("aab")) == 1


@given(st.text(max_size=20))
def test_every_piece_is_whole_characters(text):
    pieces, _ = read(BYTES, text, [])
    assert "".join(pieces) == text
    assert all(len(piece) <= 1 for piece in pieces)


@given(letters, stops)
def test_only_what_may_begin_a_stop_string_is_held_back(text, stop):
    reader, shown = TextStream(BYTES, stop), ""
    for number, character in enumerate(text, 1):
        for token in character.encode():
            shown += reader.push(token)
        if reader.done:
            return
        held = text[len(shown) : number]
        assert held == "" or any(word.startswith(held) for word in stop)


def test_half_a_character_at_the_end_is_dropped():
    reader = TextStream(BYTES, ["END"])
    assert [reader.push(token) for token in b"EN" + "春".encode()[:2]] == ["", "", "", ""]
    assert reader.flush() == "EN"


def test_texts_that_do_not_fit_side_by_side_wait_for_others_and_stay_the_same(monkeypatch):
    model, prompts = spelling("abcdefgh"), [b"a", b"c", b"f", b"b", b"g"]
    together, most = pieces_of(model, BYTES, prompts, max_tokens=4), []
    assert texts_at_once(model, 5) == stream_module.MOST_TEXTS
    monkeypatch.setattr(stream_module, "MOST_TEXTS", 2)
    step = stream_module._step
    monkeypatch.setattr(
        stream_module, "_step", lambda batch: most.append(len(batch.texts)) or step(batch)
    )
    assert pieces_of(model, BYTES, prompts, max_tokens=4) == together
    assert max(most) == 2


def test_the_caches_of_texts_side_by_side_take_half_of_the_free_memory(monkeypatch):
    model = GPT(GPTConfig(vocab_size=7, n_layers=3, n_heads=2, d_model=22, max_len=13))
    of_text = 2 * 4 * 3 * 22 * 13  # keys and values, float32
    monkeypatch.setattr(stream_module, "free_memory", lambda device: 4 * of_text * 5 + 17)
    assert texts_at_once(model, 999) == 5


def test_an_empty_stop_string_is_an_error():
    with pytest.raises(ConfigError, match="empty"):
        TextStream(BYTES, ["a", ""])


def chain(following: dict[int, int], vocab_size: int) -> GPT:
    """A model that says after each id exactly one other: a table, and no layers."""
    size = {"vocab_size": vocab_size, "d_model": vocab_size}
    model = GPT(GPTConfig(**size, max_len=5, n_layers=0, positions="none"))
    with torch.no_grad():
        model.embedding.weight.copy_(torch.eye(vocab_size))
        model.head.weight.zero_()
        for one, other in following.items():
            model.head.weight[other, one] = 9.0
    return model


def spelling(text: str, vocab_size: int = 256, end: int | None = None) -> GPT:
    """Continues the first byte of a text of distinct bytes by the others, and begins again."""
    data = list(text.encode())
    after = [*data[1:], data[0] if end is None else end]
    return chain(dict(zip(data, after, strict=True)), vocab_size)


def pieces_of(model, tokenizer, prompts, **more):
    pieces = list(stream(model, tokenizer, prompts, GREEDY, **more))
    texts = ["".join(p.text for p in pieces if p.row == row) for row in range(len(prompts))]
    ends = [[p.finish for p in pieces if p.row == row] for row in range(len(prompts))]
    return texts, ends


def test_texts_end_by_length_by_a_stop_string_or_by_a_special():
    model = spelling("abcdefgh")
    texts, ends = pieces_of(model, BYTES, [b"a", b"f"], max_tokens=6, stop=["de"])
    assert texts == ["bc", "ghabcd"]
    assert ends == [[None, None, None, "stop"], [None, None, None, None, None, "length"]]
    special = ByteTokenizer(["<eos>"])
    model = spelling("abcd", 257, end=special.specials["<eos>"])
    assert pieces_of(model, special, [b"b"], max_tokens=9) == (["cd"], [[None, None, "stop"]])


def test_what_was_held_back_comes_when_the_length_is_reached():
    texts, ends = pieces_of(spelling("abcdef"), BYTES, [b"a"], max_tokens=3, stop=["cdx"])
    assert (texts, ends) == (["bcd"], [[None, None, "length"]])


def test_an_id_beyond_the_tokenizer_ends_the_text():
    model = spelling("ab", 259, end=258)
    assert pieces_of(model, BYTES, [b"a"], max_tokens=5) == (["b"], [[None, "stop"]])


def test_streamed_text_is_the_text_of_the_generated_ids():
    model = spelling("春ab")
    ids = [step[0] for step in generate(model, ["春".encode()], GREEDY, max_tokens=40)]
    texts, _ = pieces_of(model, BYTES, ["春".encode()], max_tokens=40)
    assert texts == [BYTES.decode(ids)]


@pytest.mark.parametrize(
    ("tokenizer", "expected"),
    [
        (ByteTokenizer(["<eos>", "<bos>"]), 257),
        (ByteTokenizer(["<pad>", "<eos>"]), 257),
        (ByteTokenizer(["<|endoftext|>"]), 256),
        (ByteTokenizer(), 10),
        (CharTokenizer.train("ba\n"), 0),
        (CharTokenizer.train("cab"), 0),
        (BPETokenizer.train("a\nb\nc", vocab_size=256), None),
    ],
)
def test_an_empty_prompt_starts_from_a_special_a_line_end_or_the_first_id(tokenizer, expected):
    [start] = start_ids(tokenizer)
    if expected is None:
        assert tokenizer.token_bytes(start) == b"\n"
    else:
        assert start == expected
