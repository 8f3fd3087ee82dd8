"""Rollout: one row of the product of matrices, without ever making a matrix."""

import pytest
import torch

from glasshead.errors import ConfigError, InputError, RecordingError
from glasshead.observe import rollout as module
from glasshead.observe.recording import observing
from glasshead.observe.rollout import rollout
from glasshead.observe.trace_storage import LayerTrace
from tests.observe.test_ablation import PADDED, gpt, ids, translator

T = 23


def multiplied(trace, batch, heads=None, layers=None):
    """The product of (I + W) / 2, bottom layer on the right."""
    out = None
    for layer in [layer.index for layer in trace.layers] if layers is None else layers:
        w = trace.weights(layer)[batch].double()
        w = (w if heads is None or layer not in heads else w[heads[layer]]).mean(0)
        step = (torch.eye(len(w), dtype=torch.float64) + w) / 2
        out = step if out is None else step @ out
    return out


@pytest.fixture(scope="module")
def trace():
    model = gpt()
    with torch.no_grad(), observing(model) as trace:
        model(ids(2, T))
    return trace


@pytest.mark.parametrize("band", [1, 5 * T, module.BAND])
def test_rollout_is_a_row_of_the_product_of_matrices(trace, monkeypatch, band):
    monkeypatch.setattr(module, "BAND", band)
    for batch in range(2):
        whole = multiplied(trace, batch)
        for target in (0, 12, T - 1):
            torch.testing.assert_close(rollout(trace, target, batch=batch), whole[target])
    torch.testing.assert_close(rollout(trace).sum(), torch.tensor(1.0, dtype=torch.float64))


def test_heads_and_layers_can_be_chosen(trace):
    heads = {0: [3], 2: [5, 1]}
    by_name = {"blocks.0.attention": [3], 2: [-1, 1]}
    expected = multiplied(trace, 1, heads)[17]
    torch.testing.assert_close(rollout(trace, 17, heads=by_name, batch=1), expected)
    expected = multiplied(trace, 0, heads, layers=[0, 2])[-1]
    torch.testing.assert_close(
        rollout(trace, layers=["blocks.2.attention", 0], heads=heads), expected
    )


def test_no_more_weights_are_made_at_a_time_than_fit_in_a_band(trace, monkeypatch):
    sizes, tile = [], LayerTrace.tile

    def measured(self, *args):
        made = tile(self, *args)
        sizes.append(made.numel())
        return made

    monkeypatch.setattr(module, "BAND", 3 * T)
    monkeypatch.setattr(LayerTrace, "tile", measured)
    rollout(trace, 12)
    assert max(sizes) <= 3 * T
    # Three layers of six heads, of which the rows after the target are not made.
    assert sum(sizes) < 3 * 6 * T * T / 2


def test_an_encoder_looks_both_ways_but_never_at_padding():
    model = translator()
    with torch.no_grad(), observing(model) as trace:
        model(PADDED, ids(2, 7))
    r = rollout(trace, 4, layers=[0, 1], batch=1)
    torch.testing.assert_close(r, multiplied(trace, 1, layers=[0, 1])[4])
    real = PADDED[1] != 0
    assert (r[real] > 0).all()
    assert (r[~real] == 0).all()
    own = [layer.name for layer in trace.layers if (layer.part, layer.kind) == ("decoder", "self")]
    assert rollout(trace, 4, layers=own).shape == (7,)
    with pytest.raises(ConfigError, match="decoder cross, decoder self, encoder self") as raised:
        rollout(trace)
    assert "0 (encoder.blocks.0.attention)" in raised.value.hint


def test_a_text_that_was_written_token_by_token_gives_the_same():
    model, text = gpt(), ids(1, 11)
    with torch.no_grad(), observing(model) as whole:
        model(text)
    with torch.no_grad(), observing(model) as grown:
        caches = model.new_caches()
        for part in text.split((5, 1, 2, 3), 1):
            model(part, caches=caches)
    torch.testing.assert_close(rollout(grown, 9), rollout(whole, 9))


def test_mistakes_are_named(trace):
    for call, error, message in [
        ({"target": T}, InputError, f"position {T} does not exist"),
        ({"batch": 2}, InputError, "batch 2 does not exist"),
        ({"heads": {1: [6]}}, InputError, "head 6 does not exist"),
        ({"heads": {1: []}}, InputError, "no head of layer 1 is chosen"),
        ({"layers": [7]}, InputError, "layer 7 was not recorded"),
        ({"layers": []}, InputError, "no layers are chosen"),
        ({"layers": [0], "heads": {2: [1]}}, ConfigError, "heads of layer 2 .* left out"),
    ]:
        with pytest.raises(error, match=message) as raised:
            rollout(trace, **call)
        assert raised.value.hint
    model = gpt()
    with torch.no_grad(), observing(model, keep="statistics") as measured:
        model(ids(1, 5))
    with pytest.raises(RecordingError, match="without its queries and keys"):
        rollout(measured)
    caches = model.new_caches()
    with torch.no_grad():
        model(ids(1, 5), caches=caches)
        with observing(model) as late:
            model(ids(1, 3), caches=caches)
    with pytest.raises(InputError, match="3 queries for 8 positions"):
        rollout(late)
