"""The log-sum-exp of the kernel that ran, against float64."""

import pytest
import torch
import torch.nn.functional as F

from glasshead.observe.kernel_lse import collect_lse, keep_lse

B, H, T, S, D = 2, 6, 11, 13, 8


def given(group=1, dtype=torch.float32, grad=False, size=D):
    torch.manual_seed(3)
    q = torch.randn(B, H, T, size, dtype=dtype, requires_grad=grad)
    k, v = torch.randn(2, B, H // group, S, size, dtype=dtype, requires_grad=grad).unbind(0)
    return q, k, v


def wanted(q, k, allowed=None, bias=0.0):
    k = k.double().repeat_interleave(q.shape[1] // k.shape[1], 1)
    s = q.double() @ k.mT / q.shape[-1] ** 0.5 + bias
    return (s if allowed is None else s.masked_fill(~allowed, -torch.inf)).logsumexp(-1)


def both(*args, **options):
    plain = F.scaled_dot_product_attention(*args, **options)
    with collect_lse():
        out, lse = keep_lse(lambda: F.scaled_dot_product_attention(*args, **options))
    assert torch.equal(out, plain)
    return out, lse


@pytest.mark.parametrize("size", [D, 7])
@pytest.mark.parametrize("causal", [True, False])
def test_the_lse_is_that_of_the_scores_and_the_output_keeps_its_bits(causal, size):
    q, k, v = given(size=size)
    allowed = torch.ones(T, S).tril().bool() if causal else None
    lse = both(q, k, v, is_causal=causal)[1]
    torch.testing.assert_close(lse.double(), wanted(q, k, allowed), atol=1e-5, rtol=0)


def test_masks_of_both_kinds_count():
    q, k, v = given()
    allowed = torch.rand(B, 1, T, S) > 0.3
    bias = torch.randn(1, H, T, S)
    for mask, expected in ((allowed, wanted(q, k, allowed)), (bias, wanted(q, k, bias=bias))):
        lse = both(q, k, v, attn_mask=mask)[1]
        torch.testing.assert_close(lse.double(), expected, atol=1e-5, rtol=0)


def test_grouped_queries_and_autocast():
    q, k, v = given(group=3)
    lse = both(q, k, v, is_causal=True, enable_gqa=True)[1]
    expected = wanted(q, k, torch.ones(T, S).tril().bool())
    torch.testing.assert_close(lse.double(), expected, atol=1e-5, rtol=0)
    with torch.autocast("cpu", torch.bfloat16):
        out, lse = both(q, k, v, is_causal=True, enable_gqa=True)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(lse.double(), expected, atol=0.1, rtol=0)


def test_gradients_are_those_of_torch():
    q, k, v = given(grad=True)
    found = []
    for run in (lambda f: f(), lambda f: keep_lse(f)[0]):
        with collect_lse():
            out = run(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True))
        found.append(torch.autograd.grad(out.square().sum(), (q,)))
    assert torch.equal(found[0][0], found[1][0])


def test_there_is_none_without_a_fused_kernel_or_from_two_calls_and_torch_is_restored():
    q, k, v = given()
    torchs = F.scaled_dot_product_attention

    def twice():
        return [F.scaled_dot_product_attention(q, k, v) for _ in range(2)]

    with collect_lse(), collect_lse():
        assert keep_lse(twice)[1] is None
        assert keep_lse(lambda: q + 1)[1] is None
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            assert keep_lse(lambda: F.scaled_dot_product_attention(q, k, v))[1] is None
    assert F.scaled_dot_product_attention is torchs


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("mask", [None, "bool", "float"])
@pytest.mark.parametrize("size", [64, 128, 61])
@pytest.mark.parametrize("n", [257, 1024, 4096])
def test_on_a_gpu_the_same_kernel_runs(n, size, mask):
    torch.manual_seed(3)
    make = {"dtype": torch.bfloat16, "device": "cuda"}
    q = torch.randn(1, 6, n, size, **make)
    k, v = torch.randn(2, 1, 6, n, size, **make).unbind(0)
    allowed = torch.ones(n, n, device="cuda").tril().bool()[None, None]
    options = {"is_causal": True}
    if mask is not None:
        number = torch.zeros(1, 1, n, n, **make).masked_fill(~allowed, -torch.inf)
        options = {"attn_mask": allowed if mask == "bool" else number}
    lse = both(q, k, v, **options)[1]
    assert lse is not None
    assert (lse - wanted(q, k, allowed)).abs().max() < 1e-4
