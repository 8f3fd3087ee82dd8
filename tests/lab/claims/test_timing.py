"""Works are timed by turns, on a clock that only the works move."""

from types import SimpleNamespace

import pytest

from glasshead.lab.claims import timing
from glasshead.lab.claims.timing import LEAST, time_by_turns


@pytest.fixture
def clock(monkeypatch):
    """`clock.now` is the time; each work adds to it."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    return clock


def works(clock, *seconds):
    """One work for each list of seconds: how long its runs take, the last again and again."""
    ran = []

    def work(name, each):
        def run():
            ran.append(name)
            clock.now += each.pop(0) if len(each) > 1 else each[0]

        return run

    return [work(name, list(each)) for name, each in enumerate(seconds)], ran


def test_the_fastest_run_of_each_counts_and_the_first_does_not(clock):
    some, _ = works(clock, [1, 7, 3, 5], [2, 13, 11])
    assert time_by_turns(some, 17) == [3, 11]


def test_works_take_turns_until_the_time_is_up(clock):
    some, ran = works(clock, [2], [3])
    time_by_turns(some, 31)
    assert ran == [0, 1] * (1 + 7)  # once to warm up; seven turns of 5 s are the first beyond 31


def test_slow_works_run_a_least_number_of_times(clock):
    some, ran = works(clock, [50], [70])
    time_by_turns(some, 1)
    assert ran == [0, 1] * (1 + LEAST)
