"""Alignment: words instead of fragments, exact weights, and no head lost."""

import pytest
import torch

from glasshead.errors import ConfigError
from glasshead.generation.alignment import align, usual_layer
from glasshead.observe.words import decode_tokens, words
from glasshead.text.tokenizer import ByteTokenizer
from tests.generation.translators import SPECIALS, small_bpe, tiny

TEXT = "那个小猫，它昨天在公园里追逐一只蝴蝶。Der Hund's neue übergroße Hütte! 12345 ok  "
BPE = small_bpe(TEXT * 3)
BYTES = ByteTokenizer(SPECIALS)


def texts_of(found):
    return [word.text for word in found]


def test_words_are_those_that_people_read():
    model = tiny(vocab_size=BPE.vocab_size, max_len=99, pad=BPE.specials["<pad>"])
    source, target = (
        BPE.encode_ids(t).tolist() for t in (" Der Hund's Hütte, 🦋!", "小猫，한국어 앱")
    )
    found = align(model, BPE, source, target)
    assert found.source == ["Der", "Hund's", "Hütte", ",", "🦋", "!"]
    assert found.target[-2:] == ["한국어", "앱"]
    assert "".join(found.target[:-2]) == "小猫，"


def recorded(model, layer, source, target_in):
    """The layer's weights as it returns them itself when asked."""
    cross, kept = model.decoder.blocks[layer].cross, []
    before = cross.register_forward_pre_hook(
        lambda _, args, kwargs: (args, kwargs | {"weights": True}), with_kwargs=True
    )
    after = cross.register_forward_hook(lambda *given: kept.append(given[2].weights))
    with torch.no_grad():
        model.eval()(torch.tensor([source]), torch.tensor([target_in]))
    before.remove()
    after.remove()
    return kept[0][0]


@pytest.mark.parametrize("layer", [None, 0, 1, 2])
def test_weights_are_summed_over_key_pieces_and_averaged_over_query_pieces(layer):
    model = tiny(vocab_size=BPE.vocab_size, n_decoder_layers=3, n_heads=3, max_len=99,
                 pad=BPE.specials["<pad>"])  # fmt: skip
    source, target = (BPE.encode_ids(t).tolist() for t in ("那个小猫，它", "Hund's übel 12345"))
    found = align(model, BPE, source, target, layer)
    assert found.layer == (1 if layer is None else layer)
    each = recorded(model, found.layer, source, [BPE.specials["<bos>"], *target])
    rows, cols = (words(decode_tokens(BPE, ids)) for ids in (target, source))
    assert (found.target, found.source) == (texts_of(rows), texts_of(cols))
    assert found.weights.shape == (3, len(rows), len(cols))
    for head in range(3):
        for t, row in enumerate(rows):
            for s, col in enumerate(cols):
                block = each[head, row.start : row.stop, col.start : col.stop]
                assert found.weights[head, t, s].item() == pytest.approx(
                    float(block.sum()) / (row.stop - row.start)
                )
    torch.testing.assert_close(found.weights.sum(-1), torch.ones(3, len(rows)).double())


def test_looking_leaves_the_model_as_it_was():
    model = tiny(vocab_size=BYTES.vocab_size, pad=256).train()
    align(model, BYTES, [1, 2], [3])
    assert all(module.training for module in model.modules())
    assert all(block.cross.hooks == () for block in model.decoder.blocks)


def test_an_empty_translation_has_no_rows():
    model = tiny(vocab_size=BYTES.vocab_size, pad=256)
    assert align(model, BYTES, [65, 32, 66], []).weights.shape == (2, 0, 2)


def test_a_translation_as_long_as_the_model_can_write_is_aligned():
    model = tiny(vocab_size=BYTES.vocab_size, pad=256, positions="learned", max_len=13)
    source, target = list(b"ein Hund"), list(b"a dog; a dog!")
    found = align(model, BYTES, source, target)
    assert found.target == ["a", "dog", ";", "a", "dog", "!"]
    shorter = align(model, BYTES, source, target[:-1])
    torch.testing.assert_close(found.weights[:, :-1], shorter.weights)


@pytest.mark.parametrize("layer", [-1, 2])
def test_a_layer_that_is_not_there_is_named(layer):
    model = tiny(vocab_size=BYTES.vocab_size, pad=256)
    with pytest.raises(ConfigError, match=rf"layer \({layer}\) must lie between 0 and 1"):
        align(model, BYTES, [1], [2], layer)


def test_the_usual_layer_is_the_last_but_one():
    assert [usual_layer(tiny(n_decoder_layers=n)) for n in (1, 2, 3, 6)] == [0, 0, 1, 4]
