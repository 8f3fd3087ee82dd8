"""Recording models of `transformers`: the same weights as its eager attention gives."""

import copy

import pytest
import torch

from glasshead.attention.mask import Mask
from glasshead.errors import RecordingError
from glasshead.observe.recording import observing
from glasshead.observe.transformers_hooks import parse_mask

tr = pytest.importorskip("transformers")
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS  # noqa: E402

tr.logging.set_verbosity_error()

V = 61
COMMON = {"vocab_size": V, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
# Six heads of 8 over two key heads.
WIDE = COMMON | {
    "hidden_size": 48,
    "intermediate_size": 53,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
}
SEQ2SEQ = {
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 6,
    "encoder_ffn_dim": 37,
    "decoder_ffn_dim": 41,
    "decoder_start_token_id": 0,
    "max_position_embeddings": 64,
}


def settings():
    return {
        "gpt2": ("GPT2LMHeadModel", COMMON | {"n_embd": 44, "n_layer": 3, "n_head": 4}),
        "llama": ("LlamaForCausalLM", WIDE | {"num_hidden_layers": 3}),
        "qwen3": ("Qwen3ForCausalLM", WIDE | {"num_hidden_layers": 3}),
        "gemma2": (
            "Gemma2ForCausalLM",
            WIDE | {"num_hidden_layers": 2, "sliding_window": 5, "attn_logit_softcapping": 0.7},
        ),
        "mistral": ("MistralForCausalLM", WIDE | {"num_hidden_layers": 3, "sliding_window": 5}),
        "bert": ("BertForMaskedLM", WIDE | {"num_hidden_layers": 3}),
        "modernbert": (
            "ModernBertForMaskedLM",
            WIDE
            | {"num_hidden_layers": 4, "local_attention": 6, "global_attn_every_n_layers": 3}
            | {"cls_token_id": 1, "sep_token_id": 2},
        ),
        "t5": (
            "T5ForConditionalGeneration",
            COMMON
            | {"d_model": 36, "d_kv": 10, "d_ff": 37, "num_layers": 2, "num_heads": 3}
            | {"relative_attention_num_buckets": 7, "decoder_start_token_id": 0},
        ),
        "marian": ("MarianMTModel", COMMON | {"d_model": 36} | SEQ2SEQ),
    }


FAMILIES = list(settings())
DECODERS = ["gpt2", "llama", "qwen3", "gemma2", "mistral"]


def build(name, **more):
    cls, config = settings()[name]
    return new(cls, **config | more)


def new(cls, **config):
    torch.manual_seed(11)
    cls = getattr(tr, cls)
    model = cls(cls.config_class(**config)).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:  # attention that has preferences, so that a mistake shows
            torch.nn.init.normal_(parameter, std=0.15)
    return model


def inputs(model, padding=None, B=2, T=13):
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(3, V, (B, T), generator=generator)
    real = torch.ones_like(ids)
    if padding is not None:
        real[1, : 4 if padding == "left" else None] = 0
        real[1] = real[1] if padding == "left" else (torch.arange(T) < T - 4)
    given = {"input_ids": ids, "attention_mask": real}
    if model.config.is_encoder_decoder:
        given["decoder_input_ids"] = torch.randint(3, V, (B, 7), generator=generator)
    return given


def eager(model, **given):
    """One map for each layer, in the order of the modules, from the library's own weights."""
    model = copy.deepcopy(model)
    model.set_attn_implementation("eager")
    out = model(**given, output_attentions=True)
    if not model.config.is_encoder_decoder:
        return list(out.attentions)
    pairs = zip(out.decoder_attentions, out.cross_attentions, strict=True)
    return [*out.encoder_attentions, *(one for pair in pairs for one in pair)]


def furthest(trace, expected, real):
    """The largest difference over rows that are not padding."""
    worst = 0.0
    for layer, theirs in zip(trace.layers, expected, strict=True):
        off = (trace.weights(layer.index) - theirs).abs()
        if theirs.shape[2] == real.shape[1]:
            off = off * real.bool()[:, None, :, None]
        worst = max(worst, float(off.max()))
    return worst


@pytest.mark.parametrize("padding", [None, "left", "right"])
@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_tiles_are_the_eager_weights_and_the_output_keeps_every_bit(name, padding):
    model = build(name)
    given = inputs(model, padding)
    implementation = model.config._attn_implementation
    before = model(**given).logits
    with observing(model) as trace:
        during = model(**given).logits
    assert torch.equal(before, during)
    assert torch.equal(before, model(**given).logits)
    assert model.config._attn_implementation == implementation
    assert furthest(trace, eager(model, **given), given["attention_mask"]) < 1e-5
    # No map of T x T is kept for masks that a rule can say.
    assert all(s.mask.dense is None for r in trace.layer_traces.values() for s in r.calls)


def test_layers_say_where_they_stand():
    def places(name):
        model = build(name)
        with torch.no_grad(), observing(model) as trace:
            model(**inputs(model))
        return [(layer.part, layer.kind) for layer in trace.layers], trace.layers[-1].name

    decoder = [("decoder", "self"), ("decoder", "cross")]
    assert places("marian") == (
        [("encoder", "self")] * 2 + decoder * 3,
        "model.decoder.layers.2.encoder_attn",
    )
    assert places("t5")[0] == [("encoder", "self")] * 2 + decoder * 2
    assert places("llama") == ([(None, "self")] * 3, "model.layers.2.self_attn")
    assert places("bert")[0] == [("encoder", "self")] * 3


@pytest.mark.parametrize("name", [*DECODERS, "t5", "marian"])
@torch.no_grad()
def test_generating_grows_the_map_of_the_finished_text(name):
    model = build(name)
    given = inputs(model, "left", T=7)
    real = given["attention_mask"]
    given.pop("decoder_input_ids", None)
    more = {"max_new_tokens": 11, "min_new_tokens": 11, "do_sample": False}
    before = model.generate(**given, **more)
    with observing(model) as trace:
        text = model.generate(**given, **more)
    assert torch.equal(before, text)
    # The last token was written, but never read.
    if model.config.is_encoder_decoder:
        expected = eager(model, **given, decoder_input_ids=text[:, :-1])
    else:
        real = torch.cat([real, torch.ones(2, 10, dtype=real.dtype)], 1)
        positions = (real.cumsum(-1) - 1).clamp(min=0)
        expected = eager(model, input_ids=text[:, :-1], attention_mask=real, position_ids=positions)
    assert furthest(trace, expected, real) < 1e-5
    for layer, theirs in zip(trace.layers, expected, strict=True):
        # Also the statistics see it as one map.
        statistics = trace.statistics(layer.index)
        if theirs.shape[2] != 7:
            heavy = theirs[:, :, -1].max(-1)
            assert (statistics.top_weights[:, :, -1, 0] - heavy.values).abs().max() < 1e-5
            assert torch.equal(statistics.top_keys[:, :, -1, 0], heavy.indices)


@pytest.mark.parametrize("name", ["llama", "bert", "t5", "gemma2"])
@torch.no_grad()
def test_autocast_records_what_the_kernel_was_given(name):
    model = build(name)
    given = inputs(model)
    with torch.autocast("cpu", torch.bfloat16):
        before = model(**given).logits
        with observing(model) as trace:
            assert torch.equal(before, model(**given).logits)
        for layer in trace.layers:
            assert trace.layer_traces[layer.index].q.dtype == torch.bfloat16
            assert (trace.weights(layer.index).sum(-1) - 1).abs().max() < 1e-5


@pytest.mark.deep
@torch.no_grad()
def test_a_compiled_model_is_recorded_and_afterwards_compiled_as_before():
    model = build("llama", num_hidden_layers=1)
    given = inputs(model)
    expected = eager(model, **given)
    compiled = torch.compile(model, backend="eager")
    before = compiled(**given).logits
    for _ in range(2):
        with observing(compiled) as trace:
            compiled(**given)
        assert trace.layers[0].name == "model.layers.0.self_attn"
        assert furthest(trace, expected, given["attention_mask"]) < 1e-5
        assert torch.equal(before, compiled(**given).logits)


@torch.no_grad()
def test_nested_recordings_and_other_models_do_not_disturb_each_other():
    model, other = build("gpt2"), build("llama")
    given = inputs(model)
    names = ["transformer.h.1.attn"]
    with observing(model) as outer, observing(model, layers=names) as inner:
        with observing(other) as third:
            other(**given)
        model(**given)
    assert torch.equal(outer.weights(1), inner.weights(1))
    assert [layer.index for layer in inner.layers] == [1]
    assert third.shape(0) == (2, 6, 13, 13)
    assert "get_interface" not in vars(ALL_ATTENTION_FUNCTIONS)


@torch.no_grad()
def test_an_error_inside_leaves_no_trace():
    model = build("gpt2")
    with pytest.raises(ZeroDivisionError), observing(model):
        _ = 1 / 0
    assert "get_interface" not in vars(ALL_ATTENTION_FUNCTIONS)


def test_gradients_pass_unchanged():
    model = build("llama")
    given = inputs(model)
    model(**given).logits.square().mean().backward()
    before = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with observing(model):
        model(**given).logits.square().mean().backward()
    assert all(torch.equal(was, p.grad) for was, p in zip(before, model.parameters(), strict=True))


REFUSED = {
    "state space": (
        "MambaModel",
        COMMON | {"hidden_size": 32, "num_hidden_layers": 2},
        "no attention that can",
    ),
}


@pytest.mark.parametrize("why", REFUSED)
@torch.no_grad()
def test_what_cannot_be_recorded_exactly_is_refused(why):
    cls, config, message = REFUSED[why]
    model = new(cls, **config)
    with pytest.raises(RecordingError, match=message) as caught, observing(model):
        model(input_ids=inputs(model)["input_ids"])
    assert caught.value.hint


@torch.no_grad()
def test_a_hybrid_is_recorded_where_it_has_attention_and_says_where_it_has_none():
    model = new(
        "Qwen3NextModel",
        **WIDE
        | {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]}
        | {"linear_num_key_heads": 2, "linear_num_value_heads": 2, "num_experts": 2}
        | {"num_experts_per_tok": 1, "moe_intermediate_size": 16},
    )
    given = {"input_ids": inputs(model)["input_ids"]}
    before = model(**given).last_hidden_state
    with observing(model, layers="all") as trace:
        assert torch.equal(before, model(**given).last_hidden_state)
    (theirs,) = (one for one in eager(model, **given) if one is not None)
    assert (trace.weights("layers.1.self_attn") - theirs).abs().max() < 1e-5
    assert trace.without_attention == ("layers.0",)
    assert "1 layer has no attention" in repr(trace)


