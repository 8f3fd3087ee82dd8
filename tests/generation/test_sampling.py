"""Each filter against a slow and obvious one, and what must hold whatever the logits are."""

import math
from collections import Counter
from itertools import accumulate

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from glasshead.errors import ConfigError, NotFiniteError
from glasshead.generation.sampling import (
    GREEDY,
    SamplingConfig,
    choose,
    min_p,
    probabilities,
    repetition_penalty,
    sample,
    temperature,
    top_k,
    top_p,
)

# Quarters, so that many logits are equal and none is nearly so.
rows = st.lists(st.integers(-40, 40).map(lambda n: n / 4), min_size=1, max_size=17)
configs = st.builds(
    SamplingConfig,
    temperature=st.sampled_from([0.0, 1e-3, 0.5, 1.0, 3.0]),
    top_k=st.none() | st.integers(1, 20),
    top_p=st.floats(0.01, 1.0),
    min_p=st.floats(0.0, 1.0),
)
unit = st.floats(0, 1, exclude_max=True)


def batch(row: list[float]) -> torch.Tensor:
    return torch.tensor([row], dtype=torch.float64)


def kept(logits: torch.Tensor) -> set[int]:
    return {i for i, value in enumerate(logits[0].tolist()) if value > -math.inf}


def softmax(row: list[float]) -> list[float]:
    parts = [math.exp(value - max(row)) for value in row]
    return [part / math.fsum(parts) for part in parts]


@given(rows, st.integers(1, 20))
def test_top_k_keeps_those_that_fewer_than_k_exceed(row, k):
    expected = {i for i, x in enumerate(row) if sum(y > x for y in row) < k}
    assert kept(top_k(batch(row), k)) == expected


@given(rows, st.floats(0.01, 1.0))
def test_top_p_keeps_those_before_which_p_is_not_reached(row, p):
    probs = softmax(row)
    before = [math.fsum(q for y, q in zip(row, probs, strict=True) if y > x) for x in row]
    assume(all(abs(mass - p) > 1e-9 for mass in before))
    expected = {i for i in range(len(row)) if before[i] < p}
    assert kept(top_p(batch(row), p)) == expected


@given(rows, st.floats(0.01, 0.999))
def test_top_p_keeps_at_least_p_and_not_without_its_least(row, p):
    probs, held = softmax(row), kept(top_p(batch(row), p))
    least = min(row[i] for i in held)
    assert math.fsum(probs[i] for i in held) >= p - 1e-9
    assert math.fsum(probs[i] for i in held if row[i] > least) < p + 1e-9


@given(rows, st.floats(0.001, 1.0))
def test_min_p_keeps_those_at_least_a_fraction_as_probable(row, p):
    ratios = [math.exp(x - max(row)) for x in row]
    assume(all(abs(ratio - p) > 1e-9 or ratio == p == 1 for ratio in ratios))
    assert kept(min_p(batch(row), p)) == {i for i, ratio in enumerate(ratios) if ratio >= p}


@given(rows, st.floats(0.1, 10.0), st.data())
def test_the_penalty_changes_seen_ids_alone_and_lowers_them_above_one(row, penalty, data):
    seen = data.draw(st.lists(st.booleans(), min_size=len(row), max_size=len(row)))
    new = repetition_penalty(batch(row), torch.tensor([seen]), penalty)[0].tolist()
    for old, now, there in zip(row, new, seen, strict=True):
        if not there:
            assert now == old
        else:
            assert now == pytest.approx(old / penalty if old > 0 else old * penalty)
            assert now <= old or penalty < 1


@given(rows, configs)
def test_probabilities_sum_to_one_and_keep_the_order_of_the_logits(row, config):
    probs = probabilities(batch(row), config)[0].tolist()
    assert math.fsum(probs) == pytest.approx(1)
    assert probs[row.index(max(row))] == max(probs) > 0
    kept_pairs = [(x, p) for x, p in zip(row, probs, strict=True) if p > 0]
    for x, p in kept_pairs:
        for y, q in kept_pairs:
            assert (x > y) <= (p >= q)
            assert (x == y) <= (p == q)


@given(rows, configs, unit)
def test_an_id_of_no_probability_is_never_drawn(row, config, uniform):
    probs = probabilities(batch(row), config)
    for number in (0.0, uniform, 1 - 2**-53):
        assert probs[0, sample(probs, [number])[0]] > 0


@given(st.lists(st.integers(0, 5), min_size=1, max_size=13).filter(any), unit)
def test_sample_is_the_place_in_the_running_sum(counts, uniform):
    ends = list(accumulate(counts))
    expected = next(place for place, end in enumerate(ends) if uniform * ends[-1] < end)
    assert sample(torch.tensor([counts], dtype=torch.float64), [uniform]).tolist() == [expected]


def test_samples_follow_the_probabilities():
    probs = torch.tensor([[0.5, 0.0, 0.3, 0.2]])
    n = 1000
    drawn = sample(probs.expand(n, -1), [(i + 0.5) / n for i in range(n)]).tolist()
    assert Counter(drawn) == {0: 500, 2: 300, 3: 200}


@given(rows, configs, st.lists(rows, max_size=3), unit)
def test_a_row_does_not_depend_on_the_others(row, config, others, uniform):
    width = len(row)
    more = [row] + [(other * width)[:width] for other in others]
    seen = torch.tensor([[i % 2 == 0 for i in range(width)]]).expand(len(more), -1)
    alone = choose(batch(row), config, [uniform], seen[:1])
    together = choose(torch.tensor(more, dtype=torch.float64), config, [uniform] * len(more), seen)
    assert together[0] == alone[0]


@given(rows, unit)
def test_temperature_zero_takes_the_first_of_the_most_probable(row, uniform):
    best = row.index(max(row))
    assert choose(batch(row), GREEDY, [uniform]).tolist() == [best]
    assert sample(probabilities(batch(row), GREEDY), [uniform]).tolist() == [best]


@given(rows, st.floats(0.1, 10))
def test_temperature_divides_differences(row, t):
    new = temperature(batch(row), t)[0].tolist()
    for a, b in zip(row, new, strict=True):
        assert b - new[0] == pytest.approx((a - row[0]) / t)


def test_a_tiny_temperature_does_not_overflow():
    probs = probabilities(torch.tensor([[3e38, 2e38, -3e38]]), SamplingConfig(temperature=1e-30))
    assert probs.tolist() == [[1.0, 0.0, 0.0]]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("config", [GREEDY, SamplingConfig()])
def test_logits_that_are_not_finite_are_an_error(bad, config):
    with pytest.raises(NotFiniteError, match="NaN or infinity"):
        choose(torch.tensor([[1.0, bad, 2.0]]), config, [0.5])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_k", 0),
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("min_p", -0.01),
        ("min_p", 1.01),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", 1e-38),
        ("repetition_penalty", 0.09),
        ("repetition_penalty", 10.1),
        ("repetition_penalty", math.nan),
    ],
)
def test_a_setting_that_cannot_work_is_named_with_its_value(field, value):
    with pytest.raises(ConfigError, match=rf"{field} \({value}\)") as caught:
        SamplingConfig(**{field: value})
    assert caught.value.hint


def test_top_p_stops_where_exactly_p_is_reached():
    halves = [math.log(4), math.log(2), 0.0, 0.0]  # 1/2, 1/4, 1/8, 1/8
    assert kept(top_p(batch(halves), 0.5)) == {0}
    assert kept(top_p(batch(halves), 0.75)) == {0, 1}
