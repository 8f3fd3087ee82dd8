"""The search for a learning rate, the same for all sides of a comparison.

Three rates are tried, and as long as the best of them lies at the edge, the one beyond it. Each is
tried with several seeds that no result is measured with, and their mean counts.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from glasshead.errors import NotFiniteError
from glasshead.lab.claims.claim import Budget
from glasshead.lab.texts import Words, join_sentences, join_words, read_texts

__all__ = [
    "BURST",
    "LADDER",
    "RATES",
    "SEARCH_WORDS",
    "RateSearch",
    "SideResults",
    "caution",
    "compare_at_best_rates",
    "search_outward",
]

RATES = (1e-3, 3e-3, 1e-2)
LADDER = (1e-4, 3e-4, *RATES, 3e-2, 1e-1)  # how far the search may go
# The value of a loss that is larger or not a number: that training failed. JSON has no infinity.
BURST = 100.0

_TEXTS = read_texts(__file__)
# For the descriptions of claims.
SEARCH_WORDS = {
    "best_rate": _TEXTS["best_rate"].format(least=LADDER[0], most=LADDER[-1]),
    "went_on": _TEXTS["went_on"],
}

Result = TypeVar("Result")


@dataclass(frozen=True)
class RateSearch:
    """The score of each rate tried. The lowest is the best; of equal ones, the lower rate.

    `seeds` are those of the search; a score is the mean over them, or infinite if one failed.
    """

    scores: Mapping[float, float]
    seeds: tuple[int, ...] = ()

    @property
    def best(self) -> float:
        return min(self.scores, key=lambda lr: (self.scores[lr], lr))

    @property
    def at_edge(self) -> bool:
        return len(self.scores) > 1 and self.best in (min(self.scores), max(self.scores))

    def evidence(self) -> dict[str, Any]:
        """Return it for the evidence. A score that is not finite, or was not needed, is None."""
        tried = {
            f"{lr:g}": score if math.isfinite(score) else None
            for lr, score in sorted(self.scores.items())
        }
        found = {"best": self.best, "edge": self.at_edge, "tried": tried}
        return {**found, "seeds": list(self.seeds)} if self.seeds else found


def search_outward(
    score: Callable[[float, int], float],
    seeds: Sequence[int],
    start: Sequence[float],
    ladder: Sequence[float] = LADDER,
) -> RateSearch:
    """Try all of `start` with each seed, then the neighbours of the best on the ladder, until none
    is left.

    >>> search_outward(lambda lr, seed: abs(lr - 0.05), [1009], RATES).best
    0.03
    """
    scores: dict[float, float] = {}
    todo = list(start)
    while todo:
        scores |= {float(lr): _mean_score(score, lr, seeds) for lr in todo}
        at = ladder.index(RateSearch(scores).best)
        todo = [lr for lr in ladder[max(at - 1, 0) : at + 2] if lr not in scores]
    return RateSearch(scores, tuple(seeds))


def _mean_score(score: Callable[[float, int], float], lr: float, seeds: Sequence[int]) -> float:
    values: list[float] = []
    for seed in seeds:
        try:
            values.append(score(lr, seed))
        except NotFiniteError:  # attention met NaN
            return math.inf
        if not values[-1] < BURST:
            return math.inf
    return sum(values) / len(values)


@dataclass(frozen=True)
class SideResults(Generic[Result]):
    """One side of a comparison: the rates tried, and the results with the best of them."""

    rates: RateSearch
    results: list[Result] = field(default_factory=list)  # one per seed
    diverged: list[int] = field(default_factory=list)  # the seeds whose training failed

    @property
    def lr(self) -> float:
        return self.rates.best

    def evidence(self) -> dict[str, Any]:
        """Return the search for the evidence. `edge`: the best is the lowest or highest rate."""
        return {**self.rates.evidence(), "diverged": self.diverged}


def compare_at_best_rates(
    budget: Budget,
    sides: Sequence[str],
    run: Callable[[str, float, int], Result],
    score: Callable[[Result], float],
    rates: Sequence[float] = RATES,
    *,
    failed: Result | None = None,
) -> dict[str, SideResults[Result]]:
    """Call `run(side, lr, seed)` for each rate with the search's seeds, then with the best one for
    each seed of the budget.

    Every side has the same budget of rates and seeds. The lowest mean score is the best; BURST or
    more, or NaN, means that the training failed. `failed` is the result of a training that met NaN.
    A single rate is used without a search.
    """
    found: dict[str, SideResults[Result]] = {}
    searching = rates if len(rates) > 1 else ()
    trials = len(searching) * len(budget.search_seeds)
    total = len(sides) * (trials + len(budget.seeds))
    at = 0

    def attempt(side: str, lr: float, seed: int) -> float:
        nonlocal at
        budget.progress(at / total, f"{side}, rate {lr:g}")
        at += lr in searching  # how many more there will be is not known
        return score(run(side, lr, seed))

    for side in sides:
        if searching:
            search = search_outward(partial(attempt, side), budget.search_seeds, searching)
        else:
            search = RateSearch({float(rates[0]): math.inf})
        one: SideResults[Result] = SideResults(search)
        for seed in budget.seeds:
            budget.progress(at / total, f"{side}, seed {seed}")
            at += 1
            try:
                result = run(side, one.lr, seed)
                burst = not score(result) < BURST
            except NotFiniteError:
                if failed is None:
                    raise
                result, burst = failed, True
            one.results.append(result)
            one.diverged.extend([seed] * burst)
        found[side] = one
    return found


def caution(rates: Mapping[str, Mapping[str, Any]], names: Mapping[str, Words]) -> Words:
    """Name the sides whose best rate lies at the edge, or whose training failed; empty if none.

    `rates` has the evidence of each side's search; sides without a name are left out.
    """
    edges = [
        _TEXTS["edge"].format(name=name, rate=f"{rates[side]['best']:g}")
        for side, name in names.items()
        if rates[side]["edge"]
    ]
    failed = [
        _TEXTS["failed"].format(name=name, seeds=join_words(seeds))
        for side, name in names.items()
        if (seeds := rates[side].get("diverged"))
    ]
    sentences = {"edges": edges, "diverged": failed}
    return join_sentences(
        _TEXTS[key].format(some=join_words(items)) for key, items in sentences.items() if items
    )
