"""What the loop trains, what it counts, and what it returns."""

from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass, field, fields, replace
from signal import Signals
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

__all__ = ["Outcome", "Progress", "Task", "move_batch"]

AnyBatch = TypeVar("AnyBatch")
AnyTask = TypeVar("AnyTask", bound="Task")


class Task(ABC):
    """A model, and the batches that it learns from."""

    model: nn.Module
    # True if all batches are dataclasses of tensors of the same shapes and `loss` does the same
    # with each of them: a CUDA graph can then replay a step.
    same_shapes = False

    @abstractmethod
    def batch(self, number: int) -> Any:
        """Return a batch on the model's device. It must depend on its number alone."""

    @abstractmethod
    def tokens(self, batch: Any) -> int:
        """Count the tokens of a batch, for the log."""

    @abstractmethod
    def loss(self, batch: Any) -> Tensor:
        """Return the mean loss over the tokens of a batch, a scalar."""

    @abstractmethod
    def share(self, batch: Any, rank: int, size: int) -> tuple[Any, Tensor | float]:
        """Return rows rank, rank + size, ... of a batch, and their share of its loss.

        If there are no such rows, return the whole batch and 0: every process must compute
        something.
        """

    @abstractmethod
    def evaluate(self) -> dict[str, float]:
        """Measure the model. A lower `val_loss` is better; of everything else, a higher value."""

    def sample(self) -> str | None:
        """Return a text that shows what the model can do after the latest evaluation."""
        return None

    def watched_ids(self) -> Tensor | None:
        """Return text (B, T) to watch heads on, always the same; None if heads cannot be."""
        return None

    def compile(self) -> None:
        self.model.compile()

    def with_model(self: AnyTask, model: nn.Module) -> AnyTask:
        """Return the same task for another model of the same shape."""
        other = copy(self)
        other.model = model
        return other


def move_batch(batch: AnyBatch, device: torch.device) -> AnyBatch:
    """Copy a dataclass of tensors to a device without waiting for the copy to end."""
    if device.type == "cpu":
        return batch
    tensors = {f.name: getattr(batch, f.name) for f in fields(batch)}  # type: ignore[arg-type]
    if device.type == "cuda":
        moved = {n: t.pin_memory().to(device, non_blocking=True) for n, t in tensors.items()}
    else:  # on mps, copies that are not waited for have given wrong values
        moved = {n: t.to(device) for n, t in tensors.items()}
    return replace(batch, **moved)  # type: ignore[type-var]


@dataclass
class Progress:
    """How far a run is. All of it is saved in the checkpoint."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0  # of training, without the time between a stop and a resume
    evaluated_at: float = 0.0  # in these seconds
    best: dict[str, float] = field(default_factory=dict)  # the results of the best evaluation
    best_step: int = 0
    stale: int = 0  # evaluations since the best
    rate: float = 1.0  # factor of the learning rate, halved at each return
    returns: int = 0  # to an earlier checkpoint, after steps that were not finite
    bad: int = 0  # latest steps in a row that were not finite
    skipped: int = 0  # all steps that were not finite
    grad_norm: float = 0.0
    window: list[float] = field(default_factory=list)  # losses since the last line of metrics
    lengths: dict[str, int] = field(default_factory=dict)  # bytes of metrics and samples
    digests: dict[str, str] = field(default_factory=dict)  # of these bytes


@dataclass(frozen=True)
class Outcome:
    reason: str  # finished, stopped early, interrupted
    progress: Progress
    signal: Signals | None = None
