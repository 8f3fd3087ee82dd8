"""What it costs to continue texts: reading the prompt, and each token after it."""

from dataclasses import dataclass

from glasshead.lab.plan.devices import Device, Rates
from glasshead.lab.plan.layout import collective
from glasshead.lab.plan.operations import Operation, Setting, operations
from glasshead.lab.plan.shapes import Counts
from glasshead.lab.plan.training import seconds_by_kind, waited_for_python
from glasshead.model.gpt import GPTConfig

__all__ = ["GeneratingPlan", "plan_generating"]

IDS = 0.19e-6  # seconds until Python has put one id of a prompt where a model can read it
# How a recorded step is cut (`generation/linear_kernel.py`, `attend_kernel.py`), and how long its
# parts take at least: from texts of 1K to 128K tokens, and 1 to 64 at a time, on an H200.
KERNELS, KERNELS_OF_MANY, OUTSIDE = 5, 7, 5  # of a layer, for one text or many; of the rest
PROGRAMS, PART = 264, 512  # of attention: at most so many at once, each with so many keys at least
TILE, TILE_SECONDS = 8192, 5.6e-6  # numbers of keys that one takes at a time
STRETCH, STRETCH_SECONDS = 128, 0.3e-6  # of a row of a matrix, which many texts need one by one


@dataclass(frozen=True)
class GeneratingPlan:
    texts: int  # continued at a time, by the GPUs that share one copy of the model
    prompt: int  # tokens of each
    memory: dict[str, float]  # bytes on one GPU, by kind
    peak: float
    prefill: float  # seconds until the prompts are read
    prefill_flops: float
    decode: float  # seconds for one token of each text, after max_len - 1 others
    decode_flops: float
    decode_bytes: float  # that one GPU reads for it
    limit: float  # seconds that reading them takes at the data sheet's bandwidth

    @property
    def tokens_per_s(self) -> float:
        return self.texts / self.decode


def plan_generating(
    config: GPTConfig,
    counts: Counts,
    device: Device,
    *,
    texts: int = 1,
    prompt: int | None = None,
    tensor: int = 1,
    itemsize: int = 2,
    rates: Rates | None = None,
) -> GeneratingPlan:
    """`prompt` tokens are read (all of max_len but one when None), then others follow."""
    rates = rates or device.rates(itemsize)
    prompt = prompt or max(1, config.max_len - 1)
    on_gpu = device.name != "cpu"

    def reading(T: int, S: int) -> tuple[Setting, float]:
        s = Setting(
            config, B=texts, T=T, S=S, itemsize=itemsize, cuda=on_gpu, captured=on_gpu and T == 1,
            training=False, tensor=tensor, last_only=True,
        )  # fmt: skip
        ops = operations(s)
        if s.writing:
            seconds = _recorded(s, ops, rates)
        else:
            seconds = sum(seconds_by_kind(ops, s, rates).values())
            calls = sum(op.host_calls() for op in ops)
            seconds += waited_for_python(s, rates, calls, seconds) + IDS * s.tokens
        if tensor > 1:
            size = itemsize * s.tokens * config.d_model
            near = min(tensor, device.per_node)
            count = 2 * config.n_layers + 1
            seconds += collective(
                "all-reduce", "activations", count, size, tensor, near, device
            ).seconds
        return s, seconds

    first, prefill = reading(prompt, prompt)
    then, decode = reading(1, config.max_len)
    _, H_kv, D = first.heads
    cache = 2.0 * itemsize * texts * config.max_len * config.n_layers * H_kv * D
    params = itemsize * counts.on_each(tensor)
    # Of the table of tokens a few rows are read, unless it is the head too.
    unread = 0 if config.tied else counts.embedding / tensor
    unread += counts.positions / tensor
    read = itemsize * (counts.on_each(tensor) - unread) + cache
    widest = max((op.moved for op in operations(first) if op.kind == "pointwise"), default=0.0)
    memory = {"params": params, "cache": cache, "activations": widest}
    return GeneratingPlan(
        texts=texts,
        prompt=prompt,
        memory=memory,
        peak=sum(memory.values()),
        prefill=prefill,
        prefill_flops=sum(op.flops for op in operations(first)) * tensor,
        decode=decode,
        decode_flops=sum(op.flops for op in operations(then)) * tensor,
        decode_bytes=read,
        limit=read / device.bandwidth,
    )


def _recorded(s: Setting, ops: list[Operation], rates: Rates) -> float:
    """One token of each text on a GPU: kernels that wait for each other, and what they read."""
    c, (H, H_kv, D), S = s.config, s.heads, s.S or s.T
    parts = max(1, min(-(-S // PART), PROGRAMS // (s.B * H)))
    kernels = (KERNELS if s.B == 1 else KERNELS_OF_MANY) + (parts > 1)  # parts are put together
    seconds = rates.kernel * (c.n_layers * kernels + OUTSIDE)
    for op in ops:
        if op.kind == "matmul":
            seconds += max(s.itemsize * op.matrix / rates.stream, op.flops / rates.matmul)
            seconds += STRETCH_SECONDS * op.depth / STRETCH if s.B > 1 else 0.0
    keys = S if c.window is None else min(S, c.window)
    tall = TILE >> (D - 1).bit_length()  # keys of a tile
    tiles = -(-keys // (parts * tall))
    cache = 2 * s.itemsize * s.B * H_kv * D * keys
    return seconds + c.n_layers * max(TILE_SECONDS * tiles, cache / rates.memory)
