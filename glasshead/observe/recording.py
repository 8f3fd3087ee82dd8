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
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.attention.hooks import AttentionCall, AttentionHook, Layer
from glasshead.attention.mask import Mask
from glasshead.attention.multihead import MultiHeadAttention
from glasshead.attention.scores import Scoring, recompute
from glasshead.errors import ConfigError, RecordingError, did_you_mean
from glasshead.observe.hooks import attach_hooks
from glasshead.observe.layers import select_layers
from glasshead.observe.statistics import cell_side
from glasshead.observe.trace import Trace
from glasshead.observe.trace_storage import (
    GrowingTensor,
    LayerTrace,
    RecordedCall,
    TensorStorage,
    map_tensors,
    masked_scores,
    measure,
    to_float,
)
from glasshead.observe.transformers_hooks import check_kernel

__all__ = ["Progress", "check_exactness", "observing"]

Progress = Callable[[int, int], object]  # layers that are done, and how many there are

KEEPS = ("tensors", "statistics", "both")
PART, PARTS = 1024, 64  # keys that are summed in the weights' dtype; such parts in one product
# Limits of what is measured in one call: pairs of query and key by kind of device, bytes of queries
# and keys, cells of overviews.
PAIRS, BYTES, CELLS = {"cuda": 2**33}, 2**28, 2**28


