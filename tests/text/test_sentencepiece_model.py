"""What sentencepiece, and so llama.cpp's converter, makes of our vocabularies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glasshead.text.sentencepiece_model import sentencepiece_model
from glasshead.text.tokenizer import BPETokenizer, ByteTokenizer, CharTokenizer

sentencepiece = pytest.importorskip("sentencepiece", reason="needs sentencepiece")

TEXT = "春江潮水连海平，海上明月共潮生。\nThe  cat's mat:\t<eos> À"


def read(tokenizer):
    return sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_model(tokenizer))


CHARS, BYTES = CharTokenizer.train(TEXT, ["<eos>"]), ByteTokenizer(["<eos>"])
THEIR_CHARS, THEIR_BYTES = read(CHARS), read(BYTES)


@given(st.text(st.sampled_from(sorted(set(TEXT)))))
def test_characters_have_the_same_ids(text):
    assert THEIR_CHARS.encode(text) == CHARS.encode_ids(text).tolist()


@given(st.text(st.characters(exclude_characters="▁\0", exclude_categories=["Cs"])))
def test_bytes_are_their_ids(text):
    assert THEIR_BYTES.encode(text) == BYTES.encode_ids(text).tolist()


@pytest.mark.parametrize(("ours", "theirs"), [(CHARS, THEIR_CHARS), (BYTES, THEIR_BYTES)])
def test_special_tokens_keep_their_ids_and_no_text_becomes_one(ours, theirs):
    assert theirs.is_control(ours.specials["<eos>"])
    assert ours.specials["<eos>"] not in theirs.encode("<eos>")
    assert theirs.unk_id() >= ours.vocab_size  # no row of the model


def test_what_sentencepiece_cannot_say_is_not_said():
    assert sentencepiece_model(CharTokenizer.train("▁ ")) is None
    assert sentencepiece_model(BPETokenizer.train(TEXT, 260)) is None
