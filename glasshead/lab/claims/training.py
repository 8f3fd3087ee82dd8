"""What the experiments that train share: one small loop, and the embedded text.

Whatever is compared gets the same steps, the same batches and the same search for a rate.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.errors import NotFiniteError
from glasshead.lab.claims.search import BURST
from glasshead.lab.ladder import LadderText, read_text
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.model.loss import next_token_loss
from glasshead.text.batches import Batch, TextBatches

__all__ = ["Course", "TextTask", "fit", "story_text"]


def fit(
    model: nn.Module,
    loss: Callable[[int], Tensor],
    *,
    lr: float,
    steps: int,
    done: Callable[[int], bool] = lambda step: False,
) -> int:
    """Train with AdamW; the steps taken. `loss(step)`; after each step `done(step)` may end it.

    A loss that is not finite ends it, too: with an error.
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
            TextBatches(ids, batch_size=64, block=block, seed=0).evenly_spaced(
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
            except NotFiniteError:  # from here on nothing is learned
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
