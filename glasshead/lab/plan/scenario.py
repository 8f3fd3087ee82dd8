"""What is to be planned: a model, a device, a layout, batches and texts."""

from dataclasses import dataclass

from glasshead.errors import ConfigError, did_you_mean
from glasshead.lab.plan.layout import Layout
from glasshead.model.gpt import GPTConfig
from glasshead.training.optim import OPTIMIZERS

__all__ = ["Scenario"]

BYTES = {"bf16": 2, "float32": 4}
DEEPEST = 10_000  # layers
ONE_GPU = Layout()


@dataclass(frozen=True)
class Scenario:
    config: GPTConfig
    gpu: str = "h200"
    layout: Layout = ONE_GPU
    batch_size: int = 32  # sequences of a batch, on all GPUs
    accumulate: int = 1
    optimizer: str = "muon"
    precision: str | None = None  # bf16 on a GPU, float32 on a CPU
    compiled: bool | None = None  # on a GPU
    texts: int = 1  # continued at a time

    def __post_init__(self) -> None:
        for name, table in (("optimizer", OPTIMIZERS), ("precision", BYTES)):
            value = getattr(self, name)
            if value is not None and value not in table:
                raise ConfigError(f"unknown {name} '{value}'", hint=did_you_mean(value, table))
        for name in ("accumulate", "texts"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} ({getattr(self, name)}) must be at least 1", hint="1")
        if not 1 <= self.config.n_layers <= DEEPEST:
            raise ConfigError(
                f"n_layers ({self.config.n_layers}) must be from 1 to {DEEPEST:,} for a plan",
                hint="GPT-2 has 12, the largest models about a hundred: --n-layers 12",
            )

    @property
    def itemsize(self) -> int:
        return BYTES[self.precision or ("float32" if self.gpu == "cpu" else "bf16")]

    @property
    def is_compiled(self) -> bool:
        return self.gpu != "cpu" if self.compiled is None else self.compiled
