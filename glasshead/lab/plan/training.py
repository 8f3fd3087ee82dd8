"""Plan a step of training: memory, time and messages, on one GPU or on many."""

from dataclasses import dataclass

from glasshead.lab.plan.communication import Collective, plan_collectives, waiting_seconds
from glasshead.lab.plan.counting import MuonCount, PassCount, count_muon, count_training, pairs
from glasshead.lab.plan.devices import Device
from glasshead.lab.plan.meta_device import Target
from glasshead.lab.plan.scenario import Scenario
from glasshead.lab.plan.shapes import Counts, count
from glasshead.training.auto_settings import GRAPH_PAYS

__all__ = ["TrainingMemory", "TrainingPlan", "plan_training"]

CLIP, ADAMW = 12, 28  # bytes that clipping and AdamW read and write for each parameter
UPDATE_CALLS = 2  # calls of torch, or loops of Python as long as one, for each parameter tensor
NO_MUON = MuonCount(0, 0, {}, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes on one GPU."""

    params: float  # in float32
    gradients: float
    optimizer: float
    copies: float  # of the matrices in bf16, made by autocast
    gathered: float  # parameters, keys and values of other GPUs
    whole: float  # copy of all parameters with which the first GPU evaluates, under fsdp
    activations: float  # kept for the backward pass
    logits: float  # and what else the loss needs
    peak: float


@dataclass(frozen=True)
class TrainingPlan:
    tokens: int  # of a step, on all GPUs
    flops: float  # of a step, on all GPUs, without the optimizer's
    optimizer_flops: float  # of a step, on the GPU that has most of them
    memory: TrainingMemory
    seconds: dict[str, float]  # of a step, by kind
    collectives: list[Collective]
    share: float  # of the peak of all GPUs
    step: float  # seconds
    tokens_per_s: float


def plan_training(scenario: Scenario, device: Device) -> TrainingPlan:
    s, config, layout, itemsize = scenario, scenario.config, scenario.layout, scenario.itemsize
    layout.check(config, s.batch_size)
    target, part = Target(device.on_gpu, itemsize, s.is_compiled), layout.part_of(config)
    counts, B, T = count(part), -(-s.batch_size // layout.data), config.max_len // layout.context
    # The last tokens of a text see most: each GPU gets some early and some late ones.
    share = pairs(config.max_len, config.max_len, config.window) / layout.context / T**2
    batch = count_training(part, B, target, T, share)
    muon = count_muon(part, target, layout.shards) if s.optimizer == "muon" else NO_MUON

    forward = device.seconds_by_kind(batch.forward, itemsize)
    backward = device.seconds_by_kind(batch.backward, itemsize)
    seconds = {kind: s.accumulate * (forward[kind] + backward[kind]) for kind in forward}
    by_adamw, speeds = counts.total - muon.params, device.calibration
    moved = muon.bytes + (CLIP * counts.total + ADAMW * by_adamw) / layout.shards
    update = moved / (speeds.stream * device.bandwidth)
    update += muon.flops / (speeds.matmul * device.peak(itemsize))
    calls = s.accumulate * batch.calls + UPDATE_CALLS * counts.tensors + muon.calls
    # Neither compiled code nor a CUDA graph waits for Python; several processes record no graph.
    records = device.on_gpu and layout.gpus == 1 and counts.hidden < GRAPH_PAYS
    busy = sum(seconds.values()) + update
    waits = not (s.is_compiled or records)
    seconds["host"] = device.seconds_for_python(calls, busy) if waits else 0.0
    messages = plan_collectives(s, counts, device, tokens=B * T, matrices=muon.matrices)
    seconds["communication"] = waiting_seconds(
        messages,
        units=config.n_layers + 1,
        forward=s.accumulate * sum(forward.values()),
        backward=s.accumulate * sum(backward.values()),
        attention=seconds["attention"],
        last_backward=sum(backward.values()),
    )
    seconds["optimizer"] = update
    flops = s.accumulate * s.batch_size / B * layout.tensor * layout.context * _flops(batch)
    tokens, step = s.batch_size * s.accumulate * config.max_len, sum(seconds.values())
    return TrainingPlan(
        tokens=tokens,
        flops=flops,
        optimizer_flops=muon.flops,
        memory=_plan_memory(s, counts, batch, muon, messages),
        seconds=seconds,
        collectives=messages,
        share=flops / (layout.gpus * device.peak(itemsize) * step),
        step=step,
        tokens_per_s=tokens / step,
    )


def _flops(batch: PassCount) -> float:
    """Sum the arithmetic of a batch, without what fused attention computes twice."""
    share = {"matmul": 1.0, "attention": 6 / 7, "pointwise": 0.0}  # 2 + 4 of 2 + 5 products
    operations = (*batch.forward.items(), *batch.backward.items())
    return sum(share[op.kind] * op.flops * times for op, times in operations)


def _plan_memory(
    s: Scenario, counts: Counts, batch: PassCount, muon: MuonCount, messages: list[Collective]
) -> TrainingMemory:
    layout, cut, need, gathered = s.layout, s.layout.shards, batch.memory, 0.0
    if layout.is_sharded:  # all but the blocks, this block and the next; one block's gradients
        block = counts.blocks / s.config.n_layers
        gathered = s.itemsize * (counts.total - counts.blocks + 3 * block) + 4 * block
    if layout.context > 1:  # keys and values of one layer
        gathered += sum(m.bytes / m.count for m in messages if m.what == "keys and values, forward")
    whole = 4.0 * count(s.config).total if layout.is_sharded else 0.0
    params = 4.0 * counts.total
    # AdamW keeps two numbers for each parameter and one for each tensor; Muon, one and none.
    state = 8 * counts.total + 4 * counts.tensors - 4 * (muon.params + muon.tensors)
    # Gradients that wait for further batches of a step are not yet sent, so they are whole.
    gradients = params / (1 if layout.is_sharded and s.accumulate > 1 else cut)
    copies = 0.0 if layout.is_sharded else need["copies"]
    held = params / cut + state / cut + whole
    if layout.is_sharded or s.accumulate > 1:
        running = gathered + gradients + need["without_gradients"] - (need["copies"] - copies)
    else:
        running = gathered + max(need["early"], need["late"])
    update = gradients + muon.peak
    return TrainingMemory(
        params=params / cut,
        gradients=gradients,
        optimizer=state / cut,
        copies=copies,
        gathered=gathered,
        whole=whole,
        activations=need["activations"],
        logits=need["logits"],
        peak=held + max(running, update),
    )
