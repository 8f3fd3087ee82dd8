"""What the kernels of transformers, besides sdpa and eager attention, take for a mask."""

from typing import Any

import torch
from torch import Tensor

from glasshead.attention.mask import Mask

__all__ = ["FLASH", "count_filled", "flash_rule", "flex_mask"]

FLASH = ("flash_attention_2", "flash_attention_3", "flash_attention_4")


def count_filled(allowed: Tensor, T: int, S: int) -> int:
    """Return how many of the S keys of a cache with places to spare hold something.

    Those after the last key that any query may see, if each query sees no key after its own.
    """
    if allowed.dim() != 4 or allowed.shape[-1] != S or allowed.shape[-2] not in (1, T):
        return S
    seen = allowed.flatten(0, 1).any(0)  # (T | 1, S)
    last = S - seen.flip(-1).byte().argmax(-1)  # one past the last key of each query
    last = torch.where(seen.any(-1), last, 0)
    filled = int(last[-1])
    own = torch.arange(filled - len(last) + 1, filled + 1, device=last.device)
    return filled if filled >= T and bool((last <= own).all()) else S


def flash_rule(mask: Tensor | None, causal: bool, options: dict[str, Any], T: int, S: int) -> Mask:
    """Return the mask of a flash-attention kernel: causal at the end of the keys, a window, padding
    (B, S), and texts one after the other. Rows of padding see nothing, as their context is 0."""
    window = options.get("sliding_window")
    keys = None if mask is None else mask[:, -S:].bool()
    documents = None
    starts, positions = options.get("cu_seq_lens_q"), options.get("position_ids")
    if starts is not None:
        at = torch.arange(S, device=starts.device)
        documents = torch.bucketize(at, starts[1:], right=True)[None]
    elif keys is None and positions is not None and T == S and positions.shape[0] == 1:
        documents = (positions.view(1, -1) == 0).cumsum(-1)
    elif keys is not None and T == S:
        documents = keys.long()
    return Mask(causal and T > 1, window, keys, documents)


def flex_mask(mask: Any, T: int, S: int, device: torch.device) -> Tensor | None:
    """Return the pairs that a BlockMask of flex attention allows, (B | 1, H | 1, T, S)."""
    from torch.nn.attention.flex_attention import create_mask

    if mask is None or isinstance(mask, Tensor):
        return mask
    B, H = mask.shape[:2]
    found: Tensor = create_mask(mask.mask_mod, B, H, T, S, device=str(device))
    return found
