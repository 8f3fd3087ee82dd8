"""Which words of the source each word of a translation looked at while it was written.

Attention goes between tokens, and people read words (`observe/words.py`). No head is averaged.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glasshead.attention.hooks import AttentionCall, AttentionHook
from glasshead.attention.scores import recompute
from glasshead.errors import ConfigError
from glasshead.generation.rows import SpecialTokens
from glasshead.generation.step import eval_mode
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
    weights: Tensor  # (H, T, S), what each head gave; rows sum to 1
    layer: int


def align(
    model: Transformer,
    tokenizer: Tokenizer,
    source: Sequence[int],
    target: Sequence[int],
    layer: int | None = None,
) -> Alignment:
    """Exact cross-attention of one layer of the decoder, over words.

    A word is written at the position before it: that position's weights are the word's.
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
    # The last word is written and not read: with learned positions there may be none for it.
    target_in = [SpecialTokens.of(tokenizer, model).bos, *target[:-1]]
    device = model.head.weight.device
    kept = _Keep()
    with eval_mode(list(model.modules())), attach_hooks({block.cross: kept}):
        model(torch.tensor([source], device=device), torch.tensor([target_in], device=device))
        [call] = kept.calls
        weights, _ = recompute(call.q, call.k, call.mask, call.scoring, weights=True, lse=False)
    assert weights is not None
    each = weights[0, :, : len(target)].cpu()  # (H, tokens, tokens)
    rows, cols = (words(decode_tokens(tokenizer, ids)) for ids in (target, source))
    merged = merge(each, rows, cols)  # (H, T, S)
    return Alignment([word.text for word in cols], [word.text for word in rows], merged, layer)


def usual_layer(model: Transformer) -> int:
    """The last but one, where cross-attention is known to follow the words most closely."""
    return max(0, len(model.decoder.blocks) - 2)


class _Keep(AttentionHook):
    """Keeps every call of one layer."""

    def __init__(self) -> None:
        self.calls: list[AttentionCall] = []

    def after(self, call: AttentionCall, context: Tensor) -> Tensor:
        self.calls.append(call)
        return context
