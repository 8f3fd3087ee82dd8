"""What the words of a sentence look at in a model, and what it says when they may not.

with looking(attentions(model.encoder)) as maps:
    model(ids)
maps[layer]                                     # (B, H, T, S), exact, one for each call

with cut(attentions(model.encoder), queries, keys):
    model(ids)                                  # query queries[b] does not see key keys[b]
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from glasshead.attention.mask import Mask
from glasshead.attention.multihead import Look, MultiHeadAttention
from glasshead.attention.scores import explicit, observed
from glasshead.model.layers import CrossBlock
from glasshead.model.transformer import Decoder, Encoder

__all__ = ["attentions", "crossings", "cut", "looking"]

Watcher = Callable[[Look], Tensor | None]


def attentions(part: Encoder | Decoder) -> list[MultiHeadAttention]:
    """The self-attention of each layer."""
    return [_attention(block, "attention") for block in part.blocks]


def crossings(part: Decoder) -> list[MultiHeadAttention]:
    """The cross-attention of each layer."""
    return [_attention(block, "cross") for block in part.blocks if isinstance(block, CrossBlock)]


def _attention(block: nn.Module, name: str) -> MultiHeadAttention:
    attention = getattr(block, name)
    assert isinstance(attention, MultiHeadAttention)
    return attention


@contextmanager
def looking(layers: Sequence[MultiHeadAttention]) -> Iterator[list[Tensor]]:
    """The exact weights of every call, in the order of the calls. Changes no bit of the output."""
    maps: list[Tensor] = []

    def watch(look: Look) -> Tensor | None:
        weights, _ = observed(look.q, look.k, look.mask, look.scoring, weights=True, lse=False)
        assert weights is not None
        maps.append(weights)
        return None

    with _watched(dict.fromkeys(layers, watch)):
        yield maps


@contextmanager
def cut(
    layers: Sequence[MultiHeadAttention],
    queries: Tensor,
    keys: Tensor,
    only: tuple[int, int] | None = None,
) -> Iterator[list[Tensor]]:
    """Hide key keys[b] from query queries[b] of each sequence b, before the softmax.

    In all heads of all layers, or in `only` one (layer, head). All other edges stay. The weights
    of the layers that were changed are kept as in `looking`.
    """
    maps: list[Tensor] = []
    rows = torch.arange(len(queries))

    def watcher(head: int | None) -> Watcher:
        def hide(look: Look) -> Tensor:
            B, H, T, _ = look.q.shape
            allowed = torch.ones(B, H, T, look.k.shape[2], dtype=torch.bool)
            which = slice(None) if head is None else slice(head, head + 1)
            allowed[rows, which, queries, keys] = False
            rules = look.mask & Mask(dense=allowed.to(look.q.device))
            context, weights = explicit(look.q, look.k, look.v, rules, look.scoring, 0.0)
            maps.append(weights)
            return context

        return hide

    chosen = enumerate(layers) if only is None else [(only[0], layers[only[0]])]
    with _watched({layer: watcher(only and only[1]) for _, layer in chosen}):
        yield maps


@contextmanager
def _watched(watchers: Mapping[MultiHeadAttention, Watcher]) -> Iterator[None]:
    before = {layer: layer.watcher for layer in watchers}
    try:
        for layer, watcher in watchers.items():
            layer.watcher = watcher
        yield
    finally:
        for layer, earlier in before.items():
            layer.watcher = earlier
