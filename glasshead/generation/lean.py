"""Decoding on a CPU: one token of each text as one flat row of calls.

A token is little work. Of a small model, most of its time goes into the way there: through modules
inside modules, each looking up its parameters and checking what it was given. The way is the same
for every token, so here it is walked once.
"""

import math
from collections.abc import Callable, Sequence
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from glasshead.attention.cache import Cache
from glasshead.attention.multihead import MultiHeadAttention
from glasshead.attention.norm import RMSNorm, rms_norm
from glasshead.attention.position import (
    LearnedPositions,
    Positions,
    RotaryPositions,
    Rotation,
    SinusoidalPositions,
    SplitSinusoidalPositions,
)
from glasshead.generation.decode import PlainDecoder
from glasshead.generation.int8 import Int8Linear
from glasshead.model.gpt import GPT
from glasshead.model.layers import Activated, Block, FeedForward, GatedFeedForward, Sublayer

__all__ = ["LeanDecoder", "LeanStep", "lean_serves", "touched"]

Layer = Callable[[Tensor], Tensor]
Step = Callable[[Tensor, Cache, Rotation | None, Tensor], Tensor]

# All that a step knows how to write flat, or to leave as it is.
KNOWN = {
    *(GPT, Block, Sublayer, MultiHeadAttention, FeedForward, GatedFeedForward, Activated),
    *(nn.Linear, Int8Linear, nn.LayerNorm, RMSNorm, nn.Identity, nn.Dropout),
    *(nn.Embedding, nn.ModuleList, Positions, LearnedPositions, RotaryPositions),
    *(SinusoidalPositions, SplitSinusoidalPositions),
}


def lean_serves(model: GPT) -> bool:
    """Whether a step of the model can be written out flat."""
    weight, modules = model.embedding.weight, list(model.modules())
    attentions = [m for m in modules if isinstance(m, MultiHeadAttention)]
    return (
        weight.is_cpu
        # It can overflow, and then must be looked for in every layer.
        and weight.dtype != torch.float16
        and not torch.is_autocast_enabled("cpu")
        and all(type(m) in KNOWN for m in modules)
        and all(a.softcap is None and a.backend in ("auto", "sdpa") for a in attentions)
        and not touched(model)
    )


def touched(model: nn.Module) -> bool:
    """Whether someone has to be told, or has put something else in place, when modules run."""
    everywhere = torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks
    return bool(everywhere) or any(
        m._forward_hooks or m._forward_pre_hooks or _changed(m) for m in model.modules()
    )


def _changed(m: nn.Module) -> bool:
    """Whether it has hooks, or a forward of somebody else's."""
    return "forward" in vars(m) or bool(getattr(m, "hooks", ()))


class LeanStep:
    """A model's logits (B, V) for one more id of each text.

    It is of the layers that the model had at first; their parameters may change.
    """

    def __init__(self, model: GPT) -> None:
        blocks = [block for block in model.blocks if isinstance(block, Block)]
        self._model, self._attentions = model, [block.attention for block in blocks]
        self._steps = [_block(block, model.config.window) for block in blocks]
        self._norm = _norm(model.norm)

    @property
    def touched(self) -> bool:
        """Whether attention is being watched or ablated: then the model itself must run."""
        return any(map(_changed, self._attentions))

    def __call__(
        self,
        ids: Sequence[int],
        positions: Tensor,
        caches: Sequence[Cache],
        keys: Tensor | None = None,
    ) -> Tensor:
        """Args:
        positions: (1,) or (B, 1), of these ids.
        keys: (B, S) bool, which of the cached columns and the new one are no padding.
        """
        positioned, embedding = self._model.positions, self._model.embedding
        new = torch.tensor(ids, device=positions.device)[:, None]
        x = positioned.embed(embedding(new), positions)[:, 0]  # (B, C)
        if keys is None:
            # With no mask at all, torch's kernel takes NaN among few columns for nothing to see.
            hidden = x.new_zeros(1, 1, 1, caches[0].length + 1 if caches else 1)
        else:
            hidden = x.new_zeros(()).where(keys, -math.inf)[:, None, None]  # (B, 1, 1, S)
        rotation = positioned.rotation(positions)
        for step, cache in zip(self._steps, caches, strict=True):
            x = step(x, cache, rotation, hidden)
        return self._model.logits(self._norm(x))


class LeanDecoder(PlainDecoder):
    """Gives what `PlainDecoder` gives, sooner; prompts go the usual way."""

    @cached_property
    def _lean(self) -> LeanStep:
        return LeanStep(self.model)

    def _run(self, ids: list[list[int]], caches: list[Cache] | None) -> Tensor:
        if caches is None or len(ids[0]) > 1 or self._lean.touched:
            return super()._run(ids, caches)
        positions, keys = self._tensor([self._width - 1]), None
        if self._pads is not None:
            keys = torch.arange(self._width, device=self._device) >= self._pads
            positions = positions - self._pads
        return self._lean([row[0] for row in ids], positions, caches, keys)


def _block(block: Block, window: int | None) -> Step:
    """(B, C) -> (B, C) for one token of each text."""
    own, D = block.attention, block.attention.d_head
    qkv, out, around = _linear(own.qkv), _linear(own.out), _around(block.around_attention)
    think = _thinking(block)

    def step(x: Tensor, cache: Cache, rotation: Rotation | None, hidden: Tensor) -> Tensor:
        def look(h: Tensor) -> Tensor:
            q, k, v = own.split_qkv(qkv(h).view(h.shape[0], -1, 1, D), rotation)
            k, v, hides = *cache.append(k, v), hidden
            if window is not None:
                k, v, hides = k[:, :, -window:], v[:, :, -window:], hidden[..., -window:]
            context, _ = torch._scaled_dot_product_flash_attention_for_cpu(
                q, k, v, attn_mask=hides, scale=own.scale
            )
            return out(context.reshape(h.shape[0], -1))

        return think(around(x, look))

    return step


def _thinking(block: Block) -> Layer:
    if block.feed_forward is None:
        return _as_it_is
    around, inner = _around(block.around_feed_forward), _feed_forward(block.feed_forward)
    return lambda x: around(x, inner)


def _around(sublayer: Sublayer) -> Callable[[Tensor, Layer], Tensor]:
    before, after = _norm(sublayer.before), _norm(sublayer.after)

    def run(x: Tensor, layer: Layer) -> Tensor:
        change = layer(before(x))
        return after(x + change if sublayer.residual else change)

    return run


def _feed_forward(module: nn.Module) -> Layer:
    if isinstance(module, FeedForward):
        up, bend, down = _linear(module.up), module.activation, _linear(module.down)
        return lambda x: down(bend(up(x)))
    if isinstance(module, GatedFeedForward):
        gate, up, down = map(_linear, (module.gate, module.up, module.down))
        return lambda x: down(F.silu(gate(x)) * up(x))
    return module.forward


def _linear(module: nn.Module) -> Layer:
    if isinstance(module, nn.Linear):
        own = module._parameters  # looked up each time: a loaded state may bring others
        return lambda x: F.linear(x, own["weight"], own["bias"])  # type: ignore[arg-type]
    return module.forward


def _norm(module: nn.Module) -> Layer:
    own = module._parameters
    if isinstance(module, nn.LayerNorm):
        shape, eps = module.normalized_shape, module.eps
        return lambda x: torch.layer_norm(x, shape, own["weight"], own["bias"], eps)
    if isinstance(module, RMSNorm):
        least = module.eps
        return lambda x: rms_norm(x, own["weight"], least)  # type: ignore[arg-type]
    return _as_it_is


def _as_it_is(x: Tensor) -> Tensor:
    return x
