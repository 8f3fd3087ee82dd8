"""Exercise 11: a KV cache."""

from collections.abc import Callable, Iterator, Sequence

import torch
from rich.console import RenderableType
from rich.text import Text
from torch import Tensor

from glasshead.lab.exercises.judging import Inputs, PrintedNumbers, Wrong, compare, fail
from glasshead.lab.exercises.learner import LearnerFile
from glasshead.lab.texts import Language

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]  # the new queries, all keys, all values
Join = Callable[[Tensor, Tensor], Tensor]  # what was kept, what is new
Stepwise = Callable[[Tensor, Tensor, Tensor, Sequence[int]], Tensor]


def check(mine: LearnerFile) -> Iterator[PrintedNumbers]:
    yield from ()
    _check_append(mine)

    def stepwise(q: Tensor, k: Tensor, v: Tensor, sizes: Sequence[int]) -> Tensor:
        cache = mine.Cache()
        parts = (x.split(list(sizes), -2) for x in (q, k, v))
        return torch.cat([mine.attention(*some, cache) for some in zip(*parts, strict=True)], -2)

    compare(mine, "attention(q, k, v, cache), called once for each size", stepwise, right, cases(),
            list(wrong()), place=mine.attention)  # fmt: skip


def _check_append(mine: LearnerFile) -> None:
    one, two = mine.call(mine.Cache), mine.call(mine.Cache)
    k = torch.randn(2, 3, 5, 7)
    for cache in (one, one, two):
        kept = mine.call(cache.append, k, k)
        if kept is None:
            raise fail("nothing-returned", mine.Cache, what="append(k, v)")
        if cache is two and kept[0].shape != k.shape:
            raise fail("shared-cache", mine.Cache)
    if mine.call(two.append, k, k)[0].shape != (2, 3, 10, 7):
        name = "cache-ignored" if kept[0].shape == k.shape == one.append(k, k)[0].shape else ""
        raise fail(name or "cache-dimension", mine.Cache)


def cases() -> Iterator[Inputs]:
    for B, H, D, sizes in (
        (1, 1, 2, [1, 1]),
        (2, 3, 7, [1] * 5),
        (2, 3, 5, [7]),
        (1, 3, 5, [3, 2]),
    ):
        q, k, v = (torch.randn(B, H, sum(sizes), D) for _ in range(3))
        yield {"q": q, "k": k, "v": v, "sizes": sizes}


def _attend(shift: Callable[[int, int], int] | None) -> Attend:
    def compute(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if shift is not None:
            T, S = scores.shape[-2:]
            seen = torch.ones(T, S).tril(shift(T, S)).bool()
            scores = scores.masked_fill(~seen, -torch.inf)
        return torch.softmax(scores, -1) @ v

    return compute


def _behind(old: Tensor, new: Tensor) -> Tensor:
    return torch.cat([old, new], -2)


def _run(attend: Attend, join: Join = _behind, join_values: Join | None = None) -> Stepwise:
    def compute(q: Tensor, k: Tensor, v: Tensor, sizes: Sequence[int]) -> Tensor:
        out, keys, values = [], k[..., :0, :], v[..., :0, :]
        for a, b, c in zip(*(x.split(list(sizes), -2) for x in (q, k, v)), strict=True):
            keys, values = join(keys, b), (join_values or join)(values, c)
            out.append(attend(a, keys, values))
        return torch.cat(out, -2)

    return compute


def _end(T: int, S: int) -> int:
    return S - T


right = _run(_attend(_end))


def wrong() -> Iterator[Wrong]:
    yield "causal-start-aligned", _run(_attend(lambda T, S: 0))
    yield "causal-missing", _run(_attend(None))
    yield "causal-strict", _run(_attend(lambda T, S: S - T - 1))
    yield "causal-leaks-next", _run(_attend(lambda T, S: S - T + 1))
    ways: list[tuple[str, Join]] = [
        ("cache-ignored", lambda old, new: new),
        ("cache-order", lambda old, new: torch.cat([new, old], -2)),
        *(("cache-dimension", _join_along(dim)) for dim in (1, 0, -1)),
    ]
    for name, join in ways:
        for attend in (_attend(_end), _attend(None)):
            yield name, _run(attend, join)
            yield name, _run(attend, join, _behind)
            yield name, _run(attend, _behind, join)
    yield "square-mask", _run(_square)
    yield "scale-missing", _run(lambda q, k, v: _attend(_end)(q * q.shape[-1] ** 0.5, k, v))


def _join_along(dim: int) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda old, new: torch.cat([old, new], dim) if old.shape[-2] else new


def _square(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.mT / q.shape[-1] ** 0.5
    seen = torch.ones(q.shape[-2], q.shape[-2]).tril().bool()
    return torch.softmax(scores.masked_fill(~seen, -torch.inf), -1) @ v


def look(mine: LearnerFile, lang: Language) -> Iterator[RenderableType]:
    """Write with the learner's cache and without; compare texts and count positions."""
    from glasshead.lab.exercises.looking import TEXTS
    from glasshead.lab.exercises.writing import write_both

    found = write_both(mine)
    yield Text(found.text, style="bold")
    name = "cache_same" if found.same else "cache_differs"
    yield Text(TEXTS[name].format(cached=found.cached, plain=found.plain)[lang])
