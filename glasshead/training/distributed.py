"""Training by several processes, with the loss curve of one.

    Replicated   each has all parameters and some rows of the batch; gradients are averaged (DDP)
    Sharded      each has a part of every parameter, of its gradient and of its optimizer state;
                 a block is gathered when it is needed (FSDP2)

The loss of a process is the mean over its own tokens. It is weighted by their number, so that the
sum over the processes is the mean over the batch, however unevenly its rows are distributed.
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
from glasshead.checkpoint.sharded import ShardWriter, full_tensor
from glasshead.model.layers import Block
from glasshead.text.batches import draw
from glasshead.training.config import TrainConfig
from glasshead.training.strategy import SingleProcess
from glasshead.training.task import Task

__all__ = ["Replicated", "Sharded"]


class Replicated(SingleProcess):
    """DDP: gradients are averaged while the backward pass still computes others."""

    def __init__(
        self, task: Task, config: TrainConfig, device: torch.device, processes: Processes
    ) -> None:
        self._processes, self._seed = processes, config.seed
        self.shard_writer = ShardWriter(processes)
        super().__init__(task, config, device)

    def _place_model(self, compiled: bool) -> None:
        super()._place_model(compiled)
        on_gpu = [self.device] if self.device.type == "cuda" else None
        # All processes load the same file before they start: no parameters need to be sent.
        self._loss: Any = DistributedDataParallel(
            _Loss(self.task), on_gpu, init_sync=False, gradient_as_bucket_view=True
        )

    def start_step(self, step: int) -> None:
        """Seed dropout for this process and step, so that no RNG state needs to be saved."""
        seeds = draw(self._seed + 2**42, step, self._processes.size)
        torch.manual_seed(int(seeds[self._processes.rank]))

    def backward(self, batch: Any, n_batches: int, last: bool) -> Tensor:
        rows, share = self.task.share(batch, self._processes.rank, self._processes.size)
        with self._synchronize(last), allow_nan():
            with self.autocast():
                part: Tensor = self._loss(rows) * (share / n_batches)
            (part * self._processes.size).backward()  # the gradient will be divided by it
        return part.detach()

    def _synchronize(self, last: bool) -> AbstractContextManager[Any]:
        """Exchange gradients only with the last batch of a step."""
        return nullcontext() if last else self._loss.no_sync()

    def evaluation_task(self) -> Task | None:
        return self.task if self._processes.first else None


class Sharded(Replicated):
    """FSDP2. The first process also has a whole copy, to evaluate and to save."""

    def _place_model(self, compiled: bool) -> None:
        copy = deepcopy(self.task.model) if self._processes.first else None
        self._whole = None if copy is None else self.task.with_model(copy.to(self.device).eval())
        assert dist.group.WORLD is not None
        mesh = DeviceMesh.from_group(dist.group.WORLD, self.device.type)
        halves = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
        policy = halves if self._half else MixedPrecisionPolicy()
        self._loss = _Loss(self.task)
        blocks = [module for module in self.task.model.modules() if isinstance(module, Block)]
        for block in blocks if compiled else ():  # without the gathering, which cannot be compiled
            block.forward = torch.compile(block.forward)  # type: ignore[method-assign]
        for module in (*blocks, self._loss):
            shard = fully_shard(module, mesh=mesh, mp_policy=policy)
            if self.device.type == "cpu":  # older gloo computes a sum where a mean is asked for
                shard.set_force_sum_reduction_for_comms(True)
        self._params = dict(self.task.model.named_parameters())
        self.like = self._find_like

    def _find_like(self, name: str) -> Tensor | None:
        """Return the parameter that a tensor of a checkpoint is sharded like.

        X, model.X, mean.X and optimizer.X/KEY are like the parameter X.
        """
        owner = name.partition(".")[2]
        names = (name, owner, owner.rpartition("/")[0])
        return next((self._params[n] for n in names if n in self._params), None)

    def _synchronize(self, last: bool) -> AbstractContextManager[Any]:
        self._loss.set_requires_gradient_sync(last)
        self._loss.set_is_last_backward(last)
        return nullcontext()

    def clip(self, params: Sequence[Tensor], max_norm: float) -> Tensor:
        return full_tensor(super().clip(params, max_norm))

    @torch.no_grad()
    def evaluation_task(self) -> Task | None:
        own = parameters(self._whole.model) if self._whole else {}
        for name, tensor in parameters(self.task.model).items():
            gathered = full_tensor(tensor)
            if own:
                own[name].copy_(gathered)
        return self._whole


class _Loss(nn.Module):
    """The loss of a task as a module, because DDP and FSDP wrap the call of a module."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.model, self._task = task.model, task

    def forward(self, batch: Any) -> Tensor:
        return self._task.loss(batch)
