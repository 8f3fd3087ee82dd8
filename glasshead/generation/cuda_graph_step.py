"""Decode on a GPU: a step captured once as a CUDA graph, and replayed for every id.

The graph embeds the last ids, runs the blocks over the slots (`linear_kernel.py`,
`attend_kernel.py`), picks the next ids and counts on, so that it can be replayed without the host.
It is captured for a number of rows and a `SamplingConfig`; texts that join take free rows, and
rows without a text are computed along with the others and ignored.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn

from glasshead.attention.norm import RMSNorm
from glasshead.attention.position import RotaryPositions
from glasshead.generation.flat_step import has_any_hooks
from glasshead.generation.kv_slots import KVSlots
from glasshead.generation.look_ahead import MOST_STEPS
from glasshead.generation.sampling import GREEDY, SamplingConfig, choose
from glasshead.generation.step import ModuleStep
from glasshead.machine import triton_works
from glasshead.model.gpt import GPT
from glasshead.model.layers import Block, FeedForward, GatedFeedForward

__all__ = ["CudaGraphStep", "supports_cuda_graph_step", "take_cuda_graph_step"]

NOT_FINITE = -1  # in place of an id
MOST_GRAPHS = 8  # kept for one model


def supports_cuda_graph_step(model: GPT) -> bool:
    """Return whether the kernels support the model, and it is on a GPU with Triton.

    Not under autocast, where a model computes with other numbers than its parameters.
    """
    c = model.config
    known = c.norm_place == "pre" and c.residual and c.project and c.feed_forward != "linear-relu"
    weight = model.embedding.weight
    autocast = torch.is_autocast_enabled("cuda")
    if not known or autocast or not weight.is_cuda or weight.dtype == torch.float64:
        return False
    plain = (nn.Linear, nn.LayerNorm, RMSNorm, nn.Embedding)
    parts = [m for m in model.modules() if next(m.parameters(recurse=False), None) is not None]
    gated = [m for m in model.modules() if isinstance(m, GatedFeedForward)]
    return (
        triton_works()
        and not has_any_hooks(model)
        and all((m.gate.bias is None) == (m.up.bias is None) for m in gated)
        and all(type(part) in plain for part in parts)
        and all(part.weight.dtype == weight.dtype for part in parts)
    )


class CudaGraphStep:
    """A step that also picks ids: an `AheadStep`.

    In half precision the ids of near ties may differ from those of `ModuleStep`: its logits are
    rounded less.

    Args:
        capture: whether to capture graphs; without, the same kernels are called one by one.
    """

    def __init__(self, model: GPT, *, capture: bool = True) -> None:
        self._model, self._capture = ref(model), capture
        self.slots = KVSlots(model.embedding.weight.device, fixed=True)
        self._graphs: dict[tuple[int, SamplingConfig | None], _Graph] = {}
        self._made_for: object = None  # the addresses that the graphs contain
        self._current: _Graph | None = None

    @property
    def model(self) -> GPT:
        model = self._model()
        assert model is not None  # the batch holds it
        return model

    def __call__(self, ids: Sequence[int], rows: slice) -> Tensor:
        if rows != slice(0, len(self.slots.lengths)):  # some rows alone, after an error
            return ModuleStep(self.model, self.slots)(ids, rows)
        self.slots.free_columns()
        with self._on_device():
            graph = self._graph_for(len(ids), None)
            graph.start(ids, None)
            graph.play(1)
            assert graph.logits is not None
            return graph.logits[: len(ids)]

    def head(self, x: Tensor) -> Tensor:
        with self._on_device():
            return _logits(self.model, x, None)

    def start(self, ids: Sequence[int], config: SamplingConfig, seen: Tensor | None) -> None:
        with self._on_device():
            self._current = self._graph_for(len(ids), config)
            self._current.start(ids, seen)

    def launch(self, steps: int, uniform: Sequence[Sequence[float]]) -> "_CopiedIds":
        assert self._current is not None
        with self._on_device():
            return self._current.pick(steps, uniform)

    def close(self) -> None:
        """Leave the captured graphs to the next batch of the model."""
        model = self._model()
        if model is not None:
            with _LOCK:
                _IDLE[model] = self

    @contextmanager
    def _on_device(self) -> Iterator[None]:
        with (
            torch.autocast("cuda", enabled=False),
            torch.cuda.device_of(self.model.embedding.weight),
        ):
            yield

    def _graph_for(self, used: int, config: SamplingConfig | None) -> "_Graph":
        """Return the graph for so many rows in use, which may be captured for a few more."""
        made_for = _addresses(self.model), self.slots.allocations
        if made_for != self._made_for:
            self._graphs.clear()
            self._made_for = made_for
        rows = min(1 << (used - 1).bit_length(), self.slots.rows)
        graph = self._graphs.pop((rows, config), None)
        if graph is None:
            if len(self._graphs) == MOST_GRAPHS:
                del self._graphs[next(iter(self._graphs))]  # the one not used for longest
            graph = _Graph(self.model, self.slots, rows, config, self._capture)
        self._graphs[rows, config] = graph
        return graph


class _Graph:
    """The state of a step on the device for a number of rows, and the step itself.

    Args:
        config: how ids are picked; None to compute logits only.
    """

    def __init__(
        self, model: GPT, slots: KVSlots, rows: int, config: SamplingConfig | None, capture: bool
    ) -> None:
        device, c = model.embedding.weight.device, model.config
        self._model, self._slots, self._rows = ref(model), slots, rows
        self._config, self._capture = config, capture
        self.logits: Tensor | None = None  # (rows, V) of the last step
        self._last = torch.zeros(rows, dtype=torch.int64, device=device)
        self._length = torch.zeros((), dtype=torch.int32, device=device)
        self._pads = torch.zeros(rows, dtype=torch.int32, device=device)
        self._uniform = torch.zeros(MOST_STEPS, rows, dtype=torch.float64, device=device)
        self._count = torch.zeros((), dtype=torch.int64, device=device)  # steps since `pick`
        self._ids = torch.zeros(MOST_STEPS, rows, dtype=torch.int64, device=device)
        self._seen: Tensor | None = None
        if config is not None and config.repetition_penalty != 1:
            self._seen = torch.zeros(rows, c.vocab_size, dtype=torch.bool, device=device)
        self._turn: tuple[Tensor, Tensor] | None = None
        if isinstance(model.positions, RotaryPositions):
            rotation = model.positions.rotation(torch.arange(slots.columns, device=device))
            self._turn = rotation.cos.contiguous(), rotation.sin.contiguous()
        self._graph: torch.cuda.CUDAGraph | None = None

    def start(self, ids: Sequence[int], seen: Tensor | None) -> None:
        """Set the state from the slots, the last ids of their rows, and the ids in their texts."""
        slots, unused = self._slots, self._rows - len(ids)
        # A row without a text sees nothing but itself.
        pads = [slots.stop - length for length in slots.lengths] + unused * [slots.stop]
        _upload([*ids, *unused * [0]], self._last)
        _upload(pads, self._pads)
        self._length.fill_(slots.stop)
        if self._seen is not None and seen is not None:
            self._seen[: len(ids)].copy_(seen)

    def pick(self, steps: int, uniform: Sequence[Sequence[float]]) -> "_CopiedIds":
        """Run some steps; return their ids, which are copied to the host meanwhile."""
        used = len(uniform[0])
        _upload(uniform, self._uniform[:steps, :used])
        self._count.zero_()
        self.play(steps)
        return _CopiedIds(self._ids[:steps], used)

    def play(self, steps: int) -> None:
        if self._capture and self._graph is None:
            self._record()
        for _ in range(steps):
            self._step() if self._graph is None else self._graph.replay()

    def _record(self) -> None:
        """Capture the graph. What a step before it changed is put back."""
        state = [self._last, self._length, self._count, self._ids]
        state += [] if self._seen is None else [self._seen]
        copies = [tensor.clone() for tensor in state]
        here, aside = torch.cuda.current_stream(), torch.cuda.Stream()
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            self._step()
        here.wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        # A stream of its own device; other threads may go on meanwhile.
        with torch.cuda.graph(graph, stream=aside, capture_error_mode="thread_local"):
            self._step()
        self._graph = graph
        for tensor, value in zip(state, copies, strict=True):
            tensor.copy_(value)

    def _step(self) -> None:
        """Read the last id of every row, and pick the next."""
        from glasshead.generation.attend_kernel import attend
        from glasshead.generation.linear_kernel import linear

        model = self._model()
        assert model is not None
        c, rows = model.config, self._rows
        positions = (self._length - self._pads)[:, None]  # (B, 1)
        x = model.positions.embed(model.embedding(self._last[:, None]), positions)[:, 0]  # (B, C)
        slopes = model.positions.slopes()
        for block, (k, v) in zip(model.blocks, self._slots.layers, strict=True):
            assert isinstance(block, Block)
            own = block.attention
            norms = (own.q_norm.weight, own.k_norm.weight, own.q_norm.eps) if own.qk_norm else None
            qkv = linear(x, own.qkv, norm=block.around_attention.before)
            context = attend(
                qkv, k[:rows], v[:rows], self._length, self._pads,
                scale=own.d_head**-0.5 if own.scale is None else own.scale,
                window=c.window, softcap=own.softcap, slopes=slopes, turn=self._turn, norms=norms,
            )  # fmt: skip
            assert isinstance(own.out, nn.Linear)
            x = linear(context, own.out, residual=x)
            feed_forward = block.feed_forward
            if feed_forward is None:
                continue
            norm = block.around_feed_forward.before
            if isinstance(feed_forward, GatedFeedForward):
                h = linear(x, feed_forward.up, norm=norm, gate=feed_forward.gate)
            else:
                assert isinstance(feed_forward, FeedForward)
                h = linear(x, feed_forward.up, norm=norm, activation=c.feed_forward)
            x = linear(h, feed_forward.down, residual=x)
        self._length += 1
        self.logits = _logits(model, x, model.norm if c.n_layers else None)
        if self._config is not None:
            self._pick(self.logits, self._config)

    def _pick(self, logits: Tensor, config: SamplingConfig) -> None:
        from glasshead.generation.linear_kernel import pick_best

        if config == GREEDY:
            pick_best(logits, self._last, self._ids, self._count)
            self._count += 1
            return
        finite = logits.amax(-1).isfinite()  # (B,); NaN is larger than everything
        logits = torch.where(finite[:, None], logits, 0.0)
        uniform = self._uniform.index_select(0, self._count[None])[0]
        chosen = choose(logits, config, uniform, self._seen)
        self._last.copy_(chosen)
        told = torch.where(finite, chosen, NOT_FINITE)
        self._ids.index_copy_(0, self._count[None], told[None])
        if self._seen is not None:
            self._seen.scatter_(1, chosen[:, None], True)
        self._count += 1


class _CopiedIds:
    """Ids on their way to the host: the device goes on while they are copied."""

    def __init__(self, ids: Tensor, used: int) -> None:
        self.steps, self._used = len(ids), used
        self._event: torch.cuda.Event | None = None
        if not ids.is_cuda:
            self._ids = ids.clone()
            return
        self._ids = torch.empty(ids.shape, dtype=ids.dtype, device="cpu", pin_memory=True)
        self._ids.copy_(ids, non_blocking=True)
        self._event = torch.cuda.Event()
        self._event.record()

    def wait(self) -> list[list[int]]:
        if self._event is not None:
            self._event.synchronize()
        found: list[list[int]] = self._ids[:, : self._used].tolist()
        return found


def _logits(model: GPT, x: Tensor, norm: nn.Module | None) -> Tensor:
    """Return logits (B, V) in float32."""
    from glasshead.generation.linear_kernel import linear

    cap = model.config.logit_softcap
    logits = linear(x, model.head, norm=norm, dtype=torch.float32)
    return logits if cap is None else cap * torch.tanh(logits / cap)


def _upload(values: Sequence[Any], target: Tensor) -> None:
    """Copy numbers to the device without waiting for what it computes."""
    source = torch.tensor(values, dtype=target.dtype, device="cpu")
    target.copy_(source.pin_memory() if target.is_cuda else source, non_blocking=True)


_IDLE: WeakKeyDictionary[GPT, CudaGraphStep] = WeakKeyDictionary()  # no batch uses them now
_LOCK = Lock()


def take_cuda_graph_step(model: GPT) -> CudaGraphStep:
    """Return the step that the last batch of the model left, with its graphs, or a new one.

    To capture a graph takes as long as some sentences.
    """
    with _LOCK:
        step = _IDLE.pop(model, None)
    return CudaGraphStep(model) if step is None else step


def _addresses(model: GPT) -> tuple[Any, ...]:
    """Return what a graph contains: where each tensor lies, and the shape of the model."""
    tensors = (*model.parameters(), *model.buffers())
    return model.config, *((t.data_ptr(), t.dtype) for t in tensors)
