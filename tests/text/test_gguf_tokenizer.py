"""The tokenizer of a GGUF file: each name of a pre-tokenizer splits as llama.cpp's does."""

import json

import pytest
import tokenizers

from glasshead.errors import InputError
from glasshead.text.gguf_tokenizer import read_tokenizer, tokenizer_fields

BYTES = list(tokenizers.pre_tokenizers.ByteLevel.alphabet())
# Each merge joins what is there with one more digit: five digits are one token unless they are cut.
DIGITS = ["12", "123", "1234", "12345"]
MERGES = ["1 2", "12 3", "123 4", "1234 5"]
NORMAL, CONTROL, USER, UNUSED = 1, 3, 4, 5


def fields(pre: str | None, more: dict[str, int] | None = None, **others: object) -> dict:
    """The fields of a file with all bytes, the digits, and tokens that no merge makes."""
    more = more or {}
    tokens = [*sorted(BYTES), *DIGITS, *more]
    found = {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "merges": MERGES,
        "token_type": [NORMAL] * (len(BYTES) + len(DIGITS)) + list(more.values()),
        **others,
    }
    return {f"tokenizer.ggml.{name}": value for name, value in found.items() if value is not None}


def read_words(text: str, *args: object, **others: object) -> list[str]:
    given = fields(*args, **others)
    ids = read_tokenizer(given, "m.gguf").prompt_ids(text)
    return [given["tokenizer.ggml.tokens"][n] for n in ids]


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        (None, ["12345"]),
        ("gpt-2", ["12345"]),
        ("smollm", list("12345")),
        ("qwen2", list("12345")),
        ("llama-bpe", ["123", "4", "5"]),
    ],
)
def test_digits_stay_together_as_the_pre_tokenizer_says(pre, expected):
    assert read_words("12345", pre) == expected


@pytest.mark.parametrize(
    ("pre", "expected"),
    [("gpt-2", list("seven")), ("llama-bpe", ["seven"]), ("qwen2", list("seven"))],
)
def test_llama_3_takes_a_whole_word_of_its_vocabulary_though_no_merge_makes_it(pre, expected):
    assert read_words("seven", pre, {"seven": NORMAL}) == expected


def test_only_qwen_composes_letters():
    composed, apart = "\u00e9", "e\u0301"
    for pre, same in [("qwen2", True), ("gpt-2", False), ("llama-bpe", False)]:
        found = read_tokenizer(fields(pre), "m.gguf")
        assert (found.prompt_ids(apart) == found.prompt_ids(composed)) is same, pre


def test_a_llama_3_tokenizer_is_exported_and_comes_back_the_same():
    known = {"seven": NORMAL, "<|end|>": CONTROL}
    first = read_tokenizer(fields("llama-bpe", known, eos_token_id=261), "m.gguf")
    size = len(fields("llama-bpe", known)["tokenizer.ggml.tokens"])
    ids = {"eos_token": size - 1}
    written = tokenizer_fields(first, ids, size)
    assert written["tokenizer.ggml.pre"] == "llama-bpe"
    again = read_tokenizer(written, "again.gguf")
    for text in ("seven", "seven 12345, 1234567 and 7", "春江"):
        assert again.prompt_ids(text) == first.prompt_ids(text)
    assert again.specials == first.specials == {"<|end|>": size - 1}


def test_types_of_tokens_decide_what_a_text_may_contain():
    types = {"<|end|>": CONTROL, "<tool>": USER, "<gone>": UNUSED}
    given = fields("gpt-2", types)
    found = read_tokenizer(given, "m.gguf")
    tool = given["tokenizer.ggml.tokens"].index("<tool>")
    assert found.prompt_ids("1<tool>2")[1:2] == [tool]
    assert len(found.prompt_ids("<gone>")) == len("<gone>")
    assert "<gone>" not in json.loads(found.hugging_face_json())["model"]["vocab"]
    assert list(found.specials) == ["<|end|>"]


def test_a_start_is_put_before_a_prompt_only_where_the_file_says_so():
    for added in (True, False, None):
        given = fields("gpt-2", {"<s>": CONTROL}, bos_token_id=len(BYTES) + len(DIGITS),
                       add_bos_token=added)  # fmt: skip
        ids = read_tokenizer(given, "m.gguf").prompt_ids("12")
        start = [given["tokenizer.ggml.bos_token_id"]] if added else []
        assert ids == [*start, given["tokenizer.ggml.tokens"].index("12")]


def test_an_unknown_pre_tokenizer_is_named():
    with pytest.raises(InputError, match=r"unknown tokenizer \(gpt2, abacus\)"):
        read_tokenizer(fields("abacus"), "m.gguf")


def test_the_ids_that_begin_and_end_a_text_are_written_and_read_again():
    marks = {"<s>": CONTROL, "<e>": CONTROL, "<p>": CONTROL}
    size = len(fields("gpt-2", marks)["tokenizer.ggml.tokens"])
    start, end, pad = range(size - 3, size)
    first = read_tokenizer(fields("gpt-2", marks, bos_token_id=start, add_bos_token=True), "m.gguf")
    ids = {"bos_token": start, "eos_token": [end, pad], "pad_token": pad}  # several may end it
    written = tokenizer_fields(first, ids, size + 2)
    named = [written[f"tokenizer.ggml.{x}"] for x in
             ("bos_token_id", "eos_token_id", "padding_token_id", "add_bos_token")]  # fmt: skip
    assert named == [start, end, pad, True]
    assert written["tokenizer.ggml.token_type"][-2:] == [UNUSED] * 2  # up to the model's size
    again = read_tokenizer(written, "again.gguf")
    assert again.prompt_ids("12") == first.prompt_ids("12") == [start, len(BYTES)]
    # Where nothing begins a text, the id is that of its end, and it is not added.
    without = tokenizer_fields(first, {"eos_token": end}, size)
    assert without["tokenizer.ggml.bos_token_id"] == end
    assert without["tokenizer.ggml.add_bos_token"] is False
    assert "tokenizer.ggml.padding_token_id" not in without
