"""Translating texts: in any order and company, in parts, with every character kept."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glasshead.errors import ConfigError, InputError, UnknownCharacterError
from glasshead.generation.beam import SearchConfig, greedy, search
from glasshead.generation.translate import Translator
from glasshead.text.tokenizer import ByteTokenizer, CharTokenizer, WordTokenizer
from tests.generation.translators import SPECIALS, small_bpe, tiny

TEXT = "Ein Hund rennt durch den Schnee. Zwei Hunde rennen. 小猫在公园里追逐一只蝴蝶。"
BPE = small_bpe(TEXT * 3)
RARE = "🦋👩‍👩‍👧 𠮷𪚥 ﷽ ĳ\u0301 \x00 ☃"
MAX_LEN = 29


def translator(tokenizer=BPE, seed=0, n_best=1, lowercase=False, sharp=3.0, **search):
    model = tiny(seed, sharp, vocab_size=tokenizer.vocab_size, max_len=MAX_LEN,
                 pad=tokenizer.specials["<pad>"])  # fmt: skip
    config = SearchConfig(**({"beam": 3, "max_tokens": 11} | search))
    return Translator(model, tokenizer, config, n_best=n_best, lowercase=lowercase)


lines = st.lists(
    st.one_of(st.sampled_from(["", "  ", TEXT, "Ein Hund", "小猫", RARE]), st.text(max_size=20)),
    min_size=1, max_size=6,
)  # fmt: skip


@settings(max_examples=30)
@given(lines, st.integers(1, 3))
def test_texts_together_equal_texts_alone_in_their_order(texts, n_best):
    translate = translator(n_best=n_best)
    together = translate(texts)
    assert [one.reading.text for one in together] == texts
    for text, one in zip(texts, together, strict=True):
        [alone] = translate([text])
        assert [c.text for c in one.candidates] == [c.text for c in alone.candidates]
        assert [c.parts for c in one.candidates] == [c.parts for c in alone.candidates]


def test_a_translation_is_what_the_search_found():
    for beam, find in ((1, greedy), (3, search)):
        translate = translator(beam=beam)
        [one] = translate(["Ein Hund rennt."])
        ids = tuple(BPE.encode_ids("Ein Hund rennt.").tolist())
        found = find(translate.model, [ids], translate.special, translate.config)
        best = found[0] if beam == 1 else found[0][0]
        assert one.best.text == BPE.decode(best.ids).strip()
        assert (one.best.score, one.best.log_prob) == (best.score, best.log_prob)
        assert one.best.parts == ((ids, best.ids),)
        assert one.best.tokens == len(best.ids)


def test_nothing_but_white_space_becomes_nothing():
    for found in translator(n_best=3)(["", " \t\u3000 "]):
        [only] = found.candidates
        assert (only.text, only.log_prob, only.tokens, only.ended) == ("", 0.0, 0, True)
    assert translator()([]) == []


@settings(max_examples=40)
@given(st.text(max_size=120))
def test_what_is_read_is_the_text_to_the_last_character(text):
    reading = translator().read(text)
    assert all(0 < len(part) <= MAX_LEN for part in reading.parts)
    kept = "".join(BPE.decode(part) for part in reading.parts)
    assert "".join(kept.split()) == "".join(text.split())


@pytest.mark.parametrize("tokenizer", [BPE, ByteTokenizer(SPECIALS)], ids=["bpe", "bytes"])
def test_characters_never_seen_are_spelled_in_bytes(tokenizer):
    translate = translator(tokenizer)
    reading = translate.read(RARE)
    kept = "".join(tokenizer.decode(part) for part in reading.parts)
    assert "".join(kept.split()) == "".join(RARE.split())
    assert translate.write([reading])[0].best.parts


def test_bytes_that_are_no_text_show_as_replacements():
    tokenizer = ByteTokenizer(SPECIALS)
    texts = [translator(tokenizer, seed, beam=1)(["Hund"])[0].best.text for seed in range(5)]
    assert "�" in "".join(texts)
    assert all(text.encode() for text in texts)


def test_a_character_that_a_vocabulary_lacks_is_named():
    chars = CharTokenizer.train("Ein Hund", SPECIALS)
    with pytest.raises(UnknownCharacterError, match="'x'"):
        translator(chars)(["Hund x"])
    with pytest.raises(InputError, match="'xyz'"):
        translator(WordTokenizer(["ein", " hund"], SPECIALS))(["ein xyz"])


def test_a_long_text_is_translated_in_parts_that_are_joined():
    translate = translator(ByteTokenizer(SPECIALS))
    sentences = ["Ein Hund rennt. ", "Zwei Hunde rennen. ", "Es schneit heute."]
    [whole] = translate(["".join(sentences)])
    assert [bytes(part).decode() for part in whole.reading.parts] == [s.strip() for s in sentences]
    alone = [one.best for one in translate(sentences)]
    assert whole.best.log_prob == pytest.approx(sum(one.log_prob for one in alone))
    assert whole.best.score == pytest.approx(sum(one.score for one in alone))
    assert whole.best.ended == all(one.ended for one in alone)
    assert [part for one in alone for part in one.parts] == list(whole.best.parts)
    assert [target for _, target in whole.best.parts] == [one.parts[0][1] for one in alone]


def test_the_best_of_several_parts_are_the_best_combinations():
    translate = translator(ByteTokenizer(SPECIALS), n_best=3)
    parts = ["Ein Hund rennt. ", "Es schneit heute sehr."]
    [whole] = translate(["".join(parts)])
    assert len(whole.reading.parts) == 2
    one, other = (found.candidates for found in translate(parts))
    every = sorted(
        ((a.ended and b.ended, a.score + b.score) for a in one for b in other), reverse=True
    )
    assert [(c.ended, c.score) for c in whole.candidates] == every[:3]


def test_the_candidates_are_distinct_texts_though_ids_differ():
    """Without merges a text has one spelling; with them the same text has several."""
    tokenizer = WordTokenizer(["a", "aa"], SPECIALS)
    translate = translator(tokenizer, beam=13, n_best=13, sharp=1.0, max_tokens=4)
    [found] = translate(["a"])
    texts = [one.text for one in found.candidates]
    ids = search(translate.model, [found.reading.parts[0]], translate.special, translate.config, 13)
    assert texts == list(dict.fromkeys(tokenizer.decode(one.ids) for one in ids[0]))
    assert len(texts) < len(ids[0])
    scores = [(not one.ended, -one.score) for one in found.candidates]
    assert scores == sorted(scores)


def test_small_letters_are_read_where_it_was_trained_on_them():
    upper, lower = "EIN Hund, İ!", "ein hund, i̇!"
    small = translator(lowercase=True)
    assert small.read(upper).parts == translator().read(lower).parts
    assert small.read(upper).text == upper
    assert translator().read(upper).parts != translator().read(lower).parts


def test_more_candidates_than_the_beam_are_refused_at_once():
    with pytest.raises(ConfigError, match=r"n_best \(4\) must lie between 1 and beam \(3\)"):
        translator(n_best=4)


def test_positions_that_end_are_never_exceeded():
    model = tiny(vocab_size=BPE.vocab_size, max_len=MAX_LEN, positions="learned",
                 pad=BPE.specials["<pad>"])  # fmt: skip
    with torch.no_grad():
        model.head.weight[BPE.specials["<eos>"]] = 0
    [found] = Translator(model, BPE, SearchConfig(2))([TEXT * 2])
    assert all(len(s) <= MAX_LEN and len(t) <= MAX_LEN for s, t in found.best.parts)
