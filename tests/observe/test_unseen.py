"""Attention that runs and cannot be recorded is named, and never left out without a word."""

import warnings

import pytest
import torch
from torch import nn

from glasshead.errors import RecordingError
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.observe.recording import observing
from glasshead.observe.trace import open_glass

tr = pytest.importorskip("transformers")

IDS = torch.arange(5, 12)[None]
SIZES = {"vocab_size": 97, "num_layers": 2, "num_heads": 2}


@pytest.fixture(scope="module")
def half_seen():
    """Longformer's attention to neighbours is computed in blocks, which are no map."""
    torch.manual_seed(3)
    config = tr.LongformerConfig(
        vocab_size=97, hidden_size=22, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=29, attention_window=4,
    )  # fmt: skip
    both = nn.ModuleDict({"near": tr.LongformerModel(config), "all": tr.BertModel(bert())})
    return both.eval()


def bert():
    return tr.BertConfig(
        vocab_size=97, hidden_size=22, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=29,
    )  # fmt: skip


@pytest.fixture(scope="module")
def t5():
    torch.manual_seed(3)
    return tr.T5Model(tr.T5Config(d_model=22, d_kv=11, d_ff=29, **SIZES)).eval()


def run(model):
    with torch.no_grad():
        if isinstance(model, nn.ModuleDict):
            return torch.cat([model[part](input_ids=IDS).last_hidden_state for part in model])
        return model(input_ids=IDS, decoder_input_ids=IDS).last_hidden_state


def test_what_ran_unseen_is_named_and_warned_of(half_seen, tmp_path):
    expected = run(half_seen)
    with (
        pytest.warns(UserWarning, match=r"ModuleDict also ran .*near\.encoder.*in blocks"),
        observing(half_seen) as trace,
    ):
        out = run(half_seen)
    assert torch.equal(out, expected)
    assert trace.unseen == tuple(f"near.encoder.layer.{i}.attention.self" for i in range(2))
    assert "2 more attention layers" in repr(trace)
    assert {trace.layer(i).name.split(".")[0] for i in trace.layer_traces} == {"all"}
    trace.save(tmp_path / "half.glass")
    assert open_glass(tmp_path / "half.glass").unseen == trace.unseen
    assert not any(module._forward_pre_hooks for module in half_seen.modules())


def test_all_layers_are_refused_where_some_cannot_be_recorded(half_seen, t5):
    with (
        pytest.raises(RecordingError, match="ModuleDict also ran"),
        observing(half_seen, layers="all"),
    ):
        run(half_seen)
    with observing(t5, layers="all") as trace:
        run(t5)
    assert len(trace.layer_traces) == 6


def test_no_one_is_warned_where_everything_is_recorded_or_layers_are_chosen(half_seen, t5):
    ours = GPT(GPTConfig(vocab_size=97, n_layers=2, d_model=14, n_heads=2)).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for model, call in ((t5, run), (ours, lambda model: model(IDS))):
            with observing(model) as trace:
                call(model)
            assert trace.unseen == ()
        with observing(half_seen, layers=[2]) as trace:
            run(half_seen)
    assert [*trace.layer_traces] == [2]


def test_pooling_by_torchs_module_is_recorded():
    config = tr.SiglipVisionConfig(
        hidden_size=22, intermediate_size=29, num_hidden_layers=1, num_attention_heads=2,
        image_size=14, patch_size=7,
    )  # fmt: skip
    model = tr.SiglipVisionModel(config).eval()
    with torch.no_grad(), observing(model, layers="all") as trace:
        model(pixel_values=torch.zeros(1, 3, 14, 14))
    assert trace.layer("head.attention").index in trace.layer_traces


def test_torchs_fast_path_stays_and_is_named():
    layer = nn.TransformerEncoderLayer(14, 2, 17, batch_first=True)
    fast, plain = nn.TransformerEncoder(layer, 2), nn.MultiheadAttention(14, 2)
    model = nn.ModuleDict({"fast": fast, "all": plain}).eval()
    x = torch.randn(3, 5, 14)

    def both():
        return model["fast"](x) + model["all"](x, x, x)[0]

    with torch.no_grad():
        before = both()
        with pytest.warns(UserWarning, match="fast path"), observing(model) as trace:
            assert torch.equal(both(), before)
    assert trace.unseen == ("fast.layers.0.self_attn", "fast.layers.1.self_attn")


def test_a_router_of_experts_is_no_attention():
    config = tr.MixtralConfig(
        vocab_size=97, hidden_size=32, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, num_local_experts=3,
    )  # fmt: skip
    model = tr.MixtralModel(config).eval()
    with torch.no_grad(), observing(model, layers="all") as trace:
        model(input_ids=IDS)
    assert trace.unseen == ()
