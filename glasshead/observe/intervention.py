"""Change what layers of attention do while a model runs: ours, and those of `transformers`.

A layer is changed in two places: pairs can be hidden before or after the softmax, and the context
can be replaced on its way out. The change is in place only while the layer runs, and outside of
whoever watches it then. So a recorder sees the attention that really took place, no matter whether
it started to watch before or after.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.attention.functional import as_mask
from glasshead.attention.mask import Mask
from glasshead.attention.multihead import AttentionOutput, Look, MultiHeadAttention
from glasshead.attention.scores import per_group
from glasshead.errors import AblationError
from glasshead.observe.record import Layer, exact, masked_scores

__all__ = ["Call", "Change", "intervening"]

BAND = 2**22  # weights that are made at a time


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a layer, before it has run."""

    layer: Layer
    H: int
    T: int
    S: int
    cross: bool
    first: int | None  # the position of its first query; None where it cannot be known
    device: torch.device


class Change:
    """What is done to one layer. This one does nothing; others override a method."""

    renormalise = True  # whether the other weights of a row grow when some are hidden
    calls = 0

    def hidden(self, call: Call) -> Tensor | None:
        """True where a pair is hidden; broadcasts to (B, H, T, S)."""
        return None

    def context(self, context: Tensor, real: Callable[[], Tensor | None]) -> Tensor:
        """What takes the place of the context (B, H, T, D).

        `real()` tells which queries are not padding, (B | 1, T); None when all are, or nothing
        says so.
        """
        return context


@contextmanager
def intervening(
    found: list[tuple[Layer, nn.Module]], changes: Mapping[int, Change]
) -> Iterator[None]:
    """Change these of the layers that `layers.find` found, by index, inside the `with`."""
    with ExitStack() as stack:
        for layer, module in found:
            if layer.index in changes:
                change = changes[layer.index]
                if isinstance(module, MultiHeadAttention):
                    forward: Callable[..., Any] = _ours(layer, module, change)
                else:
                    forward = _theirs(layer, module, change)
                # A compiled model runs these layers as they are written.
                forward = torch.compiler.disable(forward)
                stack.enter_context(_replaced(module, "forward", forward))
        yield
    for layer, _ in found:
        if layer.index in changes and not changes[layer.index].calls:
            raise AblationError(
                f"layer {layer.index} ({layer.name}) did not run, so nothing was changed in it",
                hint="call the model inside the `with`; if it was called, it goes around the layer",
            )


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    known, old = name in vars(owner), vars(owner).get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if known:
            setattr(owner, name, old)
        else:
            delattr(owner, name)


def _ours(
    layer: Layer, module: MultiHeadAttention, change: Change
) -> Callable[..., AttentionOutput]:
    real: Callable[..., AttentionOutput] = module.forward

    def forward(x: Tensor, memory: Tensor | None = None, **options: Any) -> AttentionOutput:
        cache, T = options.get("cache"), x.shape[1]
        past = 0 if cache is None else cache.length
        if memory is None:
            call = Call(layer, module.n_heads, T, past + T, False, past, x.device)
        else:  # a cache of the memory does not know how many queries there were
            first = None if past else 0
            call = Call(layer, module.n_heads, T, memory.shape[1], True, first, x.device)
        change.calls += 1
        hidden = change.hidden(call)
        if hidden is not None and change.renormalise:
            options["mask"] = as_mask(options.get("mask")) & Mask(dense=~hidden)
            hidden = None
        if hidden is not None and module.training and module.dropout:
            raise AblationError(
                f"layer {layer.index} drops weights at random (dropout {module.dropout})",
                hint="call model.eval(), or hide edges with renormalise=True",
            )
        with _replaced(module, "watcher", _Watcher(change, hidden, module.watcher)):
            return real(x, memory, **options)

    return forward


class _Watcher:
    def __init__(
        self,
        change: Change,
        hidden: Tensor | None,
        rest: Callable[[Look], Tensor | None] | None,
    ) -> None:
        self.change, self.hidden, self.rest = change, hidden, rest

    def __call__(self, look: Look) -> Tensor:
        if self.hidden is not None:
            look = _without(look, self.hidden)
        context = None if self.rest is None else self.rest(look)
        return self.change.context(
            look.context if context is None else context, partial(_real_queries, look)
        )


