"""The search for a rate: the same for all, on a seed of its own, until the best is inside."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glasshead.errors import NotFiniteError
from glasshead.lab.claims.claim import OTHER_SEARCH_SEEDS, SEARCH_SEEDS, Budget, result_seeds
from glasshead.lab.claims.search import (
    BURST,
    LADDER,
    RATES,
    RateSearch,
    caution,
    compare_at_best_rates,
    search_outward,
)
from glasshead.lab.texts import Words

BUDGET = Budget(quick=True, seeds=(3, 5))


@given(st.floats(-5, 0))
def test_the_best_of_a_valley_is_found_however_far_it_lies(valley):
    found = search_outward(lambda lr, seed: abs(math.log10(lr) - valley), (1,), RATES)
    nearest = min(LADDER, key=lambda lr: abs(math.log10(lr) - valley))
    assert found.best == nearest
    assert found.at_edge is (nearest in (LADDER[0], LADDER[-1]))
    assert set(RATES) <= set(found.scores)


def test_no_more_is_tried_than_it_takes_to_see_that_the_best_is_inside():
    assert set(search_outward(lambda lr, seed: abs(lr - 0.003), (1,), RATES).scores) == set(RATES)
    assert set(search_outward(lambda lr, seed: abs(lr - 0.01), (1,), RATES).scores) == {
        *RATES,
        0.03,
    }


def test_rates_that_fail_are_left_for_lower_ones():
    tried = search_outward(lambda lr, seed: math.nan if lr > 2e-4 else 7.0, (1,), RATES)
    assert tried.best == LADDER[0]
    assert tried.evidence()["tried"]["0.01"] is None


def test_each_side_gets_its_best_rate_and_results_no_seed_of_the_search():
    seen = []

    def run(side, lr, seed):
        seen.append((side, lr, seed))
        return {"fast": abs(lr - 0.01), "slow": abs(lr - 0.001)}[side]

    found = compare_at_best_rates(BUDGET, ("fast", "slow"), run, lambda score: score)
    assert (found["fast"].lr, found["slow"].lr) == (0.01, 0.001)
    assert [lr for side, lr, seed in seen if seed in (3, 5)] == [0.01, 0.01, 0.001, 0.001]
    assert {seed for _, _, seed in seen} == {SEARCH_SEEDS[0], 3, 5}
    assert [lr for side, lr, seed in seen if (side, seed) == ("slow", SEARCH_SEEDS[0])] == [
        *RATES,
        0.0003,
    ]
    assert found["slow"].evidence()["best"] == 0.001


def test_the_mean_over_three_seeds_decides_and_results_have_none_of_them():
    full, scores, seen = Budget(quick=False, seeds=result_seeds(5)), {}, []
    assert len(full.search_seeds) == 3
    assert not set(full.search_seeds) & set(full.seeds)
    assert not set(SEARCH_SEEDS) & {*OTHER_SEARCH_SEEDS, *full.seeds}
    # One lucky seed is best at 0.01, the mean at 0.003.
    scores = {1e-3: (5, 5, 5), 3e-3: (2, 2, 2), 1e-2: (0, 9, 9)}

    def run(side, lr, seed):
        seen.append((lr, seed))
        return scores[lr][SEARCH_SEEDS.index(seed)] if seed in SEARCH_SEEDS else 1.0

    found = compare_at_best_rates(full, ("one",), run, lambda score: score)["one"]
    assert found.lr == 0.003
    assert [lr for lr, seed in seen if seed in full.seeds] == [0.003] * 5
    assert found.evidence()["seeds"] == list(SEARCH_SEEDS)


def test_a_rate_that_fails_with_one_seed_of_the_search_is_not_the_best():
    def score(lr, seed):
        return math.nan if (lr, seed) == (3e-3, 2) else abs(lr - 3e-3)

    assert search_outward(score, (1, 2, 3), RATES).best == 1e-3


def nan_above(limit):
    def run(side, lr, seed):
        if lr > limit:
            raise NotFiniteError("q holds NaN", hint="")
        return 7.0

    return run


def test_a_rate_at_which_attention_meets_nan_is_never_the_best():
    found = compare_at_best_rates(BUDGET, ("one",), nan_above(0.005), lambda score: score)
    assert found["one"].lr < 0.005
    assert found["one"].evidence()["tried"]["0.01"] is None
    assert found["one"].diverged == []


def test_a_result_whose_training_diverges_is_data():
    def run(side, lr, seed):
        if seed == 5:
            raise NotFiniteError("q holds NaN", hint="")
        return 1.0 if seed == 3 else BURST

    budget = Budget(quick=True, seeds=(3, 5, 7))
    found = compare_at_best_rates(budget, ("one",), run, lambda score: score, (0.01,), failed=9.0)
    assert found["one"].results == [1.0, 9.0, BURST]
    assert found["one"].diverged == [5, 7]
    words = caution({"one": found["one"].evidence()}, {"one": Words("this", "这个")})
    assert words.en == "Training diverged, which counts as nothing learned: this (seed 5, 7)."
    assert "这个（种子 5、7）" in words.zh
    with pytest.raises(NotFiniteError):  # what it counts as was not said
        compare_at_best_rates(budget, ("one",), run, lambda score: score, (0.01,))


def test_the_search_is_stored_without_infinities_and_says_what_lies_at_the_edge():
    inner = RateSearch({0.001: 3.0, 0.003: 1.0, 0.01: math.inf}).evidence()
    outer = RateSearch({0.003: 2.0, 0.01: 1.0}).evidence()
    stored = {"inner": inner, "outer": outer}
    assert json.loads(json.dumps(stored, allow_nan=False)) == stored
    assert inner["tried"]["0.01"] is None
    words = caution(stored, {"inner": Words("one", "一"), "outer": Words("two", "二")})
    assert words.en.endswith("may lie beyond: two (0.01).")
    assert "二（0.01）" in words.zh
    assert caution(stored, {"inner": Words("one", "一")}) == Words("", "")


def test_one_rate_is_taken_without_a_search():
    seen = []
    found = compare_at_best_rates(
        BUDGET,
        ("one",),
        lambda side, lr, seed: seen.append((lr, seed)) or 0.0,
        lambda score: score,
        (0.02,),
    )
    assert seen == [(0.02, 3), (0.02, 5)]
    assert found["one"].evidence() == {
        "best": 0.02,
        "edge": False,
        "tried": {"0.02": None},
        "diverged": [],
    }


def test_progress_goes_from_nothing_to_almost_all():
    reported = []
    budget = Budget(quick=True, seeds=(0, 1), progress=lambda done, what: reported.append(done))
    compare_at_best_rates(budget, ("a", "b"), lambda side, lr, seed: lr, lambda score: score)
    assert reported == sorted(reported)
    assert set(reported) == {n / 10 for n in range(10)}
