import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from glasshead.training.schedule import SCHEDULES

SHARES = st.floats(0, 1)


@pytest.mark.parametrize("name", SCHEDULES)
@given(SHARES, SHARES, SHARES, SHARES)
@example(1.0, 1.0, 0.0, 0.0)
def test_the_rate_never_passes_its_peak_nor_falls_below_zero(name, done, warmup, cooldown, final):
    assert 0 <= SCHEDULES[name](done, warmup, cooldown, final) <= 1


@pytest.mark.parametrize("name", SCHEDULES)
@given(st.floats(0.01, 0.4), SHARES, SHARES)
def test_the_rate_rises_straight_while_it_warms_up(name, warmup, part, final):
    rate = SCHEDULES[name](part * warmup, warmup, 0.5, final)
    assert rate == pytest.approx(part)


@pytest.mark.parametrize("name", SCHEDULES)
@given(st.floats(0, 0.3), st.floats(0.01, 0.6), SHARES, SHARES, SHARES)
def test_after_the_warm_up_the_rate_only_falls_and_ends_at_its_end(
    name, warmup, cooldown, final, one, other
):
    early, late = (warmup + (1 - warmup) * part for part in sorted((one, other)))
    rate = SCHEDULES[name]
    assert rate(early, warmup, cooldown, final) >= rate(late, warmup, cooldown, final) - 1e-12
    ends = {"constant": 1.0, "inverse-sqrt": max(final, warmup**0.5) if warmup else 1.0}
    end = ends.get(name, final)
    assert rate(1.0, warmup, cooldown, final) == pytest.approx(end)


@given(st.floats(0.1, 0.6))
def test_the_trapezoid_is_flat_between_its_slopes(done):
    assert SCHEDULES["trapezoid"](done, 0.1, 0.4, 0.0) == pytest.approx(1.0)


@given(st.integers(1, 400), st.integers(1, 4000))
def test_the_inverse_root_is_the_papers_schedule(warmup, step):
    """d^-0.5 min(step^-0.5, step warmup^-1.5), over its value at the peak."""
    paper = min(step**-0.5, step * warmup**-1.5) / warmup**-0.5
    rate = SCHEDULES["inverse-sqrt"](step / 4000, warmup / 4000, 0.0, 0.0)
    assert rate == pytest.approx(paper)
