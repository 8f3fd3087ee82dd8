"""Claim 17: LayerNorm speeds convergence."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Verdict, Words
from glasshead.lab.claims.drawing import AGAINST, FOR, SERIES, band, tidy
from glasshead.lab.claims.search import (
    BEST_RATE,
    BURST,
    RATES,
    WENT_ON,
    cautions,
    searched,
    shown,
)
from glasshead.lab.claims.spread import parted
from glasshead.lab.claims.stats import Interval, difference, geometric
from glasshead.lab.claims.training import Course, TextTask

__all__ = ["CLAIM", "judge", "measure"]

# A quarter fewer steps to the same loss: what would be worth a line of code.
FASTER = 1.25
POINTS = 10  # on a curve
LAYER = {"n_heads": 4, "d_model": 32, "feed_forward": "relu"}


def measure(
    budget: Budget,
    *,
    norm_place: str = "pre",
    depths: tuple[int, ...] | None = None,
    steps: int | None = None,
    rates: Sequence[float] = RATES,
) -> Evidence:
    """`norm_place`: where the norm stands that is compared with none."""
    depths = depths or ((1, 16) if budget.quick else (1, 6, 24))
    steps = steps or (110 if budget.quick else 200)
    items = [(depth, side, place, steps, rates) for depth in depths
             for side, place in (("none", "none"), ("norm", norm_place))]  # fmt: skip
    found = parted(budget, _learned, items, [item[0] + 1 for item in items])
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
        "unigram": _task().unigram(),
    }


@cache
def _task() -> TextTask:
    return TextTask(block=8, batch_size=32)


def _learned(
    budget: Budget, depth: int, side: str, place: str, steps: int, rates: Sequence[float]
) -> dict[str, Any]:
    """One side at one depth: the search, its curve at each rate, and those of the results."""
    tried: dict[str, list[float]] = {}

    def run(side: str, lr: float, seed: int) -> Course:
        model = _task().gpt(seed, **LAYER, n_layers=depth, norm_place=place)
        course = _task().train(model, lr=lr, seed=seed, steps=steps, points=POINTS)
        # The search's runs come first: what either side does when both get the same rate.
        tried.setdefault(f"{lr:g}", course.val)
        return course

    one = searched(budget, (side,), run, lambda course: course.val[-1], rates)
    return {
        "rates": shown(one)[side],
        "by rate": tried,
        "val": [course.val for course in one[side].results],
        "at": one[side].results[0].steps,
    }


def _sooner(steps: list[int], slow: list[float], fast: list[float]) -> float:
    """How many times fewer steps `fast` needs to where `slow` ends; below 1 when it needs more.

    A curve that does not get there is turned around: then it is `slow` that gets to its end. Where
    one side failed to train, the other is ahead by as much as could be seen; if both did, neither.
    """
    if fast[-1] >= BURST and slow[-1] >= BURST:
        return 1.0
    if fast[-1] > slow[-1]:
        return 1 / _sooner(steps, fast, slow)
    goal = slow[-1]
    at = next(n for n, loss in enumerate(fast) if loss <= goal)
    if at == 0:
        return steps[-1] / steps[0]
    # Between two looks the loss is taken to fall evenly.
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
        sooner[depth] = geometric(
            [_sooner(one["at"], a, b) for a, b in zip(none, norm, strict=True)]
        )
        lower[depth] = difference([a[-1] for a in none], [b[-1] for b in norm])
        # On each seed one side at least must know more than how often characters come.
        learned[depth] = all(
            min(a[-1], b[-1]) < evidence["unigram"] for a, b in zip(none, norm, strict=True)
        )
        failed[depth] = {
            side: sum(curve[-1] >= BURST for curve in curves) for side, curves in one["val"].items()
        }
    holds = [depth for depth in sooner if learned[depth] and sooner[depth].low > FASTER]
    against = [depth for depth in sooner if learned[depth] and sooner[depth].high < FASTER]
    if len(holds) == len(sooner):
        verdict = Verdict.HOLDS
    elif holds:
        verdict = Verdict.HOLDS_WHEN
    elif len(against) == len(sooner):
        verdict = Verdict.FAILS
    else:
        verdict = Verdict.UNCLEAR
    first, last = evidence["depths"][0], evidence["depths"][-1]
    rates = {
        depth: {side: one["best"] for side, one in evidence["courses"][str(depth)]["rates"].items()}
        for depth in (first, last)
    }
    seeds = len(evidence["courses"][str(first)]["val"]["none"])
    en = "At their best rates, steps until the net without a norm ends, over steps with one: " + (
        "; ".join(f"{sooner[d]:.2f} at depth {d}" for d in sooner)
    )
    en += (
        f". The loss after {evidence['steps']} steps is lower by {lower[first]:.3f} at {first} and "
        f"{lower[last]:.3f} at {last} layers. The best rate at {last} layers is "
        f"{rates[last]['none']:g} without and {rates[last]['norm']:g} with a norm."
    )
    zh = "各取最好的学习率，达到无归一化网络最终损失所需步数之比（无/有）：" + (
        "；".join(f"{d} 层 {sooner[d]:.2f}" for d in sooner)
    )
    zh += (
        f"。{evidence['steps']} 步后损失降低：{first} 层 {lower[first]:.3f}，{last} 层 "
        f"{lower[last]:.3f}。{last} 层的最好学习率：无归一化 {rates[last]['none']:g}，有归一化 "
        f"{rates[last]['norm']:g}。"
    )
    names = {"none": Words("without a norm", "无归一化"), "norm": Words("with one", "有归一化")}
    for depth, counts in failed.items():
        for side, n in counts.items():
            if n:
                en += f" At depth {depth}, {n} of {seeds} {names[side].en} failed to train."
                zh += f"{depth} 层时，{names[side].zh}的 {seeds} 次训练有 {n} 次失败。"
    if verdict is Verdict.HOLDS_WHEN:
        if holds == evidence["depths"][-len(holds) :]:
            en += f" It holds only when the net has {holds[0]} layers or more, of those tried."
            zh += f"所以，在试过的深度中，{holds[0]} 层起才成立。"
        else:
            en += f" It holds only at these depths: {', '.join(map(str, holds))}."
            zh += f"所以，只在这些深度成立：{'、'.join(map(str, holds))}。"
    unsure = [depth for depth in sooner if depth not in (*holds, *against)]
    if unsure:
        en += f" One cannot tell at depth {', '.join(map(str, unsure))}."
        zh += f"{'、'.join(map(str, unsure))} 层时无法判断。"
    aside = cautions(
        {  # how many failed to train has been said
            f"{d} {side}": {**evidence["courses"][str(d)]["rates"][side], "diverged": []}
            for d in sooner
            for side in names
        },
        {
            f"{d} {side}": Words(f"{name.en} at depth {d}", f"{d} 层{name.zh}")
            for d in sooner
            for side, name in names.items()
        },
    )
    numbers: dict[str, Interval | float] = {
        **{f"times fewer steps, depth {d}": value for d, value in sooner.items()},
        **{f"loss lower by, depth {d}": value for d, value in lower.items()},
    }
    return Finding(verdict, Words(en + aside.en, zh + aside.zh), numbers)


def draw(evidence: Evidence, figure: Any, lang: str) -> None:
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    names = {"none": Words("no norm", "无归一化"), "norm": Words("LayerNorm", "层归一化")}
    ends = [evidence["depths"][0], evidence["depths"][-1]]
    for depth, style in zip(ends, ("--", "-"), strict=True):
        one = evidence["courses"][str(depth)]
        for side, color in (("none", AGAINST), ("norm", FOR)):
            seeds = list(zip(*one["val"][side], strict=True))
            layers = Words(f"{depth} layers" if depth > 1 else "1 layer", f"{depth} 层")[lang]
            rate = one["rates"][side]["best"]
            label = f"{names[side][lang]} · {layers} · {rate:g}"
            band(left, one["at"], seeds, color, linestyle=style, marker="", label=label)
    left.set_yscale("log")
    left.set_ylim(top=min(left.get_ylim()[1], 6))  # what bursts leaves the picture
    left.set_yticks([1, 1.5, 2, 3, 4], ["1", "1.5", "2", "3", "4"])
    left.minorticks_off()
    title = Words("Validation loss at the best rate", "最好学习率下的验证损失")[lang]
    tidy(left, title, x=Words("step", "步")[lang])
    left.legend(fontsize=8)
    shades = {depth: SERIES[n] for n, depth in enumerate(evidence["depths"])}
    ticks: set[float] = set()
    for depth, color in shades.items():
        by_rate = evidence["courses"][str(depth)]["by rate"]
        both = sorted(set(by_rate["norm"]) & set(by_rate["none"]), key=float)
        pairs = {float(lr): [by_rate[side][lr][-1] for side in ("norm", "none")] for lr in both}
        gains = {lr: norm - none for lr, (norm, none) in pairs.items() if max(norm, none) < BURST}
        ticks |= set(pairs)
        layers = Words(f"{depth} layers" if depth > 1 else "1 layer", f"{depth} 层")[lang]
        right.plot(
            list(gains), list(gains.values()), color=color, marker="o", markersize=4, label=layers
        )
    right.axhline(0, color="#8a8f98", linewidth=1)
    right.set_xscale("log")
    right.set_xticks(sorted(ticks), [f"{lr:g}" for lr in sorted(ticks)])
    right.minorticks_off()
    title = Words("What the norm changes at one rate", "同一学习率下归一化的影响")[lang]
    tidy(
        right,
        title,
        x=Words("learning rate (the search's one seed)", "学习率（搜索用的一个种子）")[lang],
    )
    right.legend(fontsize=8)


CLAIM = Claim(
    number=17,
    title=Words("LayerNorm speeds convergence", "层归一化加速收敛"),
    claim=Words(
        "LayerNorm before attention and feed-forward stabilises training and speeds convergence.",
        "注意力和前馈之前的层归一化稳定训练，加速收敛。",
    ),
    source="004",
    how=Words(
        "Nets with residuals on the stories, with pre-norm and without, from shallow to deep; both "
        f"with the same steps and batches and each with {BEST_RATE.en}. Counted: how many "
        "times fewer steps the one needs to the loss where the other ends.",
        "在故事文本上训练带残差的网络，有或没有前置归一化，由浅到深；步数和批次相同，各取"
        f"{BEST_RATE.zh}。量：达到对方最终损失所需步数少多少倍。",
    ),
    for_=Words(
        f"At every depth the net with norms needs at least {FASTER} times fewer steps. At some "
        "depths: it holds only when. A depth at which neither gets below character frequencies "
        "tells nothing.",
        f"在每个深度上，有归一化所需的步数都少到 1/{FASTER} 以下。只在某些深度：仅在该情形下成立"
        "。双方都不如字频的深度不作数。",
    ),
    against=Words(
        f"Less than {FASTER} times fewer steps at every depth.",
        f"在每个深度上都不到 {FASTER} 倍。",
    ),
    measure=measure,
    judge=judge,
    draw=draw,
    tried=Words(
        "Depth was raised until something could be told: at 6 layers 1.17 times fewer steps, "
        "at 12 1.26 [1.18, 1.32], both “cannot tell” (seeds 0 to 2). Ratios were averaged "
        f"as they are at first, now in logs. {WENT_ON.en}",
        "深度加到能分出结论为止：6 层时省 1.17 倍的步数，12 层时 1.26 [1.18, "
        "1.32]，两次都“无法判断”（种子 0 到 2）。起初直接平均比值，现在在对数上平均。"
        f"{WENT_ON.zh}",
    ),
)
