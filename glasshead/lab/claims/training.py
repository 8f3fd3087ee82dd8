"""What the experiments that train share: one small training loop, and the generated stories.

All sides of a comparison get the same steps, the same batches and the same search for a rate.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from glasshead.errors import NotFiniteError
from glasshead.lab.claims.claim import Budget
from glasshead.lab.claims.models import build_seeded
from glasshead.lab.claims.search import BURST
from glasshead.lab.claims.stats import Interval
from glasshead.lab.ladder import LadderText, read_text
from glasshead.lab.processes import map_processes
from glasshead.lab.texts import Words, read_texts
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.model.loss import next_token_loss
from glasshead.text.batches import Batch, TextBatches

__all__ = [
    "LossCurve",
    "Plateau",
    "TextTask",
    "fit",
    "loss_on",
    "run_parts",
    "say_lower",
    "say_narrower",
    "story_text",
]

_TEXTS = read_texts(__file__)

Result = TypeVar("Result")


def fit(
    model: nn.Module,
    loss: Callable[[int], Tensor],
    *,
    lr: float,
    steps: int,
    done: Callable[[int], bool] = lambda step: False,
) -> int:
    """Train with AdamW on `loss(step)` until `done(step)`; return the number of steps taken.

    Raises:
        NotFiniteError: the loss is not finite.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)
    model.train()
    for step in range(1, steps + 1):
        value = loss(step - 1)
        if not math.isfinite(value.item()):
            raise NotFiniteError(f"the loss is {value.item()} at step {step}", hint="a smaller lr")
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        if done(step):
            return step
    return steps


@dataclass(frozen=True)
class Plateau:
    """When a training has come to an end by itself, fixed before it runs.

    The mean loss of `window` steps is not `gain` nats below that of the window before.
    """

    window: int = 500
    gain: float = 0.02

    def reached(self, losses: Sequence[float]) -> bool:
        """Return whether the losses of all steps so far end on a plateau.

        >>> Plateau(window=2).reached([3.0, 3.0, 3.0, 2.99])
        True
        """
        n = self.window
        if len(losses) < 2 * n:
            return False
        return sum(losses[-2 * n : -n]) - sum(losses[-n:]) < n * self.gain


def run_parts(
    budget: Budget,
    work: Callable[..., Result],
    items: Sequence[tuple[object, ...]],
    weights: Sequence[float] | None = None,
) -> list[Result]:
    """Call `work(budget, *item)` for each part of an experiment, in the processes of the budget.

    A part's name is its first item. `weights` say which parts take longer: with several processes
    those start first.
    """
    order, done = list(range(len(items))), 0.0
    weights = weights or [1.0] * len(items)
    share = [weight / sum(weights) for weight in weights]
    found: dict[int, Result] = {}

    def within(part: float, what: str) -> None:
        n = order[len(found)]
        budget.progress(done + share[n] * part, f"{items[n][0]}, {what}")

    own = Budget(budget.quick, budget.seeds, search=budget.search)
    if min(budget.jobs, len(items)) < 2:
        own = replace(own, progress=within)  # which cannot go to another process
    else:
        order.sort(key=lambda n: -share[n])
        budget.progress(0.0, f"{items[order[0]][0]}")
    results = map_processes(work, [(own, *items[n]) for n in order], budget.jobs)
    for n, result in zip(order, results, strict=True):
        found[n], done = result, done + share[n]
        budget.progress(done, f"{items[n][0]}")
    return [found[n] for n in range(len(items))]


def loss_on(model: GPT, batches: TextBatches) -> Callable[[int], Tensor]:
    """Return the loss at each step, for `fit`."""

    def loss(step: int) -> Tensor:
        batch = batches.at(step)
        return next_token_loss(model, batch.ids, batch.targets)

    return loss


@lru_cache(maxsize=1)
def story_text() -> LadderText:
    """Return the generated stories: what `glasshead ladder` reads by default."""
    return read_text(None)


