"""The search for a learning rate, the same for all sides of a comparison.

Three rates are tried, and as long as the best of them lies at the edge, the one beyond it. The rate
is chosen with a seed that no result is measured with.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from glasshead.errors import NotFiniteError
from glasshead.lab.claims.claim import SEARCH_SEEDS, Budget, Words

__all__ = [
    "BEST_RATE",
    "BURST",
    "LADDER",
    "RATES",
    "WENT_ON",
    "RateSearch",
    "Searched",
    "cautions",
    "outward",
    "searched",
    "shown",
]

RATES = (1e-3, 3e-3, 1e-2)
LADDER = (1e-4, 3e-4, *RATES, 3e-2, 1e-1)  # how far the search may go
# What a loss counts as that is larger or no number: that training failed. JSON knows no infinity.
BURST = 100.0

BEST_RATE = Words(
    "the best learning rate (of 0.001, 0.003 and 0.01, and while the best lies at the edge of "
    f"those tried, one further out, to {LADDER[0]:g} and {LADDER[-1]:g} at most)",
    "最好的学习率（先试 0.001、0.003、0.01；只要最好的在所试范围的边缘，就再往外试一个，最多到 "
    f"{LADDER[0]:g} 与 {LADDER[-1]:g}）",
)
# A part of what was tried before.
WENT_ON = Words(
    "At first three rates were all; the search goes on outward since the best of some claims' "
    "first results lay at the edge.",
    "起初只试三个学习率；有些论断最初的结果里，最好的学习率落在边缘，之后才改为继续往外试。",
)

Result = TypeVar("Result")


@dataclass(frozen=True)
class RateSearch:
    """What was tried: the score of each, the lowest the best, and the lower rate of equals."""

    scores: Mapping[float, float]

    @property
    def best(self) -> float:
        return min(self.scores, key=lambda lr: (self.scores[lr], lr))

    @property
    def at_edge(self) -> bool:
        return len(self.scores) > 1 and self.best in (min(self.scores), max(self.scores))

    def shown(self) -> dict[str, Any]:
        """For the evidence. A score that is not finite, or was not needed, is None."""
        tried = {
            f"{lr:g}": score if math.isfinite(score) else None
            for lr, score in sorted(self.scores.items())
        }
        return {"best": self.best, "edge": self.at_edge, "tried": tried}


def outward(
    score: Callable[[float], float], start: Sequence[float], ladder: Sequence[float] = LADDER
) -> RateSearch:
    """Try all of `start`, then what lies next to the best on the ladder, until nothing is left.

    >>> outward(lambda lr: abs(lr - 0.05), RATES).best
    0.03
    """
    scores: dict[float, float] = {}
    todo = list(start)
    while todo:
        scores |= {float(lr): _score(score, lr) for lr in todo}
        at = ladder.index(RateSearch(scores).best)
        todo = [lr for lr in ladder[max(at - 1, 0) : at + 2] if lr not in scores]
    return RateSearch(scores)


def _score(score: Callable[[float], float], lr: float) -> float:
    try:
        value = score(lr)
    except NotFiniteError:  # attention met NaN
        return math.inf
    return value if value < BURST else math.inf


@dataclass(frozen=True)
class Searched(Generic[Result]):
    """One side of a comparison: the rates tried, and the results with the best of them."""

    rates: RateSearch
    results: list[Result] = field(default_factory=list)  # one a seed
    diverged: list[int] = field(default_factory=list)  # the seeds whose training failed

    @property
    def lr(self) -> float:
        return self.rates.best


def searched(
    budget: Budget,
    sides: Sequence[str],
    run: Callable[[str, float, int], Result],
    score: Callable[[Result], float],
    rates: Sequence[float] = RATES,
    *,
    failed: Result | None = None,
) -> dict[str, Searched[Result]]:
    """`run(side, lr, seed)` for each rate with a seed of its own, then with the best for each seed.

    The lowest score is the best; BURST or more, or no number, is a training that failed. `failed`
    is what it counts as when it met NaN. One rate needs no search.
    """
    found: dict[str, Searched[Result]] = {}
    searching = rates if len(rates) > 1 else ()
    total = len(sides) * (len(searching) + len(budget.seeds))
    at = 0

    def attempt(side: str, lr: float) -> float:
        nonlocal at
        budget.progress(at / total, f"{side}, rate {lr:g}")
        at += lr in searching  # how many more there will be is not known
        return score(run(side, lr, SEARCH_SEEDS[0]))

    for side in sides:
        if searching:
            tried = outward(lambda lr, side=side: attempt(side, lr), searching)  # type: ignore[misc]
        else:
            tried = RateSearch({float(rates[0]): math.inf})
        one: Searched[Result] = Searched(tried)
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


def shown(found: Mapping[str, Searched[Any]]) -> dict[str, Any]:
    """The search, for the evidence. `edge`: the best is the least or the largest rate tried."""
    return {
        side: {**one.rates.shown(), "diverged": list(one.diverged)} for side, one in found.items()
    }


def cautions(rates: Mapping[str, Mapping[str, Any]], names: Mapping[str, Words]) -> Words:
    """Sentences on the sides whose best rate lies at the edge, or whose training failed, if any.

    `rates` is what `shown` gave; sides without a name are left out.
    """
    edges = {side: f"{rates[side]['best']:g}" for side in names if rates[side]["edge"]}
    burst = {side: rates[side]["diverged"] for side in names if rates[side].get("diverged")}
    en, zh = "", ""
    if edges:
        some = ", ".join(f"{names[side].en} ({lr})" for side, lr in edges.items())
        en += f" At the edge of the rates tried, so that a better one may lie beyond: {some}."
        some = "、".join(f"{names[side].zh}（{lr}）" for side, lr in edges.items())
        zh += f"最好的学习率在所试范围的边缘，更好的可能在范围之外：{some}。"
    if burst:
        some = ", ".join(
            f"{names[side].en} (seed {', '.join(map(str, seeds))})" for side, seeds in burst.items()
        )
        en += f" Diverged, which counts as nothing learned: {some}."
        some = "、".join(
            f"{names[side].zh}（种子 {'、'.join(map(str, seeds))}）"
            for side, seeds in burst.items()
        )
        zh += f"训练发散，按什么都没学到计：{some}。"
    return Words(en, zh)
