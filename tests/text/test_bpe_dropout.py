"""Words cut at random: the same text, by the paper's chances, the same for the same epoch."""

import json
import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glasshead.text.bpe import BPETokenizer
from glasshead.text.bpe_dropout import BPEDropout

WORDS = ["low", "lower", "lowest", "newer", "wider", "newest", "mächtig", "猫在公园里"]
TEXTS = [" ".join(random.Random(n).choices(WORDS, k=1 + n % 7)) for n in range(400)]
TOKENIZER = BPETokenizer.train(TEXTS, 331, ["<pad>", "<bos>", "<eos>"])


@settings(max_examples=25)
@given(st.floats(0, 0.99), st.integers(0, 2**63), st.integers(0, 2**20))
def test_the_pieces_of_a_text_are_the_text(dropout, seed, epoch):
    rows = BPEDropout(TOKENIZER, TEXTS[:20], dropout, seed).at(epoch)
    assert [TOKENIZER.decode(rows[i]) for i in range(20)] == TEXTS[:20]


@pytest.mark.parametrize(("dropout", "limit"), [(0.0, None), (0.7, 0)])
def test_without_dropout_or_beyond_the_limit_they_are_the_tokenizers_own(dropout, limit):
    rows = BPEDropout(TOKENIZER, TEXTS, dropout, 3, limit).at(5)
    for index, text in enumerate(TEXTS):
        assert rows[index].tolist() == TOKENIZER.encode_ids(text).tolist()


def test_an_epoch_is_the_same_whatever_came_before_it():
    one, two = (BPEDropout(TOKENIZER, TEXTS, 0.2, 3) for _ in range(2))
    spelled = {epoch: one.at(epoch) for epoch in (0, 1, 2)}
    for epoch in (2, 0, 1):
        again = two.at(epoch)
        assert all(np.array_equal(spelled[epoch][i], again[i]) for i in range(len(TEXTS)))
    changed = sum(not np.array_equal(spelled[0][i], spelled[1][i]) for i in range(len(TEXTS)))
    assert changed > len(TEXTS) / 3
    other = BPEDropout(TOKENIZER, TEXTS, 0.2, 4).at(0)
    assert any(not np.array_equal(spelled[0][i], other[i]) for i in range(len(TEXTS)))


def by_the_paper(word, merges, dropout, chance):
    """Provilkov and others, algorithm 1, on strings."""
    pieces = list(word)
    while True:
        left = [
            (merges.index((a, b)), i)
            for i, (a, b) in enumerate(pairwise(pieces))
            if (a, b) in merges and chance.random() >= dropout
        ]
        if not left:
            return pieces
        _, i = min(left)
        pieces[i : i + 2] = ["".join(pieces[i : i + 2])]


@pytest.mark.parametrize("dropout", [0.1, 0.5])
def test_pieces_are_as_many_as_the_paper_makes_them(dropout):
    listed = json.loads(TOKENIZER.to_json())["model"]["merges"]
    merges = [tuple(m.split(" ") if isinstance(m, str) else m) for m in listed]
    chance = random.Random(1)
    words = [word for text in TEXTS for word in TOKENIZER.words(text)]
    expected = np.mean([len(by_the_paper(w, merges, dropout, chance)) for w in words * 3])
    pieces = BPEDropout(TOKENIZER, TEXTS, dropout, 11)
    found = np.mean([pieces.at(epoch).lengths.sum() / len(words) for epoch in range(8)])
    assert found == pytest.approx(expected, rel=0.05)
    whole = sum(len(TOKENIZER.encode_ids(text)) for text in TEXTS) / len(words)
    assert found > 1.05 * whole
