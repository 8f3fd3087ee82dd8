"""Attention rollout: how much of each input position reaches one token through all layers.

    r = one-hot(target)
    from the top layer down:   r <- 1/2 r + 1/2 mean over heads of (r @ weights)

One row of the product of the matrices (I + W) / 2, W being a layer's weights averaged over its
heads (Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers"). The half stands for
the residual stream, which carries each position on to itself. Rollout ignores values, norms and
feed-forwards: it is a hint, not a proof; test it with `ablating`.

Only the row is kept, and the weights are computed a band at a time: memory grows with T.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from glasshead.attention.hooks import Layer
from glasshead.errors import ConfigError, InputError
from glasshead.observe.slices import check_index
from glasshead.observe.trace import Trace
from glasshead.observe.trace_storage import LayerTrace

__all__ = ["rollout"]

BAND = 2**21  # weights that are computed at a time


def rollout(
    trace: Trace,
    target: int = -1,
    *,
    layers: Iterable[int | str] | None = None,
    heads: Mapping[int | str, Sequence[int]] | None = None,
    batch: int = 0,
) -> Tensor:
    """Return the share of each position in the target after the top layer, (T,) float64.

    Args:
        trace: from `observing(model)`, with tensors.
        target: a position; -1 is the last.
        layers: by index or name; all when None. They must be self-attention over the same text.
        heads: {layer: heads to average}; all heads in a layer that is not named.
        batch: which sequence.

    The shares sum to 1, unless some rows could attend to nothing: their half is lost.
    """
    stack = _select_stack(trace, layers)
    chosen = {trace.layer(which).index: list(some) for which, some in (heads or {}).items()}
    for index in chosen.keys() - {layer.index for layer in stack}:
        raise ConfigError(
            f"heads of layer {index} were chosen, but the layer is left out",
            hint="layers: " + ", ".join(str(layer.index) for layer in stack),
        )
    B, _, T, _ = trace.shape(stack[-1].index)
    r = torch.zeros(T, dtype=torch.float64)
    r[check_index("position", target, T)] = 1
    batch = check_index("batch", batch, B)
    for layer in reversed(stack):
        stored = trace.layer_trace(layer.index)
        H = stored.shape[1]
        some = [check_index("head", head, H) for head in chosen.get(layer.index, range(H))]
        if not some:
            raise InputError(
                f"no head of layer {layer.index} is chosen", hint="leave it out of heads for all"
            )
        moved = sum((_apply_weights(stored, batch, head, r) for head in some), torch.zeros_like(r))
        r = r / 2 + moved / (2 * len(some))
    return r


def _apply_weights(stored: LayerTrace, batch: int, head: int, r: Tensor) -> Tensor:
    """Return r (T,) @ weights (T, T) of one head, in bands of the rows where r is not 0."""
    T = len(r)
    out = torch.zeros_like(r)
    step = max(1, BAND // max(1, T))
    for start in range(0, T, step):
        rows = slice(start, min(start + step, T))
        if not r[rows].any():
            continue
        cols = stored.visible_keys(rows)
        out[cols] += r[rows] @ stored.tile(batch, head, rows, cols).to(r.dtype)
    return out


def _select_stack(trace: Trace, layers: Iterable[int | str] | None) -> list[Layer]:
    """Return the layers from the bottom up; raise unless they are self-attention over one text."""
    stack = trace.layers
    if layers is not None:
        indices = {trace.layer(which).index for which in layers}
        stack = [layer for layer in stack if layer.index in indices]
    if not stack:
        raise InputError("no layers are chosen", hint="leave layers out for all")
    kinds = {(layer.part, layer.kind) for layer in stack}
    if len(kinds) > 1 or stack[0].kind != "self":
        raise ConfigError(
            "rollout needs the self-attention of one text, but these layers are "
            + ", ".join(sorted(f"{part or ''} {kind}".strip() for part, kind in kinds)),
            hint=f"choose with layers=[...] from {', '.join(map(str, trace.layers))}",
        )
    for layer in stack:
        _, _, T, S = trace.shape(layer.index)
        if T != S:
            raise InputError(
                f"layer {layer.index} was recorded with {T} queries for {S} positions",
                hint="record the whole text at once: rollout needs all its queries",
            )
    return stack
