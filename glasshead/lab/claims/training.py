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

from glasshead.errors import NotFiniteError
from glasshead.lab.claims.claim import SEARCH_SEEDS, Budget, Words
from glasshead.lab.ladder import LadderText, read_text
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.model.loss import next_token_loss
from glasshead.text.batches import Batch, TextBatches

__all__ = [
    "BURST",
    "RATES",
    "Course",
    "Searched",
    "TextTask",
    "at_edge",
    "fit",
    "searched",
    "shown",
    "story_text",
]

RATES = (1e-3, 3e-3, 1e-2)
# What a loss counts as that is larger or no number: that training failed. JSON knows no infinity.
BURST = 100.0

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

    The lowest score is the best; one that is not finite is the worst. One rate needs no search.
    """
    found: dict[str, Searched[Result]] = {}
    searching = rates if len(rates) > 1 else ()
    total = len(sides) * (len(searching) + len(budget.seeds))
    at = 0
    for side in sides:
        one: Searched[Result] = Searched({} if searching else {float(rates[0]): math.inf}, [])
        for lr in searching:
            budget.progress(at / total, f"{side}, rate {lr:g}")
            try:
                value = score(run(side, float(lr), SEARCH_SEEDS[0]))
            except NotFiniteError:  # attention met NaN
                value = math.inf
            one.scores[float(lr)] = value if math.isfinite(value) else math.inf
            at += 1
        for seed in budget.seeds:
            budget.progress(at / total, f"{side}, seed {seed}")
            one.results.append(run(side, one.lr, seed))
            at += 1
        found[side] = one
    return found


def shown(found: Mapping[str, Searched[Any]]) -> dict[str, Any]:
    """The search, for the evidence. `edge`: the best is the least or the largest rate tried.

    A score that is not finite, or was not needed, is None.
    """
    return {
        side: {
            "best": one.lr,
            "edge": len(one.scores) > 1 and one.lr in (min(one.scores), max(one.scores)),
            "tried": {
                f"{lr:g}": score if math.isfinite(score) else None
                for lr, score in one.scores.items()
            },
        }
        for side, one in found.items()
    }


def at_edge(rates: Mapping[str, Mapping[str, Any]], names: Mapping[str, Words]) -> Words:
    """A sentence on the sides whose best rate lies at the edge of those tried, if there are any.

    `rates` is what `shown` gave; sides without a name are left out.
    """
    edges = {side: rates[side]["best"] for side in names if rates[side]["edge"]}
    if not edges:
        return Words("", "")
    en = ", ".join(f"{names[side].en} ({lr:g})" for side, lr in edges.items())
    zh = "、".join(f"{names[side].zh}（{lr:g}）" for side, lr in edges.items())
    return Words(
        f" At the edge of the rates tried, so that a better one may lie beyond: {en}.",
        f"最好的学习率在所试范围的边缘，更好的可能在范围之外：{zh}。",
    )


@lru_cache(maxsize=1)
def story_text() -> LadderText:
    """The generated stories: what `glasshead ladder` reads by default."""
    return read_text(None)


@dataclass(frozen=True)
class Course:
    """How a training went: losses in nats a character, BURST at most, at some of its steps.

    They are measured with dropout off.
    """

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

        def note(step: int, losses: Callable[[Sequence[Batch]], float]) -> None:
            held, trained = losses(self._held), [losses(self._seen)] if seen else []
            course.steps.append(step)
            course.val.append(held)
            course.train.extend(trained)

        def look(step: int) -> bool:
            if step in at:
                note(step, lambda batches: text_loss(model, batches))
            return False

        with torch.random.fork_rng([]):  # dropout draws too
            torch.manual_seed(seed)
            try:
                fit(model, loss, lr=lr, steps=steps, done=look)
            except NotFiniteError:  # attention met NaN: from here on nothing is learned
                for step in sorted(at - set(course.steps)):
                    note(step, lambda batches: BURST)
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
    loss = torch.stack(losses).mean().item()
    return min(loss, BURST) if math.isfinite(loss) else BURST
