"""Intervals and effect sizes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glasshead.lab.claims.stats import (
    Interval,
    at_least,
    cohens_d,
    difference,
    geometric_mean,
    longest_run,
    mean,
    ratio,
)

values = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=7)


@given(values)
def test_the_interval_of_a_mean_holds_the_mean_and_lies_within_the_values(xs):
    found = mean(xs)
    assert found.value == pytest.approx(np.mean(xs), abs=1e-9)
    assert min(xs) - 1e-9 <= found.low <= found.value + 1e-9
    assert found.value - 1e-9 <= found.high <= max(xs) + 1e-9


def test_the_interval_is_that_of_scipy_style_resampling():
    # An independent bootstrap, value by value.
    xs = [0.3, 0.9, 0.4, 0.8, 0.1]
    rng = np.random.default_rng(7)
    means = [np.mean(rng.choice(xs, 5)) for _ in range(20_000)]
    low, high = np.percentile(means, [2.5, 97.5])
    found = mean(xs)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.01)


def test_95_percent_of_intervals_of_many_values_hold_the_truth():
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(60):
        found = mean(rng.normal(5.0, 2.0, 50).tolist())
        hits += found.low <= 5.0 <= found.high
    assert 50 <= hits <= 60


def test_pairing_takes_out_what_seeds_share():
    shared = np.array([1.0, 5.0, 9.0, 2.0])
    a, b = (shared + 0.5).tolist(), shared.tolist()
    assert difference(a, b) == Interval(0.5, 0.5, 0.5)


def test_the_ratio_is_that_of_means():
    found = ratio([2.0, 4.0], [1.0, 3.0])
    assert found.value == 1.5
    assert found.low == pytest.approx(4 / 3)
    assert found.high == 2.0


def test_paired_values_must_be_as_many():
    with pytest.raises(ValueError, match="paired values need equal lengths, got 3 and 2"):
        difference([1, 2, 3], [1, 2])
    with pytest.raises(ValueError, match="one number per seed"):
        mean([])


@given(values, values, st.floats(0.5, 20), st.floats(-100, 100))
def test_cohens_d_does_not_depend_on_the_unit_and_changes_sign_with_the_sides(a, b, unit, shift):
    before = cohens_d(a, b)
    if not np.isfinite(before) or np.std(a) + np.std(b) < 1e-3:
        return
    moved = cohens_d([unit * x + shift for x in a], [unit * x + shift for x in b])
    assert moved == pytest.approx(before, rel=1e-6, abs=1e-6)
    assert cohens_d(b, a) == pytest.approx(-before)


def test_without_spread_an_effect_is_as_large_as_is_stored():
    assert cohens_d([1, 1], [1, 1]) == 0
    assert cohens_d([2, 2], [1, 1]) == 1000


def test_an_interval_prints_its_ends():
    assert str(Interval(0.931, 0.912, 0.949)) == "0.93 [0.91, 0.95]"
    assert f"{Interval(0.931, 0.912, 0.949):.1%}" == "93.1% [91.2%, 94.9%]"


@given(st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=7))
def test_ratios_turned_around_average_to_the_ratio_turned_around(xs):
    there, back = geometric_mean(xs), geometric_mean([1 / x for x in xs])
    assert there.value == pytest.approx(1 / back.value)
    assert (there.low, there.high) == pytest.approx((1 / back.high, 1 / back.low), rel=0.05)


def test_what_passes_after_a_gap_does_not_count():
    assert longest_run([4, 8, 16], [True, False, True]) == 4
    assert longest_run([4, 8, 16], [False, True, True]) == 0
    assert longest_run([4, 8, 16], [True] * 3) == 16


@pytest.mark.parametrize(
    ("threshold", "holds"), [(0.4, True), (0.41, None), (0.5, None), (0.6, None), (0.61, False)]
)
def test_a_threshold_inside_the_interval_decides_nothing(threshold, holds):
    assert at_least(Interval(0.5, 0.4, 0.6), threshold) is holds
