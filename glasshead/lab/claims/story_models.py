"""The GPTs that claims 20 to 24 look into: trained on the stories, once in each process."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor

from glasshead.lab.claims.claim import Budget
from glasshead.lab.claims.search import BURST, RATES, SideResults, compare_at_best_rates
from glasshead.lab.claims.stats import mean
from glasshead.lab.claims.training import TextTask, story_text
from glasshead.model.gpt import GPT
from glasshead.model.loss import next_token_loss
from glasshead.text.batches import TextBatches

__all__ = [
    "LEARNED",
    "StoryModels",
    "StoryPlan",
    "has_learned",
    "train_story_models",
    "unseen_windows",
]

# Half a nat below the frequencies of characters: a model that has not learned the text says nothing
# about what trained models do.
LEARNED = 0.5
MODEL: dict[str, Any] = {"n_layers": 4, "n_heads": 4, "d_model": 64, "positions": "rotary"}


@dataclass(frozen=True)
class StoryPlan:
    """What is trained: a GPT of `MODEL` with these settings changed."""

    steps: int
    block: int = 32
    batch_size: int = 16
    change: tuple[tuple[str, Any], ...] = ()
    rates: tuple[float, ...] = RATES

    @classmethod
    def of(cls, budget: Budget, **change: Any) -> "StoryPlan":
        return cls(150 if budget.quick else 400, change=tuple(sorted(change.items())))


@dataclass(frozen=True)
class StoryModels:
    models: list[GPT]  # one per seed, in evaluation mode
    losses: list[float]  # on unseen text
    rate: dict[str, Any]  # the search, for the evidence
    unigram: float = field(default=math.nan)  # the loss of a model that knows only frequencies

    def evidence(self) -> dict[str, Any]:
        return {"losses": self.losses, "rate": self.rate, "unigram": self.unigram}


_MADE: dict[tuple[StoryPlan, tuple[int, ...], tuple[int, ...]], StoryModels] = {}


@cache
def _task(block: int, batch_size: int) -> TextTask:
    return TextTask(block=block, batch_size=batch_size)


def untrained(plan: StoryPlan, seed: int) -> GPT:
    task = _task(plan.block, plan.batch_size)
    return task.gpt(seed, **{**MODEL, **dict(plan.change)}).eval()


def train_story_models(budget: Budget, plan: StoryPlan) -> StoryModels:
    """Train a GPT for each seed at the best rate; all claims of a process share them."""
    key = (plan, budget.seeds, budget.search_seeds)
    if key not in _MADE:
        task = _task(plan.block, plan.batch_size)

        def run(side: str, lr: float, seed: int) -> tuple[float, GPT]:
            model = untrained(plan, seed)
            curve = task.train(model, lr=lr, seed=seed, steps=plan.steps, points=1)
            return curve.val[-1], model.eval()

        found: dict[str, SideResults[tuple[float, GPT]]] = compare_at_best_rates(
            budget, ("GPT",), run, lambda result: result[0], plan.rates
        )
        one = found["GPT"]
        losses, models = zip(*one.results, strict=True)
        _MADE[key] = StoryModels(
            list(models), list(losses), one.evidence(), unigram=task.unigram_loss()
        )
    return _MADE[key]


def has_learned(evidence: Mapping[str, Any]) -> bool:
    """Whether the models are well below the frequencies of characters on unseen text."""
    below = mean([evidence["unigram"] - loss for loss in evidence["losses"]])
    return below.low > LEARNED


def unseen_windows(rows: int, length: int) -> Tensor:
    """Return (rows, length + 1) ids of unseen text, evenly spaced over it."""
    held = story_text().corpus.validation
    batches = TextBatches(held, batch_size=rows, block=length, seed=0)
    [batch] = batches.evenly_spaced(1)
    return torch.cat([batch.ids, batch.targets[:, -1:]], 1)


@torch.no_grad()
def losses_at(model: GPT, ids: Tensor) -> Tensor:
    """Return (B, T) the loss of each next token of ids (B, T + 1)."""
    logits = model(ids[:, :-1])
    return torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")


def text_losses(models: Sequence[GPT], ids: Tensor) -> list[float]:
    with torch.no_grad():
        found = [next_token_loss(model, ids[:, :-1], ids[:, 1:]).item() for model in models]
    return [min(loss, BURST) for loss in found]
