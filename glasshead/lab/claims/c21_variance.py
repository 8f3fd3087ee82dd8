"""Claim 21: dividing by √d_k keeps the variance of the scores at 1, also after training."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from glasshead.attention.hooks import AttentionCall, AttentionHook
from glasshead.lab.attention_maps import gpt_attentions
from glasshead.lab.claims.c01_scale import sqrt_of_width
from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Numbers
from glasshead.lab.claims.drawing import AGAINST, FOR, GREY, style_axes
from glasshead.lab.claims.stats import Interval, geometric_mean
from glasshead.lab.claims.story_models import (
    LEARNED,
    StoryPlan,
    has_learned,
    train_story_models,
    unseen_windows,
    untrained,
)
from glasshead.lab.claims.verdict import Verdict, judge_cases, not_learned
from glasshead.lab.texts import join_sentences, join_words, read_texts
from glasshead.model.gpt import GPT
from glasshead.observe.hooks import attach_hooks

__all__ = ["CLAIM", "judge", "measure"]

TEXTS = read_texts(__file__)
# Fixed on 2026-11-19, before the first run: within twice is 1.
WITHIN = 2.0
CASES = ("random", "untrained", "trained")
ROWS = 32


def measure(
    budget: Budget,
    *,
    scale: Callable[[int], float] = sqrt_of_width,
    plan: StoryPlan | None = None,
) -> Evidence:
    plan = plan or StoryPlan.of(budget)
    trained = train_story_models(budget, plan)
    ids = unseen_windows(ROWS, plan.block)[:, :-1]
    found: dict[str, list[list[float]]] = {case: [] for case in CASES}
    for seed, model in zip(budget.seeds, trained.models, strict=True):
        D = model.config.d_model // model.config.n_heads
        q, k = torch.randn(2, 64, D, 64, generator=torch.Generator().manual_seed(seed))
        products = q.mT @ k * scale(D)
        found["random"].append([products.var().item()])
        found["untrained"].append(_variances(untrained(plan, seed), ids, scale))
        found["trained"].append(_variances(model, ids, scale))
    return {**trained.evidence(), "variances": found, "head_width": D}


class _VarianceHook(AttentionHook):
    """Notes the variance of each head's scores over all pairs that the mask allows."""

    def __init__(self, found: list[float], scale: Callable[[int], float]) -> None:
        self.found, self.scale = found, scale

    def after(self, call: AttentionCall, context: Tensor) -> Tensor:
        scores = call.q.double() @ call.k.double().mT * self.scale(call.q.shape[-1])
        T = scores.shape[-1]
        seen = torch.ones(T, T, dtype=torch.bool).tril()
        self.found += [scores[:, head][:, seen].var().item() for head in range(scores.shape[1])]
        return context


@torch.no_grad()
def _variances(model: GPT, ids: Tensor, scale: Callable[[int], float]) -> list[float]:
    found: list[float] = []
    with attach_hooks({layer: _VarianceHook(found, scale) for layer in gpt_attentions(model)}):
        model(ids)
    return found


def judge(evidence: Evidence) -> Finding:
    typical = {
        case: geometric_mean([_geometric(heads) for heads in evidence["variances"][case]])
        for case in CASES
    }
    kept = {case: _is_one(one) for case, one in typical.items()}
    learned = has_learned(evidence)
    verdict = judge_cases([kept[case] for case in CASES]) if learned else Verdict.UNCLEAR
    extremes = [x for heads in evidence["variances"]["trained"] for x in heads]
    cases = join_words((TEXTS[f"when.{case}"] for case in CASES if kept[case]), " or ", "或")
    words = [TEXTS["only_when"].format(when=cases)] if verdict is Verdict.HOLDS_WHEN else []
    words.append(
        TEXTS["result"].format(
            **typical, least=min(extremes), most=max(extremes), width=evidence["head_width"]
        )
    )
    numbers: Numbers = {
        **{f"variance of the scores, {case}": value for case, value in typical.items()},
        "smallest of a head, trained": min(extremes),
        "largest of a head, trained": max(extremes),
    }
    reason = not_learned(TEXTS["model"]) if not learned else join_words([])
    return Finding(verdict, join_sentences(words), numbers, cases, reason)


def _geometric(values: list[float]) -> float:
    return geometric_mean(values).value


def _is_one(variance: Interval) -> bool | None:
    if 1 / WITHIN <= variance.low and variance.high <= WITHIN:
        return True
    return False if variance.high < 1 / WITHIN or variance.low > WITHIN else None


def draw(evidence: Evidence, figure: Any, say: Mapping[str, str]) -> None:
    axes = figure.subplots()
    colors = {"random": GREY, "untrained": AGAINST, "trained": FOR}
    for at, case in enumerate(CASES):
        values = [x for heads in evidence["variances"][case] for x in heads]
        xs = [at + 0.3 * ((n * 0.618) % 1 - 0.5) for n in range(len(values))]
        axes.plot(xs, values, "o", color=colors[case], markersize=4, alpha=0.6, markeredgewidth=0)
    axes.axhspan(1 / WITHIN, WITHIN, color=GREY, alpha=0.15, linewidth=0)
    axes.set_yscale("log")
    axes.set_xticks(range(3), [say[f"figure.{case}"] for case in CASES])
    style_axes(axes, say["figure.title"])


CLAIM = Claim.of(21, TEXTS, measure, judge, draw, within=WITHIN, learned=LEARNED, rows=ROWS)
