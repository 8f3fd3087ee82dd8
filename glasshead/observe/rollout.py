"""Attention rollout: how much of each input position reaches one token, through all the layers.

    r = one-hot(target)
    from the top layer down:   r <- 1/2 r + 1/2 mean over heads of (r @ weights)

One row of the product of the matrices (I + W) / 2, W being a layer's weights averaged over its
heads (Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers"). The half stands for
the residual stream, which carries each position on to itself. It knows nothing of values, norms
and feed-forwards: read it as a map of ways, not as a proof; `ablating` puts it to the test.

Only the row is kept, and the weights are made a band at a time: memory grows with T.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from glasshead.attention.hooks import Layer
from glasshead.errors import ConfigError, InputError
from glasshead.observe.trace import Trace, check_index
from glasshead.observe.trace_storage import LayerTrace

__all__ = ["rollout"]

BAND = 2**21  # weights that are made at a time


def rollout(
    seen: Trace,
    target: int = -1,
    *,
    layers: Iterable[int | str] | None = None,
    heads: Mapping[int | str, Sequence[int]] | None = None,
    batch: int = 0,
) -> Tensor:
    """(T,) float64: the share of each position in what the target is after the top layer.

    Args:
        seen: what `observing(model)` recorded, tensors kept.
        target: a position; -1 is the last.
        layers: the layers on the way, by index or name; every one when None. They must be
            self-attention over the same text.
        heads: {layer: heads to average}; in a layer that is not named, all of them.
        batch: which sequence.

    The shares add up to 1, unless rows on the way might attend to nothing: their half is lost.
    """
    stack = _stack(seen, layers)
    chosen = {seen.layer(which).index: list(some) for which, some in (heads or {}).items()}
    for index in chosen.keys() - {layer.index for layer in stack}:
        raise ConfigError(
            f"heads of layer {index} were chosen, but it is not on the way",
            hint="on the way: " + ", ".join(str(layer.index) for layer in stack),
        )
    B, _, T, _ = seen.shape(stack[-1].index)
    r = torch.zeros(T, dtype=torch.float64)
    r[check_index("position", target, T)] = 1
    batch = check_index("batch", batch, B)
    for layer in reversed(stack):
        record = seen.layer_trace(layer.index)
        H = record.shape[1]
        some = [check_index("head", head, H) for head in chosen.get(layer.index, range(H))]
        if not some:
            raise InputError(
                f"no head of layer {layer.index} is chosen", hint="leave it out of heads for all"
            )
        looked = sum((_through(record, batch, head, r) for head in some), torch.zeros_like(r))
        r = r / 2 + looked / (2 * len(some))
    return r


def _through(record: LayerTrace, batch: int, head: int, r: Tensor) -> Tensor:
    """r @ weights of one head, (T,) and (T, T), in bands of the rows that count."""
    T = len(r)
    out = torch.zeros_like(r)
    step = max(1, BAND // max(1, T))
    for start in range(0, T, step):
        rows = slice(start, min(start + step, T))
        if not r[rows].any():
            continue
        cols = record.visible_keys(rows)
        out[cols] += r[rows] @ record.tile(batch, head, rows, cols).to(r.dtype)
    return out


def _stack(seen: Trace, layers: Iterable[int | str] | None) -> list[Layer]:
    """The chosen layers from the bottom up, if they are self-attention over one text."""
    if layers is None:
        stack = seen.layers
    else:
        indices = {seen.layer(which).index for which in layers}
        stack = [layer for layer in seen.layers if layer.index in indices]
    if not stack:
        raise InputError("there is no layer to go through", hint="leave layers out for all")
    kinds = {(layer.part, layer.kind) for layer in stack}
    if len(kinds) > 1 or stack[0].kind != "self":
        raise ConfigError(
            "rollout goes through the self-attention of one text, but these layers are "
            + ", ".join(sorted(f"{part or ''} {kind}".strip() for part, kind in kinds)),
            hint="choose with layers=[...] from "
            + ", ".join(f"{layer.index} ({layer.name})" for layer in seen.layers),
        )
    for layer in stack:
        _, _, T, S = seen.shape(layer.index)
        if T != S:
            raise InputError(
                f"layer {layer.index} was recorded with {T} queries of {S} positions",
                hint="record the whole text: all its queries are needed",
            )
    return stack
