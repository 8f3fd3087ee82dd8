"""Rotations that are slowed, as other models have them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glasshead.attention.position import RotaryPositions
from glasshead.attention.rope_scaling import parse_scaling
from glasshead.errors import ConfigError

factors = st.floats(1.0, 64.0)
lengths = st.integers(8, 100_000)


@given(factors, st.floats(0.1, 5), st.floats(0.1, 50), lengths, st.floats(10, 1e6))
def test_frequencies_are_those_of_the_transformers_library(factor, low, more, length, base):
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    transformers.utils.logging.set_verbosity_error()
    rope = transformers.modeling_rope_utils
    for kind, numbers, written in (
        ("linear", {}, f"linear:{factor}"),
        (
            "llama3",
            {"low_freq_factor": low, "high_freq_factor": low + more},
            f"llama3:{factor},{low},{low + more},{length}",
        ),
        ("yarn", {}, f"yarn:{factor},32,1,{length}"),
    ):
        about = {"original_max_position_embeddings": length} if kind != "linear" else {}
        config = transformers.LlamaConfig(
            hidden_size=44,
            num_attention_heads=2,
            max_position_embeddings=4 * length,
            rope_parameters={
                "rope_type": kind,
                "rope_theta": base,
                "factor": factor,
                **about,
                **numbers,
            },
        )
        expected, gain = rope.ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
        scaling = parse_scaling(written)
        plain = base ** (-torch.arange(0, 22, 2) / 22)
        # Between two close limits, llama3's blend magnifies the rounding of a frequency.
        steep = factor * (1 + low / more) if kind == "llama3" else 1.0
        torch.testing.assert_close(
            scaling.scale_frequencies(plain, base),
            expected,
            rtol=max(1e-4, 3e-7 * steep),
            atol=1e-9,
        )
        assert scaling.gain == pytest.approx(gain)


@given(factors, lengths)
def test_a_scaling_is_written_as_it_is_read(factor, length):
    for written in (f"linear:{factor}", f"llama3:{factor},1,4,{length}", f"yarn:2,32,1,{length}"):
        scaling = parse_scaling(written)
        assert parse_scaling(str(scaling)) == scaling


def test_a_factor_of_four_turns_the_fourth_position_as_the_first():
    slowed = RotaryPositions(10, scaling="linear:4").rotation(torch.tensor([4, 8]))
    plain = RotaryPositions(10).rotation(torch.tensor([1, 2]))
    torch.testing.assert_close(slowed.cos, plain.cos)
    torch.testing.assert_close(slowed.sin, plain.sin)


@pytest.mark.parametrize(
    "written",
    [
        "", "linear", "linear:", "linear:x", "linear:0", "linear:-2", "linear:nan", "linear:inf",
        "linear:2,3", "llama3:8,1,4", "llama3:8,4,1,8192", "yarn:4", "dynamic:2", "longrope:1",
    ],
)  # fmt: skip
def test_a_scaling_that_cannot_be_is_refused(written):
    with pytest.raises(ConfigError, match="rope_scaling") as found:
        parse_scaling(written)
    assert found.value.hint
