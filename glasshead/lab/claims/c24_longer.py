"""Claim 24: rotary positions extend to longer texts than those of the training."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Numbers
from glasshead.lab.claims.drawing import AGAINST, FOR, GREY, OTHER, SERIES, draw_band, style_axes
from glasshead.lab.claims.search import BURST
from glasshead.lab.claims.stats import Interval, mean
from glasshead.lab.claims.story_models import (
    LEARNED,
    StoryPlan,
    has_learned,
    losses_at,
    train_story_models,
    unseen_windows,
)
from glasshead.lab.claims.verdict import Verdict, judge_cases, not_learned
from glasshead.lab.texts import Words, join_sentences, join_words, read_texts
from glasshead.model.gpt import GPT

__all__ = ["CLAIM", "judge", "measure"]

TEXTS = read_texts(__file__)
# Fixed on 2026-11-19, before the first run. As in other claims, two hundredths of a nat are little.
WORSE = 0.02
TIMES = (2, 4)  # as long as the longest text of the training
ROWS = 48
ARMS = ("plain", "linear", "yarn", "alibi")
ROTARY = ARMS[:3]


def measure(
    budget: Budget,
    *,
    positions: str = "rotary",
    plan: StoryPlan | None = None,
    times: Sequence[int] = TIMES,
) -> Evidence:
    """`positions`: of the models that are tested; ALiBi is the control."""
    plan = plan or StoryPlan.of(budget)
    plans = {
        "rotary": plan if positions == "rotary" else _with_positions(plan, positions),
        "alibi": _with_positions(plan, "alibi"),
    }
    trained = {
        name: train_story_models(budget.part(at / 2, 0.45, f"{name}, "), one)
        for at, (name, one) in enumerate(plans.items())
    }
    worse: dict[str, list[list[float]]] = {arm: [[] for _ in times] for arm in ARMS}
    for at, factor in enumerate(times):
        ids = unseen_windows(ROWS, factor * plan.block)
        for arm in ARMS:
            made = trained["alibi" if arm == "alibi" else "rotary"]
            for model in made.models:
                scaled = _scaled(model, arm, factor, plan.block)
                worse[arm][at].append(_worse(model, scaled, ids, plan.block))
    return {
        "block": plan.block,
        "times": list(times),
        "worse": worse,
        "trained": {name: one.evidence() for name, one in trained.items()},
    }


def _with_positions(plan: StoryPlan, positions: str) -> StoryPlan:
    return replace(plan, change=(*plan.change, ("positions", positions)))


def _scaled(model: GPT, arm: str, factor: int, block: int) -> GPT:
    """Return the model with its frequencies scaled for so many times the length."""
    scaling = {"linear": f"linear:{factor}", "yarn": f"yarn:{factor},32,1,{block}"}.get(arm)
    if scaling is None or model.config.positions != "rotary":
        return model
    copy = GPT(replace(model.config, rope_scaling=scaling))
    copy.load_state_dict(model.state_dict())
    return copy.eval()


def _worse(short: GPT, long: GPT, ids: Tensor, block: int) -> float:
    """Return by how much the loss of the last characters is higher when all before them is read
    than when only as much as in the training is, by the model as it was trained."""
    last = block // 2
    with torch.no_grad():
        read_all = losses_at(long, ids)[:, -last:].mean().item()
        window = losses_at(short, ids[:, -block - 1 :])[:, -last:].mean().item()
    return min(read_all, BURST) - window


def judge(evidence: Evidence) -> Finding:
    times, block = evidence["times"], evidence["block"]
    worse = {arm: [mean(values) for values in rows] for arm, rows in evidence["worse"].items()}
    fits = {
        (arm, factor): _is_little(one)
        for arm in ROTARY
        for factor, one in zip(times, worse[arm], strict=True)
    }
    plain = [fits["plain", factor] for factor in times]
    why = Words("", "")
    if not has_learned(evidence["trained"]["rotary"]):
        verdict, why = Verdict.UNCLEAR, not_learned(TEXTS["model"])
    elif all(plain):
        verdict = Verdict.HOLDS
    else:
        verdict = judge_cases([*fits.values()])
    cases = [
        TEXTS["case"].format(arm=TEXTS[f"arm.{arm}"], factor=join_words(some))
        for arm in ROTARY
        if (some := [factor for factor in times if fits[arm, factor]])
    ]
    when = join_words(cases, "; or ", "，或")
    words = [TEXTS["only_when"].format(when=when)] if verdict is Verdict.HOLDS_WHEN else []
    each = {
        arm: join_words(
            TEXTS["at"].format(worse=one, factor=factor)
            for factor, one in zip(times, rows, strict=True)
        )
        for arm, rows in worse.items()
    }
    words.append(TEXTS["result"].format(block=block, **each))
    numbers: Numbers = {
        f"loss higher by, {arm}, {factor} times the length": one
        for arm, rows in worse.items()
        for factor, one in zip(times, rows, strict=True)
    }
    return Finding(verdict, join_sentences(words), numbers, when, why)


def _is_little(worse: Interval) -> bool | None:
    if worse.high < WORSE:
        return True
    return False if worse.low > WORSE else None


def draw(evidence: Evidence, figure: Any, say: Mapping[str, str]) -> None:
    axes = figure.subplots()
    colors = {"plain": AGAINST, "linear": OTHER, "yarn": FOR, "alibi": SERIES[3]}
    xs = [1, *evidence["times"]]
    for arm, color in colors.items():
        rows = evidence["worse"][arm]
        start = [0.0] * len(rows[0])
        line = "--" if arm == "alibi" else "-"
        draw_band(axes, xs, [start, *rows], color, label=say[f"figure.{arm}"], linestyle=line)
    axes.axhline(WORSE, color=GREY, linewidth=0.8, linestyle=":")
    style_axes(axes, say["figure.title"], x=say["figure.times"], powers=xs)
    axes.legend(fontsize=8.5, loc="upper left")


CLAIM = Claim.of(
    24, TEXTS, measure, judge, draw, worse=WORSE, learned=LEARNED, rows=ROWS, times=TIMES
)
