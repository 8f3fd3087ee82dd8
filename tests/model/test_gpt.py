"""One GPT, from a bigram table to today's models, against transformers where it has the same."""

from dataclasses import replace

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from glasshead.attention.mask import Mask
from glasshead.errors import ConfigError, ShapeError
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.model.layers import ff_width

TINY = GPTConfig(vocab_size=67, max_len=23, n_layers=3, n_heads=4, d_model=40)
POSITIONS = ["none", "learned", "sinusoidal", "rotary", "alibi"]


def built(**changes) -> GPT:
    torch.manual_seed(0)
    return GPT(replace(TINY, **changes)).eval()


def some_ids(B: int = 3, T: int = 13, V: int = 67) -> torch.Tensor:
    return torch.randint(V, (B, T), generator=torch.Generator().manual_seed(1))


VARIANTS = [
    {},
    {"positions": "rotary", "n_kv_heads": 2, "qk_norm": True},
    {"positions": "alibi", "n_kv_heads": 1},
    {"positions": "sinusoidal", "norm_place": "post"},
    {"positions": "none", "norm_place": "none", "residual": False},
    {"norm": "rms", "feed_forward": "swiglu", "bias": False, "tied": True, "head_bias": False},
    {"feed_forward": "relu2", "softcap": 5.0, "logit_softcap": 15.0},
    {"feed_forward": "linear-relu", "project": False},
    {"feed_forward": "none", "window": 5, "d_head": 14},
]


@pytest.mark.parametrize("changes", VARIANTS)
def test_future_tokens_do_not_change_past_logits(changes) -> None:
    model, ids = built(**changes), some_ids()
    before = model(ids)
    ids[:, 7:] = (ids[:, 7:] + 5) % 67
    after = model(ids)
    torch.testing.assert_close(before[:, :7], after[:, :7], atol=1e-5, rtol=0)
    assert not torch.allclose(before[:, 7:], after[:, 7:])


@pytest.mark.parametrize("changes", VARIANTS)
def test_every_parameter_gets_a_gradient(changes) -> None:
    model = built(**changes)
    model(some_ids(T=23)).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("kv_heads", [None, 2, 1])
def test_cached_logits_equal_uncached_ones(positions, kv_heads) -> None:
    model, ids = built(positions=positions, n_kv_heads=kv_heads, qk_norm=True), some_ids()
    whole, caches = model(ids), model.new_caches()
    pieces = [model(part, caches=caches) for part in ids.split([5, 1, 1, 6], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, 1), whole, atol=1e-5, rtol=1e-4)


def test_a_window_forgets_what_lies_before_it() -> None:
    model, ids = built(window=3, n_layers=1), some_ids()
    before = model(ids)[:, -1]
    ids[:, :-3] = 0
    torch.testing.assert_close(model(ids)[:, -1], before)


def test_documents_in_one_row_are_as_if_apart() -> None:
    model, ids = built(positions="rotary"), some_ids(B=1)
    documents = torch.tensor([[0] * 5 + [1] * 8])
    packed = model(ids, mask=Mask(documents=documents))
    torch.testing.assert_close(packed[:, 5:], model(ids[:, 5:]), atol=1e-5, rtol=1e-4)


def test_order_is_invisible_to_one_layer_without_positions() -> None:
    model, ids = built(positions="none", n_layers=1), some_ids()
    shuffled = torch.cat((ids[:, :12].flip(1), ids[:, 12:]), 1)
    torch.testing.assert_close(model(ids)[:, -1], model(shuffled)[:, -1])


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({"n_layers": 0, "positions": "none"}, 399_620),
        ({"n_layers": 0}, 399_876),
        ({"n_layers": 1, "n_heads": 1}, 402_948),
        ({"n_layers": 1, "feed_forward": "linear-relu"}, 404_004),
        ({"n_layers": 3, "feed_forward": "relu", "residual": True, "project": True}, 437_316),
    ],
)
def test_parameters_of_the_original_ladder(changes, count) -> None:
    base = GPTConfig(
        vocab_size=6148, max_len=8, d_model=32, n_heads=4,
        norm_place="none", residual=False, project=False, feed_forward="none",
    )  # fmt: skip
    model = GPT(replace(base, **changes))
    assert sum(p.numel() for p in model.parameters()) == count
    assert f"{count:,}" in repr(model)


def copy(target: torch.Tensor, source: torch.Tensor) -> None:
    with torch.no_grad():
        target.copy_(source)


