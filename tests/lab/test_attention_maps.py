"""Looking into a model, and cutting single edges of its attention."""

import pytest
import torch

from glasshead.lab.attention_maps import (
    cross_attentions,
    hide_keys,
    record_weights,
    self_attentions,
)
from glasshead.model.transformer import Reader, Transformer, TransformerConfig

B, S, L, H = 3, 11, 2, 2


@pytest.fixture
def model():
    torch.manual_seed(3)
    return Reader(TransformerConfig(29, n_layers=L, n_heads=H, d_model=14, dropout=0.0)).eval()


@pytest.fixture
def ids():
    ids = torch.randint(1, 29, (B, S), generator=torch.Generator().manual_seed(5))
    ids[1, 7:] = 0
    return ids


@torch.no_grad()
def test_looking_changes_no_bit_and_gives_weights_that_sum_to_one(model, ids):
    plain = model(ids)
    with record_weights(self_attentions(model.encoder)) as maps:
        looked = model(ids)
    assert torch.equal(looked, plain)
    assert [tuple(weights.shape) for weights in maps] == [(B, H, S, S)] * L
    torch.testing.assert_close(maps[1].sum(-1), torch.ones(B, H, S))
    assert maps[0][1, :, :, 7:].sum() == 0
    assert all(layer.hooks == () for layer in self_attentions(model.encoder))


@torch.no_grad()
def test_a_cut_edge_has_no_weight_and_its_row_shares_it_out(model, ids):
    layers, queries, keys = self_attentions(model.encoder), [4, 2, 9], [1, 6, 9]
    with record_weights(layers) as before:
        model(ids)
    with hide_keys(layers, torch.tensor(queries), torch.tensor(keys)) as after:
        model(ids)
    # The first layer's input is the same, so its rows are the old ones without the key.
    for b, (query, key) in enumerate(zip(queries, keys, strict=True)):
        expected = before[0][b].clone()
        expected[:, query, key] = 0
        expected[:, query] /= expected[:, query].sum(-1, keepdim=True)
        torch.testing.assert_close(after[0][b], expected)
        assert (after[1][b, :, query, key] == 0).all()


@torch.no_grad()
def test_a_cut_in_one_head_leaves_all_other_heads_alone(model, ids):
    layers, places = (
        self_attentions(model.encoder),
        (torch.tensor([4, 2, 9]), torch.tensor([1, 6, 9])),
    )
    with record_weights(layers) as before:
        plain = model(ids)
    with hide_keys(layers, *places, only=(1, 1)) as after:
        changed = model(ids)
    assert len(after) == 1
    torch.testing.assert_close(after[0][:, 0], before[1][:, 0])
    assert after[0][0, 1, 4, 1] == 0
    rows = torch.zeros(B, S, dtype=torch.bool)
    rows[torch.arange(B), places[0]] = True
    assert not torch.allclose(changed[rows], plain[rows])
    torch.testing.assert_close(changed[~rows], plain[~rows])


@torch.no_grad()
def test_what_is_watched_is_put_back_even_after_an_error(model, ids):
    with (
        pytest.raises(ZeroDivisionError),
        hide_keys(self_attentions(model.encoder), torch.zeros(B), torch.zeros(B)),
    ):
        raise ZeroDivisionError
    assert all(layer.hooks == () for layer in self_attentions(model.encoder))


@torch.no_grad()
def test_cross_attention_is_looked_at_apart_from_self_attention():
    config = TransformerConfig(29, n_layers=1, n_decoder_layers=3, n_heads=2, d_model=14)
    model = Transformer(config).eval()
    with (
        record_weights(cross_attentions(model.decoder)) as crossed,
        record_weights(self_attentions(model.decoder)) as own,
    ):
        model(torch.ones(1, 5, dtype=torch.int64), torch.ones(1, 7, dtype=torch.int64))
    assert [tuple(weights.shape) for weights in crossed] == [(1, 2, 7, 5)] * 3
    assert [tuple(weights.shape) for weights in own] == [(1, 2, 7, 7)] * 3
