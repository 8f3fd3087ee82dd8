"""How a model is trained."""

import math
from dataclasses import dataclass, replace

from torch import nn

from glasshead.errors import ConfigError, check_choices, check_range
from glasshead.machine import pick_device
from glasshead.training import auto_settings
from glasshead.training.optim import OPTIMIZERS
from glasshead.training.schedule import SCHEDULES

__all__ = ["TrainConfig"]


@dataclass(frozen=True)
class TrainConfig:
    """How a model is trained. Every field is a flag of `glasshead train`."""

    steps: int | None = 2000  # length of the training in steps
    minutes: float | None = None  # length in minutes instead; the schedule then follows the clock
    seed: int = 1  # of parameters, batches and dropout
    batch_size: int = 32  # sequences per batch
    accumulate: int = 1  # batches per step, whose gradients are added
    optimizer: str = "muon"  # muon (AdamW outside the blocks), adamw
    lr: float = 3e-3  # peak learning rate of AdamW
    muon_lr: float = 0.02  # peak learning rate of Muon
    weight_decay: float = 0.1  # of matrices
    beta1: float = 0.9  # of AdamW
    beta2: float = 0.95  # of AdamW
    momentum: float = 0.95  # of Muon
    clip: float = 1.0  # largest norm of the gradient; 0: no limit
    schedule: str = "trapezoid"  # trapezoid, cosine, constant, inverse-sqrt (as in the paper)
    warmup: float = 0.02  # share of the run in which the learning rate rises
    cooldown: float = 0.4  # share of the run in which the trapezoid falls
    final_lr: float = 0.0  # learning rate at the end, as a share of its peak
    eval_every: int | None = None  # steps between evaluations; by default 20, fewer in short runs
    eval_batches: int | None = None  # per evaluation, always the same; by default 20 or fewer
    stop_on: str = "loss"  # what decides which model is the best: loss, bleu (pairs only)
    patience: int = 0  # stop after so many evaluations without a better one; 0: never
    ema: float = 0.0  # decay of a running mean of the parameters, such as 0.999; 0: none
    log_every: int = 10  # steps per line of metrics.jsonl
    save_every: int | None = None  # steps between checkpoints, besides those at evaluations
    device: str = "auto"  # auto, cpu, cuda, cuda:1, ...
    precision: str = "auto"  # auto, float32, bf16
    compile: str = "auto"  # auto, on, off
    graph: str = "auto"  # auto, on, off: replay steps as a CUDA graph (text on one GPU)
    threads: int | None = None  # number of CPU threads
    parallel: str = "auto"  # ddp (auto), fsdp: how the processes of torchrun share the model
    tensorboard: bool = True  # also write TensorBoard files
    watch_heads: int | None = None  # steps between two looks at what every head does (text only)

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.minutes is None):
            raise ConfigError(
                f"steps ({self.steps}) or minutes ({self.minutes}): one of the two must be given",
                hint="for example --steps 2000, or --minutes 10",
            )
        check_range(self, "steps patience clip", least=0)
        check_range(self, "minutes lr muon_lr weight_decay", least=0, below=math.inf)
        counts = "batch_size accumulate eval_every eval_batches log_every save_every watch_heads"
        check_range(self, counts, least=1)
        check_range(self, "warmup cooldown final_lr ema", least=0, most=1)
        check_range(self, "beta1 beta2 momentum", least=0, below=1)
        check_range(self, "seed", least=0, below=2**64)  # what torch takes
        check_range(self, "threads", least=1, most=1024)  # torch crashes with some thousands
        check_choices(
            self,
            optimizer=OPTIMIZERS,
            schedule=SCHEDULES,
            stop_on=["loss", "bleu"],
            precision=["auto", "float32", "bf16"],
            compile=["auto", "on", "off"],
            parallel=["auto", "ddp", "fsdp"],
            graph=["auto", "on", "off"],
        )

    def resolve_auto(self, model: nn.Module) -> "TrainConfig":
        """Return a copy in which every 'auto' is decided, for this model on this machine."""
        device = pick_device(self.device)
        batches, every = self._pick_evaluations()
        is_long = (self.steps or 0) * self.accumulate >= 2000 or (self.minutes or 0) >= 5
        return replace(
            self,
            device=str(device),
            precision=auto_settings.pick_precision(self.precision, device, model),
            compile=auto_settings.pick_compile(self.compile, device, is_long),
            graph=auto_settings.pick_graph(self.graph, device, model),
            threads=auto_settings.pick_threads(self.threads, model),
            eval_batches=batches,
            eval_every=self.eval_every or every,
        )

    def _pick_evaluations(self) -> tuple[int, int | None]:
        """Return batches per evaluation and steps between two: at most a tenth of the run.

        A batch that is only evaluated takes a third of a step. The first evaluation is before the
        first step. A run that is given minutes decides by the clock when it evaluates.
        """
        affordable = 0.1 * 3 * (self.steps or 0) * self.accumulate
        batches = self.eval_batches or max(1, min(20, int(affordable / 2) if self.steps else 20))
        if not self.steps:
            return batches, None
        intervals = max(1, min(20, int(affordable / batches) - 1))
        return batches, math.ceil(self.steps / intervals)
