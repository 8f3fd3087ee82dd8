"""A running mean of the parameters: less noise than the last step has, for the price of a copy."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from glasshead.errors import CheckpointError

__all__ = ["EMA"]


class EMA:
    """mean <- decay * mean + (1 - decay) * params, after every step.

    Early on the decay is smaller, so that the start, which knows nothing, is soon forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self._params = {name: p.detach() for name, p in model.named_parameters()}
        self.tensors = {name: p.clone() for name, p in self._params.items()}

    def restart(self) -> None:
        """From the parameters as they are now."""
        _copy(self._params, self.tensors)

    def update(self, step: int) -> None:
        """After `step` steps, the first being 1."""
        decay = min(self.decay, step / (step + 9))
        torch._foreach_lerp_([*self.tensors.values()], [*self._params.values()], 1 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside, the model has the mean for its parameters."""
        own = {name: p.clone() for name, p in self._params.items()}
        _copy(self.tensors, self._params)
        try:
            yield
        finally:
            _copy(own, self._params)

    def load(self, tensors: Mapping[str, Tensor], file: Path) -> None:
        """Go on with the mean that a checkpoint kept."""
        shapes = {name: mean.shape for name, mean in self.tensors.items()}
        if {name: tensor.shape for name, tensor in tensors.items()} != shapes:
            raise CheckpointError(
                f"{file} has no running mean of these parameters",
                hint="config.json and this file are not of one run; put back the one changed",
            )
        _copy(tensors, self.tensors)


def _copy(source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> None:
    for name, tensor in target.items():
        tensor.copy_(source[name])
