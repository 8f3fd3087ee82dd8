from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from glasshead.errors import ConfigError
from glasshead.model.layers import FEED_FORWARDS, NORMS, Sublayer, ff_width, look_up, squared_relu
from tests.model.test_gpt import TINY


def test_squared_relu_and_its_gradient() -> None:
    x = torch.tensor([-2.0, 0.0, 0.5, 3.0], dtype=torch.float64, requires_grad=True)
    assert squared_relu(x).tolist() == [0, 0, 0.25, 9]
    (grad,) = torch.autograd.grad(squared_relu(x).sum(), x)
    assert grad.tolist() == [0, 0, 1, 6]
    y = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(squared_relu, y)


@pytest.mark.parametrize("kind", FEED_FORWARDS)
def test_each_position_is_on_its_own_in_a_feed_forward(kind) -> None:
    torch.manual_seed(0)
    layer, x = FEED_FORWARDS[kind](11, 23, True), torch.randn(2, 5, 11)
    whole = layer(x)
    assert whole.shape == x.shape
    torch.testing.assert_close(whole[:, 3], layer(x[:, 3]))


def _around(place: str, residual: bool = True) -> Sublayer:
    return Sublayer(7, norm="layer", norm_place=place, eps=1e-5, residual=residual, dropout=0.0)


def test_where_the_norm_stands() -> None:
    x, norm = torch.randn(2, 3, 7), NORMS["layer"](7)

    def layer(h: torch.Tensor) -> torch.Tensor:
        return 3 * h

    torch.testing.assert_close(_around("pre")(x, layer), x + 3 * norm(x))
    torch.testing.assert_close(_around("post")(x, layer), norm(x + 3 * x))
    torch.testing.assert_close(_around("none")(x, layer), x + 3 * x)
    torch.testing.assert_close(_around("none", residual=False)(x, layer), 3 * x)


def test_a_choice_that_is_not_there_gets_a_hint() -> None:
    with pytest.raises(ConfigError, match="unknown norm 'layr'") as caught:
        look_up(NORMS, "layr", "norm")
    assert "layer" in caught.value.hint


def test_the_gelu_of_compiled_code_is_that_of_torch() -> None:
    from glasshead.model.layers import _GELU

    x = torch.linspace(-11, 11, 4099, requires_grad=True)
    wide = x.detach().double().requires_grad_()
    ours, theirs = _GELU.apply(x), F.gelu(wide)
    torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=1e-6)
    (mine,), (other,) = (torch.autograd.grad(y.sum(), t) for y, t in ((ours, x), (theirs, wide)))
    torch.testing.assert_close(mine.double(), other, rtol=0, atol=1e-6)


def test_swiglu_has_about_the_size_of_the_two_matrix_kind() -> None:
    assert ff_width(replace(TINY, feed_forward="swiglu", d_model=128)) == 344