@contextmanager
def observing(
    model: nn.Module,
    *,
    layers: Iterable[int | str] | None = None,
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
        layers: attention layers to record, by index or by module name; all when None.
        keep: "tensors" keeps q, k and lse: exact tiles, and statistics when asked for.
            "statistics" measures each layer as it runs (on a GPU, those of a short text together)
            and keeps only the result. "both" does both.
        ids: (B, T) token ids, for the statistics that compare tokens.
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
    selected = select_layers(model, layers)
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
    with attach_hooks({m: _RecordHook(layer, m, recorder) for layer, m in selected}):
        yield trace
    recorder.pending.measure()
    if not recorder.calls:
        raise RecordingError(
            f"no attention layer of {trace.model} ran inside the `with`",
            hint="call the model inside `with observing(model)`; if you did, its attention does "
            "not go through the interface that hooks can see",
        )


class _RecordHook(AttentionHook):
    """Passes each call of one layer to the recorder."""

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


class _Recorder:
    """Checks the calls of all layers and adds them to the trace."""

    def __init__(
        self, trace: Trace, keep: str, storage: TensorStorage, progress: Progress | None
    ) -> None:
        self.trace, self.keep, self.storage, self.progress = trace, keep, storage, progress
        self.pending = _PendingStatistics(trace)
        self.calls = 0
        self._buffers: dict[int, list[GrowingTensor]] = {}  # of q, k and lse, by layer
        self._copies: list[tuple[Tensor, Tensor]] = []

    @torch.no_grad()
    def add(self, index: int, call: AttentionCall) -> None:
        """Check one call of layer `index` and add it to the layer's trace."""
        q, k, lse, scoring = call.q.detach(), call.k.detach(), call.lse, call.scoring
        mask = call.mask.simplify(q.shape[2], k.shape[2])
        layer = replace(self.trace.layer(index), kind="cross" if call.cross else "self")
        self.trace.replace_layer(layer)
        with torch.autocast(q.device.type, enabled=False):
            check_exactness(layer, call)
            layer_trace, row, key = self._extend(layer, q, k)
            if lse is None and self.keep != "statistics":
                lse = recompute(q, k, mask, scoring, weights=False, lse=True)[1]
            if self.keep != "tensors":
                self.pending.add(_Measurement(layer_trace, q, k, mask, scoring, lse))
            if self.keep != "statistics":
                assert lse is not None
                parts = map_tensors(mask, self._copy), map_tensors(scoring, self._copy)
                layer_trace.calls.append(RecordedCall(row, q.shape[2], key, k.shape[2], *parts))
                self._store(layer_trace, q, k, lse.detach())
        self.calls += 1
        if self.progress is not None:
            total = len(self.trace.layers)
            self.progress(min(self.calls, total), total)

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


@torch.no_grad()
def check_exactness(layer: Layer, call: AttentionCall) -> None:
    """Raise unless exp(scores - lse) @ v equals the call's context in the last row, one in the
    middle and one of the first."""
    q, k, v, context = call.q, call.k, call.v, call.context
    (B, H, T, _), S = q.shape, k.shape[2]
    if k.shape[0] != B or H % k.shape[1] or context.shape != (B, H, T, v.shape[-1]):
        raise RecordingError(
            f"{layer} cannot be recorded: q {tuple(q.shape)} and k {tuple(k.shape)} gave a context "
            f"of {tuple(context.shape)}",
            hint="choose other layers with layers=[...]",
        )
    if not (B and H and T and S):
        return
    # The error that rounding may cause: in the context, and in scores before the exponential.
    of_context = 4 * torch.finfo(context.dtype).eps + 16 * torch.finfo(torch.float32).eps
    of_scores = 2 * torch.finfo(q.dtype if call.rounded_scores else torch.float32).eps
    largest_v = torch.maximum(v.amax((-2, -1)), -v.amin((-2, -1)))  # (B, H_kv); makes no copy of v
    largest_v = to_float(largest_v).repeat_interleave(H // v.shape[1], 1)
    # All rows at once: each question about a tensor on a GPU waits for it.
    step = max(1, (T - 1) // 2)
    rows = slice((T - 1) % step, T, step)
    s = masked_scores(q, k, call.mask, call.scoring, rows, slice(0, S))  # (B, H, 3, S)
    row_lse = s.logsumexp(-1) if call.lse is None else call.lse[:, :, rows]
    empty = (row_lse == -torch.inf)[..., None]
    weights = (s - row_lse[..., None]).exp().masked_fill(empty, 0)
    largest = s.masked_fill(s == -torch.inf, 0).abs().amax(-1, keepdim=True)
    allowance = largest_v[..., None, None] * (of_context + of_scores * largest)
    off = (_weigh_values(weights, v) - to_float(context[:, :, rows])).abs().masked_fill(empty, 0)
    # Written so that NaN fails too.
    if not bool((off <= allowance).all()):
        worst = off.nan_to_num(nan=torch.inf).amax((0, 1, 3))  # of each row
        row = rows.start + step * int(worst.argmax())
        raise RecordingError(
            f"{layer} cannot be recorded exactly: weights recomputed from its queries and keys "
            f"give a context that is off by {float(off.max()):.3g} in row {row}",
            hint="it does something besides softmax(q · k) over the keys that were seen",
        )


def _weigh_values(weights: Tensor, v: Tensor) -> Tensor:
    """Return weights @ v for a few rows, summed in parts: one sum over all keys of a long text
    would lose digits."""
    (B, H, R, S), H_kv = weights.shape, v.shape[1]
    weights = weights.unflatten(1, (H_kv, -1)).flatten(2, 3)  # (B, H_kv, rows, S)
    total = torch.zeros((), dtype=torch.float64, device=v.device)
    whole = S - S % PART
    for start, stop in pairwise(sorted({*range(0, whole, PARTS * PART), whole, S})):
        n = min(PART, stop - start)
        w = weights[..., start:stop].unflatten(-1, (-1, n)).movedim(-2, 2)  # (B, H_kv, parts, ...)
        part = v[:, :, start:stop].to(weights.dtype).unflatten(2, (-1, n))
        total = total + (w @ part).double().sum(2)
    return total.view(B, H, R, -1).to(weights.dtype)


@dataclass(frozen=True, eq=False)
class _Measurement:
    """One layer whose statistics are still to be measured."""

    layer_trace: LayerTrace
    q: Tensor
    k: Tensor
    mask: Mask
    scoring: Scoring
    lse: Tensor | None

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for layers that one call can measure."""
        rules = (*vars(self.mask).values(), *vars(self.scoring).values())
        return (
            self.layer_trace.layer.kind, self.q.shape, self.k.shape, self.q.dtype, self.q.device,
            self.lse is None, *(id(x) if isinstance(x, Tensor) else x for x in rules),
        )  # fmt: skip

    def fits(self, n: int) -> bool:
        """Whether n such layers are small enough to be measured in one call."""
        if self.mask.dense is not None or self.scoring.bias is not None:
            return False
        (B, H, T, _), S = self.q.shape, self.k.shape[2]
        heads, cells = n * B * H, -(-T // cell_side(T)) * -(-S // cell_side(S))
        return (
            heads * T * S <= PAIRS.get(self.q.device.type, 0)
            and n * (self.q.nbytes + self.k.nbytes) <= BYTES
            and heads * cells <= CELLS
        )


class _PendingStatistics:
    """Layers of a short text, to be measured in one call: on a GPU each call takes longer than the
    measuring itself. They are measured when the next layer does not fit with them, when recording
    ends, or when one of them is asked for."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._layers: list[_Measurement] = []

    def add(self, new: _Measurement) -> None:
        layers = self._layers
        if layers and not (new.key == layers[0].key and new.fits(len(layers) + 1)):
            self.measure()
        new.layer_trace.measure_pending = self.measure
        if not new.fits(1):
            self._layers = [new]
            self.measure()
            return
        # Copies: what the model runs next may overwrite the originals.
        lse = None if new.lse is None else new.lse.clone()
        self._layers.append(replace(new, q=new.q.clone(), k=new.k.clone(), lse=lse))

    def measure(self) -> None:
        """Measure all pending layers as one batch."""
        layers, self._layers = self._layers, []
        if not layers:
            return
        first, n, B = layers[0], len(layers), len(layers[0].q)
        q, k, lse, mask, ids = first.q, first.k, first.lse, first.mask, self.trace.ids
        if n > 1:

            def repeat(x: Tensor) -> Tensor:
                return x if len(x) != B else x.repeat(n, 1)

            q, k = torch.cat([x.q for x in layers]), torch.cat([x.k for x in layers])
            lse = None if lse is None else torch.cat([x.lse for x in layers if x.lse is not None])
            mask, ids = map_tensors(mask, repeat), None if ids is None else repeat(ids)
        layer = first.layer_trace.layer
        with torch.autocast(q.device.type, enabled=False):
            found = measure(layer, q, k, mask, first.scoring, lse, ids, self.trace.top_k)
        for i, x in enumerate(layers):
            x.layer_trace.statistics = found if n == 1 else map_tensors(found, partial(_part, i, n))
            x.layer_trace.measure_pending = None


def _part(i: int, n: int, x: Tensor) -> Tensor:
    """Return part i of a batch of n equal parts. What has no batch (`lag_starts`), or 1 for all
    sequences, stays as it is."""
    return x.chunk(n)[i] if x.dim() > 1 and len(x) % n == 0 else x
