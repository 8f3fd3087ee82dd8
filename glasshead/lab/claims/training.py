"""What the experiments that train share: one small loop, a search of rates, the embedded text.

Whatever is compared gets the same steps, the same batches and the same rates to choose from. The
rate of each side is chosen with a seed that no result is measured with.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from glasshead.lab.claims.claim import SEARCH_SEEDS, Budget
from glasshead.lab.ladder import LadderText, read_text
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.model.loss import next_token_loss
from glasshead.text.batches import Batch, TextBatches

__all__ = ["RATES", "Course", "Searched", "TextTask", "fit", "searched", "shown", "story_text"]

RATES = (1e-3, 3e-3, 1e-2)

Result = TypeVar("Result")


def fit(
    model: nn.Module,
    loss: Callable[[int], Tensor],
    *,
    lr: float,
    steps: int,
    done: Callable[[int], bool] = lambda step: False,
) -> int:
    """Train with AdamW; the steps taken. `loss(step)`; after each step `done(step)` may end it."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)
    model.train()
    for step in range(1, steps + 1):
        loss(step - 1).backward()
        optimizer.step()
        optimizer.zero_grad()
        if done(step):
            return step
    return steps


@dataclass(frozen=True)
class Searched(Generic[Result]):
    """One side of a comparison: the rates tried, and the results with the best of them."""

    scores: dict[float, float]
    results: list[Result]  # one a seed

    @property
    def lr(self) -> float:
        return min(self.scores, key=lambda lr: (self.scores[lr], lr))


def searched(
    budget: Budget,
    sides: Sequence[str],
    run: Callable[[str, float, int], Result],
    score: Callable[[Result], float],
    rates: Sequence[float] = RATES,
) -> dict[str, Searched[Result]]:
    """`run(side, lr, seed)` for each rate with a seed of its own, then with the best for each seed.

    The lowest score is the best; one that is not finite is the worst.
    """
    found: dict[str, Searched[Result]] = {}
    total = len(sides) * (len(rates) + len(budget.seeds))
    for side in sides:
        one: Searched[Result] = Searched({}, [])
        for what in [*rates, *budget.seeds]:
            at = sum(len(some.scores) + len(some.results) for some in [*found.values(), one])
            if len(one.scores) < len(rates):
                budget.progress(at / total, f"{side}, rate {what:g}")
                value = score(run(side, float(what), SEARCH_SEEDS[0]))
                one.scores[float(what)] = value if math.isfinite(value) else math.inf
            else:
                budget.progress(at / total, f"{side}, seed {what}")
                one.results.append(run(side, one.lr, int(what)))
        found[side] = one
    return found


def shown(found: Mapping[str, Searched[Any]]) -> dict[str, Any]:
    """The search, for the evidence."""
    return {
        side: {"best": one.lr, "tried": {f"{lr:g}": s for lr, s in one.scores.items()}}
        for side, one in found.items()
    }


@lru_cache(maxsize=1)
def story_text() -> LadderText:
    """The generated stories: what `glasshead ladder` reads by default."""
    return read_text(None)


@dataclass(frozen=True)
class Course:
    """How a training went: losses in nats a character, dropout off, at some of its steps."""

    steps: list[int]
    train: list[float]
    val: list[float]


class TextTask:
    """Predict the next character of the stories, of the first `characters` of them or of all."""

    def __init__(self, *, block: int, batch_size: int, characters: int | None = None) -> None:
        text = story_text()
        self.block, self.batch_size = block, batch_size
        self.vocab_size = text.tokenizer.vocab_size
        self._training = text.corpus.training[:characters]
        # As many windows as the smaller part has, so that no character counts twice.
        self._seen, self._held = (
            TextBatches(ids, batch_size=64, block=block, seed=0).fixed(
                max(1, min(6, len(ids) // (64 * block)))
            )
            for ids in (self._training, text.corpus.validation)
        )

    def gpt(self, seed: int, **settings: Any) -> GPT:
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            return GPT(GPTConfig(self.vocab_size, max_len=self.block, **settings))

    def first(self, seed: int) -> Batch:
        return self._batches(seed).at(0)

    def train(
        self, model: GPT, *, lr: float, seed: int, steps: int, points: int, seen: bool = False
    ) -> Course:
        """Train, and look `points` times, evenly spaced, the last time at the end.

        `seen`: look at the text it trains on too.
        """
        batches, course = self._batches(seed), Course([], [], [])
        at = {max(1, round(steps * n / points)) for n in range(1, points + 1)}

        def loss(step: int) -> Tensor:
            batch = batches.at(step)
            return next_token_loss(model, batch.ids, batch.targets)

        def look(step: int) -> bool:
            if step in at:
                course.steps.append(step)
                if seen:
                    course.train.append(text_loss(model, self._seen))
                course.val.append(text_loss(model, self._held))
            return False

        with torch.random.fork_rng([]):  # dropout draws too
            torch.manual_seed(seed)
            fit(model, loss, lr=lr, steps=steps, done=look)
        return course

    def unigram(self) -> float:
        """The loss of one who knows how often each character comes, and nothing else."""
        n = torch.bincount(torch.from_numpy(self._training).long(), minlength=self.vocab_size) + 1.0
        logs = (n / n.sum()).log()
        return -torch.stack([logs[batch.targets].mean() for batch in self._held]).mean().item()

    def _batches(self, seed: int) -> TextBatches:
        ids, B, T = self._training, self.batch_size, self.block
        return TextBatches(ids, batch_size=B, block=T, seed=seed)


@torch.no_grad()
def text_loss(model: GPT, batches: Sequence[Batch]) -> float:
    was_training = model.training
    model.eval()
    losses = [next_token_loss(model, batch.ids, batch.targets) for batch in batches]
    model.train(was_training)
    return torch.stack(losses).mean().item()
