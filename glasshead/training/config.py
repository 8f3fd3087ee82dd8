"""How a model is trained."""

import math
from dataclasses import dataclass, replace

from torch import nn

from glasshead.errors import ConfigError, did_you_mean
from glasshead.machine import pick_device
from glasshead.training import auto_settings
from glasshead.training.optim import OPTIMIZERS
from glasshead.training.schedule import SCHEDULES

__all__ = ["TrainConfig"]


@dataclass(frozen=True)
class TrainConfig:
    """How a model is trained. Every field is a flag of `glasshead train`."""

    steps: int | None = 2000  # how long to train, in steps
    minutes: float | None = None  # or by the clock; the schedule then follows the clock
    seed: int = 1  # of the parameters, the batches and dropout
    batch_size: int = 32  # sequences in a batch
    accumulate: int = 1  # batches whose gradients make one step
    optimizer: str = "muon"  # muon (AdamW outside the blocks), adamw
    lr: float = 3e-3  # peak learning rate of AdamW
    muon_lr: float = 0.02  # peak learning rate of Muon
    weight_decay: float = 0.1  # of matrices
    beta1: float = 0.9
    beta2: float = 0.95
    momentum: float = 0.95  # of Muon
    clip: float = 1.0  # longest gradient, by its global norm; 0: no limit
    schedule: str = "trapezoid"  # trapezoid, cosine, constant, inverse-sqrt (the paper)
    warmup: float = 0.02  # share of the run in which the rate rises
    cooldown: float = 0.4  # share of the run in which the trapezoid falls
    final_lr: float = 0.0  # where the rate ends, as a share of its peak
    eval_every: int | None = None  # steps between evaluations; 20 in all if not given
    eval_batches: int = 20  # how many, always the same
    stop_on: str = "loss"  # what the kept model is best in: loss, bleu (pairs alone)
    patience: int = 0  # end after so many evaluations without a better one; 0: never
    ema: float = 0.0  # keep a running mean of the parameters, such as 0.999; 0: the last ones
    log_every: int = 10  # steps to a line of metrics.jsonl
    save_every: int | None = None  # steps between checkpoints, besides those at evaluations
    device: str = "auto"  # auto, cpu, cuda, cuda:1, ...
    precision: str = "auto"  # auto, float32, bf16
    compile: str = "auto"  # auto, on, off
    graph: str = "auto"  # auto, on, off: record a step of a text on one GPU, and play it again
    threads: int | None = None  # of the CPU
    parallel: str = "auto"  # ddp (auto), fsdp: how processes that torchrun starts share the model
    tensorboard: bool = True  # also write for TensorBoard

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.minutes is None):
            raise ConfigError(
                f"steps ({self.steps}) or minutes ({self.minutes}): one of the two must be given",
                hint="give --steps, or give --minutes",
            )
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and not value >= least:  # NaN too
                raise ConfigError(
                    f"{name} ({value}) must be at least {least}", hint=f"raise {name}"
                )
        for name, most in _BELOW.items():
            value = getattr(self, name)
            if value is not None and not value < most:
                raise ConfigError(
                    f"{name} ({value}) must be less than {most}", hint=f"lower {name}"
                )
        for name in _SHARES:
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(
                    f"{name} ({getattr(self, name)}) must lie between 0 and 1", hint="it is a share"
                )
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ConfigError(
                    f"unknown {name} '{getattr(self, name)}'",
                    hint=did_you_mean(str(getattr(self, name)), choices),
                )

    def resolve_auto(self, model: nn.Module) -> "TrainConfig":
        """The same, with every 'auto' decided for this model on this machine."""
        device = pick_device(self.device)
        is_long = (self.steps or 0) * self.accumulate >= 2000 or (self.minutes or 0) >= 5
        return replace(
            self,
            device=str(device),
            precision=auto_settings.pick_precision(self.precision, device, model),
            compile=auto_settings.pick_compile(self.compile, device, is_long),
            graph=auto_settings.pick_graph(self.graph, device, model),
            threads=auto_settings.pick_threads(self.threads, model),
            eval_every=self.eval_every or (max(1, self.steps // 20) if self.steps else None),
        )


_LEAST = {
    **dict.fromkeys(("steps", "minutes", "seed", "lr", "muon_lr", "weight_decay", "clip"), 0),
    **dict.fromkeys(("batch_size", "accumulate", "eval_every", "eval_batches", "log_every"), 1),
    **dict.fromkeys(("save_every", "threads"), 1),
    "patience": 0,
}
_BELOW = {
    **dict.fromkeys(("minutes", "lr", "muon_lr", "weight_decay"), math.inf),
    **dict.fromkeys(("beta1", "beta2", "momentum"), 1),
    "seed": 2**64,  # what torch takes
    "threads": 1025,  # some thousands crash it
}
_SHARES = ("warmup", "cooldown", "final_lr", "beta1", "beta2", "momentum", "ema")
_CHOICES = {
    "optimizer": list(OPTIMIZERS),
    "schedule": list(SCHEDULES),
    "stop_on": ["loss", "bleu"],
    "precision": ["auto", "float32", "bf16"],
    "compile": ["auto", "on", "off"],
    "parallel": ["auto", "ddp", "fsdp"],
    "graph": ["auto", "on", "off"],
}
