"""Ablation: what is taken away is gone, the rest is the formula, and nothing stays behind."""

import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import settings as example_settings
from hypothesis import strategies as st
from torch import nn

from glasshead.attention.mask import Mask
from glasshead.attention.multihead import MultiHeadAttention
from glasshead.errors import AblationError, ConfigError, InputError, RecordingError
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.model.transformer import Reader, Transformer, TransformerConfig
from glasshead.observe.ablation import Edge, ablating
from glasshead.observe.hooks import attach_hooks
from glasshead.observe.recording import observing
from tests.attention.hooks import Keep, Replace

V, PAD, T = 31, 0, 11


def gpt(**settings):
    torch.manual_seed(7)
    settings = {"positions": "rotary", "n_kv_heads": 2, "n_layers": 3, "d_head": 10} | settings
    config = GPTConfig(vocab_size=V, max_len=64, n_heads=6, d_model=42, **settings)
    return sharpened(GPT(config))


def translator(kind=Transformer):
    torch.manual_seed(7)
    config = TransformerConfig(
        vocab_size=V, n_layers=2, n_heads=3, d_model=42, d_ff=37, norm_place="post", pad=PAD
    )
    return sharpened(kind(config))


def sharpened(model):
    """Attention that has preferences, in float64 so that a mistake shows."""
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            nn.init.normal_(module.qkv.weight, std=0.3)
    return model.double().eval()


def ids(B, T, seed=3):
    return torch.randint(1, V, (B, T), generator=torch.Generator().manual_seed(seed))


PADDED = torch.cat([ids(2, T), torch.tensor([[PAD] * 2] * 2)], 1)
MODELS = {
    "gpt": (gpt, (ids(2, T),)),
    "alibi": (lambda: gpt(positions="alibi", window=5, softcap=2.0), (ids(2, T),)),
    "transformer": (translator, (PADDED, ids(2, 7))),
    "reader": (lambda: translator(Reader), (PADDED,)),
}


@pytest.fixture(params=MODELS)
def model_and_inputs(request):
    make, inputs = MODELS[request.param]
    return make(), inputs


def attentions(model):
    return [m for m in model.modules() if isinstance(m, MultiHeadAttention)]


def looks(model, inputs):
    """What each layer's kernel was given and gave, at its last call."""
    hooks = {module: Keep([]) for module in attentions(model)}
    with attach_hooks(hooks):
        model(*inputs)
    return [hook.calls[-1] for hook in hooks.values()]


def traces(model):
    """Everything that an ablation might leave on a model."""
    return [
        (vars(m).get("forward"), m.hooks, len(m._forward_hooks), len(m._forward_pre_hooks))
        for m in attentions(model)
    ]


def output_of(module, model, inputs):
    caught = []
    handle = module.register_forward_hook(lambda m, args, out: caught.append(out.out))
    model(*inputs)
    handle.remove()
    return caught[-1]