def _without(look: Look, hidden: Tensor) -> Look:
    """The same look with some weights set to 0, the others as they were."""
    (B, H, T, _), S = look.q.shape, look.k.shape[2]
    mask = look.mask & Mask(dense=~hidden)
    touched = hidden.any(-1, keepdim=True).expand(-1, T, -1)  # (H | 1, T, 1)
    step = max(1, BAND // max(1, B * H * S))
    bands = []
    for start in range(0, T, step):
        rows = slice(start, min(start + step, T))
        s = masked_scores(look.q, look.k, mask, look.scoring, rows, slice(0, S))
        lse = look.lse[:, :, rows, None]
        # An empty row has nothing but -inf, whatever is taken from it.
        weights = (s - lse.masked_fill(lse == -torch.inf, 0)).exp()
        context = per_group(weights, exact(look.v)).to(look.context.dtype)
        bands.append(torch.where(touched[:, rows], context, look.context[:, :, rows]))
    return replace(look, mask=mask, context=torch.cat(bands, 2) if bands else look.context)


def _real_queries(look: Look) -> Tensor | None:
    T, S = look.q.shape[2], look.k.shape[2]
    return None if look.cross or look.mask.keys is None else look.mask.keys[:, S - T :]


def _theirs(layer: Layer, module: nn.Module, change: Change) -> Callable[..., Any]:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    interface: Any = ALL_ATTENTION_FUNCTIONS
    real = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        get = interface.get_interface

        def get_changed(name: str, default: Callable[..., Any]) -> Callable[..., Any]:
            return partial(_attend, layer, change, get(name, default), name)

        with _replaced(interface, "get_interface", get_changed):
            return real(*args, **kwargs)

    return forward


def _attend(
    layer: Layer,
    change: Change,
    inner: Callable[..., Any],
    name: str,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any = None,
    *args: Any,
    **options: Any,
) -> Any:
    """A function of the attention interface, with the change around it."""
    (_, H, T, _), S = query.shape, key.shape[2]
    cross = layer.kind == "cross"
    # Their caches may forget keys or have room for more: then an index is no position.
    known = T > 1 if cross else T == S
    call = Call(layer, H, T, S, cross, 0 if known else None, query.device)
    change.calls += 1
    hidden, emptied, mask = change.hidden(call), None, attention_mask
    if hidden is not None:
        causal = options.get("is_causal")
        causal = getattr(module, "is_causal", True) if causal is None else causal
        _refuse(layer, change, name, mask, S)
        before = _allowed(mask)
        if before is None:  # the fused kernel lines queries up with the first keys
            before = torch.ones(T, S, dtype=torch.bool, device=query.device)
            before = before.tril() if causal and name == "sdpa" and T > 1 else before
        after = before & ~hidden
        emptied = ~after.any(-1)  # (B | 1, H | 1, T)
        if mask is None and name == "sdpa":
            mask = after[None]
        else:
            mask = query.new_zeros(1) if mask is None else mask
            least = 0 if mask.dtype == torch.bool else torch.finfo(mask.dtype).min
            mask = mask.masked_fill(~after, least)
    out = inner(module, query, key, value, mask, *args, **options)
    context = out[0].transpose(1, 2)  # (B, H, T, D)
    if context.dim() != 4 or context.shape[1] != H:
        raise AblationError(
            f"layer {layer.index} ({layer.name}) gives a context of {tuple(out[0].shape)}, not one "
            f"vector for each of {H} heads",
            hint="choose other layers",
        )
    if emptied is not None:
        context = context.masked_fill(emptied[..., None], 0)
    context = change.context(context, partial(_real_rows, attention_mask, T, cross))
    return (context.transpose(1, 2), *out[1:])


def _allowed(mask: Any) -> Tensor | None:
    """True = may attend; None where no tensor says so."""
    if not isinstance(mask, Tensor):
        return None
    return mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2


def _real_rows(mask: Any, T: int, cross: bool) -> Tensor | None:
    allowed = _allowed(mask)
    if cross or allowed is None or allowed.dim() != 4 or allowed.shape[3] < T:
        return None
    return allowed.any(dim=(1, 2))[:, allowed.shape[3] - T :]  # keys that someone may see


def _refuse(layer: Layer, change: Change, name: str, mask: Any, S: int) -> None:
    fits = isinstance(mask, Tensor) and mask.dim() == 4 and mask.shape[3] in (1, S)
    reasons = {
        f"it runs on '{name}'": (name not in ("sdpa", "eager"), "use sdpa or eager"),
        f"its mask is a {type(mask).__name__} of another shape": (
            mask is not None and not fits,
            "choose other layers",
        ),
        "weights cannot be set to 0 after its softmax": (
            not change.renormalise,
            "hide them before: renormalise=True",
        ),
    }
    for reason, (holds, hint) in reasons.items():
        if holds:
            raise AblationError(
                f"edges of layer {layer.index} ({layer.name}) cannot be hidden: {reason}", hint=hint
            )
