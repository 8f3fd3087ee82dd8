"""Text becomes a task; evaluations and errors of it."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glasshead.errors import ConfigError, InputError
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.text.tokenizer import BPETokenizer
from glasshead.training.language import (
    MOST_CHARACTERS,
    Corpus,
    LanguageTask,
    TextConfig,
    pick_vocab_size,
    read_corpus,
    train_tokenizer,
)


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_few_characters_are_ids_themselves_and_many_are_not(tmp_path):
    few = write(tmp_path / "few.txt", "to be or not to be\n" * 9)
    many = write(tmp_path / "many.txt", "".join(map(chr, range(0x4E00, 0x4E01 + MOST_CHARACTERS))))
    assert train_tokenizer([few], TextConfig()).kind == "char"
    assert train_tokenizer([many], TextConfig()).kind == "bpe"
    assert train_tokenizer([many], TextConfig(tokenizer="char")).vocab_size == MOST_CHARACTERS + 1
    assert train_tokenizer([few], TextConfig(tokenizer="byte")).vocab_size == 256
    assert train_tokenizer([few], TextConfig(tokenizer="bpe"), 259).vocab_size == 259


@pytest.mark.parametrize("portable", [False, True])
def test_a_chinese_text_is_not_learned_in_half_characters(tmp_path, portable):
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 2 * MOST_CHARACTERS))) + "，天地玄黄。\n" * 30
    path = write(tmp_path / "zh.txt", text)
    tokenizer = train_tokenizer([path], TextConfig(portable=portable))
    assert tokenizer.vocab_size > pick_vocab_size(len(text.encode()))
    assert all(tokenizer.token_bytes(token).decode() for token in tokenizer.encode_ids(text))


@given(st.integers(0, 10**13), st.integers(0, 10**13))
def test_more_text_never_gets_a_smaller_vocabulary(one, other):
    small, large = sorted((one, other))
    assert 512 <= pick_vocab_size(small) <= pick_vocab_size(large) <= 32768


def test_several_documents_end_with_eos_and_one_does_not(tmp_path):
    one = write(tmp_path / "one.txt", "abc" * 10)
    two = write(tmp_path / "two.txt", "cab" * 10)
    alone, both = train_tokenizer([one], TextConfig()), train_tokenizer([one, two], TextConfig())
    assert alone.specials == {}
    corpus = read_corpus([one, two], both, TextConfig(), tmp_path / "cache")
    ids = np.concatenate([corpus.training, corpus.validation])
    assert np.flatnonzero(ids == both.specials["<eos>"]).tolist() == [30, 61]


@pytest.mark.parametrize("kind", ["char", "byte", "bpe"])
def test_what_is_to_be_portable_has_an_end_and_the_words_of_gpt2(kind, tmp_path):
    one = write(tmp_path / "one.txt", "春江 says: 1234 low\n\nlower's" * 9)
    config = TextConfig(tokenizer=kind, portable=True)
    tokenizer = train_tokenizer([one], config, 283 if kind == "bpe" else None)
    corpus = read_corpus([one], tokenizer, config, tmp_path / "cache")
    assert corpus.validation[-1] == tokenizer.specials["<eos>"]
    if isinstance(tokenizer, BPETokenizer):
        assert tokenizer.words("low 1234\n\nlower's") == [
            "low", "Ġ1234", "Ċ", "Ċ", "lower", "'s"
        ]  # fmt: skip


def test_the_end_of_the_text_validates_or_whole_documents(tmp_path):
    files = [write(tmp_path / f"{n}.txt", f"{n}" * 100) for n in range(4)]
    tokenizer = train_tokenizer(files, TextConfig())
    parts = read_corpus(files, tokenizer, TextConfig(val_share=0.25), tmp_path / "cache")
    assert tokenizer.decode(parts.validation) == "3" * 100
    split = TextConfig(split="document", val_share=0.25)
    parts = read_corpus(files, tokenizer, split, tmp_path / "cache")
    assert len(set(tokenizer.decode(parts.validation))) == 1
    assert len(parts.training) == 3 * 101


@pytest.mark.parametrize("change", ["longer", "shorter", "another id", "another split"])
def test_a_changed_text_has_another_fingerprint(change):
    ids = np.arange(5000) % 50
    before = Corpus(ids[:4500], ids[4500:]).fingerprint
    other = ids.copy()
    other[4501] += 1
    after = {
        "longer": Corpus(np.append(ids[:4500], 1), ids[4500:]),
        "shorter": Corpus(ids[:4499], ids[4500:]),
        "another id": Corpus(other[:4500], other[4500:]),
        "another split": Corpus(ids[:4400], ids[4400:]),
    }[change]
    assert after.fingerprint != before
    assert Corpus(ids[:4500].astype(np.uint16), ids[4500:]).fingerprint == before


@pytest.mark.parametrize(
    ("training", "validation", "says"),
    [(90, 10, "validation part of the text has 10 tokens"), (16, 50, "training part.*16 tokens")],
)
def test_a_text_shorter_than_a_block_is_named_with_what_would_fit(training, validation, says):
    model = GPT(GPTConfig(vocab_size=5, max_len=16, d_model=8, n_layers=1, n_heads=2))
    corpus = Corpus(np.zeros(training, np.uint16), np.zeros(validation, np.uint16))
    with pytest.raises(InputError, match=says) as caught:
        LanguageTask(model, corpus, batch_size=2, eval_batches=1, seed=0)
    assert f"--max-len {min(training, validation) - 1}" in caught.value.hint


def test_an_evaluation_is_the_mean_surprise_of_fixed_places():
    torch.manual_seed(3)
    model = GPT(GPTConfig(vocab_size=7, max_len=11, d_model=6, n_layers=1, n_heads=3)).eval()
    ids = np.random.default_rng(0).integers(0, 7, 300)
    corpus = Corpus(ids[:200], ids[200:])
    task = LanguageTask(model, corpus, batch_size=4, eval_batches=3, seed=0)
    with torch.no_grad():
        value = task.evaluate()["val_loss"]
        assert task.evaluate()["val_loss"] == value
        surprises = []
        for start in np.arange(12) * 88 // 11:  # 12 windows over 100 ids, the last ends at the end
            window = torch.tensor(ids[200 + start : 200 + start + 12])
            logs = model(window[None, :-1])[0].double().log_softmax(-1)
            surprises.append(-logs[torch.arange(11), window[1:]].mean())
    assert value == pytest.approx(torch.stack(surprises).mean().item(), abs=1e-6)


def test_batches_depend_on_their_number_alone():
    model = GPT(GPTConfig(vocab_size=300, max_len=5, d_model=8, n_layers=0))
    corpus = Corpus(np.arange(200), np.arange(200, 300))
    one, two = (LanguageTask(model, corpus, batch_size=3, eval_batches=1, seed=8) for _ in range(2))
    late = [two.batch(n) for n in (7, 3)]
    assert torch.equal(one.batch(3).ids, late[1].ids)
    assert torch.equal(one.batch(7).targets, late[0].targets)
    assert int(one.batch(3).targets.max()) < 200
    assert one.tokens(late[0]) == 15


@pytest.mark.parametrize("wrong", [{"tokenizer": "bep"}, {"split": "half"}, {"val_share": 1.0}])
def test_settings_that_cannot_work_are_named(wrong):
    with pytest.raises(ConfigError) as caught:
        TextConfig(**wrong)
    assert str(next(iter(wrong.values()))) in str(caught.value)
    assert caught.value.hint
