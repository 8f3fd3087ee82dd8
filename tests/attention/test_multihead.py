"""The module: the documents' numbers, torch's module both ways, and the traps."""

import math

import pytest
import torch
from torch import nn

from glasshead.attention.mask import Mask
from glasshead.attention.multihead import MultiHeadAttention
from glasshead.attention.position import RotaryPositions
from glasshead.errors import BackendError, ConfigError, NotFiniteError, ShapeError

# "Your journey starts with one step", the inputs of seed document 002.
JOURNEY = torch.tensor(
    [
        [0.43, 0.15, 0.89],
        [0.55, 0.87, 0.66],
        [0.57, 0.85, 0.64],
        [0.22, 0.58, 0.33],
        [0.77, 0.25, 0.10],
        [0.05, 0.80, 0.55],
    ]
)


def documents_layers(seed: int, projected: bool) -> list[nn.Linear]:
    """Query, key and value layers (3 -> 2, no bias) in the order in which 002 makes them."""
    torch.manual_seed(seed)
    layers = [nn.Linear(3, 2, bias=False) for _ in range(3)]
    return [*layers, nn.Linear(2, 2)] if projected else layers


def ours_with(layers: list[nn.Linear], n_heads: int) -> MultiHeadAttention:
    """002's module is 3 wide outside and 2 inside; d_head says so."""
    ours = MultiHeadAttention(3, n_heads, d_head=2 // n_heads)
    ours.out = layers[3] if len(layers) == 4 else nn.Identity()
    with torch.no_grad():
        ours.qkv.weight.copy_(torch.cat([layer.weight for layer in layers[:3]]))
    return ours


def rounded(x: torch.Tensor) -> list[list[float]]:
    return [[round(n, 4) for n in row] for row in x.tolist()]


def test_self_attention_of_document_002() -> None:
    out = ours_with(documents_layers(789, projected=False), 1)(JOURNEY[None]).out[0]
    assert rounded(out) == [
        [-0.0739, 0.0713],
        [-0.0748, 0.0703],
        [-0.0749, 0.0702],
        [-0.0760, 0.0685],
        [-0.0763, 0.0679],
        [-0.0754, 0.0693],
    ]


def test_causal_attention_of_document_002() -> None:
    batch = torch.stack((JOURNEY, JOURNEY))
    out = ours_with(documents_layers(123, projected=False), 1)(batch, mask=Mask(causal=True)).out
    assert torch.equal(out[0], out[1])
    assert rounded(out[0]) == [
        [-0.4519, 0.2216],
        [-0.5874, 0.0058],
        [-0.6300, -0.0632],
        [-0.5675, -0.0843],
        [-0.5526, -0.0981],
        [-0.5299, -0.1081],
    ]


def test_multi_head_attention_of_document_002() -> None:
    layers = documents_layers(123, projected=True)
    out = ours_with(layers, 2)(JOURNEY[None], mask=Mask(causal=True)).out[0]
    assert rounded(out) == [
        [0.3190, 0.4858],
        [0.2943, 0.3897],
        [0.2856, 0.3593],
        [0.2693, 0.3873],
        [0.2639, 0.3928],
        [0.2575, 0.4028],
    ]


def test_heads_of_width_one_are_not_changed_by_scaling() -> None:
    """Trap 8: 002's two-head demo shows nothing of the scale."""
    attention = MultiHeadAttention(3, 3)
    unscaled = MultiHeadAttention(3, 3, scale=1.0)
    unscaled.load_state_dict(attention.state_dict())
    assert torch.equal(attention(JOURNEY[None]).out, unscaled(JOURNEY[None]).out)


def test_eight_dimensions_do_not_split_over_three_heads() -> None:
    """Trap 4: 002 says they give 2 arrays of 4."""
    with pytest.raises(ConfigError, match=r"d_model \(8\) must be divisible by n_heads \(3\)") as e:
        MultiHeadAttention(8, 3)
    assert "1, 2, 4, 8" in e.value.hint


def test_adding_minus_infinity_times_zero_is_not_how_a_mask_works() -> None:
    """Trap 1: the document's mask is NaN in 21 of 36 cells; ours has none."""
    documents = torch.triu(torch.ones(6, 6), diagonal=1) * float("-inf")
    assert documents.isnan().sum() == 21
    seen = MultiHeadAttention(3, 1)(JOURNEY[None], mask=Mask(causal=True), weights=True).weights
    assert not seen.isnan().any()
    assert (seen[0, 0].triu(1) == 0).all()


def test_each_projection_gets_a_gradient() -> None:
    """Trap 9: 003 defines its projections and never applies them."""
    attention = MultiHeadAttention(12, 3, n_kv_heads=1, qkv_bias=True, qk_norm=True)
    attention(torch.randn(2, 5, 12), torch.randn(2, 7, 12)).out.square().sum().backward()
    for name, p in attention.named_parameters():
        blocks = p.grad.split(4) if name.startswith("qkv") else [p.grad]
        # A bias shared by all keys shifts a row's scores alike, so its gradient may vanish
        # without qk_norm; with it, every row of every block must move.
        assert all(block.abs().sum() > 0 for block in blocks), name


def test_batch_time_and_width_may_be_equal() -> None:
    """Trap 5: `keys.T` is silently wrong when B = T = d."""
    torch.manual_seed(0)
    attention, x = MultiHeadAttention(6, 2), torch.randn(6, 6, 6)
    together = attention(x).out
    for b in range(6):
        torch.testing.assert_close(together[b], attention(x[b : b + 1]).out[0])


def test_a_fully_masked_row_is_neither_uniform_nor_nan() -> None:
    """Trap 10: -1e10 makes such a row uniform, -inf makes it NaN."""
    attention = MultiHeadAttention(12, 3, out_bias=False)
    x = torch.randn(2, 5, 12, requires_grad=True)
    keys = torch.tensor([[True] * 5, [False] * 5])
    for dtype in (torch.float32, torch.float16):
        seen = attention.to(dtype)(x.to(dtype), mask=Mask(keys=keys), weights=True)
        assert (seen.out[1] == 0).all()
        assert (seen.weights[1] == 0).all()
        assert seen.out[0].abs().sum() > 0
        (grad,) = torch.autograd.grad(seen.out.float().sum(), x)
        assert grad.isfinite().all()


def test_observed_weights_are_those_before_dropout() -> None:
    """Trap 7: after dropout, rows no longer sum to 1."""
    torch.manual_seed(0)
    attention = MultiHeadAttention(12, 3, dropout=0.5).train()
    x = torch.randn(2, 7, 12)
    seen = attention(x, weights=True)
    torch.testing.assert_close(seen.weights.sum(-1), torch.ones(2, 3, 7))
    assert not torch.equal(seen.out, attention(x).out)
    attention.eval()
    assert torch.equal(attention(x).out, attention(x).out)


def test_the_order_of_the_keys_does_not_matter_without_positions() -> None:
    torch.manual_seed(0)
    attention, x = MultiHeadAttention(12, 3), torch.randn(2, 7, 12)
    order = torch.randperm(7)
    torch.testing.assert_close(attention(x[:, order]).out, attention(x).out[:, order])


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("cross", [True, False])
@pytest.mark.parametrize("masked", ["no", "causal", "padding"])
def test_torchs_module_moves_in_and_out(training, bias, cross, masked) -> None:
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(20, 5, bias=bias, batch_first=True).train(training)
    for p in theirs.parameters():
        nn.init.normal_(p)
    ours = MultiHeadAttention.from_torch(theirs)
    x = torch.randn(2, 7, 20)
    memory = torch.randn(2, 11, 20) if cross else None
    S = 11 if cross else 7
    keys = torch.arange(S) < torch.tensor([[S], [3]])
    dense = torch.ones(7, S, dtype=torch.bool).tril(S - 7)
    mask = {"no": None, "causal": Mask(causal=True), "padding": Mask(keys=keys)}[masked]
    source = x if memory is None else memory
    expected, weights = theirs(
        x,
        source,
        source,
        attn_mask=~dense if masked == "causal" else None,
        key_padding_mask=~keys if masked == "padding" else None,
        average_attn_weights=False,
    )
    seen = ours(x, memory, mask=mask, weights=True)
    torch.testing.assert_close(seen.out, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(seen.weights, weights, atol=1e-5, rtol=1e-5)
    back = ours.to_torch()
    assert back.training == ours.training == training
    assert back.state_dict().keys() == theirs.state_dict().keys()
    for name, p in theirs.state_dict().items():
        assert torch.equal(back.state_dict()[name], p)


def test_ours_moves_out_with_one_bias_only() -> None:
    ours = MultiHeadAttention(12, 3, qkv_bias=False, out_bias=True).double().eval()
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    theirs = ours.to_torch()
    torch.testing.assert_close(theirs(x, x, x)[0], ours(x).out)


@pytest.mark.parametrize(
    ("keywords", "name"),
    [
        ({"n_kv_heads": 1}, "n_kv_heads=1"),
        ({"d_head": 7}, "d_head=7"),
        ({"project": False}, "project=False"),
        ({"qk_norm": True}, "qk_norm"),
        ({"softcap": 5.0}, "softcap=5.0"),
        ({"scale": 1.0}, "scale=1.0"),
    ],
)
def test_what_torch_cannot_hold_is_refused_by_name(keywords, name) -> None:
    with pytest.raises(ConfigError, match=name):
        MultiHeadAttention(12, 3, **keywords).to_torch()


@pytest.mark.parametrize(
    ("keywords", "name"),
    [
        ({"kdim": 7}, "kdim"),
        ({"add_bias_kv": True}, "add_bias_kv"),
        ({"add_zero_attn": True}, "zero"),
    ],
)
def test_what_ours_cannot_hold_is_refused_by_name(keywords, name) -> None:
    with pytest.raises(ConfigError, match=name):
        MultiHeadAttention.from_torch(nn.MultiheadAttention(12, 3, **keywords))


@pytest.mark.parametrize("backend", ["auto", "explicit", "sdpa"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_asking_changes_no_bit_of_out(backend, dtype) -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(44, 4, n_kv_heads=2, backend=backend).to(dtype)
    x = torch.randn(2, 13, 44, dtype=dtype)
    mask = Mask(causal=True, keys=torch.rand(2, 13) > 0.3)
    plain, asked = attention(x, mask=mask), attention(x, mask=mask, weights=True, lse=True)
    assert torch.equal(plain.out, asked.out)
    assert plain.weights is None
    assert asked.weights.shape == (2, 4, 13, 13)
    assert asked.lse.shape == (2, 4, 13)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"d_model": 0, "n_heads": 1}, r"d_model \(0\)"),
        ({"d_model": 12, "n_heads": 0}, r"n_heads \(0\)"),
        ({"d_model": 12, "n_heads": 6, "d_head": 0}, r"d_head \(0\)"),
        ({"d_model": 12, "n_heads": 6, "d_head": -2}, r"d_head \(-2\)"),
        ({"d_model": 12, "n_heads": 6, "softcap": 0.0}, r"softcap \(0.0\)"),
        ({"d_model": 12, "n_heads": 6, "softcap": math.nan}, r"softcap \(nan\)"),
        ({"d_model": 12, "n_heads": 6, "n_kv_heads": 4}, r"n_heads \(6\).*n_kv_heads \(4\)"),
        ({"d_model": 12, "n_heads": 3, "dropout": 1.5}, r"dropout \(1.5\)"),
        ({"d_model": 12, "n_heads": 3, "d_head": 5, "project": False}, r"times d_head \(5\)"),
    ],
)
def test_settings_that_cannot_work_are_refused(keywords, message) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        MultiHeadAttention(**keywords)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("x", "memory", "message"),
    [
        (torch.zeros(2, 5, 11), None, r"x has shape \(2, 5, 11\), but \(B, T, 12\)"),
        (torch.zeros(5, 12), None, r"x has shape \(5, 12\)"),
        (torch.zeros(2, 5, 12), torch.zeros(2, 7, 13), r"memory has shape \(2, 7, 13\)"),
        (torch.zeros(2, 5, 12), torch.zeros(3, 7, 12), "2 sequences and memory 3"),
        (torch.zeros(3, 5, 12), torch.zeros(2, 7, 12), "3 sequences and memory 2"),
        (torch.zeros(2, 5, 12).long(), None, "torch.int64"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(x, memory, message) -> None:
    with pytest.raises(ShapeError, match=message) as caught:
        MultiHeadAttention(12, 3)(x, memory)
    assert caught.value.hint


def test_an_unknown_backend_is_refused_before_anything_is_computed() -> None:
    with pytest.raises(BackendError, match="unknown backend 'spda'"):
        MultiHeadAttention(12, 3, backend="spda")


def test_a_rotation_does_not_go_with_a_memory() -> None:
    rotation = RotaryPositions(4).rotation(torch.arange(5))
    with pytest.raises(ConfigError, match="does not support a rotation") as caught:
        MultiHeadAttention(12, 3)(torch.zeros(2, 5, 12), torch.zeros(2, 7, 12), rotation=rotation)
    assert caught.value.hint


def test_nan_in_the_input_is_an_error() -> None:
    x = torch.zeros(2, 5, 12)
    x[1, 3, 7] = torch.nan
    with pytest.raises(NotFiniteError, match="holds NaN"):
        MultiHeadAttention(12, 3)(x)


def test_normed_queries_under_autocast_warn_of_nothing() -> None:
    attention = MultiHeadAttention(12, 3, qk_norm=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        seen = attention(torch.randn(2, 5, 12), weights=True)
    assert seen.out.dtype == torch.bfloat16
    torch.testing.assert_close(seen.weights.sum(-1), torch.ones(2, 3, 5))
