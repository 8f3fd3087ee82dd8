"""BPE-dropout: words are split into pieces at random, differently in each epoch.

A model that sees "lower" as low|er, l|ower and lo|w|er learns how its parts are related, which
helps when there is little data. As in Provilkov et al. (2020), each possible merge is dropped with
some probability at each step, and the first remaining one is applied. The pieces of an epoch depend
only on the seed and the epoch's number.
"""

import json
from array import array
from collections.abc import Sequence
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from glasshead.text.batches import Rows, draw
from glasshead.text.bpe import BPETokenizer

__all__ = ["BPEDropout"]

WAYS = 32  # random splits of a word; each occurrence uses one of them
DRAWS = 1 << 20  # coin flips, drawn once; each split of each word starts somewhere among them


class BPEDropout:
    """Texts as ids of randomly chosen pieces.

    >>> tokenizer = BPETokenizer.train("low lower lowest low low", vocab_size=262)
    >>> pieces = BPEDropout(tokenizer, ["low lower"] * 9, dropout=0.5, seed=1)
    >>> {tokenizer.decode(pieces.at(epoch)[0]) for epoch in range(9)}
    {'low lower'}
    >>> len({tuple(pieces.at(epoch)[0]) for epoch in range(9)}) > 1
    True
    """

    def __init__(
        self,
        tokenizer: BPETokenizer,
        texts: Sequence[str],
        dropout: float,
        seed: int,
        limit: int | None = None,
    ) -> None:
        """A text of more than `limit` pieces is split as the tokenizer splits it."""
        model = json.loads(tokenizer.to_json())["model"]
        self._ids: dict[str, int] = model["vocab"]
        pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
        # (left, right) -> (its rank, what it becomes)
        self._merges = {
            (self._ids[left], self._ids[right]): (rank, self._ids[left + right])
            for rank, (left, right) in enumerate(pairs)
        }
        self.seed, self.limit = seed, limit
        self._dropped = (draw(seed, 0, DRAWS) < dropout * 2.0**64).tolist()
        numbers: dict[str, int] = {}
        words = [[numbers.setdefault(w, len(numbers)) for w in tokenizer.words(t)] for t in texts]
        self._words = list(numbers)
        self._flat = np.array([number for some in words for number in some], dtype=np.int64)
        self._ends = np.cumsum([len(some) for some in words])
        # Way 0 of a word is the tokenizer's own split, without dropout. A word is split when it
        # is first needed; before that, its length is 0.
        self._pool = array("q")
        self._starts = np.zeros(len(numbers) * (WAYS + 1), dtype=np.int64)
        self._lengths = np.zeros(len(numbers) * (WAYS + 1), dtype=np.int64)

    def at(self, epoch: int) -> Rows:
        """Return the ids of all texts in this epoch."""
        draws = draw(self.seed, epoch + 1, len(self._flat))
        ways = self._flat * (WAYS + 1) + 1 + (draws % np.uint64(WAYS)).astype(np.int64)
        counts = self._counts(ways)
        if self.limit is not None and (counts > self.limit).any():
            words = np.diff(self._ends, prepend=0)
            whole = np.repeat(counts > self.limit, words)
            ways = np.where(whole, self._flat * (WAYS + 1), ways)
            counts = self._counts(ways)
        lengths = self._lengths[ways]
        # Piece i of a word is at the word's start in the pool, plus i.
        inside = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        pool = np.frombuffer(self._pool, dtype=np.int64)
        return Rows(pool[np.repeat(self._starts[ways], lengths) + inside], counts)

    def _counts(self, ways: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count the pieces of each text; split the words that are not split yet."""
        wanted = np.unique(ways)
        for way in wanted[self._lengths[wanted] == 0].tolist():
            pieces = self._split(*divmod(way, WAYS + 1))
            self._starts[way], self._lengths[way] = len(self._pool), len(pieces)
            self._pool.extend(pieces)
        sums = np.append(0, np.cumsum(self._lengths[ways]))[np.append(0, self._ends)]
        return np.diff(sums)

    def _split(self, number: int, way: int) -> list[int]:
        word, merges, dropped = self._words[number], self._merges, self._dropped
        pieces = [self._ids[character] for character in word]
        at = crc32(f"{way} {word}".encode()) % DRAWS
        while True:
            best, place = (len(merges), -1), -1
            for i in range(len(pieces) - 1):
                found = merges.get((pieces[i], pieces[i + 1]))
                if found is None:
                    continue
                at = (at + 1) % DRAWS
                if found < best and not (way and dropped[at]):
                    best, place = found, i
            if place < 0:
                return pieces
            pieces[place : place + 2] = [best[1]]
