"""Record the attention of any model while it runs, without changing a bit of what it computes.

    with observing(model) as trace:
        model(ids)
    trace.tile(layer=3, head=0, rows=slice(0, 64), cols=slice(0, 64))

The model runs on its own kernels. A hook on each layer keeps what the kernel was given: queries and
keys after rotary and norms, the mask, the scale, cap and biases of the scores. Every weight follows
from these exactly.

Each call is checked while the model runs: for a few rows exp(scores - lse) @ v must equal the
context that the kernel returned. A layer that fails the check raises RecordingError, so that no
wrong weights are ever shown.

A row that may attend to nothing has weights 0. Where a model hides all keys of a row by adding a
number to their scores (padding, often), it gives them equal weight, and so do tiles; statistics
leave such rows out.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from glasshead.attention.hooks import AttentionCall, AttentionHook, Layer
from glasshead.attention.mask import Mask
from glasshead.attention.multihead import MultiHeadAttention
from glasshead.attention.scores import recompute
from glasshead.errors import ConfigError, RecordingError, did_you_mean
from glasshead.observe.exactness import check_exactness
from glasshead.observe.hooks import attach_hooks
from glasshead.observe.layers import layers_without_attention, select_layers, unhookable_modules
from glasshead.observe.pending_statistics import Measurement, PendingStatistics
from glasshead.observe.trace import Trace
from glasshead.observe.trace_storage import (
    GrowingTensor,
    LayerTrace,
    RecordedCall,
    TensorStorage,
    map_tensors,
)
from glasshead.observe.transformers_hooks import check_kernel

__all__ = ["Progress", "check_exactness", "observing"]

Progress = Callable[[int, int], object]  # layers that are done, and how many there are

KEEPS = ("tensors", "statistics", "both")


@contextmanager
def observing(
    model: nn.Module,
    *,
    layers: Iterable[int | str] | Literal["all"] | None = None,
    keep: str = "tensors",
    ids: Tensor | None = None,
    tokens: Any = None,
    source_tokens: Any = None,
    top_k: int = 8,
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
            and keeps only the result. "both" does both.
        ids: (B, T) token ids, for the statistics that compare tokens. When None, those that the
            model's token embedding gets, unless it also reads another text (encoder-decoder).
        tokens, source_tokens: labels of the positions (`Trace.tokens`).
        top_k: how many keys of each row the statistics name.
        in_memory: bytes of tensors to keep in memory; the rest goes to temporary files.
        folder: where those files lie; the system's temporary folder when None.
        progress: called with the number of recorded layers and of all, at first and after each.

    Calls that continue each other (cached decoding) make one growing map. A second text needs a
    second `observing`.
    """
    if keep not in KEEPS:
        raise ConfigError(f"unknown keep '{keep}'", hint=did_you_mean(keep, KEEPS))
    wanted = None if layers == "all" else layers
    selected = select_layers(model, wanted)
    trace = Trace(
        [layer for layer, _ in selected],
        model=type(getattr(model, "_orig_mod", model)).__name__,
        ids=ids,
        tokens=tokens,
        source_tokens=source_tokens,
        top_k=top_k,
    )
    if progress is not None:
        progress(0, len(selected))
    recorder = _Recorder(trace, keep, TensorStorage(in_memory, folder), progress)
    hooks = {m: _RecordHook(layer, m, recorder) for layer, m in selected}
    with attach_hooks(hooks), _record_ids(model, trace):
        yield trace
    recorder.pending.measure()
    if not recorder.calls:
        raise RecordingError(
            f"no attention layer of {trace.model} ran inside the `with`",
            hint="call the model inside `with observing(model)`; if you did, its attention does "
            "not go through the interface that hooks can see",
        )
    without = layers_without_attention(model, [layer for layer, _ in selected])
    if without and wanted is None:
        trace.about = {**trace.about, "without_attention": without}
    unseen = recorder.missed | unhookable_modules(model)
    if unseen:
        trace.about = {**trace.about, "unseen": list(unseen)}
        _report_unseen(trace, unseen, layers)


def _report_unseen(trace: Trace, reasons: dict[str, str], layers: Any) -> None:
    """Warn of attention that ran and cannot be recorded; raise if all was to be."""
    n, names = len(trace.unseen), ", ".join(trace.unseen[:3])
    more = f" and {n - 3} more" if n > 3 else ""
    reason = reasons[trace.unseen[0]]
    problem = f"{trace.model} also ran attention that cannot be recorded: {names}{more} ({reason})"
    if layers == "all":
        raise RecordingError(problem, hint="leave out layers='all' to record the rest")
    if layers is None:
        warnings.warn(f"{problem}; trace.unseen has all names", stacklevel=4)


@contextmanager
def _record_ids(model: nn.Module, trace: Trace) -> Iterator[None]:
    """Set `trace.ids` to the ids that the token embedding gets, if they are not known."""
    embedding = _token_embedding(model)
    if trace.ids is not None or embedding is None:
        yield
        return
    known: list[Tensor] = []

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def add(module: nn.Module, args: tuple[Any, ...]) -> None:
        new = args[0] if args else None
        if not isinstance(new, Tensor) or new.dim() != 2 or new.is_floating_point():
            return
        known.append(new.detach().clone())
        fits = len({len(x) for x in known}) == 1
        trace.ids = torch.cat(known, 1) if fits else None

    handle = embedding.register_forward_pre_hook(add)
    try:
        yield
    finally:
        handle.remove()


