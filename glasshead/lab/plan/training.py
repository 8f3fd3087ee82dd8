"""What a step of training costs one GPU, and all of them together."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from glasshead.lab.plan.communication import collectives, waited
from glasshead.lab.plan.devices import Device, Rates
from glasshead.lab.plan.layout import Collective, Layout
from glasshead.lab.plan.memory import TrainingMemory, training_memory
from glasshead.lab.plan.operations import Operation, Setting, operations, pairs
from glasshead.lab.plan.shapes import Counts
from glasshead.lab.plan.update import muon_flops, update_seconds
from glasshead.model.gpt import GPTConfig
from glasshead.train.machine import GRAPH_PAYS

__all__ = ["TrainingPlan", "plan_training", "seconds_by_kind"]


@dataclass(frozen=True)
class TrainingPlan:
    tokens: int  # of a step, on all GPUs
    flops: float  # of a step, on all GPUs: products of matrices; of pairs, those that may attend
    optimizer_flops: float  # of a step, on the GPU that has most of them: Muon's
    memory: TrainingMemory  # of one GPU
    seconds: dict[str, float]  # of a step, by what is waited for
    collectives: list[Collective]
    share: float  # of the peak of all GPUs

    @property
    def step(self) -> float:
        """Seconds."""
        return sum(self.seconds.values())

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.step


def plan_training(
    config: GPTConfig,
    counts: Counts,
    device: Device,
    layout: Layout,
    *,
    batch_size: int,
    accumulate: int = 1,
    optimizer: str = "adamw",
    itemsize: int = 2,
    compiled: bool = True,
    rates: Rates | None = None,
) -> TrainingPlan:
    layout.check(config, batch_size)
    rates = rates or device.rates(itemsize)
    s = Setting(
        config,
        B=-(-batch_size // layout.data),  # whoever has most
        T=config.max_len // layout.context,
        S=config.max_len,
        itemsize=itemsize,
        compiled=compiled,
        cuda=device.name != "cpu",
        captured=device.name != "cpu" and counts.hidden < GRAPH_PAYS,
        tensor=layout.tensor,
    )
    ops = _balanced(operations(s), config, layout.context)
    forward, backward = seconds_by_kind(ops, s, rates), seconds_by_kind(ops, s, rates, back=True)
    seconds = {name: accumulate * (forward[name] + backward[name]) for name in forward}
    talk = collectives(s, counts, device, layout, optimizer, accumulate)
    seconds["communication"] = waited(
        talk,
        units=config.n_layers + 1,
        forward=accumulate * sum(forward.values()),
        backward=accumulate * sum(backward.values()),
        attention=seconds["attention"],
        last_backward=sum(backward.values()),
    )
    seconds["optimizer"] = update_seconds(config, counts, layout, optimizer, rates)
    each = sum(op.flops for op in ops) / s.B * layout.tensor * layout.context
    flops = 3.0 * accumulate * batch_size * each
    everybody = layout.gpus * device.peak(itemsize)
    return TrainingPlan(
        tokens=batch_size * accumulate * config.max_len,
        flops=flops,
        optimizer_flops=(
            muon_flops(config, layout.shards) / layout.tensor if optimizer == "muon" else 0.0
        ),
        memory=training_memory(s, counts, layout, ops, optimizer, accumulate),
        seconds=seconds,
        collectives=talk,
        share=flops / (everybody * sum(seconds.values())),
    )


def _balanced(ops: list[Operation], config: GPTConfig, context: int) -> list[Operation]:
    """The last tokens of a text see most, so each GPU gets some early and some late ones."""
    if context == 1:
        return ops
    T, window = config.max_len, config.window
    share = pairs(T, T, window) / context / pairs(T // context, T, window)
    return [replace(op, flops=op.flops * share) if op.kind == "attention" else op for op in ops]


def seconds_by_kind(
    ops: Iterable[Operation], s: Setting, rates: Rates, back: bool = False
) -> dict[str, float]:
    """How long a pass takes, by kind; `host` is how long the device waits for Python."""
    total = {"matmul": 0.0, "attention": 0.0, "pointwise": 0.0}
    calls = matrices = 0
    for op in ops:
        work, moved = (op.work_back, op.moved_back) if back else (op.flops, op.moved)
        busy = max(
            work / (rates.attention if op.kind == "attention" else rates.matmul),
            moved / rates.memory,
        )
        # A gradient for the input and one for the matrix.
        n = op.calls * (2 if back and op.kind == "matmul" else 1)
        total[op.kind] += max(busy, n * rates.kernel) if s.cuda else busy
        calls, matrices = calls + n, matrices + op.matrix
    if s.itemsize == 2 and s.training:  # parameters are cast for each pass, gradients cast back
        total["pointwise"] += 6 * matrices / rates.memory
    host = 0.0
    if not (s.compiled or s.captured):
        # A GPU works while Python prepares the next call; a CPU does the one after the other.
        host = max(0.0, calls * rates.call - (sum(total.values()) if s.cuda else 0.0))
    return {**total, "host": host}
