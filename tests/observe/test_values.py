"""Values and the residual stream, as they were in the model."""

import pytest
import torch

from glasshead.errors import ConfigError
from glasshead.observe.recording import observing
from glasshead.observe.trace import open_glass
from tests.observe.test_recording import GPTS, ids, new_gpt
from tests.observe.test_transformers import build, inputs


@torch.no_grad()
def test_weights_times_values_give_what_the_layer_adds_to_the_residual_stream(tmp_path):
    model, text = new_gpt(**GPTS["rotary"]), ids(2, 19)
    with observing(model, keep=["values", "residual"], ids=text) as trace:
        model(text)
    trace.save(tmp_path / "x.glass")
    for found in (trace, open_glass(tmp_path / "x.glass")):
        for i, block in enumerate(model.blocks):
            stored = found.layer_trace(i)
            v = stored.v.repeat_interleave(2, 1)
            context = (found.weights(i) @ v).transpose(1, 2).flatten(2)
            x = stored.residual + block.attention.out(context)
            x = block._feed(x)
            entered = model.blocks[i + 1] if i < 2 else None
            if entered is not None:
                assert (found.layer_trace(i + 1).residual - x).abs().max() < 1e-5


@torch.no_grad()
def test_they_are_those_of_transformers_and_grow_with_a_text():
    model = build("llama")
    text = inputs(model)["input_ids"]
    with observing(model, keep=["values", "residual"]) as whole:
        states = model(text, output_hidden_states=True).hidden_states
    for i in range(3):
        assert torch.equal(whole.layer_trace(i).residual, states[i])
    with observing(model, keep=("residual", "values")) as trace:
        first = model(text[:, :7], use_cache=True)
        model(text[:, 7:], past_key_values=first.past_key_values)
    for i in range(3):
        ours, theirs = trace.layer_trace(i), whole.layer_trace(i)
        assert (ours.residual - theirs.residual).abs().max() < 1e-5
        assert (ours.v - theirs.v).abs().max() < 1e-5
    with observing(model) as plain:
        model(text)
    assert plain.layer_trace(0).v is plain.layer_trace(0).residual is None
    with pytest.raises(ConfigError, match="unknown keep 'value'"), observing(model, keep=["value"]):
        pass
