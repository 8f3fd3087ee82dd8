"""Plan how texts are continued: reading the prompts, and each token after them."""

from dataclasses import dataclass

from glasshead.lab.plan.communication import plan_collective
from glasshead.lab.plan.counting import PassCount, count_reading
from glasshead.lab.plan.devices import Device
from glasshead.lab.plan.meta_device import Target
from glasshead.lab.plan.scenario import Scenario
from glasshead.lab.plan.shapes import count

__all__ = ["GeneratingPlan", "plan_generating"]

IDS = 0.19e-6  # seconds in which Python puts one id of a prompt into a tensor


@dataclass(frozen=True)
class GeneratingPlan:
    texts: int  # continued at a time, by the GPUs that share one copy of the model
    prompt: int  # tokens of each
    memory: dict[str, float]  # bytes on one GPU, by kind
    peak: float
    prefill: float  # seconds until the prompts are read
    prefill_flops: float
    decode: float  # seconds for one token of each text, at the end of max_len
    decode_flops: float
    decode_bytes: float  # that one GPU reads for it
    limit: float  # seconds to read them at the data sheet's bandwidth
    tokens_per_s: float


def plan_generating(
    scenario: Scenario, device: Device, prompt: int | None = None
) -> GeneratingPlan:
    """Plan prompts of `prompt` tokens (max_len - 1 when None), and the token that fills max_len."""
    config, texts, itemsize = scenario.config, scenario.texts, scenario.itemsize
    part, tensor = scenario.layout.part_of(config), scenario.layout.tensor
    prompt, target = prompt or max(1, config.max_len - 1), Target(device.on_gpu, itemsize)
    first = count_reading(part, texts, target, prompt)
    then = count_reading(part, texts, target, 1, past=config.max_len - 1)

    def read(step: PassCount) -> float:
        busy = sum(device.seconds_by_kind(step.forward, itemsize).values())
        return busy + device.seconds_for_python(step.calls, busy)

    def add_up_parts(tokens: int) -> float:
        size, times = itemsize * tokens * config.d_model, 2 * config.n_layers + 1
        reduce = plan_collective("all-reduce", "activations", times, size, tensor, 1, device)
        return reduce.seconds if tensor > 1 else 0.0

    prefill = read(first) + IDS * texts * prompt + add_up_parts(texts * prompt)
    products = [(op, n) for op, n in then.forward.items() if op.kind != "pointwise"]
    decode = read(then)
    if device.on_gpu:  # a CUDA graph of kernels that do the pointwise operations with the products
        c = device.calibration
        speeds = {"matmul": c.stream * device.bandwidth, "attention": c.cache * device.bandwidth}
        decode = sum(n * (c.kernel + op.bytes / speeds[op.kind]) for op, n in products)
    decode += add_up_parts(texts)
    memory = {
        "params": float(itemsize * count(part).total),
        "cache": then.memory["cache"],
        "activations": first.memory["working"],
    }
    moved = float(sum(n * op.bytes for op, n in products))
    return GeneratingPlan(
        texts=texts,
        prompt=prompt,
        memory=memory,
        peak=sum(memory.values()),
        prefill=prefill,
        prefill_flops=tensor * sum(n * op.flops for op, n in first.forward.items()),
        decode=decode,
        decode_flops=tensor * sum(n * op.flops for op, n in then.forward.items()),
        decode_bytes=moved,
        limit=moved / device.bandwidth,
        tokens_per_s=texts / decode,
    )
