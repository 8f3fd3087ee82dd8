"""Hooks: see what an attention layer got and gave, or change it, while a model runs.

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
    """Where a layer of attention stands in its model."""

    index: int  # among all layers of attention, in the order of the modules
    name: str  # of the module, such as "decoder.blocks.1.cross"
    kind: str  # "self" or "cross"
    part: str | None = None  # "encoder" or "decoder", where the model has such parts


@dataclass(frozen=True, eq=False)
class PendingCall:
    """The sizes of a call that has not run yet."""

    H: int
    T: int
    S: int
    cross: bool
    first: int | None  # the position of its first query; None where it cannot be known
    device: torch.device


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """One call: exactly what the kernel got, and what it gave."""

    q: Tensor  # (B, H, T, D)
    k: Tensor  # (B, H_kv, S, D), cached ones included
    v: Tensor  # (B, H_kv, S, D)
    context: Tensor  # (B, H, T, D)
    # The mask and the scoring, found when they are first asked for: for models of transformers
    # this reads the mask tensor, and raises where they cannot be told.
    describe: Callable[[], tuple[Mask, Scoring]]
    cross: bool  # whether it looked at a memory
    rounded_scores: bool  # whether the kernel keeps scores in q's dtype, not in float32
    lse: Tensor | None = None  # (B, H, T), where the kernel gives it
    padding: Callable[[], Tensor | None] | None = None  # finds real_queries, if the mask does not

    @cached_property
    def _described(self) -> tuple[Mask, Scoring]:
        return self.describe()

    @property
    def mask(self) -> Mask:
        return self._described[0]

    @property
    def scoring(self) -> Scoring:
        return self._described[1]

    def real_queries(self) -> Tensor | None:
        """Which queries are not padding, (B | 1, T); None when all are, or nothing says so."""
        if self.padding is not None:
            return self.padding()
        T, S = self.q.shape[2], self.k.shape[2]
        return None if self.cross or self.mask.keys is None else self.mask.keys[:, S - T :]


class AttentionHook:
    """What is called at each call of one layer. This one does nothing; others override a method.

    `layer` says where the layer stands; hooks on models of transformers need it. `hides` must be
    True if the hook overrides `hidden`.
    """

    layer: Layer | None = None
    hides = False

    def hidden(self, call: PendingCall) -> Tensor | None:
        """Pairs to hide before the softmax: True where hidden; broadcasts to (B, H, T, S)."""
        return None

    def edit(self, call: AttentionCall) -> AttentionCall:
        """The call as all hooks shall see it (our models only)."""
        return call

    def after(self, call: AttentionCall, context: Tensor) -> Tensor:
        """Return the context (B, H, T, D) that goes on: `context`, or what takes its place.

        `context` is `call.context` unless a hook before this one replaced it.
        """
        return context
