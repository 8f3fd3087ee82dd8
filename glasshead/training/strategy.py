"""How a step is computed: by one process here, by several in distributed.py."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from glasshead.checkpoint.processes import Processes
from glasshead.files.tensors import Like
from glasshead.training.config import TrainConfig
from glasshead.training.task import Task

if TYPE_CHECKING:
    from glasshead.checkpoint.sharded import ShardWriter

__all__ = ["SingleProcess", "choose_strategy"]


class SingleProcess:
    """One process has the whole model and computes whole batches."""

    like: Like | None = None  # how tensors of a checkpoint are sharded; None: they are not
    shard_writer: "ShardWriter | None" = None  # saves checkpoints of several processes

    def __init__(self, task: Task, config: TrainConfig, device: torch.device) -> None:
        self.task, self.device = task, device
        self._half = config.precision == "bf16"
        self.autocast = partial(torch.autocast, device.type, torch.bfloat16, enabled=self._half)
        self._place_model(config.compile == "on")

    def _place_model(self, compiled: bool) -> None:
        self.task.model.to(self.device)
        if compiled:
            self.task.compile()

    def start_step(self, step: int) -> None:
        """Prepare for a step."""

    def backward(self, batch: Any, n_batches: int, last: bool) -> Tensor:
        """Add the gradient of one of the batches of a step; return its part of the step's loss."""
        with self.autocast():
            part = self.task.loss(batch) / n_batches
        part.backward()
        return part.detach()

    def clip(self, params: Sequence[Tensor], max_norm: float) -> Tensor:
        """Scale the gradient down to a norm of at most `max_norm`; return the norm it had."""
        return nn.utils.clip_grad_norm_(params, max_norm)

    def evaluation_task(self) -> Task | None:
        """Return the task with the present parameters; None if another process evaluates."""
        return self.task


def choose_strategy(processes: Processes, task: Task, config: TrainConfig) -> SingleProcess:
    device = torch.device(config.device)
    if processes.size == 1:
        return SingleProcess(task, config, device)
    from glasshead.training.distributed import Replicated, Sharded

    if device.type == "cuda":
        device = torch.device("cuda", processes.local_rank)
    strategy = Sharded if config.parallel == "fsdp" else Replicated
    return strategy(task, config, device, processes)
