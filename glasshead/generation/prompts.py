"""Prompts that wait to be read, a chunk of them at a time.

Short ones are read several at once, padded on the left; equal ones once, for all that have them. A
long one takes several chunks, and the others have theirs in between.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from glasshead.attention.cache import Cache, FixedCache, GrowingCache
from glasshead.attention.mask import Mask
from glasshead.generation.sampling import SamplingConfig
from glasshead.model.gpt import GPT

__all__ = ["Prompts", "Read", "Text", "isolated"]

Item = TypeVar("Item")
Found = TypeVar("Found")


@dataclass(eq=False)
class Text:
    """One text: its ids, and how it is to go on."""

    key: int
    ids: list[int]
    start: int  # where what the model sees of it begins
    config: SamplingConfig
    left: int  # ids that it may still get
    stop_ids: frozenset[int]
    stream: random.Random
    alternatives: int
    seen: Tensor | None = None  # (V,), for the repetition penalty
    uniform: float = 0.0  # what its next id is drawn by

    @property
    def context(self) -> list[int]:
        return self.ids[self.start :]

    @property
    def length(self) -> int:
        """Of what the model sees."""
        return len(self.ids) - self.start


@dataclass(frozen=True, eq=False)
class Read:
    """A prompt that has been read."""

    logits: Tensor  # (V,) for the id after it
    kv: list[tuple[Tensor, Tensor]]  # of each layer, (H_kv, n, D)


@dataclass(eq=False)
class _Waiting:
    text: Text
    context: list[int]
    caches: list[Cache] | None = None  # once a long one has begun
    read: int = 0  # how many ids they have


class Prompts:
    """Those that wait, the next first."""

    def __init__(self, model: GPT, chunk: int) -> None:
        self._model, self._chunk = model, chunk
        self._device = model.embedding.weight.device
        self._line: deque[_Waiting] = deque()

    @property
    def texts(self) -> list[Text]:
        return [one.text for one in self._line]

    def put(self, text: Text) -> None:
        self._line.append(_Waiting(text, text.context))

    def put_first(self, text: Text) -> None:
        self._line.appendleft(_Waiting(text, text.context))

    def leave(self, key: int) -> None:
        self._line = deque(one for one in self._line if one.text.key != key)

    def step(self) -> list[tuple[Text, Read | Exception]]:
        """Read one chunk. Returns the texts that it completes, or what went wrong with them."""
        if not self._line:
            return []
        begun = [one.context for one in self._line if one.caches is not None]
        # What another is reading already is not begun again.
        first = next(
            one for one in self._line if one.caches is not None or one.context not in begun
        )
        found: Sequence[Read | Exception | None]
        if first.caches is not None or len(first.context) > self._chunk:
            batch, found = [first], isolated(self._read_chunk, [first])
        else:
            batch = self._that_fit(first)
            found = isolated(self._read_whole, batch)
        done: list[tuple[Text, Read | Exception]] = []
        for one, read in zip(batch, found, strict=True):
            self._line.remove(one)
            if read is None:
                self._line.append(one)
                continue
            equal = [o for o in self._line if o.caches is None and o.context == one.context]
            self._line = deque(other for other in self._line if other not in equal)
            done += [(each.text, read) for each in (one, *equal)]
        return done

    def _that_fit(self, first: _Waiting) -> list[_Waiting]:
        """Those next in line whose prompts make one chunk, padded as they will be."""
        batch, contexts = [first], [first.context]
        for one in self._line:
            if one.context in contexts:  # will be served by that one
                continue
            if (len(batch) + 1) * max(map(len, [one.context, *contexts])) > self._chunk:
                break
            batch.append(one)
            contexts.append(one.context)
        return batch

    def _read_chunk(self, one: list[_Waiting]) -> list[Read | None]:
        """The next chunk of one long prompt; None while there is more of it."""
        [long] = one
        if long.caches is None:
            long.caches = [FixedCache(len(long.context)) for _ in self._model.blocks]
        end = min(long.read + self._chunk, len(long.context))
        x = self._model.features(
            torch.tensor([long.context[long.read : end]], device=self._device),
            positions=torch.arange(long.read, end, device=self._device),
            caches=long.caches,
        )
        long.read = end
        if end < len(long.context):
            return [None]
        return [Read(self._model.logits(x[:, -1])[0], _kept(long.caches, 0, end))]

    def _read_whole(self, batch: list[_Waiting]) -> list[Read]:
        contexts = [one.context for one in batch]
        width = max(map(len, contexts))
        pads = [width - len(context) for context in contexts]
        padded = [[0] * pad + context for pad, context in zip(pads, contexts, strict=True)]
        positions, mask = torch.arange(width, device=self._device), None
        if any(pads):
            before = torch.tensor(pads, device=self._device)[:, None]
            mask = Mask(keys=positions >= before)  # (B, S)
            positions = (positions - before).clamp(min=0)  # (B, T)
        caches: list[Cache] = [GrowingCache() for _ in self._model.blocks]
        ids = torch.tensor(padded, device=self._device)
        x = self._model.features(ids, mask=mask, positions=positions, caches=caches)
        logits = self._model.logits(x[:, -1])  # (B, V)
        lengths = map(len, contexts)
        return [Read(logits[row], _kept(caches, row, n)) for row, n in enumerate(lengths)]


def _kept(caches: Iterable[Cache], row: int, n: int) -> list[tuple[Tensor, Tensor]]:
    """The last n keys and values of a row."""
    kv = []
    for cache in caches:
        assert isinstance(cache, FixedCache | GrowingCache)
        assert cache.k is not None
        assert cache.v is not None
        span = slice(cache.length - n, cache.length)
        kv.append((cache.k[row, :, span], cache.v[row, :, span]))
    return kv


def isolated(
    run: Callable[[list[Item]], Sequence[Found]], items: list[Item]
) -> Sequence[Found | Exception]:
    """What is found for all at once; where that fails, for each alone, or its error."""
    try:
        return run(items)
    except Exception as error:  # whatever it is, the others must go on
        if len(items) == 1:
            return [error]
    return [found for item in items for found in isolated(run, [item])]
