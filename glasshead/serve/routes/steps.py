"""The page's Steps: everything that goes into one query's attention, and comes out of it.

GET /api/seen/{seen}/steps?layer&head&query

What the page computes from it must give the weights that the server gives: they are in the answer.
"""

from typing import Annotated, Any

import torch
from fastapi import APIRouter, Query, Request
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
from glasshead.serve.workers import CancelToken, run_in_worker

__all__ = ["router"]

router = APIRouter(prefix="/api", tags=["steps"])

MOST = 512  # keys; a longer row is for the Atlas

Index = Annotated[int, Query(ge=0, lt=2**31)]


@router.get("/seen/{seen}/steps")
async def steps(
    request: Request, seen: str, layer: Index, head: Index, query: Index
) -> dict[str, Any]:
    return await run_in_worker(request, _steps, request.app.state, seen, layer, head, query)


def _steps(state: Any, name: str, layer: int, head: int, query: int, cancel: CancelToken) -> Any:
    seen = state.traces.entry(name)
    with seen.lock:
        found = _row(seen.atlas, layer, head, query)
        text = seen.key.get("text") if isinstance(seen.key, dict) else None
        v = None
        if isinstance(text, str):
            served = state.library.open(seen.model)
            if served.stamp != seen.key.get("stamp"):
                raise InputError(
                    f"{seen.model} has changed since this text was read",
                    hint="look at the text once more",
                )
            with served.lock:
                v = values_of(served.subject, text, layer, head, cancel)
    if v is not None:
        weights = torch.tensor(found["weights"], dtype=torch.float64)
        found |= {"v": v.tolist(), "context": (weights @ v).tolist()}
    return found


def _row(atlas: Trace, layer: int, head: int, query: int) -> dict[str, Any]:
    record = atlas.layer_trace(layer)
    _, H, T, S = record.shape
    for what, value, size in (("head", head, H), ("query", query, T)):
        if value >= size:
            raise InputError(
                f"{what} {value} does not exist", hint=f"there are {size}, counted from 0"
            )
    if S > MOST:
        raise InputError(
            f"the text has {S:,} tokens, more than {MOST} at once", hint="take a shorter text"
        )
    q, k, _ = record.tensors()
    mine, keys = q[0, head, query].double(), k[0, head // (H // k.shape[1])].double()
    mask, scoring = record.mask_and_scoring()
    rows, cols = slice(query, query + 1), slice(0, S)
    allowed = mask.to_tensor(T, S, rows, cols)
    added = scoring.additive_bias(T, S, rows, cols)
    tokens = View(atlas, ViewConfig(tokens=True)).sides(layer)
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
        "added": None if added is None else _of(added, head, S).tolist(),
        "allowed": None if allowed is None else _of(allowed, head, S).tolist(),
        "weights": atlas.row(layer, head, query).double().tolist(),
        "q": mine.tolist(),
        "k": keys.tolist(),
        "v": None,
        "context": None,
    }


def _of(x: Tensor, head: int, S: int) -> Tensor:
    """(S,) of one head, of what broadcasts to (B, H, 1, S)."""
    x = x.reshape((1,) * (4 - x.dim()) + x.shape)[0]
    row = x[head if x.shape[0] > 1 else 0, 0].expand(S)
    return row if row.dtype == torch.bool else row.double()


def values_of(subject: Any, text: str, layer: int, head: int, cancel: CancelToken) -> Tensor:
    """(S, D) the values that a head mixes. They are not kept: the text is read once more."""
    [(found, module)] = [
        one for one in find_layers(subject.model, partly=True) if one[0].index == layer
    ]
    values = _KeepValues(found)
    with attach_hooks({module: values}):
        subject.record(text, RecordConfig(layers=(layer,), progress=cancel))
    v = values.kept[-1]  # a translator's calls before the last one are of its search
    group = _heads(module, v) // v.shape[1]
    return v[0, head // group].double().cpu()


def _heads(module: nn.Module, v: Tensor) -> int:
    if isinstance(module, MultiHeadAttention):
        return module.n_heads
    return v.shape[1] * int(getattr(module, "num_key_value_groups", 1))


class _KeepValues(AttentionHook):
    """Keeps the values of each call of one layer."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.kept: list[Tensor] = []

    def after(self, call: AttentionCall, context: Tensor) -> Tensor:
        self.kept.append(call.v.detach())
        return context
