"""Record the attention maps of a model, and hide single words from its attention.

with record_weights(self_attentions(model.encoder)) as maps:
    model(ids)
maps[layer]                                     # (B, H, T, S), exact, one for each call

with hide_keys(self_attentions(model.encoder), queries, keys):
    model(ids)                                  # query queries[b] does not see key keys[b]
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from glasshead.attention.hooks import AttentionCall, AttentionHook
from glasshead.attention.mask import Mask
from glasshead.attention.multihead import MultiHeadAttention
from glasshead.attention.scores import explicit_attention, recompute
from glasshead.model.gpt import GPT
from glasshead.model.layers import CrossBlock
from glasshead.model.transformer import Decoder, Encoder
from glasshead.observe.hooks import attach_hooks

__all__ = [
    "Head",
    "cross_attentions",
    "gpt_attentions",
    "hide_keys",
    "record_weights",
    "self_attentions",
]

Head = tuple[int, int]  # layer and head, from 0 on


def self_attentions(part: Encoder | Decoder) -> list[MultiHeadAttention]:
    """Return the self-attention of each layer."""
    return [_attention(block, "attention") for block in part.blocks]


def cross_attentions(part: Decoder) -> list[MultiHeadAttention]:
    """Return the cross-attention of each layer."""
    return [_attention(block, "cross") for block in part.blocks if isinstance(block, CrossBlock)]


def gpt_attentions(model: GPT) -> list[MultiHeadAttention]:
    """Return the attention of each layer of a GPT."""
    return [_attention(block, "attention") for block in model.blocks]


def _attention(block: nn.Module, name: str) -> MultiHeadAttention:
    attention = getattr(block, name)
    assert isinstance(attention, MultiHeadAttention)
    return attention


@contextmanager
def record_weights(layers: Sequence[MultiHeadAttention]) -> Iterator[list[Tensor]]:
    """Collect the exact weights of every call, in the order of the calls.

    Changes no bit of the output.
    """
    maps: list[Tensor] = []
    with attach_hooks({layer: _WeightsHook(maps) for layer in layers}):
        yield maps


@contextmanager
def hide_keys(
    layers: Sequence[MultiHeadAttention], queries: Tensor, keys: Tensor, only: Head | None = None
) -> Iterator[list[Tensor]]:
    """Hide key keys[b] from query queries[b] of each sequence b, before the softmax.

    In all heads of all layers, or in `only` one. All other edges stay. The weights of the layers
    that were changed are collected as in `record_weights`.
    """
    maps: list[Tensor] = []
    chosen = layers if only is None else [layers[only[0]]]
    head = None if only is None else only[1]
    with attach_hooks({layer: _HidingHook(maps, queries, keys, head) for layer in chosen}):
        yield maps


class _WeightsHook(AttentionHook):
    """Adds the weights of each call to a list."""

    def __init__(self, maps: list[Tensor]) -> None:
        self.maps = maps

    def after(self, call: AttentionCall, context: Tensor) -> Tensor:
        weights, _ = recompute(call.q, call.k, call.mask, call.scoring, weights=True, lse=False)
        assert weights is not None
        self.maps.append(weights)
        return context


class _HidingHook(AttentionHook):
    """Replaces the context by that of the same call with one key of each sequence hidden."""

    def __init__(self, maps: list[Tensor], queries: Tensor, keys: Tensor, head: int | None) -> None:
        self.maps, self.queries, self.keys, self.head = maps, queries, keys, head

    def after(self, call: AttentionCall, context: Tensor) -> Tensor:
        B, H, T, _ = call.q.shape
        allowed = torch.ones(B, H, T, call.k.shape[2], dtype=torch.bool)
        heads = slice(None) if self.head is None else slice(self.head, self.head + 1)
        allowed[torch.arange(len(self.queries)), heads, self.queries, self.keys] = False
        mask = call.mask & Mask(dense=allowed.to(call.q.device))
        context, weights = explicit_attention(call.q, call.k, call.v, mask, call.scoring, 0.0)
        self.maps.append(weights)
        return context
