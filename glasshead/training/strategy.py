"""Where a model is while it trains: in one process here, over several in distributed.py."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.checkpoint.processes import Processes
from glasshead.errors import ConfigError
from glasshead.training.config import TrainConfig
from glasshead.training.task import DistributedTask, Task

__all__ = ["Alone", "spread_over"]


class Alone:
    """One process has it all."""

    def __init__(self, task: Task, config: TrainConfig, device: torch.device) -> None:
        self.task, self.device = task, device
        self._half = config.precision == "bf16"
        self._place(config.compile == "on")

    def _place(self, compiled: bool) -> None:
        self.task.model.to(self.device)
        if compiled:
            self.task.compile()

    def begin_step(self, step: int) -> None:
        """Called before each."""

    def backward(self, batch: Any, of: int, last: bool) -> Tensor:
        """Add the gradient of one of the `of` batches of a step; its part of the step's loss."""
        with self.autocast():
            part = self.task.loss(batch) / of
        part.backward()
        return part.detach()

    def total(self, loss: Tensor) -> Tensor:
        """The loss of all processes."""
        return loss

    def clip(self, params: Sequence[Tensor], most: float) -> Tensor:
        """Scale the gradient down to a norm of `most`; the norm that it had."""
        return nn.utils.clip_grad_norm_(params, most)

    def judge(self) -> Task | None:
        """What evaluates, with the parameters as they are now; None where another process does."""
        return self.task

    def like(self, name: str) -> Tensor | None:
        """Shared out like which parameter a tensor of the run's state is."""
        return None

    def autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self._half)


def spread_over(processes: Processes, task: Task, config: TrainConfig) -> Alone:
    """The task's model as `config.parallel` says, over the processes that are there."""
    device = torch.device(config.device)
    if processes.size == 1:
        return Alone(task, config, device)
    from glasshead.training.distributed import WAYS

    if not isinstance(task, DistributedTask):
        raise ConfigError(
            f"{type(task).__name__} cannot be trained by {processes.size} processes",
            hint="start it without torchrun",
        )
    if device.type == "cuda":
        device = torch.device("cuda", processes.local)
    return WAYS[config.parallel](task, config, device, processes)
