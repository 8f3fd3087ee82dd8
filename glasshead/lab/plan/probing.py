"""What this machine gives a program: kinds of work at a model's own sizes, timed by themselves."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import cycle
from typing import NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from glasshead.attention.cache import GrowingCache
from glasshead.attention.functional import attend
from glasshead.attention.mask import Mask
from glasshead.attention.norm import rms_norm
from glasshead.generation.decode import generate
from glasshead.generation.sampling import GREEDY
from glasshead.lab.plan.devices import KERNEL, LOOK, LOOK_WIDTH, PASSES, STREAM, Rates
from glasshead.lab.plan.observing import CALLS
from glasshead.lab.plan.operations import Setting, operations, pairs
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.model.layers import Block, FeedForward, GatedFeedForward, ff_width, new_positions
from glasshead.model.loss import BLOCK, next_token_loss
from glasshead.observe.statistics import observe

__all__ = ["probe", "seconds_a_token", "timed"]

Step: TypeAlias = Callable[[dict[int, Tensor]], object]  # given the last numbers of each width

LONG = 0.02  # seconds, in which a busy machine shows itself
ENOUGH = 2**15  # tokens that keep the memory of a GPU busy
LARGE = 2**28  # bytes, which no cache holds
TOKENS = 33  # that are written, to see how long one takes
SEEN = 2**21  # pairs of query and key that are looked at in a moment
# What is beside the products of a block, but is not timed with it.
ELSEWHERE = ("embedding", "positions", "angles", "loss", "bias", "side by side")


def timed(run: Callable[[], object], device: torch.device, repeats: int = 5) -> float:
    """The fastest of some runs, each long enough for the clock; the first one warms up.

    A machine that others use is slower by turns: the fastest runs are alike, the middle ones not.
    """

    def once(times: int) -> float:
        start = _clock(device)
        for _ in range(times):
            run()
        return (_clock(device) - start) / times

    once(1)
    times = max(1, min(1000, round(LONG / max(once(1), 1e-9))))
    return min(once(times) for _ in range(repeats))


def _clock(device: torch.device) -> float:
    """Seconds, when the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def probe(s: Setting, device: torch.device) -> Rates:
    """The rates at which this machine works on what the setting is made of."""
    dtype = torch.bfloat16 if s.itemsize == 2 else torch.float32
    if s.writing:  # what it waits for besides is the same on every GPU
        stream = _stream(device)
        memory = stream * PASSES / STREAM
        return Rates(math.inf, math.inf, memory, stream, look=0.0, kernel=KERNEL, call=0.0)
    half = torch.autocast(device.type, torch.bfloat16, enabled=s.training and s.itemsize == 2)
    with half, torch.set_grad_enabled(s.training):
        call = _call(s, device)
        if s.cuda or s.training:
            matmul, attention = _matmul(s, device, dtype), _attention(s, device, dtype)
            memory = _memory(s, device, dtype)
        else:  # all else is timed with them
            matmul = attention = _in_order(s, device, dtype)
            memory = math.inf
        return Rates(
            matmul=matmul,
            attention=attention,
            memory=memory,
            stream=_stream(device) if s.cuda else memory,
            look=0.0 if s.training or s.T == 1 else _look(s, device, dtype, call),
            kernel=KERNEL if s.cuda else 0.0,
            call=call,
        )


def _stream(device: torch.device) -> float:
    """Bytes a second of a copy."""
    x = torch.zeros(LARGE, dtype=torch.uint8, device=device)
    y = torch.empty_like(x)
    return 2 * LARGE / timed(lambda: y.copy_(x), device)


def _beyond(run: Callable[[], object], least: Callable[[], object], device: torch.device) -> float:
    """Seconds of work alone. What Python takes for its calls is counted by `call`.

    A GPU plays the run from a recording; of a CPU's, the same calls on next to nothing are taken.
    """
    if device.type == "cuda":
        return timed(_recorded(run), device)
    whole = timed(run, device)
    return max(whole - timed(least, device), 0.05 * whole)


