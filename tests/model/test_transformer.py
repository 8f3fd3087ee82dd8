"""Encoder, decoder and both: against torch's own, and against themselves read in another way."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from glasshead.attention.hooks import AttentionCall
from glasshead.attention.multihead import MultiHeadAttention
from glasshead.attention.scores import recompute
from glasshead.errors import ConfigError, ShapeError
from glasshead.model.transformer import (
    Encoder,
    Memory,
    Reader,
    Transformer,
    TransformerConfig,
)
from glasshead.observe.hooks import attach_hooks
from tests.attention.hooks import Keep, Replace

V, C, H, F = 47, 20, 5, 31
TINY = TransformerConfig(
    V, max_len=29, n_layers=2, n_decoder_layers=3, n_heads=H, d_model=C, d_ff=F, dropout=0.0
)


def new(config: TransformerConfig = TINY, kind: type[nn.Module] = Transformer) -> nn.Module:
    torch.manual_seed(3)
    return kind(config).double().eval()


def some_ids(*shape: int) -> torch.Tensor:
    return torch.randint(1, V, shape, generator=torch.Generator().manual_seed(7))


def copy_layer(theirs: nn.Module, ours: nn.Module, norm_place: str) -> None:
    """A layer of nn.Transformer takes the parameters of a block."""
    side = "before" if norm_place == "pre" else "after"
    ways = [("self_attn", ours.attention, "norm1", ours.around_attention)]
    if hasattr(theirs, "multihead_attn"):
        ways += [
            ("multihead_attn", ours.cross, "norm2", ours.around_cross),
            ("", None, "norm3", ours.around_feed_forward),
        ]
    else:
        ways += [("", None, "norm2", ours.around_feed_forward)]
    for attention, module, norm, around in ways:
        if module is not None:
            getattr(theirs, attention).load_state_dict(module.to_torch().state_dict())
        getattr(theirs, norm).load_state_dict(getattr(around, side).state_dict())
    theirs.linear1.load_state_dict(ours.feed_forward.up.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.down.state_dict())


def as_torch(model: Transformer) -> nn.Transformer:
    """nn.Transformer with the same parameters. Post-norm, it would add a last norm of its own."""
    c, pre = model.config, model.config.norm_place == "pre"
    shape = {"dim_feedforward": F, "dropout": 0.0, "batch_first": True, "norm_first": pre}

    def stack(layer: type, whole: type, n_layers: int, **extra: bool) -> nn.Module:
        return whole(layer(C, H, **shape), n_layers, norm=nn.LayerNorm(C) if pre else None, **extra)

    encoder = stack(
        nn.TransformerEncoderLayer,
        nn.TransformerEncoder,
        len(model.encoder.blocks),
        enable_nested_tensor=False,
    )
    decoder = stack(nn.TransformerDecoderLayer, nn.TransformerDecoder, len(model.decoder.blocks))
    theirs = nn.Transformer(C, H, custom_encoder=encoder, custom_decoder=decoder, **shape)
    theirs = theirs.double().eval()  # its constructor has drawn all parameters anew
    for made, ours in ((theirs.encoder, model.encoder), (theirs.decoder, model.decoder)):
        for layer, block in zip(made.layers, ours.blocks, strict=True):
            copy_layer(layer, block, c.norm_place)
        if pre:
            made.norm.load_state_dict(ours.norm.state_dict())
    return theirs


@pytest.mark.parametrize("norm_place", ["post", "pre"])
def test_it_is_torchs_transformer_given_the_same_parameters(norm_place: str) -> None:
    model = new(dataclasses.replace(TINY, norm_place=norm_place))
    # Distinct values in what starts as ones and zeros.
    for name, parameter in model.named_parameters():
        if "norm" in name or "around" in name or name.endswith("bias"):
            nn.init.normal_(parameter, mean=0.7, std=0.3)
    theirs = as_torch(model)
    source, target = some_ids(3, 11), some_ids(3, 7)
    source[1, 8:], target[2, 5:] = 0, 0
    embed = model.encoder.embedding
    x, y = (embed(ids, torch.arange(ids.shape[1])) for ids in (source, target))
    future = nn.Transformer.generate_square_subsequent_mask(7, dtype=torch.bool)
    expected = theirs(
        x,
        y,
        tgt_mask=future,
        src_key_padding_mask=source == 0,
        tgt_key_padding_mask=target == 0,
        memory_key_padding_mask=source == 0,
        tgt_is_causal=True,
    )
    found = model.features(target, model.encode(source))
    real = target != 0
    torch.testing.assert_close(found[real], expected[real])
    logits = expected @ embed.table.weight.T
    torch.testing.assert_close(model(source, target)[real], logits[real])


@settings(max_examples=30, deadline=None)
@given(
    places=st.sampled_from(["sinusoidal", "learned", "rotary", "alibi", "none"]),
    norm_place=st.sampled_from(["pre", "post"]),
    left=st.integers(0, 5),
    right=st.integers(0, 5),
    left_target=st.integers(0, 3),
    right_target=st.integers(0, 3),
)
def test_padding_on_either_side_changes_nothing(
    places: str, norm_place: str, left: int, right: int, left_target: int, right_target: int
) -> None:
    n_heads = 5 if places != "rotary" else 10  # an even head width
    model = new(dataclasses.replace(TINY, positions=places, norm_place=norm_place, n_heads=n_heads))
    source, target = some_ids(2, 7), some_ids(2, 5)
    padded = nn.functional.pad(source, (left, right))
    longer = nn.functional.pad(target, (left_target, right_target))
    found = model(padded, longer)[:, left_target : left_target + 5]
    torch.testing.assert_close(found, model(source, target), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("places", ["sinusoidal", "learned", "alibi", "none"])
def test_writing_token_by_token_with_caches_gives_the_same(places: str) -> None:
    model = new(dataclasses.replace(TINY, positions=places))
    source, target = some_ids(3, 11), some_ids(3, 7)
    source[0, 6:] = 0
    memory, caches = model.encode(source), model.new_caches()
    parts = [
        model.features(target[:, start:end], memory, caches)
        for start, end in ((0, 1), (1, 2), (2, 5), (5, 7))
    ]
    torch.testing.assert_close(torch.cat(parts, 1), model.features(target, memory))


def test_caches_follow_their_rows() -> None:
    model = new()
    source, target = some_ids(3, 11), some_ids(3, 7)
    memory, caches = model.encode(source), model.new_caches()
    model.features(target[:, :4], memory, caches)
    rows = torch.tensor([2, 2, 0, 1, 1])
    for layer in caches:
        layer.reorder(rows)
    found = model.features(target[rows, 4:], memory.rows(rows), caches)
    torch.testing.assert_close(found, model.features(target, memory)[rows, 4:])


def test_later_target_tokens_do_not_change_earlier_logits() -> None:
    model = new()
    source, target = some_ids(2, 11), some_ids(2, 7)
    other = target.clone()
    other[:, 4:] = other[:, 4:] % 13 + 17
    found, changed = model(source, target), model(source, other)
    assert torch.equal(found[:, :4], changed[:, :4])
    assert not torch.allclose(found[:, 4:], changed[:, 4:])


def test_every_source_token_reaches_every_target_position() -> None:
    model = new()
    source, target = some_ids(1, 11), some_ids(1, 7)
    base = model(source, target)
    for place in range(11):
        other = source.clone()
        other[0, place] = other[0, place] % 13 + 17
        assert (model(other, target) - base).abs().amax(-1).min() > 1e-9


def test_embeddings_are_multiplied_by_the_root_of_the_width() -> None:
    embed = new(dataclasses.replace(TINY, positions="none")).encoder.embedding
    ids = some_ids(2, 3)
    found = embed(ids, torch.arange(3))
    torch.testing.assert_close(found, embed.table.weight[ids] * C**0.5)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_tables_are_shared_and_tied_as_told(shared: bool, tied: bool) -> None:
    model = new(dataclasses.replace(TINY, shared=shared, tied=tied))
    source, target = model.encoder.embedding.table, model.decoder.embedding.table
    assert (source.weight is target.weight) == shared
    assert (model.head.weight is target.weight) == tied
    tables = sum(p.shape == (V, C) for p in model.parameters())
    assert tables == 3 - shared - tied


def test_all_parameters_get_a_gradient() -> None:
    for kind in (Transformer, Reader):
        model = new(dataclasses.replace(TINY, qkv_bias=False, shared=False), kind)
        ids = [some_ids(2, 11), some_ids(2, 7)][: 2 if kind is Transformer else 1]
        model(*ids).logsumexp(-1).sum().backward()
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


@pytest.mark.parametrize("kind", ["relu", "gelu", "relu2", "swiglu", "none"])
def test_other_feed_forwards_norms_and_grouped_queries_serve(kind: str) -> None:
    config = dataclasses.replace(
        TINY, feed_forward=kind, norm="rms", n_heads=10, n_kv_heads=5, qk_norm=True
    )
    assert new(config)(some_ids(2, 11), some_ids(2, 7)).shape == (2, 7, V)


def test_an_encoder_stands_alone_and_sees_both_ways() -> None:
    encoder = new(kind=Encoder)
    ids = some_ids(2, 11)
    base = encoder(ids)
    assert base.shape == (2, 11, C)
    other = ids.clone()
    other[:, 10] = other[:, 10] % 13 + 17
    assert ((encoder(other) - base).abs().amax(-1) > 1e-9).all()


def test_a_hook_sees_exactly_what_the_kernel_got() -> None:
    model = new()
    source, target = some_ids(2, 11), some_ids(2, 7)
    source[1, 9:] = 0
    plain, calls = model(source, target), []
    modules = [m for m in model.modules() if isinstance(m, MultiHeadAttention)]
    with attach_hooks({module: Keep(calls) for module in modules}):
        assert torch.equal(model(source, target), plain)
    assert [call.cross for call in calls] == [False] * 2 + [False, True] * 3
    for call in calls:
        weights, _ = recompute(call.q, call.k, call.mask, call.scoring, weights=True, lse=False)
        context = weights @ call.v
        torch.testing.assert_close(context, call.context)
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))


def test_a_hook_can_change_the_context() -> None:
    model = new()
    source, target = some_ids(2, 11), some_ids(2, 7)
    plain = model(source, target)

    def silence_head_2(call: AttentionCall) -> torch.Tensor:
        return call.context.index_fill(1, torch.tensor([2]), 0.0)

    cross = model.decoder.blocks[1].cross
    with attach_hooks({cross: Replace(silence_head_2)}):
        changed = model(source, target)
    assert not torch.allclose(changed, plain)
    with torch.no_grad():  # the same by hand: the head's columns of the projection out
        cross.out.weight[:, 2 * 4 : 3 * 4] = 0
    torch.testing.assert_close(model(source, target), changed)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 0}, "vocab_size (0) must be at least 1"),
        ({"pad": 47}, "pad (47) must be an id, at least 0 and less than 47"),
        ({"dropout": 1.0}, "dropout (1.0) must be at least 0"),
        ({"weight_dropout": -0.5}, "weight_dropout (-0.5) must be at least 0"),
        ({"n_heads": 0}, "n_heads (0) must be at least 1"),
        ({"d_ff": 0}, "d_ff (0) must be at least 1"),
        ({"n_decoder_layers": 0}, "n_decoder_layers (0) must be at least 1"),
        ({"n_layers": 0}, "n_layers (0) must be at least 1"),
        ({"norm_eps": float("nan")}, "norm_eps (nan) must be more than 0"),
        ({"rope_base": 0.0}, "rope_base (0.0) must be more than 0"),
        ({"init": "xavir"}, "unknown init 'xavir'"),
        ({"norm_place": "after"}, "unknown norm_place 'after'"),
        ({"n_heads": 7}, "d_model (20) must be divisible by n_heads (7)"),
    ],
)
def test_wrong_settings_get_one_line(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Transformer(dataclasses.replace(TINY, **change))
    assert message in str(caught.value)
    assert caught.value.hint


def test_ids_of_a_single_text_get_a_hint() -> None:
    model = new()
    with pytest.raises(ShapeError, match=r"ids has shape \(11,\)"):
        model.encode(some_ids(11))
    memory = Memory(torch.zeros(1, 3, C).double(), torch.ones(1, 3, dtype=torch.bool))
    with pytest.raises(ShapeError, match=r"target_in has shape \(7,\)"):
        model.features(some_ids(7), memory)
