"""Record the attention of any model while it runs, without changing a bit of what it computes.

    with observing(model) as trace:
        model(ids)
    trace.tile(layer=3, head=0, rows=slice(0, 64), cols=slice(0, 64))

The model runs on its own kernels. A hook on each layer keeps what the kernel was given: queries and
keys after rotary and norms, the mask, the scale, cap and biases of the scores. Every weight follows
from these exactly.

Each call is checked: for a few rows exp(scores - lse) @ v must equal the context that the kernel
returned. The results stay on the device and are read when the `with` ends, so the model waits for
nothing. A layer that fails the check raises RecordingError, so that no wrong weights are ever
shown.

A row that may attend to nothing has weights 0. Where a model hides all keys of a row by adding a
number to their scores (padding, often), it gives them equal weight, and so do tiles; statistics
leave such rows out.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from glasshead.attention.hooks import AttentionCall, AttentionHook, Layer
from glasshead.attention.multihead import MultiHeadAttention
from glasshead.errors import RecordingError
from glasshead.observe.beams import follow_sentences, watch_beams
from glasshead.observe.call_order import (
    CallOrder,
    PositionHook,
    last_rows,
    nearly_same,
    new_rows,
)
from glasshead.observe.exactness import (
    CheckedRows,
    Checks,
    check_exactness,
    check_shapes,
    checked_rows,
)
from glasshead.observe.hooks import attach_hooks
from glasshead.observe.keeping import parse_keep, watch_residual
from glasshead.observe.layers import (
    choose_found,
    find_layers,
    layers_without_attention,
    unhookable_modules,
)
from glasshead.observe.recorded_ids import finds_ids, record_ids
from glasshead.observe.tensor_storage import GrowingTensor, TensorStorage, on_stream
from glasshead.observe.trace import Trace
from glasshead.observe.trace_storage import LayerTrace, RecordedCall, map_tensors
from glasshead.observe.transformers_hooks import check_kernel
from glasshead.observe.unchecked_calls import UncheckedCall, check_calls, measure_calls
from glasshead.observe.unseen import nothing_recorded, report_unseen

__all__ = ["Progress", "check_exactness", "observing"]

Progress = Callable[[int, int], object]  # layers that are done, and how many there are

HELD = {"cuda": 2**28, "cpu": 2**22}  # bytes of calls that are held, to be checked together


@contextmanager
def observing(
    model: nn.Module,
    *,
    layers: Iterable[int | str] | Literal["all"] | None = None,
    keep: str | Iterable[str] = "tensors",
    ids: Tensor | None = None,
    tokens: Any = None,
    source_tokens: Any = None,
    top_k: int = 8,
    overview: int | None = None,
    on_device: float = 0.5,
    in_memory: int = 2**30,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> Iterator[Trace]:
    """Record the attention of every layer inside the `with`.

    >>> import glasshead, torch
    >>> model = glasshead.GPT(glasshead.GPTConfig(vocab_size=7, n_layers=2, d_model=16))
    >>> with glasshead.observing(model) as trace:
    ...     logits = model(torch.arange(5)[None])
    >>> trace.weights(layer=1).shape  # (B, H, T, S)
    torch.Size([1, 4, 5, 5])

    Args:
        model: one of ours, one of `transformers`, or a module that contains such.
        layers: attention layers to record, by index or by module name. None records all that can
            be, and warns if attention ran that cannot (`Trace.unseen`); "all" raises instead.
        keep: "tensors" keeps q, k and lse: exact tiles, and statistics when asked for.
            "statistics" measures each layer as it runs (on a GPU, those of a short text together)
            and keeps only the result. "both" does both. "values" keeps v, too, and "residual" what
            enters each block: `trace.layer_trace(3).v` and `.residual`. Or a list of these.
        ids: (B, T) token ids, for the statistics that compare tokens. When None, those that the
            model's token embedding gets, unless it also reads another text (encoder-decoder).
        tokens, source_tokens: labels of the positions (`Trace.tokens`).
        top_k: how many keys of each row the statistics name.
        overview: most cells on a side of the map that the statistics keep (`observe`); 1 for one.
        on_device: share of the free memory of a GPU that recorded tensors may take.
        in_memory: bytes of the other tensors to keep in memory; the rest goes to temporary files.
        folder: where those files lie; the system's temporary folder when None.
        progress: called with the number of recorded layers and of all, at first and after each.

    Calls that continue each other (cached decoding) make one growing map. A second text needs a
    second `observing`.
    """
    kept = parse_keep(keep)
    wanted = None if layers == "all" else layers
    modules = dict(model.named_modules())
    every = find_layers(model, modules)
    selected = choose_found(every, wanted)
    trace = Trace(
        [layer for layer, _ in selected],
        model=type(getattr(model, "_orig_mod", model)).__name__,
        ids=ids,
        tokens=tokens,
        source_tokens=source_tokens,
        top_k=top_k,
        overview=overview,
    )
    if progress is not None:
        progress(0, len(selected))
    storage = TensorStorage(in_memory, folder, on_device)
    recorder = _Recorder(trace, kept, storage, progress, CallOrder(len(every)))
    hooks: dict[nn.Module, AttentionHook] = {
        m: _RecordHook(layer, m, recorder) for layer, m in selected
    }
    if any(layer.kind == "cross" for layer, _ in selected):
        others = (one for one in every if one[1] not in hooks)
        hooks |= {m: PositionHook(x, recorder.order) for x, m in others if x.kind == "self"}
    recorder.ids_of_model = ids is None and finds_ids(model)
    blocks = {layer.name: layer for layer, _ in selected} if "residual" in kept else {}
    with (
        attach_hooks(hooks),
        watch_residual(model, blocks, recorder.add_residual),
        record_ids(model, trace),
        recorder.order.watch(model, recorder.end_step),
        watch_beams(modules.values(), recorder.begin_search, recorder.finish_search),
    ):
        yield trace
        recorder.finish()
        for found in trace.layer_traces.values():
            found.finish = None
    if not recorder.calls:
        raise nothing_recorded(trace, recorder.missed)
    if recorder.with_sinks:
        trace.about = {**trace.about, "sinks": sorted(recorder.with_sinks)}
    without = layers_without_attention(modules, [layer for layer, _ in selected])
    if without and wanted is None:
        trace.about = {**trace.about, "without_attention": without}
    unseen = recorder.missed | unhookable_modules(modules)
    if unseen:
        trace.about = {**trace.about, "unseen": list(unseen)}
        report_unseen(trace, unseen, layers)


class _RecordHook(AttentionHook):
    """Passes each call of one layer to the recorder."""

    reads_only = True

    def __init__(self, layer: Layer, module: nn.Module, recorder: "_Recorder") -> None:
        self.layer: Layer = layer
        self.module, self.recorder = module, recorder
        if not isinstance(module, MultiHeadAttention):
            kernel = getattr(getattr(module, "config", None), "_attn_implementation", "")
            check_kernel(str(layer), kernel)

    def after(self, call: AttentionCall, context: Tensor) -> Tensor:
        dropout = self.module.dropout if isinstance(self.module, MultiHeadAttention) else 0
        if self.module.training and dropout:
            raise RecordingError(
                f"{self.layer} drops weights at random (dropout {dropout})",
                hint="call model.eval() before observing it",
            )
        self.recorder.add(self.layer, call)
        return context

    def missed(self, reason: str) -> None:
        self.recorder.missed[self.layer.name] = reason


class _Recorder:
    """Adds the calls of all layers to the trace, and checks them, many at a time."""

    def __init__(
        self, trace: Trace, keep: frozenset[str], storage: TensorStorage,
        progress: Progress | None, order: CallOrder,
    ) -> None:  # fmt: skip
        self.trace, self.keep, self.storage, self.progress = trace, keep, storage, progress
        self.calls = 0
        self.order = order
        self.ids_of_model = False  # whether the trace's ids are those that the model gets
        self._searching = False  # by beams, which change places
        self.with_sinks: set[int] = set()  # layers
        self.missed: dict[str, str] = {}  # modules that ran and could not be recorded, and why
        self._checks = Checks()
        self._held: list[UncheckedCall] = []
        self._bytes = 0  # of those
        self._stream: Any = None  # of a GPU, on which the model runs
        self._buffers: dict[int, dict[str, GrowingTensor]] = {}  # by layer and name
        self._blocks: dict[int, Tensor] = {}  # what entered the blocks that run, by layer
        self._copies: list[tuple[Tensor, Tensor]] = []

    @torch.no_grad()
    def add(self, layer: Layer, call: AttentionCall) -> None:
        """Add one call of a layer to its trace."""
        check_shapes(layer, call)
        found, S = self.trace.layer_traces.get(layer.index), call.k.shape[2]
        known = 0 if found is None or found.layer.kind == "cross" else found.shape[2]
        layer = self.order.use(layer, call.q.shape[2], S, known)
        found = self.trace.layer_traces.get(layer.index)
        if (layer if found is None else found.layer).kind == "self":
            self.order.note(layer, call.q.shape[2], S)
        n_rows = call.q.shape[2]
        if found is not None:
            position = self.order.position(found.layer, n_rows)
            n = new_rows(found.shape[2], found.layer, call, position)
            read_again = call.q[:, :, : n_rows - n].detach()
            call = last_rows(call, n)
        (B, H, T, _), device = call.q.shape, call.q.device
        # Copies: what the model runs next may overwrite the originals.
        whole = torch.contiguous_format  # the layout that files have: the same bits from both
        q, v, k = (x.detach().clone(memory_format=whole) for x in (call.q, call.v, call.k))
        if found is None:
            if (kind := _kind(call)) != layer.kind or layer.index >= self.order.n_layers:
                layer = replace(layer, kind=kind)
                self.trace.replace_layer(layer)
            found = LayerTrace(layer, (B, H, T, S), device=str(device), finish=self.finish)
            self.trace.layer_traces[layer.index] = found
            row = key = 0
        else:
            row, key = found.shape[2], self._first_key(found, k, T, read_again, call)
            found.shape = (B, H, row + T, key + S)
        if call.sinks is not None:
            self.with_sinks.add(layer.index)
        if "tensors" in self.keep:
            self._store(found, q, k, v)
        rows = checked_rows(T)
        checked = CheckedRows(
            T=T, q=q[:, :, rows], k=k, v=v, context=call.context[:, :, rows].detach().clone(),
            weights=None if call.weights is None else call.weights[:, :, rows].detach().clone(),
            rounded_scores=call.rounded_scores,
        )  # fmt: skip
        lse = None if call.lse is None else call.lse.detach()
        held = UncheckedCall(found, call, q, k, checked, lse, (row, key))
        self._held.append(held)
        self._bytes += held.nbytes
        if q.is_cuda:
            self._stream = torch.cuda.current_stream(device)
        self.calls += 1
        if self.progress is not None:
            total = len(self.trace.layers)
            self.progress(min(self.calls, total), total)
        if self._bytes > HELD.get(device.type, 0):
            self._check()

    def finish(self) -> None:
        """Check what is held, and read the results."""
        self._check()
        self.storage.finish()
        self._checks.raise_failed()

    def _check(self) -> None:
        """Check the calls that are held, without waiting for a GPU."""
        held, self._held, self._bytes = self._held, [], 0
        if not held:
            return
        plain = torch.autocast(held[0].q.device.type, enabled=False)
        with on_stream(self._stream), torch.no_grad(), plain:
            check_calls(held, self._checks, keep_lse="tensors" in self.keep)
            if "statistics" in self.keep:
                measure_calls(held, self.trace.ids, self.trace.options)
            if "tensors" in self.keep:
                for one in held:
                    self._store_rules(one)
        if held[0].q.is_cpu:
            self._checks.raise_failed()

    def end_step(self) -> None:
        """Note that one forward of the model has ended."""
        rows = [x.shape[2] for x in self.trace.layer_traces.values() if x.layer.part != "encoder"]
        self.trace.end_step(max(rows, default=0))

    def begin_search(self) -> None:
        """Note that beams change their places from now on."""
        if self.keep & {"values", "residual"}:
            raise RecordingError(
                "values and the residual stream cannot be kept while beams change places",
                hint='use keep="tensors", or num_beams=1',
            )
        self._check()
        self._before = {i: len(x.calls) for i, x in self.trace.layer_traces.items()}
        self._searching = True

    def finish_search(self, places: Tensor, sentences: Tensor, slots: int) -> None:
        """Put the rows together that belong to the sentences which were found."""
        self.finish()
        self._searching = False
        for index, found in self.trace.layer_traces.items():
            if found.shape[0] == slots and not self._before.get(index):
                follow_sentences(found, places, index in self.with_sinks)
                self._buffers.pop(index, None)
        if self.ids_of_model:
            self.trace.ids = sentences[:, : max(self.trace.step_ends, default=0)]

    def _first_key(
        self, found: LayerTrace, k: Tensor, T: int, read_again: Tensor, call: AttentionCall
    ) -> int:
        """Return at which recorded key the keys of a further call start; raise if they differ."""
        if "statistics" in self.keep:
            raise RecordingError(
                f"{found.layer} was called again; statistics cannot be added to those of the first "
                "call",
                hint='use keep="tensors" for decoding with a cache; another text needs another '
                "observing()",
            )
        assert found.k is not None
        known, S = found.shape[3], k.shape[2]
        cross = found.layer.kind == "cross"
        start = 0 if cross else known + T - S
        again = known - start  # how many of the keys are not new
        fits = 0 <= start < known and k.shape[:2] == found.k.shape[:2]
        same = torch.zeros((), dtype=torch.bool)
        if fits and (again == S or not cross):
            old, new = found.k[:, :, start:], k[:, :, :again]
            if old.device != new.device:
                self.storage.finish()
            old = old.to(new)
            same = nearly_same(old, new) if cross else (old == new).all()
            if n := read_again.shape[2]:
                assert found.q is not None
                queries = nearly_same(found.q[:, :, :n].to(read_again), read_again)
                if (keys := call.mask.keys) is not None:  # padding may read anything
                    old, new = (x * keys[:, None, :again, None] for x in (old, new))
                same = nearly_same(old, new) & queries
            same = same | self._searching
        self._checks.add_keys(found.layer, known, S, same)
        if same.is_cpu:
            self._checks.raise_failed()
        found.forget_statistics()
        return start

    def add_residual(self, layer: Layer, x: Tensor) -> None:
        """Note what enters the block of a layer, which then calls the layer."""
        self._blocks[layer.index] = x.detach()

    def _store(self, found: LayerTrace, q: Tensor, k: Tensor, v: Tensor) -> None:
        buffers = self._buffers.get(found.layer.index)
        known = buffers["k"].length if buffers else 0
        new = slice(k.shape[2] - (found.shape[3] - known), None)  # keys that were not there
        found.q, found.k = self._grow(found, "q", q), self._grow(found, "k", k[:, :, new])
        if "values" in self.keep:
            found.v = self._grow(found, "v", v[:, :, new])
        if (x := self._blocks.pop(found.layer.index, None)) is not None:
            x = x[:, None, x.shape[1] - q.shape[2] :].clone()  # without rows that are read again
            found.residual = self._grow(found, "residual", x)[:, 0]

    def _grow(self, found: LayerTrace, name: str, x: Tensor) -> Tensor:
        """Append x to what a layer has of that name; return all of it."""
        buffer = self._buffers.setdefault(found.layer.index, {})
        buffer.setdefault(name, GrowingTensor(self.storage)).append(x)
        return buffer[name].value

    def _store_rules(self, held: UncheckedCall) -> None:
        """Store what became known when a call was checked: its lse, mask and scoring."""
        found, (row, key) = held.layer_trace, held.place
        assert held.lse is not None
        found.lse = self._grow(found, "lse", held.lse)
        parts = map_tensors(held.mask, self._copy), map_tensors(held.scoring, self._copy)
        flat = held.flat if held.flat is None else self._copy(held.flat)
        found.calls.append(RecordedCall(row, held.q.shape[2], key, held.k.shape[2], *parts, flat))

    def _copy(self, x: Tensor) -> Tensor:
        """Return a copy; layers that were given the same tensor share one."""
        for original, copy in self._copies:
            if original is x:
                return copy
        copy = self.storage.keep(x.detach().clone())
        self._copies = [*self._copies[-7:], (x, copy)]
        return copy


def _kind(call: AttentionCall) -> str:
    """Return "cross" if the keys are not those of the queries' own text."""
    T, S = call.q.shape[2], call.k.shape[2]
    # A cache that was filled earlier has more keys too, but then only one query, or causality.
    other = T != S and (T > 1 or T > S) and not call.mask.simplify(T, S).causal
    return "cross" if call.cross or other else "self"
