"""Write text with a small model: with the learner's cache, and without."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glasshead.lab.exercises.learner import LearnerFile
from glasshead.lab.exercises.looking import (
    BLOCK,
    HEADS,
    LookModel,
    LookParts,
    LookText,
    train_look,
)

__all__ = ["WritingComparison", "write_both"]

PROMPT = 2  # characters


@dataclass(frozen=True)
class WritingComparison:
    text: str
    same: bool
    cached: int  # positions computed with the cache
    plain: int


def write_both(mine: LearnerFile) -> WritingComparison:
    """Train, then continue a prompt greedily in both ways."""
    text = LookText()
    torch.manual_seed(0)
    model = LookModel(text.vocab_size, LookParts())
    train_look(model, text)
    model.eval()
    prompt = text.ids(text.sentence[:PROMPT])
    with torch.no_grad():
        plain, steps = prompt, 0
        while plain.shape[1] < BLOCK:
            steps += plain.shape[1]
            plain = torch.cat([plain, model(plain)[:, -1:].argmax(-1)], 1)
        cached, cached_steps = _write_cached(model, mine, prompt)
    written = text.ladder.tokenizer.decode(plain[0].tolist())
    return WritingComparison(written, torch.equal(plain, cached), cached_steps, steps)


def _write_cached(model: Any, mine: LearnerFile, prompt: Tensor) -> tuple[Tensor, int]:
    caches = [mine.Cache() for _ in model.blocks]
    ids, new, steps = prompt, prompt, 0
    while ids.shape[1] < BLOCK:
        start = ids.shape[1] - new.shape[1]
        x = model.embedding(new) + model.positions(torch.arange(start, ids.shape[1]))
        steps += new.shape[1]
        for block, cache in zip(model.blocks, caches, strict=True):
            x = x + _attend(block.attention, block.norm1(x), mine, cache)
            x = x + block.feed_forward(block.norm2(x))
        new = model.head(model.norm(x[:, -1:])).argmax(-1)
        ids = torch.cat([ids, new], 1)
    return ids, steps


def _attend(layer: Any, x: Tensor, mine: LearnerFile, cache: Any) -> Tensor:
    split, merge = layer.parts.split, layer.parts.merge
    q, k, v = (split(f(x), HEADS) for f in (layer.query, layer.key, layer.value))
    return layer.out(merge(mine.attention(q, k, v, cache)))
