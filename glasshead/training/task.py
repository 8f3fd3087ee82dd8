"""What the loop is given, what it counts, and what it gives back."""

from dataclasses import dataclass, field
from signal import Signals
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

__all__ = ["DistributedTask", "Outcome", "Progress", "Task"]


class Task(Protocol):
    """What is trained, and on what. `batch` must depend on its number alone."""

    # Whether all batches are dataclasses of tensors of the same shapes, and `loss` does the same
    # with each: only then a step can be recorded.
    alike: bool

    @property
    def model(self) -> nn.Module: ...
    def batch(self, number: int) -> Any: ...
    def tokens(self, batch: Any) -> int: ...
    def loss(self, batch: Any) -> Tensor: ...
    def compile(self) -> None: ...  # what of the loss torch compiles well
    def evaluate(self) -> dict[str, float]: ...  # val_loss, lower is better; others, higher is
    def sample(self) -> str | None: ...


@runtime_checkable
class DistributedTask(Task, Protocol):
    """A task that several processes can train together."""

    def share(self, batch: Any, rank: int, size: int) -> tuple[Any, Tensor | float]:
        """Rows rank, rank + size, ... of a batch, and how much of its loss is theirs.

        Where none are left it is the whole batch, and 0: every process computes something.
        """

    def with_model(self, model: nn.Module) -> Task:
        """The same task for another model of the same shape."""


@dataclass
class Progress:
    """Where a run is: all of it goes into the checkpoint."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0  # since the start, pauses left out
    evaluated_at: float = 0.0  # in these seconds
    best: dict[str, float] = field(default_factory=dict)  # what the best evaluation found
    best_step: int = 0
    stale: int = 0  # evaluations since the best
    rate: float = 1.0  # halved at each return
    returns: int = 0
    bad: int = 0  # steps in a row, up to now, that were not finite
    skipped: int = 0  # such steps in all
    grad_norm: float = 0.0
    window: list[float] = field(default_factory=list)  # losses since the last line of metrics
    lengths: dict[str, int] = field(default_factory=dict)  # bytes of the files that only grow

    @property
    def best_loss(self) -> float | None:
        return self.best.get("val_loss")


@dataclass(frozen=True)
class Outcome:
    reason: str  # finished, stopped early, interrupted
    progress: Progress
    signal: Signals | None = None