def say_lower(by: Interval) -> Words:
    """Say that a loss is lower by this much, or higher if the value is negative.

    >>> say_lower(Interval(-0.014, -0.02, -0.01)).en
    'higher by 0.014 [0.010, 0.020]'
    """
    return _TEXTS["lower" if by.value >= 0 else "higher"].format(by=by if by.value >= 0 else -by)


def say_narrower(by: Interval) -> Words:
    """Say that a gap is narrower by this much, or wider if the value is negative."""
    return _TEXTS["narrower" if by.value >= 0 else "wider"].format(by=by if by.value >= 0 else -by)


@dataclass(frozen=True)
class LossCurve:
    """Losses at some steps of a training, in nats per character, BURST at most, without dropout."""

    steps: list[int]
    train: list[float]
    val: list[float]


class TextTask:
    """Predict the next character of the stories, or of their first `characters` characters."""

    def __init__(self, *, block: int, batch_size: int, characters: int | None = None) -> None:
        text = story_text()
        self.block, self.batch_size = block, batch_size
        self.vocab_size = text.tokenizer.vocab_size
        self._training = text.corpus.training[:characters]
        # As many windows as the smaller part has, so that no character counts twice.
        self._seen, self._held = (
            TextBatches(ids, batch_size=64, block=block, seed=0).evenly_spaced(
                max(1, min(6, len(ids) // (64 * block)))
            )
            for ids in (self._training, text.corpus.validation)
        )

    def gpt(self, seed: int, **settings: Any) -> GPT:
        config = GPTConfig(self.vocab_size, max_len=self.block, **settings)
        return build_seeded(seed, lambda: GPT(config))

    def first_batch(self, seed: int) -> Batch:
        return self._batches(seed).at(0)

    def train(
        self, model: GPT, *, lr: float, seed: int, steps: int, points: int, seen: bool = False
    ) -> LossCurve:
        """Train, and evaluate at `points` steps, evenly spaced, the last of them at the end.

        `seen`: also evaluate on the text that it trains on.
        """
        curve = LossCurve([], [], [])
        at = {max(1, round(steps * n / points)) for n in range(1, points + 1)}

        def add(step: int, measure: Callable[[Sequence[Batch]], float]) -> None:
            held, trained = measure(self._held), [measure(self._seen)] if seen else []
            curve.steps.append(step)
            curve.val.append(held)
            curve.train.extend(trained)

        def evaluate(step: int) -> bool:
            if step in at:
                add(step, lambda batches: text_loss(model, batches))
            return False

        with torch.random.fork_rng([]):  # dropout draws random numbers too
            torch.manual_seed(seed)
            try:
                fit(model, loss_on(model, self._batches(seed)), lr=lr, steps=steps, done=evaluate)
            except NotFiniteError:  # from here on nothing is learned
                for step in sorted(at - set(curve.steps)):
                    add(step, lambda batches: BURST)
        return curve

    def unigram_loss(self) -> float:
        """Return the loss of a model that knows only how often each character occurs."""
        n = torch.bincount(torch.from_numpy(self._training).long(), minlength=self.vocab_size) + 1.0
        logs = (n / n.sum()).log()
        return -torch.stack([logs[batch.targets].mean() for batch in self._held]).mean().item()

    def _batches(self, seed: int) -> TextBatches:
        ids, B, T = self._training, self.batch_size, self.block
        return TextBatches(ids, batch_size=B, block=T, seed=seed)


@torch.no_grad()
def text_loss(model: GPT, batches: Sequence[Batch]) -> float:
    """Return the mean loss without dropout, BURST at most."""
    was_training = model.training
    model.eval()
    losses = [next_token_loss(model, batch.ids, batch.targets) for batch in batches]
    model.train(was_training)
    loss = torch.stack(losses).mean().item()
    return min(loss, BURST) if math.isfinite(loss) else BURST
