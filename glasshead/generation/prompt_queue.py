"""Read the prompts that wait, a chunk of ids at a time.

Short prompts are read several at once, padded on the left; equal ones once for all texts that have
them. A long prompt takes several chunks, and other prompts are read in between.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from glasshead.attention.cache import Cache, FixedCache, GrowingCache
from glasshead.attention.mask import Mask
from glasshead.generation.kv_slots import LayerKV
from glasshead.generation.text_state import TextState
from glasshead.model.gpt import GPT

__all__ = ["PromptQueue", "PromptResult", "run_alone"]

Item = TypeVar("Item")
Found = TypeVar("Found")


@dataclass(frozen=True, eq=False)
class PromptResult:
    """What the model computed for a prompt."""

    features: Tensor  # (C,) of its last id
    kv: list[LayerKV]


@dataclass(eq=False)
class _Waiting:
    text: TextState
    context: list[int]
    caches: list[Cache] | None = None  # of a long prompt that was begun
    read: int = 0  # how many of its ids are in the caches


class PromptQueue:
    """The texts whose prompts wait to be read, the next first."""

    def __init__(self, model: GPT, chunk: int | None) -> None:
        """`chunk` is how many ids are read at once at most; None for no limit."""
        self._model, self._chunk = model, chunk
        self._device = model.embedding.weight.device
        self._line: deque[_Waiting] = deque()

    @property
    def texts(self) -> list[TextState]:
        return [one.text for one in self._line]

    def __len__(self) -> int:
        return len(self._line)

    def put(self, text: TextState) -> None:
        self._line.append(_Waiting(text, text.context))

    def put_first(self, texts: Sequence[TextState]) -> None:
        self._line.extendleft(_Waiting(text, text.context) for text in reversed(texts))

    def remove(self, key: int) -> None:
        self._line = deque(one for one in self._line if one.text.key != key)

    def read_chunk(self) -> list[tuple[TextState, PromptResult | Exception]]:
        """Read one chunk. Return the texts whose prompts are complete, or could not be read."""
        if not self._line:
            return []
        begun = [one.context for one in self._line if one.caches is not None]
        # A prompt that is being read for another text is not begun again.
        first = next(
            one for one in self._line if one.caches is not None or one.context not in begun
        )
        results: Sequence[PromptResult | Exception | None]
        if first.caches is not None or not self._fits(len(first.context)):
            batch, read = [first], self._read_part
        else:
            batch, read = self._take_batch(first), self._read_whole
        try:
            results = read(batch)
        except Exception as error:  # whatever it is, the other prompts must be read
            results = run_alone(read, batch, error)
        done: list[tuple[TextState, PromptResult | Exception]] = []
        for one, result in zip(batch, results, strict=True):
            self._line.remove(one)
            if result is None:
                self._line.append(one)
                continue
            equal = [o for o in self._line if o.caches is None and o.context == one.context]
            self._line = deque(other for other in self._line if other not in equal)
            done += [(each.text, result) for each in (one, *equal)]
        return done

    def _fits(self, ids: int) -> bool:
        return self._chunk is None or ids <= self._chunk

    def _take_batch(self, first: _Waiting) -> list[_Waiting]:
        """Return the next prompts that make one chunk together, padding included."""
        batch, contexts, longest = [first], [first.context], len(first.context)
        for one in self._line:
            if one.context in contexts:  # gets the result of that one
                continue
            longest = max(longest, len(one.context))
            if not self._fits((len(batch) + 1) * longest):
                break
            batch.append(one)
            contexts.append(one.context)
        return batch

    def _read_part(self, batch: list[_Waiting]) -> list[PromptResult | None]:
        """Read the next chunk of one long prompt; return None for it while there is more."""
        [long] = batch
        assert self._chunk is not None
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
        return [PromptResult(x[0, -1], _last_columns(long.caches, 0, end))]

    def _read_whole(self, batch: list[_Waiting]) -> list[PromptResult | None]:
        """Read several prompts at once, padded on the left."""
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
        return [
            PromptResult(x[row, -1], _last_columns(caches, row, len(context)))
            for row, context in enumerate(contexts)
        ]


def _last_columns(caches: Sequence[Cache], row: int, n: int) -> list[LayerKV]:
    """Return the last n keys and values of a row, by layer."""
    kv = []
    for cache in caches:
        assert isinstance(cache, FixedCache | GrowingCache)
        assert cache.k is not None
        assert cache.v is not None
        columns = slice(cache.length - n, cache.length)
        kv.append((cache.k[row, :, columns], cache.v[row, :, columns]))
    return kv


def run_alone(
    run: Callable[[list[Item]], Sequence[Found]], items: list[Item], error: Exception
) -> list[Found | Exception]:
    """Run a function that failed for all items at once for each alone; return results or errors."""
    if len(items) == 1:
        return [error]
    found: list[Found | Exception] = []
    for item in items:
        try:
            found += run([item])
        except Exception as own:
            found.append(own)
    return found
