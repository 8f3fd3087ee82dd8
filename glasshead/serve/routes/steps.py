"""The route of the page's Steps view: all inputs and outputs of one query's attention.

GET /api/seen/{seen}/steps?layer&head&query

The answer includes the weights, so that the page can check what it computes from the inputs.
"""

from typing import Any

import torch
from fastapi import APIRouter, Request
from torch import Tensor, nn

from glasshead.attention.hooks import AttentionCall, AttentionHook, Layer
from glasshead.attention.multihead import MultiHeadAttention
from glasshead.errors import InputError
from glasshead.observe.hooks import attach_hooks
from glasshead.observe.inspectable import RecordConfig
from glasshead.observe.layers import find_layers
from glasshead.observe.trace import Trace
from glasshead.observe.view import View, ViewConfig
from glasshead.observe.words import visible
from glasshead.serve.routes.inputs import Index
from glasshead.serve.workers import CancelToken, in_worker

__all__ = ["router"]

router = APIRouter(prefix="/api", tags=["steps"])

MAX_KEYS = 512  # a longer row is for the Atlas


@router.get("/seen/{seen}/steps")
@in_worker
def steps(
    request: Request, seen: str, layer: Index, head: Index, query: Index, cancel: CancelToken
) -> dict[str, Any]:
    state = request.app.state
    stored = state.traces.entry(seen)
    with stored.lock:
        found = _describe_row(stored.trace, layer, head, query)
        text = stored.key.get("text") if isinstance(stored.key, dict) else None
        if not isinstance(text, str):
            return found
        served = state.library.open(stored.model)
        if served.stamp != stored.key.get("stamp"):
            raise InputError(
                f"{stored.model} has changed since this text was read",
                hint="read the text again: POST /api/look",
            )
        with served.lock:
            v = record_values(served.inspectable, text, layer, head, cancel)
    weights = torch.tensor(found["weights"], dtype=torch.float64)
    return {**found, "v": v.tolist(), "context": (weights @ v).tolist()}


def _describe_row(trace: Trace, layer: int, head: int, query: int) -> dict[str, Any]:
    record = trace.layer_trace(layer)
    _, H, T, S = record.shape
    for what, value, size in (("head", head, H), ("query", query, T)):
        if value >= size:
            raise InputError(
                f"{what} {value} does not exist", hint=f"use a number from 0 to {size - 1}"
            )
    if S > MAX_KEYS:
        raise InputError(
            f"the text has {S:,} tokens, but the Steps view shows {MAX_KEYS} at most",
            hint="use a shorter text",
        )
    q, k, _ = record.tensors()
    mine, keys = q[0, head, query].double(), k[0, head // (H // k.shape[1])].double()
    mask, scoring = record.mask_and_scoring()
    rows, cols = slice(query, query + 1), slice(0, S)
    allowed = mask.to_tensor(T, S, rows, cols)
    added = scoring.additive_bias(T, S, rows, cols)
    tokens = View(trace, ViewConfig(tokens=True)).sides(layer)
    return {
        "layer": layer,
        "head": head,
        "query": query,
        "queries": [visible(word.text) for word in tokens[0]],
        "keys": [visible(word.text) for word in tokens[1]],
        "d": len(mine),
        "scale": scoring.scale_for(len(mine)),
        "softcap": scoring.softcap,
        "causal": bool(mask.causal),
        "products": (keys @ mine).tolist(),
        "added": None if added is None else _row_of_head(added, head, S).tolist(),
        "allowed": None if allowed is None else _row_of_head(allowed, head, S).tolist(),
        "weights": trace.row(layer, head, query).double().tolist(),
        "q": mine.tolist(),
        "k": keys.tolist(),
        "v": None,
        "context": None,
    }


def _row_of_head(x: Tensor, head: int, S: int) -> Tensor:
    """Return (S,) of one head from a tensor that broadcasts to (B, H, 1, S)."""
    x = x.reshape((1,) * (4 - x.dim()) + x.shape)[0]
    row = x[head if x.shape[0] > 1 else 0, 0].expand(S)
    return row if row.dtype == torch.bool else row.double()


def record_values(subject: Any, text: str, layer: int, head: int, cancel: CancelToken) -> Tensor:
    """Return the values (S, D) of a head. Traces do not hold them, so the text is read again."""
    [(found, module)] = [one for one in find_layers(subject.model) if one[0].index == layer]
    values = _ValuesHook(found)
    with attach_hooks({module: values}):
        subject.record(text, RecordConfig(layers=(layer,), progress=cancel))
    v = values.calls[-1]  # a translator's earlier calls belong to its search
    group = _count_heads(module, v) // v.shape[1]
    return v[0, head // group].double().cpu()


def _count_heads(module: nn.Module, v: Tensor) -> int:
    if isinstance(module, MultiHeadAttention):
        return module.n_heads
    return v.shape[1] * int(getattr(module, "num_key_value_groups", 1))


class _ValuesHook(AttentionHook):
    """Keeps the values of each call of one layer."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.calls: list[Tensor] = []

    def after(self, call: AttentionCall, context: Tensor) -> Tensor:
        self.calls.append(call.v.detach())
        return context
