import pytest
import torch
from torch import nn

from glasshead.attention.norm import RMSNorm, rms_norm


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_it_is_torchs_norm_with_torchs_gradients(dtype) -> None:
    torch.manual_seed(0)
    ours, theirs = RMSNorm(13).to(dtype), nn.RMSNorm(13, eps=1e-6).to(dtype)
    nn.init.normal_(ours.weight)
    theirs.load_state_dict(ours.state_dict())
    x, seed = torch.randn(2, 3, 5, 13, dtype=dtype), torch.randn(2, 3, 5, 13, dtype=dtype)
    found = []
    for norm in (ours, theirs):
        inputs = x.clone().requires_grad_()
        out = norm(inputs)
        found.append((out, *torch.autograd.grad(out, (inputs, norm.weight), seed)))
    for mine, expected in zip(*found, strict=True):
        torch.testing.assert_close(mine, expected)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x))


def test_its_gradient_is_that_of_the_formula() -> None:
    x = torch.randn(3, 2, 7, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, w: rms_norm(x, w, 1e-3), (x, weight))


def test_a_weight_for_each_head_is_each_heads_own_norm() -> None:
    x, weight = torch.randn(2, 3, 5, 7), torch.randn(3, 1, 7)
    together = rms_norm(x, weight, 1e-6)
    for h in range(3):
        torch.testing.assert_close(together[:, h], rms_norm(x[:, h], weight[h, 0], 1e-6))
