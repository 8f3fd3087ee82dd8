"""The loss of a large head on a GPU: in Triton's interpreter, and on the GPU where there is one."""

import pytest
import torch
import torch.nn.functional as F

from glasshead.model.gpt import GPT, GPTConfig
from glasshead.model.loss import feature_loss
from tests.conftest import interpret


def check(device: str, tile: tuple[int, int], biased: bool) -> None:
    """Value and gradients against float64, of a mean that is multiplied afterwards."""
    from glasshead.model import loss_kernel

    usual, loss_kernel.TILE = loss_kernel.TILE, tile
    g = torch.Generator().manual_seed(3)
    N, C, V = 7, 13, 211
    wide = [
        (2 * torch.randn(*shape, generator=g, dtype=torch.float64)).requires_grad_()
        for shape in ((N, C), (V, C), (V,))[: 3 if biased else 2]
    ]
    y = torch.randint(V, (N,), generator=g)
    y[0], y[1] = V - 1, 0
    expected = F.cross_entropy(F.linear(*wide), y)
    narrow = [t.detach().float().to(device).requires_grad_() for t in wide]
    bias = narrow[2] if biased else None
    ours = loss_kernel.head_loss(narrow[0], narrow[1], bias, y.to(device))
    torch.testing.assert_close(ours.detach().double().cpu(), expected.detach(), rtol=1e-6, atol=0)
    for mine, theirs in zip(
        torch.autograd.grad(3 * ours, narrow), torch.autograd.grad(3 * expected, wide), strict=True
    ):
        torch.testing.assert_close(mine.double().cpu(), theirs, rtol=1e-5, atol=1e-6)
    loss_kernel.TILE = usual


INTERPRETED = """
from tests.model.test_loss_kernel import check
check("cpu", (256, 4), True)
check("cpu", (64, 4), False)
"""


@pytest.mark.deep
def test_it_is_the_cross_entropy_in_the_interpreter() -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    interpret(INTERPRETED)


cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@cuda
@pytest.mark.parametrize("tile", [(256, 4), (64, 4), (8192, 8)])
def test_it_is_the_cross_entropy(tile: tuple[int, int]) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    check("cuda", tile, True)


@cuda
def test_a_models_loss_in_bf16_is_that_of_the_long_way() -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    torch.manual_seed(1)
    config = GPTConfig(vocab_size=5003, max_len=17, n_layers=1, n_heads=2, d_model=22, tied=True,
                       head_bias=False)  # fmt: skip
    model = GPT(config).cuda()
    ids = torch.randint(5003, (5, 18), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        x = model.features(ids[:, :-1])
        ours = feature_loss(model, x, ids[:, 1:])
        theirs = F.cross_entropy(model.logits(x).flatten(0, 1).float(), ids[:, 1:].flatten())
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
    params = list(model.parameters())
    for mine, other in zip(
        torch.autograd.grad(ours, params, retain_graph=True),
        torch.autograd.grad(theirs, params), strict=True,
    ):  # fmt: skip
        assert (mine - other).norm() <= 0.02 * other.norm()
