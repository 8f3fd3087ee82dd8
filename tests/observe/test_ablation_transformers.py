"""Ablation in models of `transformers`: fused and eager agree, and the record tells the truth."""

import copy

import pytest
import torch

from glasshead.errors import AblationError, InputError
from glasshead.observe.ablation import Edge, ablating
from glasshead.observe.importance import head_ablations, head_gradients
from glasshead.observe.recording import observing

tr = pytest.importorskip("transformers")
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS  # noqa: E402

tr.logging.set_verbosity_error()

V, T = 61, 13
COMMON = {"vocab_size": V, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
WIDE = COMMON | {
    "hidden_size": 48,
    "intermediate_size": 53,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "max_position_embeddings": 64,
}
MODELS = {
    "gpt2": ("GPT2LMHeadModel", COMMON | {"n_embd": 44, "n_layer": 2, "n_head": 4}),
    "llama": ("LlamaForCausalLM", WIDE),
    "mistral": ("MistralForCausalLM", WIDE | {"sliding_window": 5}),
    "bert": ("BertForMaskedLM", WIDE),
    "t5": (
        "T5ForConditionalGeneration",
        COMMON | {"d_model": 36, "d_kv": 10, "d_ff": 37, "num_layers": 2, "num_heads": 3},
    ),
    "marian": (
        "MarianMTModel",
        COMMON
        | {"d_model": 36, "encoder_layers": 2, "decoder_layers": 2}
        | {"encoder_attention_heads": 3, "decoder_attention_heads": 6}
        | {"encoder_ffn_dim": 37, "decoder_ffn_dim": 41, "max_position_embeddings": 64},
    ),
}
CROSS = {"t5": "decoder.block.0.layer.1.EncDecAttention", "marian": "layers.0.encoder_attn"}


def build(name):
    torch.manual_seed(11)
    cls, config = MODELS[name]
    cls = getattr(tr, cls)
    model = cls(cls.config_class(decoder_start_token_id=0, **config)).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:  # attention that has preferences, so that a mistake shows
            torch.nn.init.normal_(parameter, std=0.15)
    return model


def inputs(name, padded):
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(3, V, (2, T), generator=generator)
    real = torch.ones_like(ids)
    if padded:
        real[1, -4:] = 0
    given = {"input_ids": ids, "attention_mask": real}
    if name in CROSS:
        given["decoder_input_ids"] = torch.randint(3, V, (2, 7), generator=generator)
    return given


def cut_layer(name, model):
    """The layer whose edges are cut: cross-attention where there is one, else the first."""
    if name not in CROSS:
        return 0
    with observing(model) as trace, torch.no_grad():
        model(**inputs(name, padded=False))
    return next(layer.index for layer in trace.layers if CROSS[name] in layer.name)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("name", MODELS)
def test_ablated_edges_have_weight_zero_and_the_others_grow(name, implementation, padded):
    model, given = build(name), inputs(name, padded)
    model.set_attn_implementation(implementation)
    layer = cut_layer(name, model)
    edges = [
        Edge(layer=layer, head=1, key=2),
        Edge(layer=layer, query=5, key=slice(3, 5)),
        Edge(layer=layer, key=0),
    ]
    with torch.no_grad():
        with observing(model) as plain:
            expected = model(**given).logits
        with ablating(model, edges=edges), observing(model) as inside:
            first = model(**given).logits
        with observing(model) as outside, ablating(model, edges=edges):
            second = model(**given).logits
        assert torch.equal(model(**given).logits, expected)
    assert torch.equal(first, second)
    assert not torch.allclose(first, expected)
    kept = plain.weights(layer).double()
    for heads, query, key in [(1, slice(None), 2), (slice(None), 5, slice(3, 5))]:
        kept[:, heads, query, key] = 0
    kept[..., 0] = 0
    total = kept.sum(-1, keepdim=True)
    renormalised = torch.where(total > 0, kept / total, 0).float()
    for trace in (inside, outside):
        # Weights that grow keep their relative error, so the tolerance grows with them.
        torch.testing.assert_close(trace.weights(layer), renormalised, rtol=1e-4, atol=1e-5)
        assert (trace.weights(layer)[kept == 0] == 0).all()


@pytest.mark.parametrize("name", MODELS)
def test_fused_and_eager_give_the_same_without_an_edge(name):
    model, given = build(name), inputs(name, padded=True)
    layer = cut_layer(name, model)
    found = []
    for implementation in ("sdpa", "eager"):
        model.set_attn_implementation(implementation)
        with torch.no_grad(), ablating(model, edges=[Edge(layer=layer, key=0)]):
            found.append(model(**given).logits)
    real = slice(None) if name in CROSS else given["attention_mask"].bool()
    torch.testing.assert_close(found[0][real], found[1][real], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_head_set_to_zero_is_one_whose_columns_of_the_projection_are_zero(name):
    model, given = build(name), inputs(name, padded=False)
    other = copy.deepcopy(model)
    with torch.no_grad():
        if name == "gpt2":  # its matrices lie on their side
            other.transformer.h[1].attn.c_proj.weight[2 * 11 : 3 * 11] = 0
        else:
            other.model.layers[1].self_attn.o_proj.weight[:, 2 * 8 : 3 * 8] = 0
        with observing(model), ablating(model, heads=[(1, 2)]), observing(model):
            out = model(**given).logits
        torch.testing.assert_close(out, other(**given).logits)
        assert not torch.allclose(out, model(**given).logits)


def test_importance_by_gradient_and_by_ablation():
    model, given = build("llama"), inputs("llama", padded=False)
    ids = given["input_ids"]

    def loss():
        return torch.nn.functional.cross_entropy(
            model(**given).logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()
        )

    lost, moved = head_ablations(model, loss, mode="mean"), head_gradients(model, loss)
    assert list(lost) == list(moved) == [f"model.layers.{i}.self_attn" for i in range(2)]
    with torch.no_grad(), ablating(model, heads=[(1, 4)], mode="mean"):
        without = loss()
    torch.testing.assert_close(lost["model.layers.1.self_attn"][4], without - loss().detach())
    assert all(x.shape == (6,) and (x > 0).all() for x in moved.values())


def test_nothing_stays_behind_and_what_cannot_be_done_is_refused():
    model, given = build("llama"), inputs("llama", padded=False)
    before = {name: list(vars(module)) for name, module in model.named_modules()}
    ids = given["input_ids"]
    with pytest.raises(InputError, match="has no head 6"), ablating(model, heads=[(0, 6)]):
        model(**given)
    after = {"edges": [Edge(key=1)], "renormalise": False}
    with pytest.raises(AblationError, match="after its softmax"), ablating(model, **after):
        model(**given)
    past = model(ids[:, :5]).past_key_values
    cut = ablating(model, edges=[Edge(key=1)])
    with pytest.raises(AblationError, match="with a cache") as raised, cut:
        model(ids[:, 5:], past_key_values=past)
    assert "whole text" in raised.value.hint
    assert {name: list(vars(module)) for name, module in model.named_modules()} == before
    assert "get_interface" not in vars(ALL_ATTENTION_FUNCTIONS)