@torch.no_grad()
def test_dropout_is_refused():
    model = build("gpt2")
    given = inputs(model)
    with pytest.raises(RecordingError, match="dropout") as caught, observing(model.train()):
        model(**given)
    assert "eval" in caught.value.hint
    model.eval()


@torch.no_grad()
def test_attention_that_is_not_what_it_seems_is_found_out(monkeypatch):
    real = ALL_ATTENTION_FUNCTIONS["sdpa"]

    def scaled_again(module, query, *args, **kwargs):
        return real(module, query * 1.01, *args, **kwargs)

    model = build("llama")
    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS, "sdpa", scaled_again)
    with pytest.raises(RecordingError, match="cannot be recorded exactly"), observing(model):
        model(**inputs(model))


@pytest.mark.parametrize(
    "rule",
    [
        Mask(),
        Mask(causal=True),
        Mask(causal=True, window=4),
        Mask(window=3),
        Mask(keys=torch.tensor([[1] * 11, [0] * 3 + [1] * 8]).bool()),
        Mask(causal=True, keys=torch.tensor([[1] * 11, [1] * 7 + [0] * 4]).bool()),
        Mask(causal=True, window=3, keys=torch.tensor([[1] * 11, [0] * 3 + [1] * 8]).bool()),
        Mask(causal=True, documents=torch.tensor([[0] * 4 + [1] * 7])),
    ],
)
@pytest.mark.parametrize("T", [11, 5, 1])
def test_a_mask_tensor_is_read_back_as_the_rule_that_made_it(rule, T):
    allowed = rule.to_tensor(T, 11)
    allowed = torch.ones(1, 1, T, 11).bool() if allowed is None else allowed
    allowed = allowed.expand(2, 1, T, 11)
    least = torch.finfo(torch.float32).min
    for tensor in (allowed, *(torch.where(allowed, 0.0, n) for n in (least, -1e9, -torch.inf))):
        found, bias, _ = parse_mask(tensor)
        assert bias is None
        again = found.to_tensor(T, 11)
        assert torch.equal(allowed, torch.ones_like(allowed) if again is None else again & allowed)
        assert again is None or torch.equal(allowed, again.expand_as(allowed))
        assert found.dense is None or (rule.documents is not None and T < 11)
    _, bias, _ = parse_mask(torch.where(allowed, 0.25, least))
    assert bias is not None
    assert torch.equal(bias, torch.where(allowed, 0.25, 0.0))
