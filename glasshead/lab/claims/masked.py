"""A GPT under another mask than its own: the same parameters, one thing changed."""

import torch
from torch import Tensor

from glasshead.attention.mask import Mask
from glasshead.model.gpt import GPT

__all__ = ["features_under"]


def features_under(model: GPT, ids: Tensor, mask: Mask) -> Tensor:
    """What `model.features` gives, (B, T, C), had it this mask instead of the causal one."""
    positions = torch.arange(ids.shape[1], device=ids.device)
    x = model.positions.embed(model.embedding(ids), positions)  # (B, T, C)
    rotation, slopes = model.positions.rotation(positions), model.positions.slopes()
    for block in model.blocks:
        x = block(x, mask, rotation, slopes)
    return model.norm(x)
