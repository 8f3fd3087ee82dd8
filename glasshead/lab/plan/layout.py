"""How a model is spread over GPUs, and what they tell each other.

    data      each GPU has its own sequences; ddp keeps whole copies of the model, fsdp shards of it
    tensor    GPUs share each matrix: columns of qkv, gate and up; rows of out and down
    context   GPUs share each sequence; keys and values go round

Ranks count through the tensor group first, then through context, then through data, so that
those who talk most are in one node.
"""

from dataclasses import dataclass

from glasshead.errors import ConfigError, did_you_mean
from glasshead.lab.plan.devices import LINK, Device
from glasshead.model.gpt import GPTConfig
from glasshead.model.layers import ff_width

__all__ = ["Collective", "Layout", "collective"]

WAYS = ("ddp", "fsdp")
WAIT = 10e-6  # seconds until a collective gets going, for each doubling of the group


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
        """Groups of GPUs that have sequences of their own."""
        return self.gpus // (self.tensor * self.context)

    @property
    def replicas(self) -> int:
        """GPUs that hold the same parameters, or would without shards."""
        return self.data * self.context

    @property
    def shards(self) -> int:
        """Parts into which the model's state is cut, besides its matrices."""
        return self.replicas if self.parallel == "fsdp" else 1

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


@dataclass(frozen=True)
class Collective:
    """One kind of message, as often as a step needs it."""

    name: str
    what: str
    count: int  # in a step
    bytes: float  # that each GPU sends in a step, in all; or gets, where one has more than others
    group: int
    seconds: float  # in a step, were nothing computed meanwhile


# How often each GPU sends what the whole group has (or the sum of it), around a ring; or, to each
# other its own part, what it has itself.
TRIPS = {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1, "all-to-all": 1}


def collective(
    name: str, what: str, count: int, size: float, group: int, near: int, device: Device
) -> Collective:
    """`count` collectives on tensors of `size` bytes, in groups with `near` members in a node.

    A ring through several nodes leaves each through the ports of the group's members there, all
    at once: eight members of a node send eight times what one does. From all to all each has its
    own port alone.

    >>> from glasshead.lab.plan.devices import DEVICES
    >>> collective("all-gather", "params", 1, 16e9, 64, 8, DEVICES["h100"]).bytes / 1e9
    15.75
    """
    sent = TRIPS[name] * size * (group - 1) / group
    if name == "all-to-all":
        parts = (near - 1) / device.link, (group - near) / device.network
        takes = size / group * max(parts)
    else:
        takes = sent / (device.link if near >= group else min(device.link, near * device.network))
    wait = WAIT * (group - 1).bit_length()
    return Collective(name, what, count, count * sent, group, count * (takes / LINK + wait))
