"""Claim 22: attention rollout tells more than raw weights about which words matter."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from glasshead.lab.attention_maps import gpt_attentions, record_weights
from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Numbers
from glasshead.lab.claims.drawing import AGAINST, FOR, GREY, OTHER, draw_bar, style_axes
from glasshead.lab.claims.stats import difference, mean
from glasshead.lab.claims.story_models import (
    LEARNED,
    StoryPlan,
    has_learned,
    train_story_models,
    unseen_windows,
)
from glasshead.lab.claims.verdict import Verdict, not_learned
from glasshead.lab.texts import Words, join_sentences, read_texts
from glasshead.model.gpt import GPT
from glasshead.observe.ablation import Edge, ablating

__all__ = ["CLAIM", "judge", "measure", "rollout_rows"]

TEXTS = read_texts(__file__)
# Fixed on 2026-11-19, before the first run: a rank correlation higher by this is worth the trouble.
MORE = 0.05
LENGTH, ROWS = 32, 64
MAPS = ("rollout", "last", "mean", "nearness")  # the last needs no model: the nearer, the more

Combine = Callable[[list[Tensor]], Tensor]


def rollout_rows(maps: list[Tensor]) -> Tensor:
    """(B, T): the last row of attention rollout, from one (B, H, T, T) for each layer."""
    r = torch.zeros_like(maps[0][:, 0, 0])
    r[:, -1] = 1
    for weights in reversed(maps):
        r = r / 2 + torch.einsum("bt,bts->bs", r, weights.mean(1)) / 2
    return r


def measure(
    budget: Budget,
    *,
    combine: Combine = rollout_rows,
    plan: StoryPlan | None = None,
) -> Evidence:
    """`combine`: how the maps of all layers become one row."""
    trained = train_story_models(budget, plan or StoryPlan.of(budget))
    ids = unseen_windows(32 if budget.quick else ROWS, LENGTH)
    found: dict[str, list[float]] = {name: [] for name in MAPS}
    for n, model in enumerate(trained.models):
        budget.progress(0.9 + 0.1 * n / len(trained.models), f"seed {budget.seeds[n]}")
        matters = _effects(model, ids)
        with torch.no_grad(), record_weights(gpt_attentions(model)) as maps:
            model(ids[:, :-1])
        rows = {
            "rollout": combine(maps),
            "last": maps[-1].mean(1)[:, -1],
            "mean": torch.stack(maps).mean((0, 2))[:, -1],
            "nearness": torch.arange(LENGTH).expand(len(ids), -1).double(),
        }
        for name, row in rows.items():
            found[name].append(_rank_correlation(row[:, :-1], matters))
    return {**trained.evidence(), "length": LENGTH, "rows": len(ids), "correlation": found}


@torch.no_grad()
def _effects(model: GPT, ids: Tensor) -> Tensor:
    """(B, T - 1) by how much hiding each character from all others lowers the right next one's log
    probability at the end."""

    def right() -> Tensor:
        logits = model(ids[:, :-1])[:, -1].log_softmax(-1)
        return logits.gather(1, ids[:, -1:])[:, 0].double()

    before, found = right(), []
    for key in range(ids.shape[1] - 2):  # the last one itself stays
        with ablating(model, edges=[Edge(key=key, query=slice(key + 1, None))]):
            found.append((before - right()).abs())
    return torch.stack(found, 1)


def _rank_correlation(one: Tensor, other: Tensor) -> float:
    """Return Spearman's correlation along the rows, averaged over them."""
    ranks = [x.argsort(1).argsort(1).double() for x in (one, other)]
    a, b = (r - r.mean(1, keepdim=True) for r in ranks)
    return ((a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1))).mean().item()


def judge(evidence: Evidence) -> Finding:
    found = evidence["correlation"]
    means = {name: mean(values) for name, values in found.items()}
    best = max(("last", "mean"), key=lambda name: means[name].value)
    more = difference(found["rollout"], found[best])
    beyond = difference(found["rollout"], found["nearness"])
    why = Words("", "")
    if not has_learned(evidence):
        verdict, why = Verdict.UNCLEAR, not_learned(TEXTS["model"])
    elif more.low > MORE:
        # A rank that needs no model explains as much: then rollout tells nothing of the model.
        verdict = Verdict.HOLDS if beyond.low > 0 else Verdict.UNCLEAR
        why = TEXTS["as_near"]
    else:
        verdict = Verdict.FAILS if more.high < MORE else Verdict.UNCLEAR
    words = [
        TEXTS["result"].format(**means, more=more, best=TEXTS[f"name.{best}"]),
        TEXTS["as_near_says"] if beyond.low <= 0 else Words("", ""),
    ]
    numbers: Numbers = {
        **{f"rank correlation with hiding, {name}": value for name, value in means.items()},
        f"rollout minus {best}": more,
        "rollout minus nearness": beyond,
    }
    return Finding(verdict, join_sentences(words), numbers, why=why)


def draw(evidence: Evidence, figure: Any, say: Mapping[str, str]) -> None:
    axes = figure.subplots()
    colors = {"rollout": FOR, "last": AGAINST, "mean": OTHER, "nearness": GREY}
    for at, (name, color) in enumerate(colors.items()):
        draw_bar(axes, at, evidence["correlation"][name], color)
    axes.set_xticks(range(len(colors)), [say[f"figure.{name}"] for name in colors])
    axes.axhline(0, color=GREY, linewidth=0.8)
    style_axes(axes, say["figure.title"])


CLAIM = Claim.of(
    22, TEXTS, measure, judge, draw, more=MORE, learned=LEARNED, rows=ROWS, length=LENGTH
)
