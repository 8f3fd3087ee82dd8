"""Find the words of the source that each word of a translation attended to.

Attention connects tokens; here they are merged into words (`observe/words.py`), head by head.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glasshead.attention.hooks import AttentionCall, AttentionHook
from glasshead.attention.scores import recompute
from glasshead.errors import ConfigError
from glasshead.generation.step import eval_mode
from glasshead.generation.translation_rows import SpecialTokens
from glasshead.model.layers import CrossBlock
from glasshead.model.transformer import Transformer
from glasshead.observe.hooks import attach_hooks
from glasshead.observe.words import decode_tokens, merge, words
from glasshead.text.tokenizer import Tokenizer

__all__ = ["Alignment", "align", "usual_layer"]


@dataclass(frozen=True, eq=False)
class Alignment:
    source: list[str]  # S words
    target: list[str]  # T words
    weights: Tensor  # (H, T, S) of each head; rows sum to 1
    layer: int


def align(
    model: Transformer,
    tokenizer: Tokenizer,
    source: Sequence[int],
    target: Sequence[int],
    layer: int | None = None,
) -> Alignment:
    """Return the cross-attention of one layer of the decoder, over words.

    A word is predicted at the position before it, so it gets that position's weights.
    """
    n_layers = len(model.decoder.blocks)
    layer = usual_layer(model) if layer is None else layer
    if not 0 <= layer < n_layers:
        raise ConfigError(
            f"layer ({layer}) must lie between 0 and {n_layers - 1}",
            hint=f"the decoder has {n_layers} layers, counted from 0",
        )
    block = model.decoder.blocks[layer]
    assert isinstance(block, CrossBlock)
    # The last id is predicted and not read: there may be no learned position for it.
    target_in = [SpecialTokens.of(tokenizer, model).bos, *target[:-1]]
    device = model.head.weight.device
    hook = _CollectCalls()
    with eval_mode(list(model.modules())), attach_hooks({block.cross: hook}):
        model(torch.tensor([source], device=device), torch.tensor([target_in], device=device))
        [call] = hook.calls
        weights, _ = recompute(call.q, call.k, call.mask, call.scoring, weights=True, lse=False)
    assert weights is not None
    each = weights[0, :, : len(target)].cpu()  # (H, tokens, tokens)
    rows, cols = (words(decode_tokens(tokenizer, ids)) for ids in (target, source))
    merged = merge(each, rows, cols)  # (H, T, S)
    return Alignment([word.text for word in cols], [word.text for word in rows], merged, layer)


def usual_layer(model: Transformer) -> int:
    """Return the last layer but one, where cross-attention is known to follow words best."""
    return max(0, len(model.decoder.blocks) - 2)


class _CollectCalls(AttentionHook):
    """Collects the calls of one layer."""

    def __init__(self) -> None:
        self.calls: list[AttentionCall] = []

    def after(self, call: AttentionCall, context: Tensor) -> Tensor:
        self.calls.append(call)
        return context
