"""Tokenizers: any text comes back, offsets are exact bytes, and text is never a special."""

import json
import lzma
import subprocess
import sys

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers

from glasshead.errors import ConfigError, InputError, UnknownCharacterError
from glasshead.text.bpe import BPETokenizer, Cutter, split_gpt2_words, split_words
from glasshead.text.tokenizer import (
    ByteTokenizer,
    CharTokenizer,
    StreamDecoder,
    load_tokenizer,
    tokenizer_from_json,
)

SPECIALS = ["<pad>", "<bos>", "<eos>"]
SAMPLE = (
    "Die Katze schläft. The cat sleeps, doesn't it?\n\n  那只小猫昨天在公园里追逐蝴蝶。"
    "用Python写123456行\r\n\tcode <eos> <pad>é 🙂 कि\n"
) * 5
BPE = BPETokenizer.train([SAMPLE], 400, SPECIALS)
BYTES = ByteTokenizer(SPECIALS)
EVERY = [BPE, BYTES, CharTokenizer.train(SAMPLE, SPECIALS)]
ANY_TEXT = [BPE, BYTES]

# Plain text() seldom has the runs and line ends that a word pattern could trip over.
tricky = st.lists(
    st.sampled_from([*SAMPLE[:90], "\r\n", "\n", "  ", "\u3000", "\x00", "\x85", "\u2028", "<eos>"])
).map("".join)
anything = st.text() | tricky


@pytest.mark.parametrize("tokenizer", ANY_TEXT, ids=lambda t: t.kind)
@given(text=anything)
def test_any_text_comes_back(tokenizer, text):
    ids = tokenizer.encode_ids(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode_bytes(ids) == text.encode()
    assert ids.dtype == np.int32


@pytest.mark.parametrize("tokenizer", EVERY, ids=lambda t: t.kind)
@given(text=st.text(alphabet=sorted(set(SAMPLE))))
def test_offsets_are_the_bytes_of_each_token(tokenizer, text):
    data, encoded = text.encode(), tokenizer.encode(text)
    assert encoded.offsets.shape == (len(encoded.ids), 2)
    parts = [data[start:end] for start, end in encoded.offsets]
    assert b"".join(parts) == data
    assert parts == [tokenizer.token_bytes(token) for token in encoded.ids]
    assert np.array_equal(encoded.ids, tokenizer.encode_ids(text))


@given(text=anything)
def test_offsets_of_bpe_hold_for_text_it_never_saw(text):
    data, encoded = text.encode(), BPE.encode(text)
    assert [data[a:b] for a, b in encoded.offsets] == [BPE.token_bytes(i) for i in encoded.ids]
    assert encoded.offsets.size == 0 or encoded.offsets[-1, 1] == len(data)


@pytest.mark.parametrize("tokenizer", EVERY, ids=lambda t: t.kind)
@given(data=st.data())
def test_streaming_gives_what_decoding_gives(tokenizer, data):
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1)))
    stream = StreamDecoder(tokenizer)
    assert "".join([stream.push(token) for token in ids]) + stream.flush() == tokenizer.decode(ids)


def test_streaming_waits_for_whole_characters():
    stream = StreamDecoder(BYTES)
    assert [stream.push(token) for token in "a🙂".encode()] == ["a", "", "", "", "🙂"]
    assert stream.push(0xE6) == ""
    assert stream.flush() == "\ufffd"


@given(text=anything)
def test_cut_text_has_the_ids_of_whole_text(text):
    lines = text + "\n" + text
    cutter = Cutter(size=3)
    cutter.limit = len(lines) + 1  # cuts at safe places only
    pieces = [*cutter.push(lines), cutter.flush()]
    assert "".join(pieces) == lines
    apart = [token for piece in pieces for token in BPE.encode_ids(piece).tolist()]
    assert apart == BPE.encode_ids(lines).tolist()


long_lines = st.lists(st.sampled_from(["a" * 9, "b", "\n", "\r\n", " "]), max_size=60).map("".join)


@given(text=tricky | long_lines, parts=st.lists(st.integers(0, 40)))
def test_cuts_do_not_depend_on_how_the_text_arrives(text, parts):
    whole, broken = Cutter(size=5), Cutter(size=5)
    expected = [*whole.push(text), whole.flush()]
    seen, start = [], 0
    for length in [*parts, len(text)]:
        seen += broken.push(text[start : start + length])
        start += length
    assert [*seen, broken.flush()] == expected
    assert "".join(expected) == text
    assert max(len(piece) for piece in expected) <= broken.limit


def test_long_text_is_cut_at_lines_of_either_kind():
    for end in ("\n", "\r\n"):
        cutter = Cutter(size=20)
        pieces = [*cutter.push(f"one line{end}" * 50), cutter.flush()]
        assert len(pieces) > 10
        assert all(piece.endswith(end) for piece in pieces)


