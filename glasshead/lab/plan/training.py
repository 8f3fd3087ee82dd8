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
from glasshead.training.auto_settings import GRAPH_PAYS

__all__ = ["TrainingPlan", "plan_training", "seconds_by_kind", "waited_for_python"]

# Of Python's time, what a GPU waits for even where it has much to do: from one step to the next,
# until the first kernel and after the last. From steps of 16 and 64 x 1024 tokens, not compiled,
# on an H200.
BETWEEN = 0.2


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
        # Of one process alone: several have messages between their kernels.
        captured=device.name != "cpu" and layout.gpus == 1 and counts.hidden < GRAPH_PAYS,
        tensor=layout.tensor,
    )
    ops = _balanced(operations(s), config, layout.context)
    forward, backward = seconds_by_kind(ops, s, rates), seconds_by_kind(ops, s, rates, back=True)
    seconds = {name: accumulate * (forward[name] + backward[name]) for name in forward}
    update, calls = update_seconds(config, counts, layout, optimizer, rates, not s.cuda)
    calls += accumulate * sum(op.host_calls() + op.host_calls(back=True) for op in ops)
    busy = sum(seconds.values()) + update
    seconds["host"] = waited_for_python(s, rates, calls, busy)
    talk = collectives(s, counts, device, layout, optimizer, accumulate)
    seconds["communication"] = waited(
        talk,
        units=config.n_layers + 1,
        forward=accumulate * sum(forward.values()),
        backward=accumulate * sum(backward.values()),
        attention=seconds["attention"],
        last_backward=sum(backward.values()),
    )
    seconds["optimizer"] = update
    each = sum(op.flops for op in ops) / s.B * layout.tensor * layout.context
    flops = 3.0 * accumulate * batch_size * each
    everybody = layout.gpus * device.peak(itemsize)
    return TrainingPlan(
        tokens=batch_size * accumulate * config.max_len,
        flops=flops,
        optimizer_flops=(
            muon_flops(config, layout.shards, not s.cuda) / layout.tensor
            if optimizer == "muon"
            else 0.0
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
    """How long a device is busy with a pass, by kind."""
    total = {"matmul": 0.0, "attention": 0.0, "pointwise": 0.0}
    matrices = 0
    for op in ops:
        busy = max(
            op.work(back) / (rates.attention if op.kind == "attention" else rates.matmul),
            (op.moved_back if back else op.moved) / rates.memory,
        )
        n = op.calls * (2 if back and op.kind == "matmul" else 1)
        total[op.kind] += max(busy, n * rates.kernel) if s.cuda else busy
        matrices += op.matrix
    if s.itemsize == 2 and s.training:  # parameters are cast for each pass, gradients cast back
        total["pointwise"] += 6 * matrices / rates.stream
    return total


def waited_for_python(s: Setting, rates: Rates, calls: float, busy: float) -> float:
    """Seconds in which a device that is busy for so long has nothing to do."""
    if s.compiled or s.captured:
        return 0.0
    host = calls * rates.call
    # A GPU works while Python prepares the next call; a CPU does the one after the other.
    return max(host - busy, BETWEEN * host) if s.cuda else host
