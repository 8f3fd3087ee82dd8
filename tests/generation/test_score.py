"""Scoring in windows against a model asked for one token at a time."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glasshead.errors import ConfigError, NotFiniteError, UnknownCharacterError
from glasshead.generation import score as scoring
from glasshead.generation.score import Score, encode_parts, surprises
from glasshead.text.bpe import Cutter
from glasshead.text.tokenizer import BPETokenizer, ByteTokenizer, CharTokenizer
from tests.generation.models import MAX_LEN, VOCAB, models, tiny


def scored(model, ids, stride=None, cuts=()):
    parts = np.split(np.array(ids, dtype=np.int32), sorted(cuts))
    found = list(surprises(model, parts, stride))
    seen = [int(token) for part in found for token in part.ids]
    return seen, [float(nats) for part in found for nats in part.nats]


def one_by_one(model, ids, stride):
    """The surprise of each id after the first, given its window's ids before it."""
    model.eval()
    nats = []
    for place in range(1, len(ids)):
        start = 0
        while place - start > MAX_LEN:
            start += stride
        with torch.no_grad():
            logits = model(torch.tensor([ids[start:place]]))[0, -1]
        nats.append(-logits.log_softmax(-1)[ids[place]].item())
    return nats


texts = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=5 * MAX_LEN)


@settings(max_examples=30)
@given(models, texts, st.none() | st.integers(1, MAX_LEN), st.lists(st.integers(0, 50), max_size=3))
def test_every_id_is_scored_once_from_its_window(model, ids, stride, cuts):
    seen, nats = scored(model, ids, stride, cuts)
    assert seen == ids
    assert math.isnan(nats[0])
    assert nats[1:] == pytest.approx(one_by_one(model, ids, stride or MAX_LEN // 2))


@given(texts, st.lists(st.integers(0, 50), max_size=3))
@settings(max_examples=20)
def test_how_the_ids_arrive_and_how_much_is_read_at_once_changes_nothing(ids, cuts):
    model = tiny()
    _, whole = scored(model, ids)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "READ", 1)  # one window at a time
        patch.setattr(scoring, "LOGITS", 1)  # one row of logits at a time
        assert scored(model, ids, cuts=cuts)[1] == pytest.approx(whole, nan_ok=True)


def test_an_empty_text_has_no_surprises():
    assert scored(tiny(), []) == ([], [])


def test_a_model_that_knows_nothing_needs_eight_bits_a_byte():
    model = tiny(vocab_size=256, n_layers=0)
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.zero_()
    total, tokenizer = Score(), ByteTokenizer()
    text = "春江花月夜 " * 9
    for part in surprises(model, [tokenizer.encode_ids(text)]):
        total.add(part, tokenizer)
    assert total.bits_per_byte == pytest.approx(8)
    assert total.perplexity == pytest.approx(256)
    assert total.loss == pytest.approx(math.log(256))
    assert total.tokens == total.bytes == len(text.encode()) - 1


def test_what_is_certain_counts_too():
    model, tokenizer, total = tiny(vocab_size=256, n_layers=0), ByteTokenizer(), Score()
    with torch.no_grad():
        model.head.bias[ord("a")] = 1e4
    for part in surprises(model, [tokenizer.encode_ids("aaaaa")]):
        total.add(part, tokenizer)
    assert (total.tokens, total.nats, total.perplexity) == (4, 0, 1)


def test_bytes_are_those_of_the_tokens_that_count():
    tokenizer = CharTokenizer.train("春江a")
    total = Score()
    for part in surprises(tiny(vocab_size=3), [tokenizer.encode_ids("春江a江")]):
        total.add(part, tokenizer)
    assert (total.tokens, total.bytes) == (3, 7)


@given(st.lists(st.text("ab 春\n", max_size=40), max_size=6))
def test_a_text_in_parts_gives_the_ids_of_the_whole(parts):
    text = "".join(parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "Cutter", lambda: Cutter(size=8))
        for tokenizer in (ByteTokenizer(), TRAINED):
            ids = np.concatenate(list(encode_parts(tokenizer, parts)))
            if len(text) < 64:  # below the limit at which a text without lines is cut anyhow
                assert ids.tolist() == tokenizer.encode_ids(text).tolist()
            assert tokenizer.decode(ids) == text


TRAINED = BPETokenizer.train("ab 春ab\nab 春春 ab" * 5, vocab_size=290)


def test_an_unknown_character_is_named_with_its_place():
    tokenizer = CharTokenizer.train("ab\n")
    with pytest.raises(UnknownCharacterError, match=r"'x'.*line 2, column 2"):
        list(encode_parts(tokenizer, ["ab\na", "x"]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "Cutter", lambda: Cutter(size=4))
        with pytest.raises(UnknownCharacterError, match="counting from character 6 of the text"):
            list(encode_parts(tokenizer, ["aaaaa\nax"]))


def test_dropout_is_off_and_the_flags_are_as_they_were():
    model = tiny().train()
    ids = [1, 2, 3, 4, 5] * 5
    assert scored(model, ids)[1][1:] == scored(model, ids)[1][1:]
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize("stride", [0, MAX_LEN + 1])
def test_a_stride_that_cannot_work_is_named(stride):
    with pytest.raises(ConfigError, match=rf"stride \({stride}\)"):
        scored(tiny(), [1, 2], stride)


def test_a_model_of_nan_is_an_error_and_not_a_score():
    model = tiny(n_layers=0)
    with torch.no_grad():
        model.head.bias[3] = torch.nan
    with pytest.raises(NotFiniteError, match="NaN"):
        scored(model, [1, 2])
