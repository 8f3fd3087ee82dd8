"""Translate texts: encode them, search, and join the parts.

    translator = Translator(model, tokenizer)
    for translation in translator(["Ein Hund rennt.", "Hallo!"]):
        print(translation.best.text)

A text longer than the model's `max_len` is translated in parts (`splitting.py`); log-probabilities
and scores of parts are added. White space around a text is dropped; a text of white space only
has an empty translation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from glasshead.generation.beam import PAPER, Hypothesis, SearchConfig, check_n_best, greedy, search
from glasshead.generation.splitting import join, split
from glasshead.generation.translation_rows import SpecialTokens
from glasshead.model.transformer import Transformer
from glasshead.observe.words import characters, decode_tokens
from glasshead.text.tokenizer import Tokenizer

__all__ = ["Candidate", "Reading", "Translation", "Translator"]

Ids = tuple[int, ...]


@dataclass(frozen=True)
class Reading:
    """A text as the model gets it."""

    text: str
    parts: tuple[Ids, ...]  # empty when there is nothing to translate


@dataclass(frozen=True)
class Candidate:
    """One translation of a whole text."""

    text: str
    log_prob: float
    score: float  # by which candidates are ranked
    ended: bool  # whether every part ended with <eos>; otherwise one was cut at its limit
    parts: tuple[tuple[Ids, Ids], ...]  # source and target

    @property
    def tokens(self) -> int:
        return sum(len(target) for _, target in self.parts)


@dataclass(frozen=True)
class Translation:
    reading: Reading
    candidates: list[Candidate]  # of distinct texts, the best first; at least one

    @property
    def best(self) -> Candidate:
        return self.candidates[0]


class Translator:
    """A trained model, its tokenizer, and how to search with them.

    Args:
        n_best: how many candidates of each text; fewer if several give the same text.
        lowercase: whether to lowercase texts, like those it was trained on.
    """

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        config: SearchConfig = PAPER,
        *,
        n_best: int = 1,
        lowercase: bool = False,
    ) -> None:
        check_n_best(n_best, config)
        self.model, self.tokenizer, self.config = model, tokenizer, config
        self.n_best, self.lowercase = n_best, lowercase
        self.special = SpecialTokens.of(tokenizer, model)

    def __call__(self, texts: Sequence[str]) -> list[Translation]:
        return self.write([self.read(text) for text in texts])

    def read(self, text: str) -> Reading:
        """Return the ids of a text, in as many parts as it needs."""
        ids = (self._encode(part) for part in split(text, self._fits, self._pieces))
        return Reading(text, tuple(some for some in ids if some))

    def write(self, readings: Sequence[Reading]) -> list[Translation]:
        sources = [part for reading in readings for part in reading.parts]
        found = iter(zip(sources, self._search(sources), strict=True))
        translations = []
        for reading in readings:
            parts = [self._candidates(*next(found)) for _ in reading.parts]
            translations.append(Translation(reading, self._join_parts(parts)))
        return translations

    def _search(self, sources: list[Ids]) -> list[list[Hypothesis]]:
        if self.config.beam == 1:
            return [[one] for one in greedy(self.model, sources, self.special, self.config)]
        # Several may give the same text, so search for more than are wanted.
        n_best = 1 if self.n_best == 1 else self.config.beam
        return search(self.model, sources, self.special, self.config, n_best)

    def _candidates(self, source: Ids, found: list[Hypothesis]) -> list[Candidate]:
        distinct: dict[str, Candidate] = {}
        for one in found:
            text = self.tokenizer.decode(one.ids).strip()
            parts = ((source, one.ids),)
            distinct.setdefault(text, Candidate(text, one.log_prob, one.score, one.ended, parts))
        return list(distinct.values())[: self.n_best]

    def _join_parts(self, parts: list[list[Candidate]]) -> list[Candidate]:
        best = [Candidate("", 0.0, 0.0, True, ())]
        for candidates in parts:
            both = [_join_two(one, other) for one, other in product(best, candidates)]
            best = sorted(both, key=lambda one: (not one.ended, -one.score))[: self.n_best]
        return best

    def _encode(self, text: str) -> Ids:
        text = text.strip()
        return tuple(self.tokenizer.prompt_ids(text.lower() if self.lowercase else text))

    def _fits(self, text: str) -> bool:
        return len(self._encode(text)) <= self.model.config.max_len

    def _pieces(self, text: str) -> list[str]:
        ids = self.tokenizer.encode_ids(text).tolist()
        return [piece.text for piece in characters(decode_tokens(self.tokenizer, ids))]


def _join_two(one: Candidate, other: Candidate) -> Candidate:
    return Candidate(
        join([one.text, other.text]),
        one.log_prob + other.log_prob,
        one.score + other.score,
        one.ended and other.ended,
        one.parts + other.parts,
    )
