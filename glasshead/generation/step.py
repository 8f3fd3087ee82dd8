"""Run a model one id further: the interface of a step, the plain one, and how one is picked.

ModuleStep      calls the model; serves every model, and hooks see what it does
FlatStep        the same calls without modules, for CPUs (`flat_step.py`)
CudaGraphStep   kernels of ours in a CUDA graph, for GPUs (`cuda_graph_step.py`)
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor, nn

from glasshead.attention.mask import Mask
from glasshead.generation.kv_slots import KVSlots
from glasshead.model.gpt import GPT

__all__ = ["DecodeStep", "ModuleStep", "eval_mode", "has_hooks", "pick_step"]


class DecodeStep(Protocol):
    @property
    def slots(self) -> KVSlots:
        """The keys and values that the step reads and writes."""

    def __call__(self, ids: Sequence[int], rows: slice) -> Tensor:
        """Return logits (B, V) for the id after each of `ids`, the last ids of these rows.

        Their keys and values are written into the slots, which then have to `advance`.
        """

    def head(self, x: Tensor) -> Tensor:
        """Return logits (B, V) of features (B, C), which `GPT.features` gave."""

    def close(self) -> None:
        """End the use of the slots."""


class ModuleStep:
    """Call the model itself."""

    def __init__(self, model: GPT, slots: KVSlots | None = None) -> None:
        self._model = model
        self.slots = slots or KVSlots(model.embedding.weight.device)

    def __call__(self, ids: Sequence[int], rows: slice) -> Tensor:
        slots = self.slots
        visible = slots.visible(rows)
        x = self._model.features(
            torch.tensor(ids, device=slots.device)[:, None],
            mask=None if visible is None else Mask(keys=visible),
            positions=slots.positions(rows),
            caches=slots.caches(rows),
        )
        return self.head(x[:, -1])

    def head(self, x: Tensor) -> Tensor:
        return self._model.logits(x)

    def close(self) -> None:
        pass


def pick_step(model: GPT) -> DecodeStep:
    """Return the fastest step for a model where it is now."""
    from glasshead.generation.cuda_graph_step import supports_cuda_graph_step, take_cuda_graph_step
    from glasshead.generation.flat_step import FlatStep, supports_flat_step

    if supports_cuda_graph_step(model):
        return take_cuda_graph_step(model)
    return FlatStep(model) if supports_flat_step(model) else ModuleStep(model)


def has_hooks(modules: Iterable[nn.Module]) -> bool:
    """Return whether one of the modules has hooks of ours, or a forward that was replaced."""
    return any(getattr(m, "hooks", ()) or "forward" in m.__dict__ for m in modules)


@contextmanager
def eval_mode(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Turn off dropout and gradients; afterwards each of a model's `modules()` is as it was."""
    training = [module for module in modules if module.training]
    try:
        for module in training:
            module.training = False
        with torch.inference_mode():
            yield
    finally:
        for module in training:
            module.training = True
