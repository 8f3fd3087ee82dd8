"""Decode on a CPU: one id of each text through a flat list of calls, without modules.

One id is little work. In a small model most of its time goes into the calls around the kernels:
modules inside modules, each of which looks up its parameters and checks its input. These are the
same for every id, so they are resolved once.
"""

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

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
from glasshead.generation.int8 import Int8Linear
from glasshead.generation.kv_slots import KVSlots
from glasshead.generation.step import has_hooks
from glasshead.model.gpt import GPT
from glasshead.model.layers import Block, FeedForward, GatedFeedForward, LinearReLU, Sublayer

__all__ = ["FlatStep", "has_any_hooks", "supports_flat_step"]

TensorFunction = Callable[[Tensor], Tensor]
FlatBlock = Callable[[Tensor, Tensor, Tensor, int, Rotation | None, Tensor], Tensor]

# All modules that can be written flat, or called as they are.
SUPPORTED = {
    *(GPT, Block, Sublayer, MultiHeadAttention, FeedForward, GatedFeedForward, LinearReLU),
    *(nn.Linear, Int8Linear, nn.LayerNorm, RMSNorm, nn.Identity, nn.Dropout),
    *(nn.Embedding, nn.ModuleList, Positions, LearnedPositions, RotaryPositions),
    *(SinusoidalPositions, SplitSinusoidalPositions),
}


def supports_flat_step(model: GPT) -> bool:
    """Return whether `FlatStep` gives what the model gives, as it is now."""
    weight, modules = model.embedding.weight, list(model.modules())
    attentions = [m for m in modules if isinstance(m, MultiHeadAttention)]
    return (
        weight.is_cpu
        # float16 can overflow, which only the modules look for.
        and weight.dtype != torch.float16
        and not torch.is_autocast_enabled("cpu")
        and all(type(m) in SUPPORTED for m in modules)
        and all(a.softcap is None and a.backend in ("auto", "sdpa") for a in attentions)
        and not has_any_hooks(model)
    )


def has_any_hooks(model: nn.Module) -> bool:
    """Return whether hooks of ours or of torch, or other forwards, run when the model does."""
    if torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks:
        return True
    return has_hooks(model.modules()) or any(
        m._forward_hooks or m._forward_pre_hooks for m in model.modules()
    )


class FlatStep:
    """A `DecodeStep` of the layers that the model has at first; their parameters may change."""

    def __init__(self, model: GPT) -> None:
        self._model = model
        self.slots = KVSlots(model.embedding.weight.device)
        blocks = [block for block in model.blocks if isinstance(block, Block)]
        self._blocks = [_flat_block(block, model.config.window) for block in blocks]
        self._norm = _flat_norm(model.norm)

    def __call__(self, ids: Sequence[int], rows: slice) -> Tensor:
        model, slots = self._model, self.slots
        positions, visible, past = slots.positions(rows), slots.visible(rows), slots.width
        new = torch.tensor(ids, device=slots.device)[:, None]
        x = model.positions.embed(F.embedding(new, model.embedding.weight), positions)[:, 0]
        if visible is None:
            # Without any mask, torch's kernel ignores NaN if there are few columns.
            bias = x.new_zeros(1, 1, 1, past + 1)
        else:
            bias = x.new_zeros(()).where(visible, -math.inf)[:, None, None]  # (B, 1, 1, S)
        rotation = model.positions.rotation(positions)
        for block, (k, v) in zip(self._blocks, slots.views(rows), strict=True):
            x = block(x, k, v, past, rotation, bias)
        return model.logits(self._norm(x))

    def head(self, x: Tensor) -> Tensor:
        return self._model.logits(x)

    def close(self) -> None:
        pass


def _flat_block(block: Block, window: int | None) -> FlatBlock:
    """Return a function (B, C) -> (B, C) for one id of each text.

    It also takes the keys and values of a layer, and how many columns of them are in use.
    """
    own, D = block.attention, block.attention.d_head
    qkv, out = _flat_linear(own.qkv), _flat_linear(own.out)
    add_attention, feed_forward = _flat_sublayer(block.around_attention), None
    if block.feed_forward is not None:
        add_feed_forward = _flat_sublayer(block.around_feed_forward)
        feed_forward = _flat_feed_forward(block.feed_forward)

    def run(
        x: Tensor, keys: Tensor, values: Tensor, past: int, rotation: Rotation | None, bias: Tensor
    ) -> Tensor:
        def attend(h: Tensor) -> Tensor:
            q, k, v = own.split_qkv(qkv(h).view(h.shape[0], -1, 1, D), rotation)
            keys.narrow(2, past, 1).copy_(k)
            values.narrow(2, past, 1).copy_(v)
            k, v, seen = keys.narrow(2, 0, past + 1), values.narrow(2, 0, past + 1), bias
            if window is not None:
                k, v, seen = k[:, :, -window:], v[:, :, -window:], bias[..., -window:]
            context, _ = torch._scaled_dot_product_flash_attention_for_cpu(
                q, k, v, attn_mask=seen, scale=own.scale
            )
            return out(context.reshape(h.shape[0], -1))

        x = add_attention(x, attend)
        return x if feed_forward is None else add_feed_forward(x, feed_forward)

    return run


def _flat_sublayer(sublayer: Sublayer) -> Callable[[Tensor, TensorFunction], Tensor]:
    before, after = _flat_norm(sublayer.before), _flat_norm(sublayer.after)

    def run(x: Tensor, layer: TensorFunction) -> Tensor:
        change = layer(before(x))
        return after(x + change if sublayer.residual else change)

    return run


def _flat_feed_forward(module: nn.Module) -> TensorFunction:
    if isinstance(module, FeedForward):
        up, activation, down = _flat_linear(module.up), module.activation, _flat_linear(module.down)
        return lambda x: down(activation(up(x)))
    if isinstance(module, GatedFeedForward):
        gate, up, down = map(_flat_linear, (module.gate, module.up, module.down))
        return lambda x: down(F.silu(gate(x)) * up(x))
    return module.forward


def _flat_linear(module: nn.Module) -> TensorFunction:
    if isinstance(module, nn.Linear):
        own = module._parameters  # looked up each time: a loaded state may bring others
        return lambda x: F.linear(x, own["weight"], own["bias"])  # type: ignore[arg-type]
    return module.forward


def _flat_norm(module: nn.Module) -> TensorFunction:
    own = module._parameters
    if isinstance(module, nn.LayerNorm):
        shape, eps = module.normalized_shape, module.eps
        return lambda x: torch.layer_norm(x, shape, own["weight"], own["bias"], eps)
    if isinstance(module, RMSNorm):
        least = module.eps
        return lambda x: rms_norm(x, own["weight"], least)  # type: ignore[arg-type]
    return lambda x: x
