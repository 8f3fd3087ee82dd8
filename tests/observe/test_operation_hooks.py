"""Models that compute attention themselves, outside the interface of `transformers`."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from glasshead.errors import AblationError
from glasshead.observe.ablation import ablating
from glasshead.observe.recording import observing
from glasshead.observe.trace import open_glass
from tests.observe.test_transformers import COMMON, WIDE, eager, furthest, inputs, new

tr = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script")

# The class, its config, and whether queries and keys are enough: no bias of T x S is kept.
MODELS = {
    "gptj": ("GPTJModel", {"n_embd": 36, "n_head": 3, "n_layer": 2, "rotary_dim": 4}, True),
    "codegen": ("CodeGenModel", {"n_embd": 32, "n_head": 4, "n_layer": 2, "rotary_dim": 4}, True),
    "gpt_neo": (
        "GPTNeoModel",
        {"hidden_size": 36, "num_layers": 2, "num_heads": 3, "window_size": 5}
        | {"attention_types": [[["global", "local"], 1]]},
        True,
    ),
    "bloom": ("BloomModel", {"hidden_size": 36, "n_head": 3, "n_layer": 2}, True),
    "mpt": ("MptModel", {"d_model": 36, "n_heads": 3, "n_layers": 2}, True),
    "deberta": (
        "DebertaV2Model",
        WIDE
        | {"num_hidden_layers": 2, "relative_attention": True, "position_buckets": 5}
        | {"pos_att_type": ["c2p", "p2c"], "norm_rel_ebd": "layer_norm"},
        False,
    ),
    "xlnet": ("XLNetModel", {"d_model": 36, "n_head": 3, "n_layer": 2, "d_inner": 41}, False),
}


@pytest.mark.parametrize("padding", [None, "left", "right"])
@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_tiles_are_the_weights_that_the_model_returns_and_the_output_keeps_every_bit(name, padding):
    cls, config, is_linear = MODELS[name]
    model = new(cls, **COMMON | config)
    given = inputs(model, padding)
    before = model(**given)[0]
    with observing(model, layers="all") as trace:
        during = model(**given)[0]
    assert torch.equal(before, during)
    assert furthest(trace, eager(model, **given), given["attention_mask"]) < 1e-5
    B, T = given["input_ids"].shape
    for stored in trace.layer_traces.values():
        bias = stored.calls[0].scoring.bias
        kept = 0 if bias is None else bias.numel()
        assert kept < B * T * T if is_linear else kept


@torch.no_grad()
def test_the_fused_kernel_is_seen_where_a_model_calls_it_itself(tmp_path):
    config = COMMON | {"hidden_size": 36, "num_attention_heads": 3, "num_hidden_layers": 2}
    model = new("FalconModel", **config, new_decoder_architecture=False, multi_query=True)
    given = inputs(model, "left")
    expected = new("FalconModel", **config, attn_implementation="eager")
    expected.load_state_dict(model.state_dict())
    maps = expected(**given, output_attentions=True).attentions
    with observing(model) as trace:
        model(**given)
    assert furthest(trace, maps, given["attention_mask"]) < 1e-5
    trace.save(tmp_path / "falcon.glass")
    assert torch.equal(open_glass(tmp_path / "falcon.glass").weights(1), trace.weights(1))


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("masked", [True, False])
@torch.no_grad()
def test_torchs_own_module_is_recorded(batch_first, masked):
    torch.manual_seed(3)
    module = nn.MultiheadAttention(22, 2, batch_first=batch_first).eval()
    nn.init.normal_(module.in_proj_weight, std=0.5)
    q, k = torch.randn(3, 5, 22), torch.randn(3, 7, 22)
    q, k = (q, k) if batch_first else (q.transpose(0, 1), k.transpose(0, 1))
    hidden = torch.zeros(3, 7, dtype=torch.bool)
    hidden[1, 4:] = True
    given = {"key_padding_mask": hidden} if masked else {}
    outer = nn.Sequential()
    outer.attention = module
    before = module(q, k, k, need_weights=False, **given)[0]
    with observing(outer) as trace:
        assert torch.equal(module(q, k, k, need_weights=False, **given)[0], before)
    _, expected = module(q, k, k, average_attn_weights=False, **given)
    assert (trace.weights(0) - expected).abs().max() < 1e-5
    assert trace.layers[0].kind == "cross"


class Attention(nn.Module):
    """Changes its weights between softmax and product."""

    num_heads = 1

    def __init__(self, change):
        super().__init__()
        self.change = change

    def forward(self, x):
        weights = F.softmax(x @ x.mT, -1)
        return self.change(weights) @ x


@torch.no_grad()
def test_weights_that_are_changed_after_the_softmax_are_named():
    model = nn.Sequential(Attention(lambda w: w), Attention(lambda w: w.roll(1, -1)))
    with pytest.warns(UserWarning, match="changes its weights after"), observing(model) as trace:
        model(torch.randn(2, 5, 7))
    assert trace.unseen == ("1",)
    assert [*trace.layer_traces] == [0]


@torch.no_grad()
def test_a_module_that_computes_attention_itself_cannot_be_changed():
    cls, config, _ = MODELS["gptj"]
    model = new(cls, **COMMON | config)
    with pytest.raises(AblationError, match="not changed"), ablating(model, heads=[(0, 1)]):
        model(**inputs(model))
