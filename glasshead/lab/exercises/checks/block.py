"""Exercise 10: a block, and the whole GPT."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.lab.exercises.judging import PrintedNumbers, Wrong, compare, expect
from glasshead.lab.exercises.learner import LearnerFile
from glasshead.lab.exercises.looking import BLOCK, LAYERS, WIDTH, LookAttention, LookParts
from glasshead.lab.exercises.modules import Mixer, build, count_parameters

NEEDS = ("embedding", "positions", "blocks", "norm", "head")
VOCABULARY = 6148  # of the documents' text


def check(mine: LearnerFile) -> Iterator[PrintedNumbers]:
    block = build(mine, "Block", Mixer(11), Mixer(11, past=False), 11,
                  needs=("attention", "feed_forward", "norm1", "norm2"))  # fmt: skip
    streams = [{"x": torch.randn(1, 2, 11)}, {"x": torch.randn(3, 5, 11)}]
    right = _quiet(lambda x: _block(block, x))
    compare(mine, "Block(...)(x)", block, right, streams, list(wrong_blocks(block)))
    gpt = build(mine, "GPT", 13, 11, 7, [Mixer(11), Mixer(11)], needs=NEEDS)
    ids = [{"ids": torch.randint(13, (1, 2))}, {"ids": torch.randint(13, (3, 5))}]
    compare(mine, "GPT(...)(ids)", gpt, _quiet(lambda x: _gpt(gpt, x)), ids, list(wrong_gpts(gpt)))
    yield expect("parameters", 437_764.0, count_parameters(_rung_9(mine, VOCABULARY)), digits=0)


def _rung_9(mine: LearnerFile, vocab_size: int, parts: Any = None) -> nn.Module:
    parts = parts or LookParts()
    blocks = [
        mine.Block(LookAttention(parts), parts.feed_forward(), WIDTH) for _ in range(LAYERS)
    ]  # fmt: skip
    made: nn.Module = mine.call(mine.GPT, vocab_size, WIDTH, BLOCK, blocks)
    return made


def _quiet(way: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: way(x).detach()


def _block(b: Any, x: Tensor) -> Tensor:
    x = x + b.attention(b.norm1(x))
    return x + b.feed_forward(b.norm2(x))


def wrong_blocks(b: Any) -> Iterator[Wrong]:
    def made(first: Any, second: Any) -> Callable[[Tensor], Tensor]:
        return _quiet(lambda x: second(first(x)))

    look, think, one, two = b.attention, b.feed_forward, b.norm1, b.norm2

    def step(layer: Any, norm: Any) -> Callable[[Tensor], Tensor]:
        return lambda x: x + layer(norm(x))

    yield "same-norm", made(step(look, one), step(think, one))
    yield "same-norm", made(step(look, two), step(think, two))
    yield "norms-exchanged", made(step(look, two), step(think, one))
    yield "wrong-order", made(step(think, two), step(look, one))
    yield "wrong-order", made(step(think, one), step(look, two))
    yield "post-norm", made(lambda x: one(x + look(x)), lambda x: two(x + think(x)))
    yield "no-residual", made(lambda x: look(one(x)), lambda x: think(two(x)))
    yield "no-residual", made(step(look, one), lambda x: think(two(x)))
    yield "no-residual", made(lambda x: look(one(x)), step(think, two))
    yield "no-norm", made(lambda x: x + look(x), lambda x: x + think(x))
    yield "no-norm", made(step(look, one), lambda x: x + think(x))
    yield "no-norm", made(lambda x: x + look(x), step(think, two))
    yield "parallel", _quiet(lambda x: x + look(one(x)) + think(two(x)))
    yield "old-residual", _quiet(lambda x: x + think(two(x + look(one(x)))))
    yield (
        "residual-of-norm",
        made(lambda x: one(x) + look(one(x)), lambda x: two(x) + think(two(x))),
    )


def _gpt(
    g: Any, ids: Tensor, *, positions: bool = True, norm: bool = True, blocks: int | None = None
) -> Tensor:
    x = g.embedding(ids)
    if positions:
        x = x + g.positions(torch.arange(ids.shape[1]))
    for block in g.blocks[:blocks]:
        x = block(x)
    return g.head(g.norm(x) if norm else x)


def wrong_gpts(g: Any) -> Iterator[Wrong]:
    yield "positions-missing", _quiet(lambda ids: _gpt(g, ids, positions=False))
    yield "final-norm-missing", _quiet(lambda ids: _gpt(g, ids, norm=False))
    yield "one-block", _quiet(lambda ids: _gpt(g, ids, blocks=1))
    yield "one-block", _quiet(lambda ids: _gpt(g, ids, blocks=0))
    yield "positions-by-id", _quiet(lambda ids: _positions_by_id(g, ids))
    yield "softmaxed", _quiet(lambda ids: torch.softmax(_gpt(g, ids), -1))
    yield "softmaxed", _quiet(lambda ids: torch.log_softmax(_gpt(g, ids), -1))


def _positions_by_id(g: Any, ids: Tensor) -> Tensor:
    x = g.embedding(ids) + g.positions(ids)
    for block in g.blocks:
        x = block(x)
    return g.head(g.norm(x))


def parts(mine: LearnerFile) -> dict[str, Any]:
    """Return the parts of the small model that are the learner's."""
    return {"model": lambda vocab_size, parts: _rung_9(mine, vocab_size, parts)}
