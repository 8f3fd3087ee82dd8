"""The loss of the head: that of F.cross_entropy, in value and gradient, by a shorter way."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from glasshead.model import loss as loss_module
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.model.loss import head_loss, next_token_loss


def tensors(N, C, V, dtype=torch.float64, size=1.0, seed=0):
    g = torch.Generator().manual_seed(seed)
    x, weight, bias = (
        (size * torch.randn(*shape, generator=g, dtype=torch.float64)).to(dtype).requires_grad_()
        for shape in ((N, C), (V, C), (V,))
    )
    return x, weight, bias, torch.randint(V, (N,), generator=g)


def grads(loss, *inputs):
    return torch.autograd.grad(loss, inputs)


@given(
    st.integers(1, 13),
    st.integers(1, 7),
    st.integers(1, 11),
    st.integers(1, 60),
    st.sampled_from([0.0, 1e-3, 1.0, 30.0, 1e3]),
    st.integers(0, 99),
)
def test_it_is_the_cross_entropy_whatever_the_sizes_and_the_blocks(N, C, V, block, size, seed):
    x, weight, bias, y = tensors(N, C, V, size=size, seed=seed)
    expected = F.cross_entropy(F.linear(x, weight, bias), y)
    whole, loss_module.BLOCK = loss_module.BLOCK, block
    try:
        ours = head_loss(x, weight, bias, y)
    finally:
        loss_module.BLOCK = whole
    torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)
    for a, b in zip(grads(ours, x, weight, bias), grads(expected, x, weight, bias), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9 * max(size, 1))


@pytest.mark.parametrize("size", [0.3, 30.0])
def test_in_float32_it_is_as_exact_as_torch_s_own(size):
    x, weight, bias, y = tensors(61, 17, 211, torch.float32, size)
    exact = [t.detach().double().requires_grad_() for t in (x, weight, bias)]
    wanted = F.cross_entropy(F.linear(*exact), y)
    wanted = [wanted, *grads(wanted, *exact)]
    theirs = F.cross_entropy(F.linear(x, weight, bias), y)
    theirs = [theirs, *grads(theirs, x, weight, bias)]
    ours = head_loss(x, weight, bias, y)
    ours = [ours, *grads(ours, x, weight, bias)]
    for right, a, b in zip(wanted, ours, theirs, strict=True):
        assert (a - right).abs().max() <= 2 * (b - right).abs().max() + 1e-6 * right.abs().max()


@pytest.mark.parametrize("logit", [95.0, 1e4, -1e4])
def test_logits_that_exp_cannot_hold_are_no_trouble(logit):
    x = torch.tensor([[1.0], [2.0]], dtype=torch.float64, requires_grad=True)
    weight = torch.tensor([[logit], [logit - 3], [0.0]], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([1, 2])
    ours, theirs = head_loss(x, weight, None, y), F.cross_entropy(F.linear(x, weight), y)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(grads(ours, x, weight), grads(theirs, x, weight))


def test_a_scaled_loss_has_scaled_gradients_and_may_be_asked_twice():
    x, weight, bias, y = tensors(5, 3, 7)
    once = grads(head_loss(x, weight, bias, y), x, weight, bias)
    loss = head_loss(x, weight, bias, y)
    (3 * loss + 1).backward(retain_graph=True)
    loss.backward()
    for tensor, grad in zip((x, weight, bias), once, strict=True):
        torch.testing.assert_close(tensor.grad, 4 * grad)


def model(**changes):
    torch.manual_seed(0)
    config = {"vocab_size": 29, "max_len": 7, "n_layers": 1, "n_heads": 2, "d_model": 8}
    return GPT(GPTConfig(**{**config, **changes}))


@pytest.mark.parametrize(
    "changes", [{}, {"tied": True, "head_bias": False}, {"logit_softcap": 5.0}, {"n_layers": 0}]
)
def test_the_loss_of_a_model_is_that_of_its_logits(changes):
    gpt, ids = model(**changes), torch.randint(29, (3, 8))
    plain = F.cross_entropy(gpt(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    ours = next_token_loss(gpt, ids[:, :-1], ids[:, 1:])
    torch.testing.assert_close(ours, plain)
    params = list(gpt.parameters())
    torch.testing.assert_close(grads(ours, *params), grads(plain, *params))
    with torch.no_grad():
        torch.testing.assert_close(next_token_loss(gpt, ids[:, :-1], ids[:, 1:]), plain)


def test_under_autocast_the_products_are_in_bf16_and_the_loss_is_not():
    gpt, ids = model(), torch.randint(29, (3, 8))
    with torch.autocast("cpu", torch.bfloat16):
        loss = next_token_loss(gpt, ids[:, :-1], ids[:, 1:])
    assert loss.dtype == torch.float32
    full = next_token_loss(gpt, ids[:, :-1], ids[:, 1:])
    assert loss != full
    torch.testing.assert_close(loss, full, rtol=0.02, atol=0.02)