def test_the_same_parameters_give_the_logits_of_transformers_gpt2() -> None:
    torch.manual_seed(0)
    theirs = GPT2LMHeadModel(
        GPT2Config(vocab_size=67, n_positions=23, n_embd=40, n_layer=3, n_head=4)
    ).eval()
    ours = GPT(
        replace(TINY, qkv_bias=True, feed_forward="gelu-tanh", tied=True, head_bias=False)
    ).eval()
    body = theirs.transformer
    copy(ours.embedding.weight, body.wte.weight)
    copy(ours.positions.table.weight, body.wpe.weight)
    ours.norm.load_state_dict(body.ln_f.state_dict())
    for mine, block in zip(ours.blocks, body.h, strict=True):
        mine.around_attention.before.load_state_dict(block.ln_1.state_dict())
        mine.around_feed_forward.before.load_state_dict(block.ln_2.state_dict())
        for linear, conv in (
            (mine.attention.qkv, block.attn.c_attn),
            (mine.attention.out, block.attn.c_proj),
            (mine.feed_forward.up, block.mlp.c_fc),
            (mine.feed_forward.down, block.mlp.c_proj),
        ):
            copy(linear.weight, conv.weight.T)
            copy(linear.bias, conv.bias)
    ids = some_ids()
    torch.testing.assert_close(ours(ids), theirs(ids).logits, atol=1e-5, rtol=1e-4)


def test_the_same_parameters_give_the_logits_of_transformers_llama() -> None:
    torch.manual_seed(0)
    theirs = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=67, hidden_size=40, intermediate_size=52, num_hidden_layers=3,
            num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5,
        )
    ).eval()  # fmt: skip
    ours = built(
        positions="rotary", n_kv_heads=2, d_ff=52, norm="rms", feed_forward="swiglu",
        bias=False, head_bias=False,
    )  # fmt: skip
    copy(ours.embedding.weight, theirs.model.embed_tokens.weight)
    copy(ours.head.weight, theirs.lm_head.weight)
    copy(ours.norm.weight, theirs.model.norm.weight)
    for mine, block in zip(ours.blocks, theirs.model.layers, strict=True):
        attention = block.self_attn
        parts = (attention.q_proj, attention.k_proj, attention.v_proj)
        copy(mine.attention.qkv.weight, torch.cat([p.weight for p in parts]))
        copy(mine.attention.out.weight, attention.o_proj.weight)
        copy(mine.around_attention.before.weight, block.input_layernorm.weight)
        copy(mine.around_feed_forward.before.weight, block.post_attention_layernorm.weight)
        copy(mine.feed_forward.gate.weight, block.mlp.gate_proj.weight)
        copy(mine.feed_forward.up.weight, block.mlp.up_proj.weight)
        copy(mine.feed_forward.down.weight, block.mlp.down_proj.weight)
    ids = some_ids()
    torch.testing.assert_close(ours(ids), theirs(ids).logits, atol=1e-5, rtol=1e-4)


def test_dropout_is_off_at_inference_and_on_in_training() -> None:
    model, ids = built(dropout=0.2), some_ids()
    assert torch.equal(model(ids), model(ids))
    model.train()
    assert not torch.equal(model(ids), model(ids))


def test_gpt2_init_is_narrower_into_the_residual() -> None:
    model = built(init="gpt2", d_model=160)
    assert model.blocks[0].attention.qkv.weight.std().item() == pytest.approx(0.02, rel=0.05)
    narrow = 0.02 / 6**0.5
    assert model.blocks[0].attention.out.weight.std().item() == pytest.approx(narrow, rel=0.05)
    assert model.blocks[2].feed_forward.down.weight.std().item() == pytest.approx(narrow, rel=0.05)


def test_softcapped_logits_stay_below_the_cap() -> None:
    model = built(logit_softcap=0.5)
    assert model(some_ids()).abs().max() < 0.5


def test_swiglu_has_about_the_size_of_the_two_matrix_kind() -> None:
    assert ff_width(replace(TINY, feed_forward="swiglu", d_model=768)) == 2048
    assert ff_width(replace(TINY, d_model=768)) == 3072


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"positions": "rotatory"}, "unknown positions 'rotatory'"),
        ({"feed_forward": "gulu"}, "unknown feed_forward 'gulu'"),
        ({"norm": "batch"}, "unknown norm 'batch'"),
        ({"norm_place": "before"}, "unknown norm_place 'before'"),
        ({"init": "zeros"}, "unknown init 'zeros'"),
        ({"vocab_size": 0}, r"vocab_size \(0\)"),
        ({"n_layers": -1}, r"n_layers \(-1\)"),
        ({"n_heads": 3}, r"d_model \(40\).*n_heads \(3\)"),
        ({"tied": True}, "no bias"),
        ({"d_head": 7, "positions": "rotary"}, "head width, not 7"),
    ],
)
def test_settings_that_cannot_work_are_refused(changes, message) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        GPT(replace(TINY, **changes))
    assert caught.value.hint


def test_ids_must_be_a_batch_and_fit_the_positions() -> None:
    with pytest.raises(ShapeError, match=r"ids has shape \(13,\)"):
        built()(some_ids()[0])
    with pytest.raises(ShapeError, match=r"24 tokens.*max_len=23"):
        built()(some_ids(T=24))