def _token_embedding(model: nn.Module) -> nn.Module | None:
    """Return the embedding of the only text that a model reads."""
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        return None
    find = getattr(model, "get_input_embeddings", lambda: getattr(model, "embedding", None))
    try:
        found = find()
    except NotImplementedError:
        return None
    return found if isinstance(found, nn.Embedding) else None


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
        self.recorder.add(self.layer.index, call)
        return context

    def missed(self, reason: str) -> None:
        self.recorder.missed[self.layer.name] = reason


class _Recorder:
    """Checks the calls of all layers and adds them to the trace."""

    def __init__(
        self, trace: Trace, keep: str, storage: TensorStorage, progress: Progress | None
    ) -> None:
        self.trace, self.keep, self.storage, self.progress = trace, keep, storage, progress
        self.pending = PendingStatistics(trace)
        self.calls = 0
        self.missed: dict[str, str] = {}  # modules that ran and could not be recorded, and why
        self._buffers: dict[int, list[GrowingTensor]] = {}  # of q, k and lse, by layer
        self._copies: list[tuple[Tensor, Tensor]] = []

    @torch.no_grad()
    def add(self, index: int, call: AttentionCall) -> None:
        """Check one call of layer `index` and add it to the layer's trace."""
        q, k, lse, scoring = call.q.detach(), call.k.detach(), call.lse, call.scoring
        mask = call.mask.simplify(q.shape[2], k.shape[2])
        layer = replace(self.trace.layer(index), kind=self._kind(index, call, mask))
        self.trace.replace_layer(layer)
        with torch.autocast(q.device.type, enabled=False):
            check_exactness(layer, call)
            layer_trace, row, key = self._extend(layer, q, k)
            if lse is None and self.keep != "statistics":
                lse = recompute(q, k, mask, scoring, weights=False, lse=True)[1]
            if self.keep != "tensors":
                self.pending.add(Measurement(layer_trace, q, k, mask, scoring, lse))
            if self.keep != "statistics":
                assert lse is not None
                parts = map_tensors(mask, self._copy), map_tensors(scoring, self._copy)
                flat = None if call.flat is None else call.flat()
                flat = None if flat is None else self._copy(flat)
                place = row, q.shape[2], key, k.shape[2]
                layer_trace.calls.append(RecordedCall(*place, *parts, flat))
                self._store(layer_trace, q, k, lse.detach())
        self.calls += 1
        if self.progress is not None:
            total = len(self.trace.layers)
            self.progress(min(self.calls, total), total)

    def _kind(self, index: int, call: AttentionCall, mask: Mask) -> str:
        """Return "cross" if the keys are not those of the queries' own text."""
        if index in self.trace.layer_traces:
            return self.trace.layer_traces[index].layer.kind
        T, S = call.q.shape[2], call.k.shape[2]
        # A cache that was filled earlier has more keys too, but then only one query, or causality.
        other = T != S and not mask.causal and (T > 1 or T > S)
        return "cross" if call.cross or other else "self"

    def _extend(self, layer: Layer, q: Tensor, k: Tensor) -> tuple[LayerTrace, int, int]:
        """Return the layer's trace, grown by this call, and the call's first row and first key."""
        (B, H, T, _), S = q.shape, k.shape[2]
        found = self.trace.layer_traces.get(layer.index)
        if found is None:
            found = LayerTrace(layer, (B, H, T, S), device=str(q.device))
            self.trace.layer_traces[layer.index] = found
            return found, 0, 0
        if self.keep != "tensors":
            raise RecordingError(
                f"{layer} was called again; statistics cannot be added to those of the first call",
                hint='use keep="tensors" for decoding with a cache; another text needs another '
                "observing()",
            )
        row, key = found.shape[2], _first_key(found, k, T)
        found.forget_statistics()
        found.shape = (B, H, row + T, key + S)
        return found, row, key

    def _store(self, found: LayerTrace, q: Tensor, k: Tensor, lse: Tensor) -> None:
        index = found.layer.index
        if index not in self._buffers:
            self._buffers[index] = [GrowingTensor(self.storage) for _ in range(3)]
        buffers = self._buffers[index]
        n_new = found.shape[3] - buffers[1].length
        for buffer, x in zip(buffers, (q, k[:, :, k.shape[2] - n_new :], lse), strict=True):
            buffer.append(x)
        found.q, found.k, found.lse = (buffer.value for buffer in buffers)

    def _copy(self, x: Tensor) -> Tensor:
        """Return a copy on the CPU; layers that were given the same tensor share one."""
        for original, copy in self._copies:
            if original is x:
                return copy
        copy = x.detach().to("cpu", copy=True)
        self._copies = [*self._copies[-7:], (x, copy)]
        return copy


def _first_key(found: LayerTrace, k: Tensor, T: int) -> int:
    """Return at which recorded key the keys of a further call start; raise if they differ."""
    assert found.k is not None
    known, S = found.shape[3], k.shape[2]
    cross = found.layer.kind == "cross"
    start = 0 if cross else known + T - S
    again = known - start  # how many of the keys are not new
    if 0 <= start < known and k.shape[:2] == found.k.shape[:2] and (again == S if cross else True):
        old = found.k[:, :, start:]
        if torch.equal(old, k[:, :, :again].to(old)):
            return start
    raise RecordingError(
        f"{found.layer} was called again, with keys that do not continue those of earlier calls "
        f"({known} before, {S} now)",
        hint="another text needs another observing(); a cache that is reordered (beams) or filled "
        "in place (static) and a layer that is used several times cannot be recorded",
    )
