"""Files become pairs in two parts that share no sentence."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glasshead.errors import ConfigError, InputError
from glasshead.text.pairs import Pair
from glasshead.text.sources import Report
from glasshead.training.parallel_corpus import (
    PairConfig,
    ParallelCorpus,
    read_parallel_corpus,
    split_pairs,
)
from tests.training.pair_cases import toy_pairs, write_pairs

SENTENCES = st.sampled_from([f"{word} {n}" for word in ("Ja", "ja", "nein ") for n in range(13)])


def sentences(pairs, side):
    return {" ".join(getattr(pair, side).casefold().split()) for pair in pairs}


@given(st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=60), st.floats(0.05, 0.9))
def test_no_sentence_is_in_both_parts(sides, share):
    pairs = [Pair(source, target, line) for line, (source, target) in enumerate(sides, 1)]
    training, validation = split_pairs(pairs, share)
    for side in ("source", "target"):
        assert not sentences(training, side) & sentences(validation, side)
    assert sorted(p.line for p in training + validation) == [p.line for p in pairs]
    assert len(validation) <= round(share * len(pairs))
    for part in (training, validation):
        assert all(one.line < other.line for one, other in pairwise(part))


@given(st.integers(0, 2**31))
def test_what_is_held_out_depends_on_the_sentences_and_not_on_their_order(seed):
    pairs = toy_pairs(60)
    other = random.Random(seed).sample(pairs, len(pairs))
    held = [{pair.source for pair in split_pairs(some, 0.2)[1]} for some in (pairs, other)]
    assert held[0] == held[1]
    assert len(held[0]) == 12


def test_pairs_come_from_files_two_by_two_and_from_tables(tmp_path):
    files = write_pairs(tmp_path, toy_pairs(7))
    (tmp_path / "more.tsv").write_text("EINS\tone\t1\nzwei\ttwo\t2\n")
    report = Report()
    config = PairConfig(columns="2,1", lowercase=True)
    parts = read_parallel_corpus([*files, tmp_path / "more.tsv"], files, config, report)
    assert [pair.target for pair in parts.training[-2:]] == ["eins", "zwei"]
    assert [pair.source for pair in parts.training[-2:]] == ["one", "two"]
    assert len(parts.training) == 9
    assert parts.validation == [Pair(p.source, p.target.lower(), p.line) for p in toy_pairs(7)]
    shared = "7 of 7 validation pairs have a target that is also in the training pairs"
    assert shared in report.notes


@pytest.mark.parametrize("change", ["another word", "one less", "another split", "sides swapped"])
def test_other_pairs_have_another_fingerprint(change):
    pairs = toy_pairs(9)
    before = ParallelCorpus(pairs[:7], pairs[7:]).fingerprint
    word = [Pair("neu", pairs[0].target, 1), *pairs[1:]]
    swapped = [Pair(pair.target, pair.source, pair.line) for pair in pairs]
    after = {
        "another word": ParallelCorpus(word[:7], word[7:]),
        "one less": ParallelCorpus(pairs[1:7], pairs[7:]),
        "another split": ParallelCorpus(pairs[:6], pairs[6:]),
        "sides swapped": ParallelCorpus(swapped[:7], swapped[7:]),
    }[change]
    assert after.fingerprint != before
    assert ParallelCorpus(list(pairs[:7]), list(pairs[7:])).fingerprint == before


def test_too_few_pairs_and_odd_files_are_named(tmp_path):
    files = write_pairs(tmp_path, toy_pairs(3))
    with pytest.raises(InputError, match=r"3 pairs are too few to hold out val_share \(0.05\)"):
        read_parallel_corpus(files, [], PairConfig(), Report())
    with pytest.raises(InputError, match=r"toy\.src is a source without a target"):
        read_parallel_corpus([*files, files[0]], [], PairConfig(), Report())


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_tokens": 0},
        {"val_share": 0.0},
        {"eval_pairs": 0},
        {"columns": "0,1"},
        {"columns": "2"},
        {"languages": "zh"},
        {"bpe_dropout": 1.0},
        {"label_smoothing": -0.1},
        {"rdrop": float("nan")},
        {"rdrop": float("inf")},
    ],
)
def test_settings_that_cannot_work_are_named(wrong):
    with pytest.raises(ConfigError) as caught:
        PairConfig(**wrong)
    [(name, value)] = wrong.items()
    assert name in str(caught.value)
    assert str(value) in str(caught.value)
    assert caught.value.hint
