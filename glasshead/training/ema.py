"""An exponential moving average of the parameters, which is less noisy than the last step."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from glasshead.errors import CheckpointError

__all__ = ["EMA"]


class EMA:
    """average <- decay * average + (1 - decay) * params, after every step.

    The decay is smaller at first, so that the random start is soon forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self._params = {name: p.detach() for name, p in model.named_parameters()}
        self.tensors = {name: p.clone() for name, p in self._params.items()}

    def restart(self) -> None:
        """Start again from the present parameters."""
        _copy(self._params, self.tensors)

    def update(self, step: int) -> None:
        """Take in the parameters after `step` steps; the first is 1."""
        decay = min(self.decay, step / (step + 9))
        torch._foreach_lerp_([*self.tensors.values()], [*self._params.values()], 1 - decay)

    @contextmanager
    def swap_in(self) -> Iterator[None]:
        """Give the model the average as its parameters within the context."""
        own = {name: p.clone() for name, p in self._params.items()}
        _copy(self.tensors, self._params)
        try:
            yield
        finally:
            _copy(own, self._params)

    def load(self, tensors: Mapping[str, Tensor], file: Path) -> None:
        """Restore the average from a checkpoint."""
        shapes = {name: mean.shape for name, mean in self.tensors.items()}
        if {name: tensor.shape for name, tensor in tensors.items()} != shapes:
            raise CheckpointError(
                f"{file} has no running mean of these parameters",
                hint="config.json and this file are of different runs; put back the right one",
            )
        _copy(tensors, self.tensors)


def _copy(source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> None:
    for name, tensor in target.items():
        tensor.copy_(source[name])
