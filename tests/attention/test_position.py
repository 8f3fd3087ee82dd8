import math

import pytest
import torch

from glasshead.attention.position import (
    ALiBiPositions,
    LearnedPositions,
    Positions,
    RotaryPositions,
    SinusoidalPositions,
    alibi_slopes,
    sinusoids,
)
from glasshead.errors import ConfigError, ShapeError


def test_sinusoids_are_the_papers_table() -> None:
    table = sinusoids(torch.arange(7), 6)
    for p in range(7):
        for pair in range(3):
            angle = p / 10_000 ** (2 * pair / 6)
            assert table[p, 2 * pair].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[p, 2 * pair + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_rotary_products_depend_on_the_distance_alone() -> None:
    rotary = RotaryPositions(d_head=22)
    q, k = torch.randn(2, 1, 1, 1, 22, generator=torch.Generator().manual_seed(0))
    here = (
        rotary.rotation(torch.tensor([11])).rotate(q) * rotary.rotation(torch.tensor([4])).rotate(k)
    ).sum()
    there = (
        rotary.rotation(torch.tensor([108])).rotate(q)
        * rotary.rotation(torch.tensor([101])).rotate(k)
    ).sum()
    torch.testing.assert_close(here, there, atol=1e-4, rtol=0)


def test_rotary_agrees_with_turning_complex_numbers() -> None:
    x = torch.randn(2, 3, 5, 14, generator=torch.Generator().manual_seed(0))
    turned = RotaryPositions(14).rotation(torch.arange(5)).rotate(x)
    angle = torch.arange(5)[:, None] / 10_000 ** (torch.arange(7) / 7)
    by_hand = torch.complex(x[..., :7], x[..., 7:]) * torch.polar(torch.ones(5, 7), angle)
    torch.testing.assert_close(turned, torch.cat((by_hand.real, by_hand.imag), -1))


def test_rotary_keeps_lengths_and_takes_positions_per_sequence() -> None:
    x = torch.randn(2, 3, 5, 14)
    positions = torch.stack((torch.arange(5), torch.arange(3, 8)))
    turned = RotaryPositions(14).rotation(positions).rotate(x)
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    alone = RotaryPositions(14).rotation(positions[1]).rotate(x[1:])
    assert torch.equal(turned[1:], alone)


def test_rotary_keeps_the_dtype() -> None:
    x = torch.randn(1, 1, 3, 4, dtype=torch.bfloat16)
    assert RotaryPositions(4).rotation(torch.arange(3)).rotate(x).dtype == torch.bfloat16


def test_alibi_slopes_of_a_power_of_two_and_between() -> None:
    assert alibi_slopes(8).tolist() == [2.0**-n for n in range(1, 9)]
    assert alibi_slopes(1).tolist() == [2.0**-8]
    twelve = alibi_slopes(12)
    assert twelve[:8].tolist() == alibi_slopes(8).tolist()
    assert twelve[8:].tolist() == alibi_slopes(16)[0::2][:4].tolist()
    assert ALiBiPositions(12).slopes().tolist() == twelve.tolist()


def test_learned_positions_end_where_their_table_ends() -> None:
    learned = LearnedPositions(max_len=7, d_model=3)
    assert learned.embed(torch.zeros(2, 7, 3), torch.arange(7)).shape == (2, 7, 3)
    with pytest.raises(ShapeError, match=r"8 tokens.*max_len=7") as caught:
        learned.embed(torch.zeros(2, 8, 3), torch.arange(8))
    assert caught.value.hint


def test_no_positions_change_nothing() -> None:
    none, x = Positions(), torch.randn(2, 5, 3)
    assert none.embed(x, torch.arange(5)) is x
    assert none.rotation(torch.arange(5)) is None
    assert none.slopes() is None


@pytest.mark.parametrize(
    ("kind", "name"), [(SinusoidalPositions, "d_model"), (RotaryPositions, "head")]
)
def test_odd_widths_are_refused(kind, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}.*7"):
        kind(7)
