"""Eight bits: close to the model it comes from, whatever the shapes and however it is called."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from glasshead.errors import ConfigError
from glasshead.generation.decode import generate
from glasshead.generation.int8 import KERNEL_ROWS, Int8Linear, to_int8
from glasshead.generation.sampling import GREEDY
from tests.generation.models import tiny


def rounded(linear: nn.Linear) -> torch.Tensor:
    """The weight as eight bits can hold it, up to the rounding of the factor to bf16."""
    small = Int8Linear(linear)
    return small.weight.double() * small.factor.double()[:, None]


seeds = st.integers(0, 2**31)


@given(seeds, st.integers(1, 70), st.integers(1, 19), st.floats(1e-6, 1e6))
def test_a_parameter_moves_by_at_most_half_a_step_of_its_row(seed, inputs, outputs, size):
    torch.manual_seed(seed)
    linear = nn.Linear(inputs, outputs)
    with torch.no_grad():
        linear.weight.mul_(size)
    moved = (rounded(linear) - linear.weight.double()).abs()
    largest = linear.weight.double().abs().amax(1, keepdim=True)
    assert (moved <= largest / 254 * 1.01).all()


@settings(max_examples=60)
@given(
    seeds,
    st.sampled_from([1, 7, 31, 32, 33, 64, 96]),
    st.integers(1, 37),
    st.integers(1, 2 * KERNEL_ROWS),
    st.booleans(),
)
def test_the_product_is_that_of_the_rounded_weight(seed, inputs, outputs, rows, bias):
    torch.manual_seed(seed)
    linear = nn.Linear(inputs, outputs, bias=bias)
    x = torch.randn(1, rows, inputs)
    got = Int8Linear(linear)(x)
    expected = x.double() @ rounded(linear).T
    expected = expected + linear.bias.double() if bias else expected
    assert got.shape == (1, rows, outputs)
    assert got.dtype == torch.float32
    # bf16 keeps eight bits of x and of the sum.
    bound = x.double().abs() @ rounded(linear).abs().T + expected.abs()
    assert ((got - expected).abs() <= bound * 2**-7 + 1e-6).all()


def test_a_row_of_zeros_stays_zero():
    linear = nn.Linear(32, 3, bias=False)
    nn.init.zeros_(linear.weight)
    assert Int8Linear(linear)(torch.randn(2, 32)).abs().max() == 0


def test_the_model_predicts_nearly_the_same_and_is_left_alone():
    model = tiny(d_model=96, n_layers=3, vocab_size=211, dropout=0.0).float()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    small = to_int8(model)
    assert not any(isinstance(module, nn.Linear) for module in small.modules())
    torch.manual_seed(7)
    ids = torch.randint(0, 211, (5, 7))
    with torch.inference_mode():
        exact, near = model(ids).log_softmax(-1), small(ids).log_softmax(-1)
    assert (exact - near).abs().max() < 0.05
    assert (exact - near).abs().max() > 0
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_a_tied_head_is_rounded_and_the_embedding_is_not():
    model = tiny(d_model=96, tied=True, head_bias=False).float()
    small = to_int8(model)
    assert torch.equal(small.embedding.weight, model.embedding.weight)
    assert small.head.weight.dtype == torch.int8


def test_it_decodes():
    model = to_int8(tiny(d_model=96).float())
    steps = list(generate(model, [[1, 2, 3], [4]], GREEDY, max_tokens=30))
    assert len(steps) == 30


def test_it_is_for_cpus_only():
    with pytest.raises(ConfigError, match="int8 works on CPUs only"):
        to_int8(tiny().to("meta"))
