"""Claim 17: LayerNorm speeds convergence."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Numbers
from glasshead.lab.claims.drawing import AGAINST, FOR, GREY, SERIES, draw_band, style_axes
from glasshead.lab.claims.search import BURST, RATES, SEARCH_WORDS, caution, compare_at_best_rates
from glasshead.lab.claims.stats import Interval, difference, geometric_mean
from glasshead.lab.claims.training import LossCurve, TextTask, run_parts, say_lower
from glasshead.lab.claims.verdict import Verdict, judge_cases, not_learned
from glasshead.lab.texts import Words, join_sentences, join_words, read_texts

__all__ = ["CLAIM", "judge", "measure"]

TEXTS = read_texts(__file__)
# A quarter fewer steps to the same loss: what would be worth a line of code.
FASTER = 1.25
POINTS = 10  # on a curve
LAYER = {"n_heads": 4, "d_model": 32, "feed_forward": "relu"}
SIDES = {"none": AGAINST, "norm": FOR}


def measure(
    budget: Budget,
    *,
    norm_place: str = "pre",
    depths: tuple[int, ...] | None = None,
    steps: int | None = None,
    rates: Sequence[float] = RATES,
) -> Evidence:
    """`norm_place`: the place of the norm that is compared with no norm."""
    depths = depths or ((1, 16) if budget.quick else (1, 6, 12, 24))
    steps = steps or (110 if budget.quick else 200)
    items = [(depth, side, place, steps, rates) for depth in depths
             for side, place in (("none", "none"), ("norm", norm_place))]  # fmt: skip
    found = run_parts(budget, _learn_side, items, [item[0] + 1 for item in items])
    courses: dict[str, dict[str, Any]] = {}
    for depth, none, norm in zip(depths, found[::2], found[1::2], strict=True):
        sides = {"none": none, "norm": norm}
        courses[str(depth)] = {
            name: {side: one[name] for side, one in sides.items()}
            for name in ("rates", "by rate", "val")
        }
        courses[str(depth)]["at"] = none["at"]
    return {
        "depths": list(depths),
        "steps": steps,
        "courses": courses,
        "unigram": _task().unigram_loss(),
    }


@cache
def _task() -> TextTask:
    return TextTask(block=8, batch_size=32)


def _learn_side(
    budget: Budget, depth: int, side: str, place: str, steps: int, rates: Sequence[float]
) -> dict[str, Any]:
    """Train one side at one depth: the search, its curve at each rate, and those of the results."""
    by_rate: dict[str, list[float]] = {}

    def run(side: str, lr: float, seed: int) -> LossCurve:
        model = _task().gpt(seed, **LAYER, n_layers=depth, norm_place=place)
        curve = _task().train(model, lr=lr, seed=seed, steps=steps, points=POINTS)
        # The search's runs come first: they show each side when both get the same rate.
        by_rate.setdefault(f"{lr:g}", curve.val)
        return curve

    found = compare_at_best_rates(budget, (side,), run, lambda curve: curve.val[-1], rates)
    return {
        "rates": found[side].evidence(),
        "by rate": by_rate,
        "val": [curve.val for curve in found[side].results],
        "at": found[side].results[0].steps,
    }


def _sooner(steps: list[int], slow: list[float], fast: list[float]) -> float:
    """Return how many times fewer steps `fast` needs to the last loss of `slow`.

    If `fast` does not get there, the roles are exchanged and the result is below 1. Where one side
    failed to train, the other gets the largest ratio that can be seen; where both did, 1.
    """
    if fast[-1] >= BURST and slow[-1] >= BURST:
        return 1.0
    if fast[-1] > slow[-1]:
        return 1 / _sooner(steps, fast, slow)
    goal = slow[-1]
    at = next(n for n, loss in enumerate(fast) if loss <= goal)
    if at == 0:
        return steps[-1] / steps[0]
    # Between two evaluations the loss is assumed to fall evenly.
    share = (fast[at - 1] - goal) / (fast[at - 1] - fast[at])
    return steps[-1] / (steps[at - 1] + share * (steps[at] - steps[at - 1]))


def judge(evidence: Evidence) -> Finding:
    sooner: dict[int, Interval] = {}
    lower: dict[int, Interval] = {}
    learned: dict[int, bool] = {}
    failed: dict[int, dict[str, int]] = {}  # how many seeds of each side
    for depth in evidence["depths"]:
        one = evidence["courses"][str(depth)]
        none, norm = one["val"]["none"], one["val"]["norm"]
        sooner[depth] = geometric_mean(
            [_sooner(one["at"], a, b) for a, b in zip(none, norm, strict=True)]
        )
        lower[depth] = difference([a[-1] for a in none], [b[-1] for b in norm])
        # On each seed at least one side must know more than how often each character occurs.
        learned[depth] = all(
            min(a[-1], b[-1]) < evidence["unigram"] for a, b in zip(none, norm, strict=True)
        )
        failed[depth] = {
            side: sum(curve[-1] >= BURST for curve in curves) for side, curves in one["val"].items()
        }
    holds = [depth for depth in sooner if learned[depth] and sooner[depth].low > FASTER]
    against = [depth for depth in sooner if learned[depth] and sooner[depth].high < FASTER]
    verdict = judge_cases([True if d in holds else False if d in against else None for d in sooner])
    depths, courses = evidence["depths"], evidence["courses"]
    first, last = depths[0], depths[-1]
    times = [TEXTS["at_depth"].format(times=sooner[d], depth=d) for d in sooner]
    words = [
        TEXTS["result"].format(
            sooner=join_words(times, "; ", "；"), steps=evidence["steps"], first=first, last=last,
            lower_first=say_lower(lower[first]), lower_last=say_lower(lower[last]),
            rates={side: courses[str(last)]["rates"][side]["best"] for side in SIDES},
        )
    ]  # fmt: skip
    for depth, counts in failed.items():
        for side, n in counts.items():
            if n:
                seeds, name = len(courses[str(depth)]["val"][side]), TEXTS[f"side.{side}"]
                words.append(TEXTS["failed"].format(depth=depth, n=n, seeds=seeds, side=name))
    if verdict is Verdict.HOLDS_WHEN and holds == depths[-len(holds) :]:
        words.append(TEXTS["from_depth"].format(depth=holds[0]))
    elif verdict is Verdict.HOLDS_WHEN:
        words.append(TEXTS["at_depths"].format(depths=join_words(holds)))
    unsure = [depth for depth in sooner if learned[depth] and depth not in (*holds, *against)]
    if unsure:
        words.append(TEXTS["unsure"].format(depths=join_words(unsure), faster=FASTER))
    rates, names = {}, {}
    for depth in sooner:
        for side in SIDES:
            key, name = f"{depth} {side}", TEXTS[f"side.{side}"]
            # How many failed to train has been said above.
            rates[key] = {**courses[str(depth)]["rates"][side], "diverged": []}
            names[key] = TEXTS["side_at_depth"].format(side=name, depth=depth)
    words.append(caution(rates, names))
    numbers: Numbers = {
        **{f"times fewer steps, depth {d}": value for d, value in sooner.items()},
        **{f"loss lower by, depth {d}": value for d, value in lower.items()},
    }
    shape = "from_depth" if holds == depths[-len(holds) :] else "at_depths"
    when = TEXTS[f"when.{shape}"].format(depth=min(holds, default=0), depths=join_words(holds))
    return Finding(verdict, join_sentences(words), numbers, when, _reason(sooner, learned, holds))


def _reason(
    sooner: Mapping[int, Interval], learned: Mapping[int, bool], holds: Sequence[int]
) -> Words:
    """Return why one cannot tell, where that is the verdict."""
    for depth in sooner:
        if not learned[depth]:
            return not_learned(TEXTS["side_of_depth"].format(depth=depth))
    unsure = [d for d, one in sooner.items() if one.low <= FASTER <= one.high]
    which = "partly_unsure" if holds else "unsure_at"
    return TEXTS[f"why.{which}"].format(holds=join_words(holds), unsure=join_words(unsure))


def draw(evidence: Evidence, figure: Any, say: Mapping[str, str]) -> None:
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    depths, courses = evidence["depths"], evidence["courses"]

    def layers(depth: int) -> str:
        return say["figure.layers" if depth > 1 else "figure.one_layer"].format(depth=depth)

    for depth, style in ((depths[0], "--"), (depths[-1], "-")):
        one = courses[str(depth)]
        for side, color in SIDES.items():
            seeds = list(zip(*one["val"][side], strict=True))
            label = f"{say[f'figure.{side}']} · {layers(depth)} · {one['rates'][side]['best']:g}"
            draw_band(left, one["at"], seeds, color, linestyle=style, marker="", label=label)
    left.set_yscale("log")
    left.set_ylim(top=min(left.get_ylim()[1], 6))  # what bursts leaves the picture
    left.set_yticks([1, 1.5, 2, 3, 4], ["1", "1.5", "2", "3", "4"])
    ticks: set[float] = set()
    for depth, color in zip(depths, SERIES, strict=False):
        by_rate = courses[str(depth)]["by rate"]
        both = sorted(set(by_rate["norm"]) & set(by_rate["none"]), key=float)
        pairs = {float(lr): [by_rate[side][lr][-1] for side in ("norm", "none")] for lr in both}
        gains = {lr: norm - none for lr, (norm, none) in pairs.items() if max(norm, none) < BURST}
        ticks |= set(pairs)
        right.plot(list(gains), list(gains.values()), color=color, marker="o", markersize=4,
                   label=layers(depth))  # fmt: skip
    right.axhline(0, color=GREY, linewidth=1)
    right.set_xscale("log")
    right.set_xticks(sorted(ticks), [f"{lr:g}" for lr in sorted(ticks)])
    style_axes(left, say["figure.val"], x=say["figure.step"])
    style_axes(right, say["figure.gain"], x=say["figure.rate"])
    for axes in (left, right):
        axes.minorticks_off()
        axes.legend(fontsize=8)


CLAIM = Claim.of(17, TEXTS, measure, judge, draw, faster=FASTER, **SEARCH_WORDS)
