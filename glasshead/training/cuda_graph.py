"""A step recorded once and played again.

For a small model the host is slower at asking for a thousand kernels than the GPU at running them.
A CUDA graph asks once for all.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

__all__ = ["StepGraph"]

WARM = 3  # steps that run as they are: libraries set themselves up in them


class StepGraph:
    """`update(batches)`, recorded as soon as `WARM` steps in a row had batches of the same shapes.

    What it reads and writes besides (parameters, gradients, an optimizer's state) must stay where
    it was in memory; `forget` is for whoever moves it.
    """

    def __init__(self, update: Callable[[Sequence[Any]], Tensor], device: torch.device) -> None:
        self._update, self._device = update, device
        self._stream = torch.cuda.Stream(device)
        self.forget()

    def forget(self) -> None:
        self._graph: torch.cuda.CUDAGraph | None = None
        self._batches: list[Any] = []
        self._shapes: list[torch.Size] = []
        self._alike = 0

    def __call__(self, batches: Sequence[Any]) -> Tensor:
        with torch.cuda.device(self._device):
            return self._call(batches)

    def _call(self, batches: Sequence[Any]) -> Tensor:
        shapes = [tensor.shape for batch in batches for tensor in _tensors(batch)]
        if shapes != self._shapes:
            self.forget()
            self._shapes = shapes
        self._alike += 1
        if self._alike <= WARM:
            return self._aside(batches)
        if self._graph is None:
            self._record(batches)
        assert self._graph is not None
        for mine, batch in zip(self._batches, batches, strict=True):
            for kept, new in zip(_tensors(mine), _tensors(batch), strict=True):
                kept.copy_(new)
        self._graph.replay()
        return self._out.clone()

    def _aside(self, batches: Sequence[Any]) -> Tensor:
        """On a stream of its own, as recording wants it of what comes before."""
        here, aside = torch.cuda.current_stream(), self._stream
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            out = self._update(batches)
        here.wait_stream(aside)
        return out

    def _record(self, batches: Sequence[Any]) -> None:
        self._batches = [
            replace(batch, **{f.name: getattr(batch, f.name).clone() for f in fields(batch)})
            for batch in batches
        ]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            self._out = self._update(self._batches)
        self._graph = graph


def _tensors(batch: Any) -> list[Tensor]:
    return [getattr(batch, field.name) for field in fields(batch)]
