"""Tokenizers of other programs, as ours."""

import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from glasshead.errors import InputError
from glasshead.text.hugging_face import find_tokenizer, to_hugging_face_json
from glasshead.text.tokenizer import (
    BPETokenizer,
    ByteTokenizer,
    CharTokenizer,
    PieceTokenizer,
    tokenizer_from_json,
)

TEXT = "The quick cat sat on the mat; it's happy. 小猫饿了。"


def byte_level(normalizer=None, bos=False):
    """As GPT-2, Llama 3 and Qwen have it."""
    inner = tokenizers.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=280,
        special_tokens=["<|begin|>"],
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    inner.train_from_iterator([TEXT] * 3, trainer)
    if normalizer:
        inner.normalizer = normalizer
    if bos:
        inner.post_processor = processors.TemplateProcessing(
            single="<|begin|> $A", special_tokens=[("<|begin|>", 0)]
        )
    return inner


def sentencepieces():
    """As Llama 2 has it: spaces are written out, unknown characters are spelled in bytes."""
    vocabulary = ["<unk>", "<s>", "</s>", *(f"<0x{value:02X}>" for value in range(256))]
    vocabulary += ["▁", "t", "h", "e", "c", "a", "▁t", "▁th", "▁the", "▁c", "at", "▁cat"]
    merges = [("▁", "t"), ("▁t", "h"), ("▁th", "e"), ("▁", "c"), ("a", "t"), ("▁c", "at")]
    numbers = {token: number for number, token in enumerate(vocabulary)}
    inner = tokenizers.Tokenizer(
        models.BPE(numbers, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    inner.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    inner.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    inner.add_special_tokens(["<unk>", "<s>", "</s>"])
    inner.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return inner


def found(path, inner):
    inner.save(str(path / "tokenizer.json"))
    return find_tokenizer(path)


def test_one_that_works_on_bytes_stays_exact(tmp_path):
    tokenizer = found(tmp_path, byte_level())
    assert isinstance(tokenizer, BPETokenizer)
    assert tokenizer.exact
    assert tokenizer.prompt_ids(TEXT) == tokenizer.encode_ids(TEXT).tolist()


def test_what_stands_before_a_whole_text_is_not_part_of_it(tmp_path):
    tokenizer = found(tmp_path, byte_level(bos=True))
    ids = tokenizer.encode_ids(TEXT).tolist()
    assert tokenizer.prompt_ids(TEXT) == [0, *ids]
    assert tokenizer.prompt_ids("") == [0]
    assert 0 not in tokenizer.encode_ids("<|begin|>")
    assert tokenizer.decode(tokenizer.prompt_ids(TEXT)) == TEXT


def test_one_that_composes_characters_first_is_as_exact_as_that(tmp_path):
    tokenizer = found(tmp_path, byte_level(normalizers.NFC()))
    assert not tokenizer.exact
    assert tokenizer.decode(tokenizer.encode_ids("e\u0301 小猫")) == "\u00e9 小猫"


@given(st.text(st.characters(codec="utf-8", exclude_characters="▁\0")))
def test_sentencepieces_with_bytes_give_back_a_text(text):
    tokenizer = PieceTokenizer(sentencepieces())
    assert tokenizer.decode(tokenizer.prompt_ids(text)) == text


def test_sentencepieces_know_where_they_stand():
    tokenizer = PieceTokenizer(sentencepieces())
    encoded = tokenizer.encode("the cat 猫")
    whole = "the cat 猫".encode()
    pieces = [whole[start:end].decode() for start, end in encoded.offsets.tolist()]
    assert pieces[0].strip() == "the"
    assert pieces[1].strip() == "cat"
    assert pieces[-3:] == ["猫", "猫", "猫"]  # three bytes of one character
    assert tokenizer.token_bytes(int(encoded.ids[1])) == b" cat"
    assert tokenizer.specials == {"<unk>": 0, "<s>": 1, "</s>": 2}


def test_pieces_are_kept_in_a_file_of_ours():
    tokenizer = PieceTokenizer(sentencepieces(), {"<eos>": 2})
    again = tokenizer_from_json(tokenizer.to_json())
    assert isinstance(again, PieceTokenizer)
    assert again.fingerprint == tokenizer.fingerprint
    assert again.specials == tokenizer.specials
    assert again.prompt_ids("the cat") == tokenizer.prompt_ids("the cat")
    with pytest.raises(InputError, match="<eos>"):
        tokenizer_from_json(tokenizer.to_json().replace('"<eos>": 2', '"<eos>": 2000'))


def test_a_list_of_wordpieces(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "##s", "The"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    tokenizer = find_tokenizer(tmp_path)
    assert [words[n] for n in tokenizer.prompt_ids("The cats dog")] == [
        "[CLS]", "the", "cat", "##s", "[UNK]", "[SEP]"
    ]  # fmt: skip
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert [words[n] for n in find_tokenizer(tmp_path).encode_ids("The the")] == ["The", "the"]
    (tmp_path / "vocab.txt").write_text("the\ncat\n")
    with pytest.raises(InputError, match="UNK"):
        find_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("vocabulary", "merges"),
    [("{}", ""), ('{"a": -1}', ""), ('{"a": 0}', "a b c"), ('{"a": 0}', "a b"), ("[]", "")],
)
def test_damaged_merges_are_refused(tmp_path, vocabulary, merges):
    (tmp_path / "vocab.json").write_text(vocabulary)
    (tmp_path / "merges.txt").write_text(f"#version: 0.2\n{merges}\n")
    with pytest.raises(InputError) as error:
        find_tokenizer(tmp_path)
    assert str(tmp_path) in str(error.value)


@given(st.text())
@example("a <eos> b")
def test_bytes_go_out_as_they_are(text):
    inner = tokenizers.Tokenizer.from_str(to_hugging_face_json(ByteTokenizer(["<eos>"])))
    inner.encode_special_tokens = True  # or its name in a text is taken for the special itself
    assert inner.encode(text).ids == ByteTokenizer().encode_ids(text).tolist()
    assert inner.token_to_id("<eos>") == 256


@given(st.text(st.sampled_from("ab 春\n\t▁Ġ"), min_size=1))
def test_characters_go_out_as_they_are(text):
    tokenizer = CharTokenizer("".join(sorted("ab 春\n\t▁Ġ")), ["<eos>"])
    inner = tokenizers.Tokenizer.from_str(to_hugging_face_json(tokenizer))
    ids = tokenizer.encode_ids(text).tolist()
    assert inner.encode(text).ids == ids
    assert inner.decode(ids) == text