def _recorded(run: Callable[[], object]) -> Callable[[], None]:
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def _matmul(s: Setting, device: torch.device, dtype: torch.dtype) -> float:
    L, V, C = s.config.n_layers, s.config.vocab_size, s.config.d_model
    logits = s.B if s.last_only else s.tokens
    if s.loss == "in place":
        V += -V % 64  # as it pads them
    if s.loss == "blocks":
        logits = min(logits, max(1, BLOCK // V))
    ops = [op for op in operations(s) if op.kind == "matmul" and op.name != "head"]
    counted = Counter((op.matrix // op.depth, op.depth, s.tokens) for op in ops)

    def products(rows: int, columns: int, N: int, several: int) -> Callable[[], None]:
        def made(*shape: int) -> list[Tensor]:
            return [torch.randn(shape, device=device, dtype=dtype) for _ in range(several)]

        w, x, y = made(rows, columns), made(N, columns), made(N, rows)

        def run() -> None:
            for weight, given, gradient in zip(w, x, y, strict=True):
                F.linear(given, weight)
                if s.training:
                    gradient @ weight, gradient.T @ given

        return run

    often = {**counted, (V, C, logits): 1.0 if s.last_only else s.tokens / logits}
    work = seconds = 0.0
    for (rows, columns, N), times in often.items():
        # As many as a model has, so that none is still in the cache when its turn comes.
        cold = N < 64 if s.cuda else (rows, columns, N) in counted
        several = min(8, L + 1) if cold else 1
        least = products(1, 1, 1, several)
        once = _beyond(products(rows, columns, N, several), least, device) / several
        work += times * (3 if s.training else 1) * 2 * N * rows * columns
        seconds += times * once
    return work / seconds


def _in_order(s: Setting, device: torch.device, dtype: torch.dtype) -> float:
    """Operations a second of a whole pass on a CPU, its parts one after the other.

    Products alone, with nothing between them, would keep a cache for themselves that a model (and
    whoever shares the processor) drives them out of: those of a token took half as long.
    """
    H, H_kv, D = s.heads
    S, mask = s.S or s.T, Mask(causal=True, window=s.config.window)
    ops = operations(s)

    def made(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=dtype)

    def product(rows: int, columns: int, N: int) -> Step:
        weight, bias = made(rows, columns), made(rows) if s.config.bias else None

        def run(x: dict[int, Tensor]) -> None:
            x[rows] = F.linear(x[columns][:N], weight, bias)

        return run

    def attention(B: int, T: int, S: int) -> Step:
        q, k, v = (made(B, *sizes, D).transpose(1, 2) for sizes in ((T, H), (S, H_kv), (S, H_kv)))
        if s.T == 1:
            return lambda x: attend(q, k, v, mask)
        return lambda x: attend(q, *GrowingCache().append(k, v), mask)  # they are kept

    def between(run: Callable[[], Tensor]) -> Step:
        return lambda x: run()

    def steps(real: bool) -> Iterator[Step]:
        blocks = _blocks(s if real else _small(s), device, dtype)
        for op, passes in zip(ops, cycle(blocks), strict=False):
            if op.kind == "attention":
                yield attention(s.B, s.T, S) if real else attention(1, 1, 1)
            elif op.kind == "matmul":
                N = s.B if op.name == "head" else s.tokens
                yield product(op.matrix // op.depth, op.depth, N) if real else product(1, 1, 1)
            elif op.name in passes.runs:
                yield between(passes.runs[op.name])

    def passing(steps: list[Step]) -> Callable[[], None]:
        first = {op.depth: made(s.tokens, op.depth) for op in ops if op.depth} | {1: made(1, 1)}

        def run() -> None:
            x = dict(first)
            for one in steps:
                one(x)

        return run

    whole, least = (passing(list(steps(real))) for real in (True, False))
    return sum(op.work() for op in ops) / _beyond(whole, least, device)


def seconds_a_token(
    model: GPT, texts: int, prompt: int, tokens: int, device: torch.device, repeats: int = 5
) -> float:
    """Of each of some tokens after the first, in the fastest of some runs; one more warms up."""

    def once() -> float:
        steps = generate(model, [[1] * prompt] * texts, GREEDY, max_tokens=tokens)
        next(steps)
        start = _clock(device)
        for _ in steps:
            pass
        return (_clock(device) - start) / (tokens - 1)

    once()
    return min(once() for _ in range(repeats))


def _attention(s: Setting, device: torch.device, dtype: torch.dtype) -> float:
    H, H_kv, D = s.heads
    S, mask = s.S or s.T, Mask(causal=True, window=s.config.window)

    def attention(B: int, T: int, S: int) -> Callable[[], object]:
        q, k, v = (
            torch.randn(B, n, heads, D, device=device, dtype=dtype).transpose(1, 2)
            for n, heads in ((T, H), (S, H_kv), (S, H_kv))
        )
        if not s.training:
            return lambda: attend(q, k, v, mask)
        for x in (q, k, v):
            x.requires_grad_()

        def both() -> None:
            context = attend(q, k, v, mask).context
            torch.autograd.grad(context, (q, k, v), context)

        return both

    layer = replace(s, S=S, config=replace(s.config, n_layers=1))
    one = next(op for op in operations(layer) if op.kind == "attention")
    work = one.work() + (one.work(back=True) if s.training else 0.0)
    return work / _beyond(attention(s.B, s.T, S), attention(1, 1, 1), device)


def _memory(s: Setting, device: torch.device, dtype: torch.dtype) -> float:
    """Bytes a second in all that a block does besides products, as `operations` counts them."""
    one = replace(s, config=replace(s.config, n_layers=1))
    counted = [op for op in operations(one) if op.kind == "pointwise" and op.name not in ELSEWHERE]
    names = [op.name for op in counted[:-1]]  # the last norm is no block's
    moved = sum(op.moved + (op.moved_back if s.training else 0) for op in counted[:-1])

    def passing(blocks: list[_Passes]) -> Callable[[], None]:
        def run() -> None:
            for runs, leaves in blocks:
                found = [runs[name]() for name in names if name in runs]
                if s.training:  # nowhere kept: gradients of activations are not added to older ones
                    torch.autograd.grad(found, leaves, found, allow_unused=True)

        return run

    if s.cuda:
        many = -(-ENOUGH // s.tokens)
        blocks = _blocks(replace(one, B=many * s.B), device, dtype)
        return many * moved / timed(_recorded(passing(blocks)), device)
    blocks, small = _blocks(s, device, dtype), _blocks(_small(s), device, dtype)
    return len(blocks) * moved / _beyond(passing(blocks), passing(small), device)


class _Passes(NamedTuple):
    """What one block does besides products, by the names of `operations`."""

    runs: dict[str, Callable[[], Tensor]]
    leaves: tuple[Tensor, ...]  # that have gradients


def _blocks(s: Setting, device: torch.device, dtype: torch.dtype) -> list[_Passes]:
    """As many as a model has, so that none finds its numbers in the cache."""
    return [_passes(s, device, dtype) for _ in range(max(1, min(8, s.config.n_layers)))]


def _passes(s: Setting, device: torch.device, dtype: torch.dtype) -> _Passes:
    (H, H_kv, D), C = s.heads, s.config.d_model
    config = replace(s.config, n_layers=1, n_heads=H, vocab_size=1)
    layer = Block(config).to(device, dtype if not s.training else torch.float32)
    around, inner = layer.around_attention, layer.feed_forward
    norm = around.after if config.norm_place == "post" else around.before

    def made(*last: int, dtype: torch.dtype = dtype) -> Tensor:
        return torch.randn(s.B, s.T, *last, device=device, dtype=dtype, requires_grad=s.training)

    stream = dtype if s.stream == 2 or not s.training else torch.float32
    x, y, qk = made(C, dtype=stream), made(C), made(H + H_kv, D)
    up, gate = made(ff_width(config)), made(ff_width(config))
    scale = torch.ones(H + H_kv, 1, D, device=device)
    rotation = new_positions(config).to(device).rotation(torch.arange(s.T, device=device))
    runs: dict[str, Callable[[], Tensor]] = {"norm": lambda: norm(x), "residual": lambda: x + y}
    if config.qk_norm:
        runs["qk_norm"] = lambda: rms_norm(qk.transpose(1, 2), scale, config.qk_eps)
    if rotation is not None:
        runs["rotary"] = lambda: rotation.rotate(qk.transpose(1, 2))
    if isinstance(inner, FeedForward):
        runs[config.feed_forward] = lambda: inner.activation(up)
    elif isinstance(inner, GatedFeedForward):
        runs[config.feed_forward] = lambda: F.silu(gate) * up
    return _Passes(runs, (x, y, up, gate, qk, *norm.parameters()))


def _look(s: Setting, device: torch.device, dtype: torch.dtype, call: float) -> float:
    H, _, D = s.heads
    some = H if device.type == "cuda" else min(H, max(4, SEEN // s.T**2))
    q, k = (torch.randn(1, some, s.T, D, device=device, dtype=dtype) for _ in "qk")
    lse = torch.full((1, some, s.T), 5.0, device=device)
    mask = Mask(causal=True, window=s.config.window)
    seconds = timed(lambda: observe(q, k, mask, lse=lse), device, repeats=3)
    if s.cuda:  # what Python takes is counted by `call`; of short texts nothing else is seen
        seconds = max(seconds - CALLS * call, 0.05 * seconds)
    return some * pairs(s.T, s.T, s.config.window) * (LOOK + LOOK_WIDTH * D) / seconds


def _small(s: Setting) -> Setting:
    return replace(s, config=_narrow(s.config), B=1, T=1)


def _narrow(config: GPTConfig) -> GPTConfig:
    return replace(
        config, vocab_size=2, max_len=64, n_heads=1, n_kv_heads=None, d_model=2,
        d_head=2 if config.d_head else None, d_ff=2 if config.d_ff else None,
    )  # fmt: skip


def _call(s: Setting, device: torch.device) -> float:
    """The same calls on next to nothing: a model as deep, but as narrow as can be."""
    narrow = _narrow(s.config)
    model = GPT(narrow).to(device).train(s.training)
    ids = torch.zeros(1, 2, dtype=torch.int64, device=device)
    small = operations(replace(s, config=narrow, B=1, T=2, S=2))
    calls = sum(op.host_calls() for op in small)
    if s.training:
        back = sum(op.host_calls(back=True) for op in small)
        return timed(lambda: next_token_loss(model, ids, ids).backward(), device) / (calls + back)

    if s.cuda:
        return timed(lambda: model(ids), device) / calls
    if s.T == 1:
        return seconds_a_token(model, s.B, 1, TOKENS, device) / calls
    texts = [[1] * 2] * s.B
    return timed(lambda: list(generate(model, texts, GREEDY, max_tokens=1)), device) / calls
