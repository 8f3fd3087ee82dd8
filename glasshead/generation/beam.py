"""Search for translations: greedily, or by beam search.

    best = search(model, [[5, 9, 7]], SpecialTokens.of(tokenizer, model))[0][0]
    print(tokenizer.decode(best.ids), best.score)

Beam search extends each of its translations by every id and keeps the `beam` best of all; those
that end with <eos> are finished. Longer ones have more factors below one, so they are compared by
the score of "Attention Is All You Need" (n counts <eos>):

    score = log_prob / ((5 + n) / 6) ** alpha

A search ends when no unfinished translation can do better: log_prob never grows, and no
translation is longer than its limit, so none can score more than log_prob / penalty(limit). Those
that cannot beat the worst of the n best are dropped, which changes no result. A translation that
reaches its limit is cut, and ranks behind all that have ended.

Sources of similar length share a batch, padded and masked, which changes no result. Each step
computes only the unfinished translations.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from glasshead.errors import ConfigError, InputError
from glasshead.generation.batch import check_max_tokens
from glasshead.generation.step import eval_mode
from glasshead.generation.translation_rows import SpecialTokens, TranslationRows, batches_by_length
from glasshead.model.transformer import Transformer
from glasshead.text.tokenizer import Tokenizer

__all__ = [
    "Hypothesis",
    "SearchConfig",
    "check_n_best",
    "greedy",
    "greedy_decoder",
    "penalty",
    "search",
]

LONGER = 50  # a translation has at most so many ids more than its source, as in the paper
WIDEST = 1000  # beam: results stop improving long before, and memory runs out
# How many ids of sources are read at once, times the beam: enough to keep the device busy.
READ = {"cpu": 1 << 12, "cuda": 1 << 16}


@dataclass(frozen=True)
class SearchConfig:
    """How to search for translations; the defaults are those of the paper."""

    beam: int = 4  # translations kept at each step; 1 takes the most probable token each time
    alpha: float = 0.6  # how much longer translations are favoured; 0 compares bare probabilities
    max_tokens: int | None = None  # of a translation; those of its source plus 50 when None

    def __post_init__(self) -> None:
        if not 1 <= self.beam <= WIDEST:
            raise ConfigError(
                f"beam ({self.beam}) must be at least 1 and at most {WIDEST}", hint="try 4"
            )
        if not 0 <= self.alpha <= 10:
            raise ConfigError(
                f"alpha ({self.alpha}) must be at least 0 and at most 10", hint="try 0.6"
            )
        if self.max_tokens is not None:
            check_max_tokens(self.max_tokens)


PAPER = SearchConfig()


@dataclass(frozen=True)
class Hypothesis:
    """One translation that a search has found."""

    ids: tuple[int, ...]  # without <bos> and <eos>
    log_prob: float  # of all its ids, <eos> among them
    score: float  # log_prob over the penalty for its length
    ended: bool  # by <eos>; otherwise it was cut at its limit


def penalty(n: int, alpha: float) -> float:
    """Return what the log-probability of n ids is divided by.

    >>> penalty(1, 0.6), round(penalty(25, 0.6), 2)
    (1.0, 2.63)
    """
    return ((5 + n) / 6) ** alpha


def search(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    special: SpecialTokens,
    config: SearchConfig = PAPER,
    n_best: int = 1,
    *,
    cached: bool = True,
    read: int | None = None,
) -> list[list[Hypothesis]]:
    """Return the n best translations that beam search finds of each source, the best first.

    Args:
        cached: keep keys and values; otherwise compute all again at each step: slower, the same.
        read: how many ids of sources are read at once, times the beam.
    """
    check_n_best(n_best, config)
    limits = _limits(model, sources, config)
    beams = [_Beam(limit, config, n_best, special.eos) for limit in limits]
    for indices in batches_by_length(sources, _room(model, config.beam, read)):
        some = [beams[index] for index in indices]
        with eval_mode(list(model.modules())):
            rows = TranslationRows(
                model, [sources[index] for index in indices], special, cached=cached
            )
            while rows.owners:
                rows.extend(*_advance(some, rows, rows.best(config.beam)))
    return [beam.best for beam in beams]


def greedy(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    special: SpecialTokens,
    config: SearchConfig = PAPER,
    *,
    cached: bool = True,
    read: int | None = None,
) -> list[Hypothesis]:
    """Take the most probable id at each step, as a beam of 1 does; `config.beam` is not used."""
    limits = _limits(model, sources, config)
    texts: list[list[int]] = [[] for _ in sources]
    log_probs, ended = [0.0] * len(sources), [False] * len(sources)
    for indices in batches_by_length(sources, _room(model, 1, read)):
        with eval_mode(list(model.modules())):
            rows = TranslationRows(
                model, [sources[index] for index in indices], special, cached=cached
            )
            while rows.owners:
                parents, tokens = [], []
                for row, [(log_prob, token)] in enumerate(rows.best(1)):
                    index = indices[rows.owners[row]]
                    log_probs[index] += log_prob
                    if token == special.eos:
                        ended[index] = True
                        continue
                    texts[index].append(token)
                    if len(texts[index]) < limits[index]:
                        parents.append(row)
                        tokens.append(token)
                rows.extend(parents, tokens)
    found = zip(texts, log_probs, ended, strict=True)
    return [_hypothesis(*one, alpha=config.alpha) for one in found]


def check_n_best(n_best: int, config: SearchConfig) -> None:
    if not 1 <= n_best <= config.beam:
        raise ConfigError(
            f"n_best ({n_best}) must lie between 1 and beam ({config.beam})",
            hint=f"use a beam of {n_best}" if n_best > 1 else "try 1",
        )


def greedy_decoder(
    tokenizer: Tokenizer, max_tokens: int | None = None
) -> Callable[[Transformer, Sequence[Sequence[int]]], list[list[int]]]:
    """Return `decode(model, sources)`, for parts that may not import this one."""
    config = SearchConfig(max_tokens=max_tokens)

    def decode(model: Transformer, sources: Sequence[Sequence[int]]) -> list[list[int]]:
        return [
            list(h.ids) for h in greedy(model, sources, SpecialTokens.of(tokenizer, model), config)
        ]

    return decode


class _Beam:
    """The search for the translations of one source."""

    def __init__(self, limit: int, config: SearchConfig, n_best: int, eos: int) -> None:
        self.limit, self.width, self.alpha = limit, config.beam, config.alpha
        self.n_best, self.eos = n_best, eos
        self.live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]  # log_prob and ids, best first
        self.best: list[Hypothesis] = []

    def advance(self, nexts: Sequence[list[tuple[float, int]]]) -> list[int]:
        """Extend each live translation by its best next ids; return the parent of each new one."""
        extended = [
            (log_prob + more, parent, token)
            for parent, (log_prob, _) in enumerate(self.live)
            for more, token in nexts[parent]
        ]
        extended.sort(key=lambda one: -one[0])
        n = len(self.live[0][1]) + 1
        live, parents = [], []
        for log_prob, parent, token in extended[: self.width]:
            ids = self.live[parent][1]
            if token == self.eos:
                self.best.append(_hypothesis(ids, log_prob, True, alpha=self.alpha))
            elif n == self.limit:
                self.best.append(_hypothesis((*ids, token), log_prob, False, alpha=self.alpha))
            else:
                live.append((log_prob, (*ids, token)))
                parents.append(parent)
        self.best.sort(key=lambda one: (not one.ended, -one.score))
        del self.best[self.n_best :]
        if len(self.best) == self.n_best:
            # They are in order of probability, so those that can still win come first.
            most = penalty(self.limit, self.alpha)
            live = [one for one in live if one[0] / most > self.best[-1].score]
        self.live = live
        return parents[: len(live)]


def _advance(
    beams: list[_Beam], rows: TranslationRows, best: list[list[tuple[float, int]]]
) -> tuple[list[int], list[int]]:
    """Advance all searches by a step; return the rows that go on, and the new id of each."""
    parents: list[int] = []
    tokens: list[int] = []
    start = 0
    for owner in dict.fromkeys(rows.owners):
        beam = beams[owner]
        end = start + len(beam.live)
        parents += [start + parent for parent in beam.advance(best[start:end])]
        tokens += [ids[-1] for _, ids in beam.live]
        start = end
    return parents, tokens


def _hypothesis(ids: Sequence[int], log_prob: float, ended: bool, *, alpha: float) -> Hypothesis:
    return Hypothesis(tuple(ids), log_prob, log_prob / penalty(len(ids) + ended, alpha), ended)


def _room(model: Transformer, beam: int, read: int | None) -> int:
    return (read or READ.get(model.head.weight.device.type, 1 << 12)) // beam


def _limits(
    model: Transformer, sources: Sequence[Sequence[int]], config: SearchConfig
) -> list[int]:
    """Return how many ids each translation may have, including <eos>."""
    vocab_size, limits = model.config.vocab_size, []
    for index, ids in enumerate(sources):
        length = sum(token != model.config.pad for token in ids)
        if not length:
            raise InputError(f"source {index} is empty", hint="there is nothing to translate")
        for token in (min(ids), max(ids)):
            if not 0 <= token < vocab_size:
                raise InputError(
                    f"source {index} holds id {token}, but the vocabulary has {vocab_size}",
                    hint="encode it with the tokenizer of the same run",
                )
        limits.append(config.max_tokens or length + LONGER)
    if model.config.positions == "learned":
        limits = [min(limit, model.config.max_len) for limit in limits]
    return limits