def test_cuts_hold_for_gpt2_words_too():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = tokenizers.Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    text = "one \n\n two\nthree \nfour\n five\n\nsix\n" * 3
    words = [word for word, _ in inner.pre_tokenizer.pre_tokenize_str(text)]
    cutter = Cutter(size=4)
    pieces = [*cutter.push(text), cutter.flush()]
    apart = [w for piece in pieces for w, _ in inner.pre_tokenizer.pre_tokenize_str(piece)]
    assert len(pieces) > 3
    assert apart == words


def test_a_special_typed_in_text_stays_text():
    # Frequent enough that merging would build it, were its letters one word.
    tokenizer = BPETokenizer.train(["<eos><eos> <eos>\n" * 50], 400, SPECIALS)
    for one in (tokenizer, BYTES, load_back(tokenizer)):
        ids = one.encode_ids("a <eos> b<pad><eos>")
        assert not set(ids.tolist()) & set(one.specials.values())
        assert one.decode(ids) == "a <eos> b<pad><eos>"


def load_back(tokenizer):
    return tokenizer_from_json(tokenizer.to_json())


@pytest.mark.parametrize("tokenizer", EVERY, ids=lambda t: t.kind)
def test_specials_have_ids_of_their_own_and_no_text(tokenizer):
    assert sorted(tokenizer.specials) == sorted(SPECIALS)
    assert len(set(tokenizer.specials.values())) == 3
    word = tokenizer.encode_ids("cat").tolist()
    ids = [tokenizer.specials["<bos>"], *word, tokenizer.specials["<eos>"]]
    assert tokenizer.decode(ids) == "cat"
    assert tokenizer.byte_lengths[ids].sum() == 3


