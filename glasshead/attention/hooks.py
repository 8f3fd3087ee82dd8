"""Hooks: see the inputs and outputs of an attention layer, or change them, while a model runs.

    class Silence(AttentionHook):
        def after(self, call, context):
            return torch.zeros_like(context)

    with attach_hooks({model.blocks[0].attention: Silence()}):     # glasshead.observe.hooks
        model(ids)

Each call of a layer runs its hooks in three rounds: all may hide pairs before the softmax; all may
edit the finished call (such as weights set to 0 after the softmax); then all see that call, and
each may replace the context on its way out. So a hook that records sees the attention that took
place, no matter in which order hooks were attached.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from glasshead.attention.mask import Mask
from glasshead.attention.scores import Scoring

__all__ = ["AttentionCall", "AttentionHook", "Layer", "PendingCall"]


@dataclass(frozen=True)
class Layer:
    """Where an attention layer is in its model."""

    index: int  # among all attention layers, in the order of the modules
    name: str  # of the module, such as "decoder.blocks.1.cross"
    kind: str  # "self" or "cross"
    part: str | None = None  # "encoder" or "decoder", if the model has both

    def __str__(self) -> str:
        return f"layer {self.index} ({self.name})"


@dataclass(frozen=True, eq=False)
class PendingCall:
    """The sizes of a call that has not run yet."""

    H: int
    T: int
    S: int
    cross: bool
    first: int | None  # the position of its first query; None if unknown
    device: torch.device


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """One call: the exact inputs of the kernel, and its output."""

    q: Tensor  # (B, H, T, D)
    k: Tensor  # (B, H_kv, S, D), cached ones included
    v: Tensor  # (B, H_kv, S, D)
    context: Tensor  # (B, H, T, D)
    # Returns mask and scoring. Called on first use: for models of transformers it reads the mask
    # tensor, and raises if the rules cannot be derived from it.
    describe: Callable[[], tuple[Mask, Scoring]]
    cross: bool  # whether it is cross-attention
    rounded_scores: bool  # whether the kernel keeps scores in q's dtype, not in float32
    lse: Tensor | None = None  # (B, H, T), if the kernel returns it
    sinks: Tensor | None = None  # (H,) the score of a key that takes weight and has no value
    padding: Callable[[], Tensor | None] | None = None  # returns real_queries, if the mask cannot
    weights: Tensor | None = None  # (B, H, T, S), if the kernel returns them
    # Returns which rows (B | 1, H | 1, T | 1) gave all keys equal weight, because a mask hid every
    # key by adding the same very negative number to its score; None if there are none.
    flat: Callable[[], Tensor | None] | None = None

    @cached_property
    def _rules(self) -> tuple[Mask, Scoring]:
        return self.describe()

    @property
    def mask(self) -> Mask:
        return self._rules[0]

    @property
    def scoring(self) -> Scoring:
        return self._rules[1]

    def real_queries(self) -> Tensor | None:
        """Return which queries are not padding, (B | 1, T); None if all are real or unknown."""
        if self.padding is not None:
            return self.padding()
        T, S = self.q.shape[2], self.k.shape[2]
        return None if self.cross or self.mask.keys is None else self.mask.keys[:, S - T :]


class AttentionHook:
    """Base class of hooks, called at each call of one layer. Subclasses override methods.

    Hooks on models of transformers need `layer`. `hides` must be True if the hook overrides
    `hidden`. A hook that only looks says so by `reads_only`: it can then be attached to attention
    that computes itself, outside the interface of transformers.
    """

    layer: Layer | None = None
    hides = False
    reads_only = False

    def missed(self, reason: str) -> None:
        """Take note that a module ran whose attention could not be described."""

    def hidden(self, call: PendingCall) -> Tensor | None:
        """Return the pairs to hide before the softmax, True = hide; broadcasts to (B, H, T, S)."""
        return None

    def edit(self, call: AttentionCall) -> AttentionCall:
        """Return the call that all hooks then see (our models only)."""
        return call

    def after(self, call: AttentionCall, context: Tensor) -> Tensor:
        """Return the context (B, H, T, D) to continue with: `context`, or a replacement.

        `context` is `call.context` unless a hook before this one replaced it.
        """
        return context