def written_out(look, hidden, renormalise):
    """Weights and context in float64, the plain formula; hidden (H, T, S)."""
    H, S = look.q.shape[1], look.k.shape[2]
    k, v = (x.repeat_interleave(H // x.shape[1], 1) for x in (look.k, look.v))
    s = look.q @ k.mT / math.sqrt(look.q.shape[-1])
    if look.scoring.softcap is not None:
        s = look.scoring.softcap * torch.tanh(s / look.scoring.softcap)
    added = look.scoring.additive_bias(look.q.shape[2], S)
    s = s if added is None else s + added
    allowed = look.mask.to_tensor(look.q.shape[2], S)
    w = torch.exp(s) if allowed is None else torch.exp(s) * allowed
    kept = w * ~hidden
    total = (kept if renormalise else w).sum(-1, keepdim=True)
    weights = torch.where(total > 0, kept / total, 0)
    return weights, weights @ v


def test_a_head_set_to_zero_is_one_whose_columns_of_the_projection_are_zero(model_and_inputs):
    model, inputs = model_and_inputs
    for i, module in enumerate(attentions(model)):
        head, D = module.n_heads - 1, module.d_head
        other = copy.deepcopy(model)
        with torch.no_grad():
            attentions(other)[i].out.weight[:, head * D : (head + 1) * D] = 0
        with ablating(model, heads=[(i, head)]):
            out = model(*inputs)
        torch.testing.assert_close(out, other(*inputs))
        assert not torch.allclose(out, model(*inputs))


def test_a_head_set_to_its_mean_says_the_same_everywhere_and_padding_is_not_counted():
    model, text = translator(Reader), ids(2, T)
    look, module = looks(model, (text,))[1], attentions(model)[1]
    context = look.context.clone()
    context[:, 2] = look.context[:, 2].mean(dim=(0, 1))
    expected = module.out(context.transpose(1, 2).flatten(2))
    padded = torch.cat([text, torch.full((2, 5), PAD)], 1)
    with ablating(model, heads=[(1, 2)], mode="mean"):
        out = output_of(module, model, (text,))
        with_padding = output_of(module, model, (padded,))
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(with_padding[:, :T], expected)


spots = st.one_of(
    st.integers(-T, T - 1),
    st.builds(slice, st.integers(0, T - 1), st.just(None), st.integers(1, 3)),
)


@example_settings(max_examples=25)
@given(
    data=st.data(),
    name=st.sampled_from(["gpt", "alibi", "reader", "transformer"]),
    renormalise=st.booleans(),
    observer_inside=st.booleans(),
)
def test_ablated_edges_have_weight_zero_and_the_rest_is_the_formula(
    data, name, renormalise, observer_inside
):
    make, inputs = MODELS[name]
    model = make()
    layer = 0 if name != "transformer" else data.draw(st.sampled_from([0, 2, 3]))
    look = looks(model, inputs)[layer]
    module = attentions(model)[layer]
    (_, H, n, _), S = look.q.shape, look.k.shape[2]
    edges, hidden = [], torch.zeros(H, n, S, dtype=torch.bool)
    for _ in range(data.draw(st.integers(1, 3))):
        head = data.draw(st.none() | st.integers(0, H - 1))
        query, key = data.draw(st.none() | st.integers(-n, n - 1)), data.draw(spots)
        key = key if isinstance(key, slice) or -S <= key < S else 0
        key = slice(0, 2) if isinstance(key, slice) and not range(S)[key] else key
        edges.append(Edge(layer=layer, head=head, query=query, key=key))
        for h in range(H) if head is None else [head]:
            for i in range(n) if query is None else [query]:
                hidden[h, i, key] = True
    weights, context = written_out(look, hidden, renormalise)
    expected = module.out(context.transpose(1, 2).flatten(2))
    cut = ablating(model, edges=edges, renormalise=renormalise)
    seeing = observing(model, layers=[layer])
    with torch.no_grad():
        if observer_inside:
            with cut, seeing as trace:
                out = output_of(module, model, inputs)
        else:
            with seeing as trace, cut:
                out = output_of(module, model, inputs)
    torch.testing.assert_close(out, expected)
    recorded = trace.weights(layer)
    torch.testing.assert_close(recorded, weights)
    assert (recorded[hidden.expand_as(recorded)] == 0).all()


def test_observing_outside_or_inside_records_the_same(model_and_inputs):
    model, inputs = model_and_inputs
    cut = {"heads": [(0, 1)], "edges": [Edge(layer=1, key=2, head=0)], "renormalise": False}
    with observing(model) as plain:
        model(*inputs)
    with ablating(model, **cut), observing(model) as inside:
        first = model(*inputs)
    with observing(model) as outside, ablating(model, **cut):
        second = model(*inputs)
    assert torch.equal(first, second)
    for layer in inside.layers:
        assert torch.equal(inside.weights(layer.index), outside.weights(layer.index))
    # A silenced head still looks where it looked; those above see something else.
    assert torch.equal(inside.weights(0), plain.weights(0))
    assert not torch.allclose(inside.weights(1), plain.weights(1))
    assert (inside.weights(1)[:, 0, :, 2] == 0).all()


def test_ablations_inside_each_other_add_up(model_and_inputs):
    model, inputs = model_and_inputs
    a, b = Edge(layer=0, key=3), Edge(layer=0, key=1, query=4)
    with ablating(model, heads=[(0, 0), (1, 2)], edges=[a, b]):
        expected = model(*inputs)
    with (
        ablating(model, heads=[(1, 2)], edges=[a]),
        ablating(model, heads=[(0, 0)], edges=[b]),
    ):
        out = model(*inputs)
    torch.testing.assert_close(out, expected)


def test_nothing_ablated_changes_no_bit(model_and_inputs):
    model, inputs = model_and_inputs
    expected = model(*inputs)
    with ablating(model):
        assert torch.equal(model(*inputs), expected)


def test_the_model_is_as_it_was_afterwards_also_after_an_exception(model_and_inputs):
    model, inputs = model_and_inputs
    expected, before = model(*inputs), traces(model)
    cut = {"heads": [(0, 0)], "edges": [Edge(layer=1, key=0)]}
    with ablating(model, **cut):
        assert not torch.allclose(model(*inputs), expected)
    assert traces(model) == before
    # One that is raised while a layer is running, by another hook.
    module, hook = attentions(model)[1], Replace(failing)
    with attach_hooks({module: hook}):
        with pytest.raises(InputError, match="a hook that fails"), ablating(model, **cut):
            model(*inputs)
        assert module.hooks == (hook,)
    assert traces(model) == before
    assert torch.equal(model(*inputs), expected)


def failing(call):
    raise InputError("a hook that fails")


@pytest.mark.parametrize("renormalise", [True, False])
def test_with_a_cache_edges_are_the_same_positions_as_without(renormalise):
    model, text = gpt(), ids(2, T)
    edges = [Edge(query=8, key=2), Edge(key=5, head=1), Edge(query=slice(9, None), key=slice(6, 8))]
    with torch.no_grad(), ablating(model, edges=edges, renormalise=renormalise):
        whole, caches = model(text), model.new_caches()
        pieces = [model(part, caches=caches) for part in text.split((5, 1, 3, 1, 1), 1)]
    torch.testing.assert_close(torch.cat(pieces, 1), whole)


def test_cross_edges_of_every_query_go_with_a_cache_and_those_of_one_are_refused():
    model, (source, target) = translator(), MODELS["transformer"][1]
    every, one = (Edge(layer="decoder.blocks.0.cross", key=4, query=q) for q in (None, 3))

    def written(edge):
        memory, caches = model.encode(source), model.new_caches()
        with torch.no_grad(), ablating(model, edges=[edge]):
            whole = model.features(target, memory)
            parts = [model.features(part, memory, caches) for part in target.split((5, 2), 1)]
        return whole, torch.cat(parts, 1)

    whole, pieces = written(every)
    torch.testing.assert_close(pieces, whole)
    with pytest.raises(AblationError, match="positions of its queries are not known") as error:
        written(one)
    assert "without a cache" in error.value.hint


@pytest.mark.parametrize("renormalise", [True, False])
def test_a_query_without_any_key_left_gets_nothing_and_gradients_stay_finite(renormalise):
    model, text = gpt(n_layers=1), ids(2, T)
    module = attentions(model)[0]
    with ablating(model, edges=[Edge(key=0)], renormalise=renormalise):
        out = output_of(module, model, (text,))
        model(text).square().sum().backward()
    torch.testing.assert_close(out[:, 0], module.out.bias.expand(2, -1))
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_a_row_that_saw_nothing_before_still_sees_nothing():
    model, text = gpt(), ids(2, T)
    keys = torch.arange(T).expand(2, T) > torch.tensor([[2], [0]])  # padding on the left
    found = []
    for renormalise in (True, False):
        # An edge that was never open, so that both ways are the same.
        with ablating(model, edges=[Edge(query=4, key=0)], renormalise=renormalise):
            found.append(model(text, mask=Mask(keys=keys)))
            found[-1].square().sum().backward()
    torch.testing.assert_close(found[0], found[1])
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_a_weight_set_to_zero_leaves_other_rows_and_heads_alone_to_the_bit():
    model, text = gpt(project=False, positions="alibi", d_head=7, n_layers=1).float(), ids(2, T)
    module = attentions(model)[0]  # its output is the heads side by side
    before = output_of(module, model, (text,)).unflatten(-1, (6, 7))
    with ablating(model, edges=[Edge(query=8, key=3, head=4)], renormalise=False):
        after = output_of(module, model, (text,)).unflatten(-1, (6, 7))
    same = (before == after).all(-1)  # (B, T, H)
    assert not same[:, 8, 4].any()
    assert same.sum() == same.numel() - 2


def test_a_compiled_model_is_ablated_too_and_forgets_it():
    model, text = gpt(n_layers=1), ids(2, T)
    compiled = torch.compile(model, backend="eager")
    cut = {"heads": [(0, 1)], "edges": [Edge(key=3, query=7)]}
    with torch.no_grad():
        expected = compiled(text)
        with ablating(model, **cut):
            without = model(text)
        with ablating(compiled, **cut):
            assert torch.equal(compiled(text), without)
        assert torch.equal(compiled(text), expected)


@pytest.mark.parametrize(
    ("cut", "error", "message", "hint"),
    [
        ({"heads": [(9, 0)]}, ConfigError, "layer 9 does not exist", "0 to 2"),
        ({"heads": [("blocks.0.atention", 0)]}, ConfigError, "unknown layer", "did you mean"),
        ({"heads": [(1, 6)]}, InputError, "blocks.1.attention.* has no head 6", "there are 6"),
        ({"edges": [Edge(key=0, head=-7)]}, InputError, "has no head -7", "there are 6"),
        ({"heads": (1, 2)}, ConfigError, "1 in heads is not a pair", "layer, head"),
        ({"heads": [(0, 0)], "mode": "men"}, ConfigError, "unknown mode 'men'", "mean"),
        ({"edges": [Edge(key=T)]}, AblationError, "outside the text: .* was 10", "from 0"),
        ({"edges": [Edge(key=2), Edge(key=3, query=97)]}, AblationError, "query=97", "from 0"),
    ],
)
def test_what_does_not_exist_is_named(cut, error, message, hint):
    model = gpt()
    with pytest.raises(error, match=message) as raised, ablating(model, **cut):
        model(ids(2, T))
    assert hint in raised.value.hint
    assert "\n" not in str(raised.value)


def test_other_mistakes_are_named():
    model = translator()
    with pytest.raises(ConfigError, match="without a layer is ambiguous") as raised:
        ablating(model, edges=[Edge(key=1)]).__enter__()
    assert "3 (decoder.blocks.0.cross)" in raised.value.hint
    silent = {"heads": [(2, 0)]}
    with pytest.raises(AblationError, match=r"layer 2 .* did not run"), ablating(model, **silent):
        model.encode(ids(1, 5))
    model, mean = gpt(), {"heads": [(0, 0)], "mode": "mean"}
    with pytest.raises(AblationError, match="mean over one position"), ablating(model, **mean):
        model(ids(1, 1))
    with pytest.raises(RecordingError, match="no attention"), ablating(nn.Linear(3, 5)):
        pass
    model, cut = gpt(dropout=0.1).train(), {"edges": [Edge(key=1)], "renormalise": False}
    with pytest.raises(AblationError, match=r"at random \(dropout 0.1\)"), ablating(model, **cut):
        model(ids(1, T))