@pytest.mark.parametrize("tokenizer", EVERY, ids=lambda t: t.kind)
def test_a_saved_tokenizer_is_the_same_one(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer.json")
    again = load_tokenizer(tmp_path / "tokenizer.json")
    assert type(again) is type(tokenizer)
    assert (again.kind, again.vocab_size) == (tokenizer.kind, tokenizer.vocab_size)
    assert (again.specials, again.fingerprint) == (tokenizer.specials, tokenizer.fingerprint)
    assert np.array_equal(again.encode_ids(SAMPLE), tokenizer.encode_ids(SAMPLE))


def test_hugging_face_reads_our_bpe(tmp_path):
    BPE.save(tmp_path / "tokenizer.json")
    other = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    other.encode_special_tokens = True
    ids = other.encode(SAMPLE, add_special_tokens=False).ids
    assert ids == BPE.encode_ids(SAMPLE).tolist()
    assert other.decode(ids, skip_special_tokens=False) == SAMPLE


def test_training_twice_gives_the_same_tokenizer():
    assert BPETokenizer.train([SAMPLE], 400, SPECIALS).fingerprint == BPE.fingerprint


def test_words_keep_their_space_and_scripts_stay_apart():
    inner = tokenizers.Tokenizer.from_str(BPE.to_json())
    text = "I'm 用Python写12345 行，好\n\n  x"
    spans = inner.pre_tokenizer.pre_tokenize_str(text)
    words = "|".join(text[start:end] for _, (start, end) in spans)
    assert words == "I|'m| |用|Python|写|123|45| |行|，|好|\n\n| | x"


def test_characters_are_sorted_and_the_ladder_text_has_6148(data):
    with lzma.open(data / "text/ci.txt.xz", "rt", encoding="utf-8", newline="") as file:
        text = file.read()
    tokenizer = CharTokenizer.train(text)
    assert (len(text), tokenizer.vocab_size) == (2_063_344, 6148)
    known = {character: index for index, character in enumerate(sorted(set(text)))}
    part = text[:997]
    assert tokenizer.encode_ids(part).tolist() == [known[character] for character in part]
    assert tokenizer.decode(tokenizer.encode_ids(text)) == text


@pytest.mark.parametrize("beyond", ["鱻", "\x00", "\U0001f642", "\udc80"])
def test_an_unknown_character_is_named_with_its_place(beyond):
    tokenizer = CharTokenizer.train("春江潮水 連海平\n")
    with pytest.raises(UnknownCharacterError) as caught:
        tokenizer.encode("春江\n潮水" + beyond + "平" + beyond)
    message = str(caught.value)
    assert repr(beyond) in message
    assert f"(U+{ord(beyond):04X}) at line 2, column 3 (index 5)" in message
    assert "bpe" in caught.value.hint


@pytest.mark.parametrize("tokenizer", ANY_TEXT, ids=lambda t: t.kind)
def test_half_a_character_is_an_error(tokenizer):
    with pytest.raises(InputError, match=r"half of a surrogate pair \(U\+DC80\) at index 2"):
        tokenizer.encode("ab\udc80")
    with pytest.raises(InputError, match="half of a surrogate pair"):
        CharTokenizer.train("ab\udc80")


@pytest.mark.parametrize("wrong", [-1, 256 + len(SPECIALS)])
def test_an_id_outside_the_vocabulary_is_an_error(wrong):
    with pytest.raises(InputError, match=f"id {wrong} is not in a vocabulary of 259"):
        BYTES.decode([65, wrong])


def test_settings_that_cannot_work_are_errors():
    with pytest.raises(ConfigError, match=r"vocab_size \(257\) must be at least 258"):
        BPETokenizer.train(["text"], 257, ["<pad>", "<eos>"])
    with pytest.raises(ConfigError, match="'eos' is not a name in angle brackets"):
        BPETokenizer.train(["text"], 300, ["eos"])
    with pytest.raises(ConfigError, match="twice"):
        ByteTokenizer(["<eos>", "<eos>"])
    with pytest.raises(InputError, match="empty"):
        CharTokenizer.train([])


def damaged(tokenizer, **changes):
    return json.dumps({**json.loads(tokenizer.to_json()), **changes})


WORDPIECE = json.dumps({**json.loads(BPE.to_json()), "model": {"type": "WordPiece", "vocab": {}}})
CHARS = CharTokenizer.train("abc", ["<eos>"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON"),
        (BPE.to_json()[:1000], "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[1, 2]", "is not a tokenizer"),
        ('{"architectures": []}', "is not a tokenizer"),
        (damaged(CHARS, version=2), "has format 2, but this glasshead reads up to 1"),
        (damaged(CHARS, version="x"), "has format 'x'"),
        (damaged(CHARS, kind="chars"), "unknown kind of tokenizer 'chars'"),
        (damaged(CHARS, characters="cab"), "must be distinct and sorted"),
        (damaged(CHARS, characters=3), "'characters' 3 is not text"),
        (damaged(CHARS, specials={"<eos>": 1}), "ids of the special tokens are wrong"),
        (damaged(CHARS, specials={"<eos>": "3"}), "do not map names to ids"),
        (damaged(CHARS, specials=["<eos>"]), "do not map names to ids"),
        (WORDPIECE, "its model is WordPiece"),
        (damaged(BPE, pre_tokenizer={"type": "Whitespace"}), "it is not byte-level"),
        (damaged(BPE, normalizer={"type": "NFC"}), "changes the text"),
        (damaged(BPE, model={"type": "BPE", "vocab": {"a": 0}, "merges": []}), "lacks 25. of"),
        (damaged(BPE, model={"type": "BPE", "vocab": 3}), "is damaged"),
        (
            damaged(BPE, model={"type": "BPE", "vocab": {"春": 0}, "merges": []}),
            "is not written in bytes",
        ),
    ],
)
def test_a_broken_file_says_what_is_wrong(tmp_path, text, message):
    path = tmp_path / "tokenizer.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message) as caught:
        load_tokenizer(path)
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_a_missing_or_binary_file_says_so(tmp_path):
    with pytest.raises(InputError, match="cannot read the tokenizer"):
        load_tokenizer(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer.json").write_bytes(b"{\xff}")
    with pytest.raises(InputError, match="invalid UTF-8 at byte 1"):
        load_tokenizer(tmp_path / "tokenizer.json")


def test_a_tokenizer_that_loses_text_is_caught():
    lossy = json.loads(BPE.to_json())
    lossy["pre_tokenizer"]["pretokenizers"].insert(
        0, {"type": "Split", "pattern": {"String": "x"}, "behavior": "Removed", "invert": False}
    )
    with pytest.raises(InputError, match="keeps only 2 of the text's 3 bytes"):
        tokenizer_from_json(json.dumps(lossy)).encode("axb")


def test_text_does_not_pull_in_torch():
    code = "import sys, glasshead.text.token_store; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


CHINESE = "春江潮水连海平，海上明月共潮生。\n滟滟随波千万里，何处春江无月明！\n"


@pytest.mark.parametrize("cut", [split_words, split_gpt2_words])
@pytest.mark.parametrize("size", [256, 300, 400, 431])
def test_characters_are_the_first_tokens_of_a_chinese_vocabulary(cut, size):
    texts = [CHINESE, "𠀀𠀀 Âge, it's 1234\n"] * 3
    tokenizer = BPETokenizer.train_on_characters(lambda: texts, size, ["<eos>"], cut, grow=True)
    ids = tokenizer.encode_ids("".join(texts)).tolist()
    assert all(tokenizer.token_bytes(token).decode() for token in ids)  # none is half a character
    other = "它说：“🐱龘” <eos>"
    assert tokenizer.decode(tokenizer.encode_ids(other).tolist()) == other
    assert tokenizer.decode(ids) == "".join(texts)
    if size > 400:
        assert max(len(tokenizer.token_bytes(token).decode()) for token in ids) > 1


def test_a_vocabulary_size_that_is_given_holds_for_characters():
    for size in (257, 260, 263, 290):
        tokenizer = BPETokenizer.train_on_characters(lambda: [CHINESE], size, ["<eos>"])
        assert size - 3 <= tokenizer.vocab_size <= size
        assert tokenizer.decode(tokenizer.encode_ids(CHINESE).tolist()) == CHINESE


def test_a_panic_of_the_library_is_an_error_of_the_file():
    data = json.loads(BPETokenizer.train("the cat sat on the mat, the cat " * 5, 270).to_json())
    data["model"]["continuing_subword_prefix"] = "x" * 99
    with pytest.raises(InputError, match="damaged"):
        tokenizer_from_json(json.dumps(data))
