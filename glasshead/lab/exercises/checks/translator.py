"""Exercise 14: the encoder-decoder."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from rich.console import RenderableType
from torch import Tensor

from glasshead.lab.exercises.judging import Inputs, PrintedNumbers, Wrong, compare
from glasshead.lab.exercises.learner import LearnerFile
from glasshead.lab.exercises.modules import Mixer, build
from glasshead.lab.texts import Language

BLOCK = ("attention", "cross", "feed_forward", "norm1", "norm2", "norm3")
WHOLE = (
    "source",
    "target",
    "positions",
    "encoder",
    "decoder",
    "encoder_norm",
    "decoder_norm",
    "head",
)


def check(mine: LearnerFile) -> Iterator[PrintedNumbers]:
    yield from ()
    layers = (Mixer(11), Mixer(11, past=False), Mixer(11, past=False))
    block = build(mine, "DecoderBlock", *layers, 11, needs=BLOCK)
    encoder, decoder = [Mixer(11), Mixer(11)], [Mixer(11), Mixer(11)]
    whole = build(mine, "Translator", 13, 17, 11, 7, encoder, decoder, needs=WHOLE)
    for what, call, way, owner, cases, wrong in (
        ("DecoderBlock(...)(x, memory, keep)", block, _block, block, streams, _wrong_blocks),
        ("encode(source, keep)", whole.encode, _encode, whole, sources, _wrong_encoders),
        ("decode(memory, keep, target)", whole.decode, _decode, whole, memories, _wrong_decoders),
        ("Translator(...)(source, keep, target)", whole, _whole, whole, pairs, _wrong_wholes),
    ):
        right = _quiet(partial(way, owner))
        compare(mine, what, call, right, cases(), wrong(owner), place=owner)


def _quiet(way: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda *args: way(*args).detach()


def _keep(B: int, S: int) -> Tensor:
    return torch.arange(S) < torch.tensor([S - 1, S, 2])[:B, None]


def streams() -> Iterator[Inputs]:
    for B, T, S in ((1, 2, 3), (3, 5, 7)):
        yield {"x": torch.randn(B, T, 11), "memory": torch.randn(B, S, 11), "keep": _keep(B, S)}


def sources() -> Iterator[Inputs]:
    for B, S in ((1, 3), (3, 5)):
        yield {"source": torch.randint(13, (B, S)), "keep": _keep(B, S)}


def memories() -> Iterator[Inputs]:
    for B, T, S in ((1, 2, 3), (3, 5, 7)):
        yield {"memory": torch.randn(B, S, 11), "keep": _keep(B, S),
               "target": torch.randint(13, (B, T))}  # fmt: skip


def pairs() -> Iterator[Inputs]:
    for B, T, S in ((1, 2, 3), (3, 5, 7)):
        yield {"source": torch.randint(13, (B, S)), "keep": _keep(B, S),
               "target": torch.randint(13, (B, T))}  # fmt: skip


def _block(b: Any, x: Tensor, memory: Tensor, keep: Tensor) -> Tensor:
    x = x + b.attention(b.norm1(x))
    x = x + b.cross(b.norm2(x), memory, keep)
    return x + b.feed_forward(b.norm3(x))


def _wrong_blocks(b: Any) -> Iterator[Wrong]:
    one, two, three = b.norm1, b.norm2, b.norm3

    def cross_first(x: Tensor, memory: Tensor, keep: Tensor) -> Tensor:
        x = x + b.cross(two(x), memory, keep)
        x = x + b.attention(one(x))
        return x + b.feed_forward(three(x))

    def cross_first_by_number(x: Tensor, memory: Tensor, keep: Tensor) -> Tensor:
        x = x + b.cross(one(x), memory, keep)
        x = x + b.attention(two(x))
        return x + b.feed_forward(three(x))

    def no_cross(x: Tensor, memory: Tensor, keep: Tensor) -> Tensor:
        x = x + b.attention(one(x))
        return x + b.feed_forward(three(x))

    def no_residual(x: Tensor, memory: Tensor, keep: Tensor) -> Tensor:
        x = x + b.attention(one(x))
        x = b.cross(two(x), memory, keep)
        return x + b.feed_forward(three(x))

    def post_norm(x: Tensor, memory: Tensor, keep: Tensor) -> Tensor:
        x = one(x + b.attention(x))
        x = two(x + b.cross(x, memory, keep))
        return three(x + b.feed_forward(x))

    def normed_memory(x: Tensor, memory: Tensor, keep: Tensor) -> Tensor:
        return _block(b, x, two(memory), keep)

    def same_norm(x: Tensor, memory: Tensor, keep: Tensor) -> Tensor:
        x = x + b.attention(one(x))
        x = x + b.cross(one(x), memory, keep)
        return x + b.feed_forward(two(x))

    def everything_kept(x: Tensor, memory: Tensor, keep: Tensor) -> Tensor:
        return _block(b, x, memory, torch.ones_like(keep))

    yield "wrong-order", _quiet(cross_first)
    yield "wrong-order", _quiet(cross_first_by_number)
    yield "cross-missing", _quiet(no_cross)
    yield "no-residual", _quiet(no_residual)
    yield "post-norm", _quiet(post_norm)
    yield "memory-normed", _quiet(normed_memory)
    yield "same-norm", _quiet(same_norm)
    yield "mask-ignored", _quiet(everything_kept)


def _encode(
    t: Any, source: Tensor, keep: Tensor, *, positions: bool = True, norm: bool = True
) -> Tensor:
    x = t.source(source)
    if positions:
        x = x + t.positions(torch.arange(source.shape[1]))
    for block in t.encoder:
        x = block(x, keep)
    return t.encoder_norm(x) if norm else x


def _wrong_encoders(t: Any) -> Iterator[Wrong]:
    yield "positions-missing", _quiet(lambda s, k: _encode(t, s, k, positions=False))
    yield "final-norm-missing", _quiet(lambda s, k: _encode(t, s, k, norm=False))
    yield "mask-ignored", _quiet(lambda s, k: _encode(t, s, torch.ones_like(k)))
    yield "mask-inverted", _quiet(lambda s, k: _encode(t, s, ~k))


def _decode(
    t: Any, memory: Tensor, keep: Tensor, target: Tensor, *, positions: bool = True,
    norm: bool = True, table: str = "target",
) -> Tensor:  # fmt: skip
    x = getattr(t, table)(target)
    if positions:
        x = x + t.positions(torch.arange(target.shape[1]))
    for block in t.decoder:
        x = block(x, memory, keep)
    return t.head(t.decoder_norm(x) if norm else x)


def _wrong_decoders(t: Any) -> Iterator[Wrong]:
    yield "positions-missing", _quiet(lambda m, k, y: _decode(t, m, k, y, positions=False))
    yield "final-norm-missing", _quiet(lambda m, k, y: _decode(t, m, k, y, norm=False))
    yield "wrong-vocabulary", _quiet(lambda m, k, y: _decode(t, m, k, y, table="source"))
    yield "mask-ignored", _quiet(lambda m, k, y: _decode(t, m, torch.ones_like(k), y))
    yield "softmaxed", _quiet(lambda m, k, y: torch.softmax(_decode(t, m, k, y), -1))


def _whole(t: Any, source: Tensor, keep: Tensor, target: Tensor) -> Tensor:
    return _decode(t, _encode(t, source, keep), keep, target)


def _wrong_wholes(t: Any) -> Iterator[Wrong]:
    yield "memory-not-encoded", _quiet(lambda s, k, y: _decode(t, t.source(s), k, y))
    yield (
        "mask-ignored",
        _quiet(
            lambda s, k, y: _decode(t, _encode(t, s, torch.ones_like(k)), torch.ones_like(k), y)
        ),
    )
    yield "only-memory", lambda s, k, y: _encode(t, s, k).detach()


def look(mine: LearnerFile, lang: Language) -> Iterator[RenderableType]:
    """Learn to write sentences backwards with the learner's translator."""
    from glasshead.lab.exercises.reversing import learner_translator, show_reversal

    return show_reversal(learner_translator(mine), lang)
