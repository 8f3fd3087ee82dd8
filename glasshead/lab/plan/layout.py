"""Spread a model over GPUs.

    data      each GPU has its own sequences; ddp keeps copies of the model, fsdp shards of it
    tensor    GPUs share each matrix: columns of qkv, gate and up; rows of out and down
    context   GPUs share each sequence, and send each other its keys and values

Ranks count through the tensor group first, then context, then data, so that those that send most
are in one node.
"""

from dataclasses import dataclass, replace

from glasshead.errors import ConfigError, did_you_mean
from glasshead.model.gpt import GPTConfig
from glasshead.model.layers import ff_width

__all__ = ["Layout"]

WAYS = ("ddp", "fsdp")


@dataclass(frozen=True)
class Layout:
    gpus: int = 1
    parallel: str = "ddp"
    tensor: int = 1
    context: int = 1

    def __post_init__(self) -> None:
        if self.parallel not in WAYS:
            raise ConfigError(
                f"unknown parallel '{self.parallel}'", hint=did_you_mean(self.parallel, WAYS)
            )
        for name in ("gpus", "tensor", "context"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} ({getattr(self, name)}) must be at least 1", hint="1")
        if self.gpus % (self.tensor * self.context):
            raise ConfigError(
                f"gpus ({self.gpus}) must be divisible by tensor ({self.tensor}) x context "
                f"({self.context})",
                hint=f"--gpus {self.tensor * self.context * (self.gpus // self.tensor or 1)}",
            )

    @property
    def data(self) -> int:
        """Groups of GPUs with sequences of their own."""
        return self.gpus // (self.tensor * self.context)

    @property
    def replicas(self) -> int:
        """GPUs that hold the same parameters, or would without shards."""
        return self.data * self.context

    @property
    def is_sharded(self) -> bool:
        return self.parallel == "fsdp" and self.replicas > 1

    @property
    def shards(self) -> int:
        """Parts of the training state of what the tensor group leaves to one GPU."""
        return self.replicas if self.is_sharded else 1

    def part_of(self, config: GPTConfig) -> GPTConfig:
        """Return the shape of the part of the model that one GPU of a tensor group has."""
        c, n = config, self.tensor
        if n == 1:
            return c
        return replace(
            c,
            n_heads=c.n_heads // n,
            n_kv_heads=(c.n_kv_heads or c.n_heads) // n,
            d_head=c.d_head or c.d_model // c.n_heads,
            d_ff=ff_width(c) // n,
            vocab_size=-(-c.vocab_size // n),
        )

    def check(self, config: GPTConfig, batch_size: int) -> None:
        if batch_size < self.data:
            raise ConfigError(
                f"batch_size ({batch_size}) is less than the {self.data} GPUs that share it",
                hint=f"--batch-size {self.data}",
            )
        parts = {
            "max_len": (config.max_len, "context", self.context),
            "n_heads": (config.n_heads, "tensor", self.tensor),
            "n_kv_heads": (config.n_kv_heads or config.n_heads, "tensor", self.tensor),
            "d_ff": (ff_width(config), "tensor", self.tensor),
        }
        for name, (value, way, degree) in parts.items():
            if value % degree:
                raise ConfigError(
                    f"{name} ({value}) cannot be shared evenly by {degree} ({way})",
                    hint=f"--{way} 1, or one that divides {value}",
                )
