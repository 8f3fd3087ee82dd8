"""The state of translations while they are written: a row for each, with its ids and caches.

A source has several rows in beam search. When a translation ends, the next step has no row for it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glasshead.errors import InputError
from glasshead.generation.sampling import not_finite_error
from glasshead.model.transformer import Transformer
from glasshead.text.tokenizer import Tokenizer

__all__ = ["SpecialTokens", "TranslationRows", "batches_by_length"]


@dataclass(frozen=True)
class SpecialTokens:
    """The ids that begin and end a translation, and those that it must not contain."""

    bos: int
    eos: int
    never: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: Tokenizer, model: Transformer) -> "SpecialTokens":
        """Look them up in the tokenizer. Ids that stand for no text must not be written."""
        specials = tokenizer.specials
        for name in ("<bos>", "<eos>"):
            if name not in specials:
                raise InputError(
                    f"the tokenizer has no {name}, which marks where a translation begins or ends",
                    hint="train it with the special tokens <pad>, <bos> and <eos>",
                )
        beyond = range(tokenizer.vocab_size, model.config.vocab_size)
        never = {*specials.values(), *beyond} - {specials["<eos>"]}
        return cls(specials["<bos>"], specials["<eos>"], tuple(sorted(never)))


class TranslationRows:
    """Translations of a batch of sources, all of the same length so far.

    Use it under `eval_mode`. `cached=False` computes all keys and values again at each step.
    """

    def __init__(
        self,
        model: Transformer,
        sources: Sequence[Sequence[int]],
        special: SpecialTokens,
        *,
        cached: bool = True,
    ) -> None:
        self.owners = list(range(len(sources)))  # the source that each row translates, ascending
        self._model, self._device = model, model.head.weight.device
        self._never = torch.tensor(special.never, dtype=torch.int64, device=self._device)
        width = max(map(len, sources))
        padded = [[*ids, *[model.config.pad] * (width - len(ids))] for ids in sources]
        self._memory = model.encode(self._tensor(padded))
        self._caches = model.new_caches() if cached else None
        self._ids = self._tensor([[special.bos]] * len(sources))  # (R, T)

    def best(self, k: int) -> list[list[tuple[float, int]]]:
        """Return for each row the k most probable next ids, with their log-probabilities."""
        new = self._ids if self._caches is None else self._ids[:, -1:]
        x = self._model.features(new, self._memory, self._caches)
        logits = self._model.logits(x[:, -1])  # (R, V)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        lse = logits.logsumexp(-1, keepdim=True).double()
        logits = logits.index_fill(-1, self._never, -math.inf)
        k = min(k, logits.shape[-1] - len(self._never))
        # Of equal logits, max takes the first and topk any.
        top, ids = logits.max(-1, keepdim=True) if k == 1 else logits.topk(k)
        log_probs = (top.double() - lse).tolist()
        if not all(math.isfinite(row[0]) for row in log_probs):
            raise not_finite_error()
        return [list(zip(*row, strict=True)) for row in zip(log_probs, ids.tolist(), strict=True)]

    def extend(self, parents: list[int], tokens: list[int]) -> None:
        """Let row i become what row parents[i] was, followed by tokens[i]."""
        owners, self.owners = self.owners, [self.owners[parent] for parent in parents]
        if not parents:
            return
        rows = self._tensor(parents)
        self._ids = torch.cat([self._ids[rows], self._tensor([[one] for one in tokens])], dim=1)
        if parents != list(range(len(owners))):
            for cache in self._caches or ():
                cache.own.reorder(rows)
        if self.owners != owners:  # rows of one source share a memory: it seldom changes
            self._memory = self._memory.rows(rows)
            for cache in self._caches or ():
                cache.cross.reorder(rows)

    def _tensor(self, numbers: list[int] | list[list[int]]) -> Tensor:
        return torch.tensor(numbers, device=self._device)


def batches_by_length(sources: Sequence[Sequence[int]], room: int) -> Iterator[list[int]]:
    """Yield indices of sources of similar length, as many as fill `room` ids when padded.

    >>> list(batches_by_length([[1] * 5, [1], [1] * 6, [1] * 2], room=12))
    [[1, 3], [0, 2]]
    """
    order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
    while order:
        widths = enumerate((len(sources[index]) for index in order), 1)
        count = next((n - 1 for n, width in widths if n * width > room), len(order))
        yield order[: max(1, count)]
        order = order[max(1, count) :]
