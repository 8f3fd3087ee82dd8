"""Claim 23: many heads can be pruned with little loss."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Numbers
from glasshead.lab.claims.drawing import AGAINST, FOR, GREY, OTHER, draw_band, style_axes
from glasshead.lab.claims.stats import at_least, mean
from glasshead.lab.claims.story_models import (
    LEARNED,
    StoryPlan,
    has_learned,
    text_losses,
    train_story_models,
    unseen_windows,
)
from glasshead.lab.claims.verdict import Verdict, not_learned
from glasshead.lab.texts import Words, join_sentences, read_texts
from glasshead.model.gpt import GPT
from glasshead.model.loss import next_token_loss
from glasshead.observe.ablation import ablating
from glasshead.observe.importance import head_ablations, head_gradients

__all__ = ["CLAIM", "judge", "measure"]

TEXTS = read_texts(__file__)
# Fixed on 2026-11-19, before the first run. As in other claims, two hundredths of a nat are little.
LITTLE = 0.02
MANY = 0.2  # a fifth of the heads: the paper that is cited removed 20 to 40 %
ROWS = 64
ORDERS = ("gradient", "ablation", "random", "reversed")  # the last removes what matters most
DRAWS = 5  # random orders for each seed

Score = Callable[[GPT, Tensor], Tensor]  # (L, H): the higher, the more important


def by_gradient(model: GPT, ids: Tensor) -> Tensor:
    return torch.stack([*head_gradients(model, lambda: _loss(model, ids)).values()])


def by_ablation(model: GPT, ids: Tensor) -> Tensor:
    return torch.stack([*head_ablations(model, lambda: _loss(model, ids)).values()])


def _loss(model: GPT, ids: Tensor) -> Tensor:
    return next_token_loss(model, ids[:, :-1], ids[:, 1:])


def measure(
    budget: Budget, *, score: Score = by_gradient, plan: StoryPlan | None = None
) -> Evidence:
    """`score`: how important each head is."""
    plan = plan or StoryPlan.of(budget)
    trained = train_story_models(budget, plan)
    windows = unseen_windows(2 * ROWS, plan.block)
    chosen_on, measured_on = windows[::2], windows[1::2]
    found: dict[str, list[list[float]]] = {name: [] for name in ORDERS}
    for n, (seed, model) in enumerate(zip(budget.seeds, trained.models, strict=True)):
        budget.progress(0.9 + 0.1 * n / len(trained.models), f"seed {seed}")
        gradient = score(model, chosen_on).flatten().argsort().tolist()
        ablation = by_ablation(model, chosen_on).flatten().argsort().tolist()
        generator = torch.Generator().manual_seed(seed)
        heads = len(gradient)
        drawn = [torch.randperm(heads, generator=generator).tolist() for _ in range(DRAWS)]
        found["gradient"].append(_remove(model, gradient, measured_on))
        found["ablation"].append(_remove(model, ablation, measured_on))
        found["reversed"].append(_remove(model, gradient[::-1], measured_on))
        several = [_remove(model, order, measured_on) for order in drawn]
        found["random"].append([sum(some) / DRAWS for some in zip(*several, strict=True)])
    return {**trained.evidence(), "heads": heads, "without": found}


@torch.no_grad()
def _remove(model: GPT, order: Sequence[int], ids: Tensor) -> list[float]:
    """Return the loss without 0, 1, 2, … heads."""
    H, found = model.config.n_heads, []
    for n in range(len(order) + 1):
        with ablating(model, heads=[divmod(head, H) for head in order[:n]]):
            found += text_losses([model], ids)
    return found


def _share(losses: Sequence[float]) -> float:
    """Return the share of heads that can go before the loss rises by more than `LITTLE`."""
    gone = next((n for n, loss in enumerate(losses) if loss - losses[0] > LITTLE), len(losses))
    return (gone - 1) / (len(losses) - 1)


def judge(evidence: Evidence) -> Finding:
    shares = {
        name: mean([_share(losses) for losses in seeds])
        for name, seeds in evidence["without"].items()
    }
    chosen, drawn = (at_least(shares[name], MANY) for name in ("gradient", "random"))
    why = Words("", "")
    if not has_learned(evidence):
        verdict, why = Verdict.UNCLEAR, not_learned(TEXTS["model"])
    elif chosen is None or (chosen and drawn is None):
        verdict = Verdict.UNCLEAR
    elif not chosen:
        verdict = Verdict.FAILS
    else:
        verdict = Verdict.HOLDS if drawn else Verdict.HOLDS_WHEN
    words = [TEXTS["only_when"]] if verdict is Verdict.HOLDS_WHEN else []
    words.append(TEXTS["result"].format(**shares, heads=evidence["heads"], little=LITTLE))
    numbers: Numbers = {
        f"share of heads that can go, {name}": value for name, value in shares.items()
    }
    losses = evidence["without"]["gradient"]
    numbers |= {
        f"loss without {n} heads, minus with all": mean([one[n] - one[0] for one in losses])
        for n in (1, 2, 4)
    }
    return Finding(verdict, join_sentences(words), numbers, TEXTS["when"], why)


def draw(evidence: Evidence, figure: Any, say: Mapping[str, str]) -> None:
    axes = figure.subplots()
    colors = {"gradient": FOR, "ablation": OTHER, "random": GREY, "reversed": AGAINST}
    xs = range(evidence["heads"] + 1)
    for name, color in colors.items():
        rises = [[loss - one[0] for loss in one] for one in evidence["without"][name]]
        draw_band(axes, xs, list(zip(*rises, strict=True)), color, label=say[f"figure.{name}"])
    axes.axhline(LITTLE, color="#333333", linewidth=0.8, linestyle=":")
    axes.set_ylim(-0.05, 1.5)
    style_axes(axes, say["figure.title"], x=say["figure.removed"])
    axes.legend(fontsize=8.5, loc="upper left")


CLAIM = Claim.of(
    23, TEXTS, measure, judge, draw, little=LITTLE, many=MANY, learned=LEARNED, draws=DRAWS
)
