"""A CUDA graph of a training step.

For a small model the host launches a thousand kernels more slowly than the GPU runs them. A graph
launches all of them at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

__all__ = ["StepGraph"]

WARM = 3  # steps without a graph, in which libraries set themselves up


class StepGraph:
    """Calls `update(batches)`, from a graph once `WARM` steps in a row had batches of equal shapes.

    Everything else that `update` reads and writes (parameters, gradients, optimizer state) must
    stay at its place in memory. Call `reset` after moving any of it.
    """

    def __init__(self, update: Callable[[Sequence[Any]], Tensor], device: torch.device) -> None:
        self._update, self._device = update, device
        self._stream = torch.cuda.Stream(device)
        self.reset()

    def reset(self) -> None:
        self._graph: torch.cuda.CUDAGraph | None = None
        self._batches: list[Any] = []
        self._shapes: list[torch.Size] = []
        self._n_warm = 0

    def __call__(self, batches: Sequence[Any]) -> Tensor:
        with torch.cuda.device(self._device):
            shapes = [tensor.shape for batch in batches for tensor in _tensors(batch)]
            if shapes != self._shapes:
                self.reset()
                self._shapes = shapes
            self._n_warm += 1
            if self._n_warm <= WARM:
                return self._run_on_stream(batches)
            if self._graph is None:
                self._graph = self._capture(batches)
            for own, batch in zip(self._batches, batches, strict=True):
                for static, new in zip(_tensors(own), _tensors(batch), strict=True):
                    static.copy_(new)
            self._graph.replay()
            return self._out.clone()

    def _run_on_stream(self, batches: Sequence[Any]) -> Tensor:
        """Run without a graph, on the stream that capturing will use."""
        here, stream = torch.cuda.current_stream(), self._stream
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            out = self._update(batches)
        here.wait_stream(stream)
        return out

    def _capture(self, batches: Sequence[Any]) -> torch.cuda.CUDAGraph:
        self._batches = [
            replace(batch, **{f.name: getattr(batch, f.name).clone() for f in fields(batch)})
            for batch in batches
        ]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            self._out = self._update(self._batches)
        return graph


def _tensors(batch: Any) -> list[Tensor]:
    return [getattr(batch, field.name) for field in fields(batch)]
