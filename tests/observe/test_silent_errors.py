"""What `observing` once showed wrongly or left out without a word, against eager attention."""

import copy

import pytest
import torch

from glasshead.errors import RecordingError
from glasshead.observe.recording import observing
from glasshead.observe.trace import open_glass
from tests.observe.test_transformers import WIDE, build, eager, furthest, inputs, new

tr = pytest.importorskip("transformers")

T = 13


@torch.no_grad()
def test_statistics_follow_a_text_that_grows_and_ids_that_are_set_later():
    model = build("llama")
    ids = inputs(model)["input_ids"]
    with observing(model) as trace:
        first = model(ids[:, :7], use_cache=True)
        assert trace.statistics(0).entropy.shape[-1] == 7
        trace.cells(0, 0, level=0)
        model(ids[:, 7:], past_key_values=first.past_key_values)
        assert trace.statistics(0).entropy.shape[-1] == T
        assert (trace.cells(0, 0, level=0).mean - trace.tile(0, 0)).abs().max() < 1e-6
    trace.ids = None
    assert trace.statistics(0).induction is None
    trace.ids = ids
    assert trace.statistics(0).induction is not None


@torch.no_grad()
def test_chunked_attention_leaves_padding_out_of_the_statistics():
    config = WIDE | {"num_hidden_layers": 2, "attention_chunk_size": 5, "intermediate_size_mlp": 37}
    config |= {"num_local_experts": 2, "no_rope_layers": [1, 1]}
    model = new("Llama4ForCausalLM", **config)
    given = inputs(model, "right")
    with observing(model) as trace:
        model(**given)
    for layer in range(2):
        mask = trace.layer_traces[layer].calls[0].mask
        assert mask.dense is None  # a chunk is a document
        weights = eager(model, **given)[layer]
        gap = (torch.arange(T)[:, None] - torch.arange(T)).abs()
        expected = (weights * gap).sum(-1)[1, :, : T - 4].mean(-1)
        found = trace.statistics(layer).means()["mean_distance"][1]
        assert (found - expected).abs().max() < 1e-5


@pytest.mark.parametrize("name", ["mistral", "gemma2"])
@torch.no_grad()
def test_a_window_and_left_padding_stay_a_rule_while_a_text_is_written(name):
    model = build(name)
    given = inputs(model, "left", T=7)
    with observing(model) as trace:
        model.generate(**given, max_new_tokens=11, min_new_tokens=11, do_sample=False)
    for layer in trace.layers:
        mask, _ = trace.layer_traces[layer.index].mask_and_scoring()
        assert mask.dense is None
        weights, found = trace.weights(layer.index), trace.statistics(layer.index)
        assert (found.first_weight[1, :, 4:] - weights[1, :, 4:, 4]).abs().max() < 1e-6
        assert (found.first_weight[0] - weights[0, :, :, 0]).abs().max() < 1e-6
        assert found.lse[1, :, :4].eq(-torch.inf).all()


@torch.no_grad()
def test_packed_documents_are_read_from_the_mask():
    model = build("llama")
    ids = torch.randint(3, 61, (1, 11), generator=torch.Generator().manual_seed(5))
    ids = torch.cat([ids[:, :5], ids[:, :5], ids[:, 5:6]], 1)  # copies lie in another document
    positions = torch.tensor([[*range(5), *range(6)]])
    with observing(model, ids=ids) as trace:
        model(input_ids=ids, position_ids=positions, use_cache=False)
    mask, found = trace.layer_traces[0].calls[0].mask, trace.statistics(0)
    assert mask.documents is not None
    assert mask.dense is None
    assert found.means()["induction"].abs().max() == 0
    assert (found.first_weight[0, :, 5:] - trace.weights(0)[0, :, 5:, 5]).abs().max() < 1e-6


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
@pytest.mark.parametrize("number", [torch.finfo(torch.float32).min, -1e9, -1e4])
@torch.no_grad()
def test_a_row_whose_keys_are_all_hidden_by_a_number_shows_what_the_model_computed(
    kernel, number, tmp_path
):
    model = build("llama")
    given = inputs(model, "left")
    causal = torch.ones(T, T).tril().bool() & given["attention_mask"].bool()[:, None, None]
    given["attention_mask"] = torch.where(causal, 0.0, number)
    expected = eager(model, **given)
    model.set_attn_implementation(kernel)
    with observing(model) as trace:
        model(**given)
    for layer, theirs in enumerate(expected):
        # Next to -10,000 float32 rounds scores to 0.001.
        assert (trace.weights(layer) - theirs).abs().max() < (1e-3 if number == -1e4 else 1e-5)
        cells = trace.cells(layer, 2, level=0, batch=1)
        assert (cells.mean - trace.tile(layer, 2, batch=1)).abs().max() < 1e-6
    trace.save(tmp_path / "x.glass")
    assert torch.equal(open_glass(tmp_path / "x.glass").weights(1), trace.weights(1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.no_grad()
def test_another_temperature_under_eager_is_found_in_16_bits(dtype, monkeypatch):
    model = build("llama").to(dtype)
    for layer in model.model.layers:
        layer.self_attn.q_proj.weight.mul_(0.1)  # weak preferences: the context hardly changes
    model.set_attn_implementation("eager")
    given = inputs(model)
    with observing(model) as trace:
        weights = model(**given, output_attentions=True).attentions
    assert (trace.weights(1) - weights[1]).abs().max() < 0.02
    module = type(model.model.layers[0].self_attn).__module__
    original = __import__(module, fromlist=["x"]).eager_attention_forward

    def hotter(module, query, *args, **options):
        return original(module, query / 2, *args, **options)

    monkeypatch.setattr(f"{module}.eager_attention_forward", hotter)
    with pytest.raises(RecordingError, match="cannot be recorded exactly"), observing(model):
        model(**given)


@torch.no_grad()
def test_attention_to_something_else_is_cross_attention():
    config = {"hidden_sizes": [12, 20], "depths": [1, 1], "num_attention_heads": [1, 2]}
    config |= {
        "num_encoder_blocks": 2,
        "sr_ratios": [2, 1],
        "patch_sizes": [3, 3],
        "strides": [2, 2],
    }
    config |= {"mlp_ratios": [2, 2]}
    model = new("SegformerModel", **config)
    with observing(model) as trace:
        model(pixel_values=torch.randn(1, 3, 24, 24))
    kinds = {layer.name: layer.kind for layer in trace.layers}
    assert [*kinds.values()] == ["cross", "self"], kinds
    # A cache that was filled before makes no cross-attention.
    model = build("llama")
    ids = inputs(model)["input_ids"]
    past = model(ids[:, :7], use_cache=True).past_key_values
    for part in (slice(7, 12), slice(12, 13)):
        with observing(model) as trace:
            model(ids[:, part], past_key_values=copy.deepcopy(past))
        assert trace.layers[0].kind == "self"


@pytest.mark.parametrize("name", ["LayoutLMModel", "MarkupLMModel"])
@torch.no_grad()
def test_a_mask_of_keys_alone_is_not_read_as_causal(name):
    model = new(name, **WIDE | {"num_hidden_layers": 2})
    given = inputs(model, "right")
    with observing(model) as trace:
        model(**given)
    assert furthest(trace, eager(model, **given), given["attention_mask"]) < 1e-5
    for stored in trace.layer_traces.values():
        assert not stored.calls[0].mask.causal
        assert trace.weights(stored.layer.index)[0, :, 0, 1:].sum() > 0.1
