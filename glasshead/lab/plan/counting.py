"""Count what a pass costs by running the model's own modules on the meta device, without numbers.

Nothing here knows what a block is made of. Models of two and three layers are run; every further
layer costs what the third one does.

    >>> from glasshead.lab.plan.shapes import find_shape
    >>> step = count_training(find_shape("gpt2", {}), 1, Target(cuda=True, itemsize=2))
    >>> round(sum(op.flops * n for op, n in step.forward.items()) / 1024 / 1e6)  # millions a token
    266
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.attention.cache import FixedCache
from glasshead.lab.plan.meta_device import Target, as_on, compute_loss, new_model
from glasshead.lab.plan.operations import Kernel, Operation, OperationCounter, fuse, summarize
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.training.config import TrainConfig
from glasshead.training.optim import Muon, muon_and_adamw, orthogonalize

__all__ = [
    "MuonCount",
    "PassCount",
    "count_muon",
    "count_reading",
    "count_training",
    "pairs",
]


@dataclass(frozen=True)
class PassCount:
    """Operations of a pass, and bytes that it needs besides the parameters."""

    forward: Counter[Operation]
    backward: Counter[Operation]
    calls: float  # of torch operations
    memory: dict[str, float]


@lru_cache
def count_training(
    config: GPTConfig, B: int, target: Target, T: int | None = None, share: float | None = None
) -> PassCount:
    """Count one batch of B texts, forward and backward.

    Args:
        T: tokens of each text; config.max_len when None.
        share: part of the T x T pairs that attention computes; those of a causal mask when None.

    The memory has "activations" kept for the backward pass, "logits" of the loss, "copies" of
    parameters in bf16, and three peaks: "early", until the backward pass reaches the first block,
    "late", from then on, and "without_gradients".
    """
    T = T or config.max_len
    share = pairs(T, T, config.window) / T**2 if share is None else share

    def count(n_layers: int) -> PassCount:
        with as_on(target, training=True):
            return _run_training(new_model(config, target, n_layers), B, T, target, share)

    return _extend(count, config.n_layers)


def _run_training(model: GPT, B: int, T: int, target: Target, share: float) -> PassCount:
    ids, memory = torch.empty(B, T, dtype=torch.int64, device="meta"), dict[str, float]()
    counter = OperationCounter()
    params = {counter.number(p) for p in model.parameters()}

    def copies() -> int:
        """Sum the bytes in use that were computed from parameters alone."""
        made = (op.writes for op in counter.kernels if op.reads and op.reads.keys() <= params)
        return sum(counter.allocated.get(n, 0) for writes in made for n in writes)

    def reach_first_block(grad: Tensor) -> None:
        memory["early"], counter.peak = counter.peak, counter.in_use

    def hook_output(module: nn.Module, args: Any, out: Tensor) -> None:
        out.register_hook(reach_first_block)

    def finish_gradient(p: Tensor) -> None:
        assert p.grad is not None
        counter.gradients += p.grad.nbytes

    model.blocks[0].register_forward_hook(hook_output)
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(finish_gradient)
    with counter:
        x = model.features(ids)
        kept, in_use, early_copies = dict(counter.allocated), counter.in_use, copies()
        del kept[counter.number(x)]  # the result is kept in any case
        loss = compute_loss(model, x, ids, target, counter)
        memory["copies"] = copies()
        memory["logits"] = counter.peak - in_use - (memory["copies"] - early_copies)
        kept_by_loss, half = set(counter.allocated), len(counter.kernels)
        del x
        loss.backward()
    forward, backward = counter.kernels[:half], counter.kernels[half:]
    memory["activations"] = in_use - early_copies
    memory |= {"late": counter.peak, "without_gradients": counter.peak_without_gradients}
    if target.compiled:
        again = sum(kept[n] for n in _find_recomputed(forward, backward, kept, params))
        for name in ("activations", "early", "without_gradients"):
            memory[name] -= again
        forward, backward = fuse(forward, kept_by_loss), fuse(backward, counter.allocated)
    return PassCount(summarize(forward, share), summarize(backward, share), counter.calls, memory)


def _find_recomputed(
    forward: list[Kernel], backward: list[Kernel], kept: dict[int, int], params: set[int]
) -> set[int]:
    """Find what compiled code does not keep: pointwise results that only pointwise kernels need,
    and that follow from parameters and other kept tensors."""
    needed = {n for op in backward if op.kind != "pointwise" for n in op.reads}
    return {
        n
        for op in forward
        if op.kind == "pointwise" and op.reads.keys() <= kept.keys() | params
        for n in op.writes
        if n in kept and n not in needed and n not in op.reads
    }


def count_reading(
    config: GPTConfig, B: int, target: Target, T: int, *, past: int = 0, cached: bool = True
) -> PassCount:
    """Count a pass over T tokens of B texts, after `past` tokens in the cache, without gradients.

    With `cached` keys and values are kept and the last token's logits computed. The memory has the
    "cache" and the peak of all else, "working".
    """
    S, d_head = past + T, config.d_head or config.d_model // config.n_heads
    dtype = torch.bfloat16 if target.itemsize == 2 else torch.float32

    def count(n_layers: int) -> PassCount:
        with as_on(target, training=False):
            model = new_model(config, target, n_layers).to(dtype).eval()
            caches = [FixedCache(S) for _ in range(n_layers if cached else 0)]
            for cache in caches:
                shape = (B, config.n_kv_heads or config.n_heads, past, d_head)
                cache.append(*(torch.empty(shape, dtype=dtype, device="meta") for _ in "kv"))
            ids = torch.empty(B, T, dtype=torch.int64, device="meta")
            with OperationCounter() as counter:
                x = model.features(ids, caches=caches or None)
                if cached:
                    model.logits(x[:, -1:])
        size = sum(t.nbytes for cache in caches for t in (cache.k, cache.v) if t is not None)
        forward = summarize(counter.kernels, pairs(T, S, config.window) / (T * S))
        memory: dict[str, float] = {"cache": size, "working": counter.peak}
        return PassCount(forward, Counter(), counter.calls, memory)

    return _extend(count, config.n_layers)


@dataclass(frozen=True)
class MuonCount:
    """What a step of Muon costs the GPU that has most of its matrices."""

    params: int  # of Muon, on all GPUs that share them
    tensors: int
    matrices: dict[tuple[int, int], int]  # how many it makes orthogonal, by shape
    flops: float
    bytes: float
    calls: float
    peak: float  # bytes in use besides parameters, gradients and momentum


@lru_cache
def count_muon(config: GPTConfig, target: Target, shards: int = 1) -> MuonCount:
    """Count a step of Muon; of `shards` GPUs each makes its share of the matrices orthogonal."""

    def new_muon(n_layers: int) -> Muon:
        muon = muon_and_adamw(new_model(config, target, n_layers), TrainConfig())._parts[0]
        assert isinstance(muon, Muon)
        muon.found_inf = torch.zeros((), device="meta") if target.cuda else None
        for p in muon.param_groups[0]["params"]:
            p.grad = torch.empty_like(p)
        return muon

    def count(n_layers: int) -> PassCount:
        with as_on(target, training=False):
            muon = new_muon(n_layers)
            muon.step()  # allocates the momentum
            with OperationCounter() as counter:
                muon.step()
        memory: dict[str, float] = {"peak": counter.peak}
        return PassCount(summarize(counter.kernels), Counter(), counter.calls, memory)

    step, L, flops = _extend(count, config.n_layers), config.n_layers, 0.0
    with as_on(target, training=False):
        muon = new_muon(1)
        params = muon.param_groups[0]["params"]
        parts = [part for p in params for part in p.split(muon.rows.get(p, [p.shape[0]]))]
        shapes = Counter((part.shape[0], part.shape[1]) for part in parts)
        matrices = {shape: -(-n * L // shards) for shape, n in shapes.items()}
        for shape, n in matrices.items():
            with OperationCounter() as counter:
                orthogonalize(torch.empty(1, *shape, device="meta"))
            flops += n * sum(kernel.flops for kernel in counter.kernels)
    size = L * sum(p.numel() for p in params)
    moved = sum(op.bytes * n for op, n in step.forward.items() if op.kind == "pointwise") / shards
    peak = step.memory["peak"]
    if shards > 1:
        # Updates of all rows here; of the matrices of the largest shape: rows sent, rows received,
        # whole matrices, orthogonal ones, and both again on the way back.
        peak = 4 * size / shards + 6 * 4 * max(r * c * n for (r, c), n in matrices.items())
    return MuonCount(size, L * len(params), matrices, flops, moved, step.calls, peak)


def _extend(count: Callable[[int], PassCount], n_layers: int) -> PassCount:
    """Count a model of any depth from its counts with two and three layers."""
    if n_layers <= 3:
        return count(n_layers)
    two, three, more = count(2), count(3), n_layers - 2

    def extend(a: Any, b: Any) -> dict[Any, Any]:
        return {key: a.get(key, 0) + more * (b.get(key, 0) - a.get(key, 0)) for key in {**a, **b}}

    return PassCount(
        Counter(extend(two.forward, three.forward)),
        Counter(extend(two.backward, three.backward)),
        two.calls + more * (three.calls - two.calls),
        extend(two.memory, three.memory),
    )


def pairs(T: int, S: int, window: int | None = None) -> int:
    """Count the pairs of query and key that a causal mask allows, for the last T of S queries.

    >>> pairs(3, 3), pairs(1, 5), pairs(3, 3, window=2)
    (6, 5, 5)
    """
    first = S - T + 1  # keys that the first query sees
    if window is None or window >= S:
        return T * (first + S) // 2
    short = max(0, min(T, window - first))  # queries that see less than the window
    return short * (2 * first + short - 1) // 2 + (T - short) * window
