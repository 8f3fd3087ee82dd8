"""A model spread over processes, so that one global batch gives one loss curve.

    Replicated   each has all parameters and some rows of the batch; gradients are averaged (DDP)
    Sharded      each has a part of every parameter, of its gradient and of its optimizer state;
                 a block is put together when it is needed (FSDP2)

A process's loss is the mean over its own tokens. It counts as much as it has tokens, so the sum
over the processes is the mean over the batch, however unevenly its rows fall.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from glasshead.attention.functional import allow_nan
from glasshead.checkpoint import parameters
from glasshead.checkpoint.processes import Processes
from glasshead.checkpoint.sharded import whole
from glasshead.model.layers import Block
from glasshead.text.batches import draw
from glasshead.training.config import TrainConfig
from glasshead.training.strategy import Alone
from glasshead.training.task import DistributedTask, Task

__all__ = ["WAYS", "Replicated", "Sharded"]


class Replicated(Alone):
    """DDP: gradients are averaged while the backward pass still computes others."""

    task: DistributedTask

    def __init__(
        self, task: DistributedTask, config: TrainConfig, device: torch.device, processes: Processes
    ) -> None:
        self._processes, self._seed = processes, config.seed
        super().__init__(task, config, device)

    def _place(self, compiled: bool) -> None:
        super()._place(compiled)
        on_gpu = [self.device] if self.device.type == "cuda" else None
        # All processes load the same file before they start, so nothing need be sent at first.
        self._loss: Any = DistributedDataParallel(
            _Loss(self.task), on_gpu, init_sync=False, gradient_as_bucket_view=True
        )

    def begin_step(self, step: int) -> None:
        """Dropout differs between processes and steps, and needs no state to be the same again."""
        seeds = draw(self._seed + 2**42, step, self._processes.size)
        torch.manual_seed(int(seeds[self._processes.rank]))

    def backward(self, batch: Any, of: int, last: bool) -> Tensor:
        rows, share = self.task.share(batch, self._processes.rank, self._processes.size)
        with self._exchange(last), allow_nan():
            with self.autocast():
                part: Tensor = self._loss(rows) * (share / of)
            (part * self._processes.size).backward()  # by which the gradient is divided
        return part.detach()

    def _exchange(self, last: bool) -> AbstractContextManager[Any]:
        """Gradients go round once a step, however many batches it has."""
        return nullcontext() if last else self._loss.no_sync()

    def total(self, loss: Tensor) -> Tensor:
        return self._processes.sum(loss)

    def judge(self) -> Task | None:
        return self.task if self._processes.first else None


class Sharded(Replicated):
    """FSDP2. The first process has a whole copy besides, to evaluate and to be written."""

    def _place(self, compiled: bool) -> None:
        copy = deepcopy(self.task.model) if self._processes.first else None
        self._judge = None if copy is None else self.task.with_model(copy.to(self.device).eval())
        assert dist.group.WORLD is not None
        mesh = DeviceMesh.from_group(dist.group.WORLD, self.device.type)
        halves = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
        policy = halves if self._half else MixedPrecisionPolicy()
        self._loss = _Loss(self.task)
        blocks = [module for module in self.task.model.modules() if isinstance(module, Block)]
        for block in blocks if compiled else ():  # without what puts it together, which cannot be
            block.forward = torch.compile(block.forward)  # type: ignore[method-assign]
        for module in (*blocks, self._loss):
            shard = fully_shard(module, mesh=mesh, mp_policy=policy)
            if self.device.type == "cpu":  # older gloo sums where it is asked for a mean
                shard.set_force_sum_reduction_for_comms(True)
        self._params = dict(self.task.model.named_parameters())

    def _exchange(self, last: bool) -> AbstractContextManager[Any]:
        self._loss.set_requires_gradient_sync(last)
        self._loss.set_is_last_backward(last)
        return nullcontext()

    def clip(self, params: Sequence[Tensor], most: float) -> Tensor:
        return whole(super().clip(params, most))

    @torch.no_grad()
    def judge(self) -> Task | None:
        mine = parameters(self._judge.model) if self._judge else {}
        for name, tensor in parameters(self.task.model).items():
            every = whole(tensor)
            if mine:
                mine[name].copy_(every)
        return self._judge

    def like(self, name: str) -> Tensor | None:
        """X, model.X, mean.X and optimizer.X/KEY are like the parameter X."""
        owner = name.partition(".")[2]
        names = (name, owner, owner.rpartition("/")[0])
        return next((self._params[n] for n in names if n in self._params), None)


class _Loss(nn.Module):
    """The loss as a module, whatever of the model it calls: the wrappers hook into its call."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.model, self._task = task.model, task

    def forward(self, batch: Any) -> Tensor:
        return self._task.loss(batch)


WAYS: dict[str, type[Replicated]] = {"auto": Replicated, "ddp": Replicated, "fsdp": Sharded}
