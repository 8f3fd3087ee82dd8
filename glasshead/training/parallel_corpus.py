"""Pairs of sentences for training: read, split honestly, known again by their fingerprint."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from pathlib import Path

from glasshead.errors import ConfigError, InputError
from glasshead.text.pairs import Pair, read_pairs
from glasshead.text.sources import Report

__all__ = ["PairConfig", "ParallelCorpus", "read_parallel_corpus", "split_pairs"]


@dataclass(frozen=True)
class PairConfig:
    """How pairs are read and trained on. Every field is a flag of `glasshead train --pairs`."""

    max_tokens: int = 4096  # of a batch: pairs times the longer side, padding included
    val_share: float = 0.05  # how much of the pairs validates where --val names none
    eval_pairs: int = 1000  # how many of these an evaluation takes at most
    columns: str = "1,2"  # of a .tsv: where source and target stand
    languages: str | None = None  # of source and target, such as zh,en: what looks wrong is told
    max_chars: int = 1000  # longer lines are left out
    lowercase: bool = False  # train and translate in small letters
    bpe_dropout: float = 0.0  # cut words at random, such as 0.1
    label_smoothing: float = 0.0  # how much of each answer is spread over all others
    rdrop: float = 0.0  # weight of two dropouts' disagreement, such as 5 (R-Drop)

    def __post_init__(self) -> None:
        for name in ("max_tokens", "eval_pairs", "max_chars"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"{name} ({getattr(self, name)}) must be at least 1", hint=f"raise {name}"
                )
        for name in ("bpe_dropout", "label_smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(
                    f"{name} ({getattr(self, name)}) must be at least 0 and less than 1",
                    hint="0.1 is usual",
                )
        if not 0 < self.val_share < 1:
            raise ConfigError(
                f"val_share ({self.val_share}) must lie between 0 and 1",
                hint="0.05 holds out a twentieth",
            )
        if not 0 <= self.rdrop < math.inf:
            raise ConfigError(
                f"rdrop ({self.rdrop}) must be at least 0 and finite", hint="5 is usual"
            )
        if self.languages is not None and not re.fullmatch(r"[\w-]+,[\w-]+", self.languages):
            raise ConfigError(
                f"languages ('{self.languages}') must be two", hint="write source,target: zh,en"
            )
        if not re.fullmatch(r"[1-9]\d*,[1-9]\d*", self.columns):
            raise ConfigError(
                f"columns ('{self.columns}') must be two numbers from 1 on", hint="write 2,1"
            )

    def side(self, text: str) -> str:
        """A source or a target as the model is to see it."""
        return text.lower() if self.lowercase else text


@dataclass(frozen=True, eq=False)
class ParallelCorpus:
    """Pairs in two parts."""

    training: list[Pair]
    validation: list[Pair]

    @property
    def fingerprint(self) -> str:
        digest = sha256()
        for part in (self.training, self.validation):
            digest.update(len(part).to_bytes(8, "little"))
            for pair in part:
                digest.update(f"{pair.source}\t{pair.target}\n".encode())
        return digest.hexdigest()[:20]


def read_parallel_corpus(
    sources: Sequence[str | Path], val: Sequence[str | Path], config: PairConfig, report: Report
) -> ParallelCorpus:
    """Pairs from files two by two, source and target, or from single .tsv files."""
    pairs = _read(sources, config, report)
    if val:
        parts = ParallelCorpus(pairs, _read(val, config, report))
        known = {_key(pair.target) for pair in parts.training}
        both = sum(_key(pair.target) in known for pair in parts.validation)
        if both:
            n = len(parts.validation)
            report.notes.append(f"{both} of {n} validation pairs have a target that trains too")
        return parts
    training, validation = split_pairs(pairs, config.val_share)
    if not (training and validation):
        raise InputError(
            f"{len(pairs)} pairs are too few to hold out val_share ({config.val_share}) of them",
            hint="give more pairs, or name some to validate on with --val"
            if training
            else "leave some to train on: lower --val-share",
        )
    report.notes.append(
        f"{len(validation)} of {len(pairs)} pairs validate; none of their sentences trains"
    )
    return ParallelCorpus(training, validation)


def _read(files: Sequence[str | Path], config: PairConfig, report: Report) -> list[Pair]:
    first, second = (int(column) - 1 for column in config.columns.split(","))
    languages = config.languages.split(",") if config.languages else None
    return [
        Pair(config.side(pair.source), config.side(pair.target), pair.line, pair.name)
        for source, target in _grouped(files)
        for pair in read_pairs(
            source,
            target,
            languages=(languages[0], languages[1]) if languages else None,
            limit=config.max_chars,
            columns=(first, second),
            report=report,
        )
    ]


def _grouped(files: Sequence[str | Path]) -> list[tuple[str, str | None]]:
    """
    >>> _grouped(["a.de", "a.en", "b.tsv.xz"])
    [('a.de', 'a.en'), ('b.tsv.xz', None)]
    """
    names = [str(file) for file in files]
    if len(names) == 1:
        return [(names[0], None)]
    found: list[tuple[str, str | None]] = []
    for has_both, some in groupby(names, key=lambda name: ".tsv" in Path(name).suffixes[-2:]):
        run = list(some)
        if has_both:
            found += [(name, None) for name in run]
        elif len(run) % 2:
            raise InputError(
                f"{run[-1]} has no other side", hint="name source and target, or one .tsv"
            )
        else:
            found += zip(run[::2], run[1::2], strict=True)
    return found


def split_pairs(pairs: Sequence[Pair], share: float) -> tuple[list[Pair], list[Pair]]:
    """Training and validation, about `share` of the pairs, with no sentence in both.

    Pairs that share a source or a target, in whatever case, stay together. Which are held out
    depends on their text alone, not on their order.

    >>> pairs = [Pair(s, t, n) for n, (s, t) in enumerate(["ax", "bx", "by", "cz", "cz"], 1)]
    >>> [sorted(pair.line for pair in part) for part in split_pairs(pairs, 0.5)]
    [[1, 2, 3], [4, 5]]
    """
    parent: dict[tuple[str, str], tuple[str, str]] = {}

    def root(key: tuple[str, str]) -> tuple[str, str]:
        while (above := parent.setdefault(key, key)) != key:
            parent[key] = parent[above]
            key = above
        return key

    for pair in pairs:
        one, other = sorted((root(("s", _key(pair.source))), root(("t", _key(pair.target)))))
        parent[other] = one  # the first in the alphabet, whatever the order of the pairs
    groups: dict[tuple[str, str], list[int]] = {}
    for index, pair in enumerate(pairs):
        groups.setdefault(root(("t", _key(pair.target))), []).append(index)
    wanted, held = round(share * len(pairs)), set[int]()
    for _, group in sorted(
        groups.items(), key=lambda item: sha256(repr(item[0]).encode()).digest()
    ):
        if len(held) + len(group) <= wanted:
            held.update(group)
    return (
        [pair for index, pair in enumerate(pairs) if index not in held],
        [pair for index, pair in enumerate(pairs) if index in held],
    )


def _key(text: str) -> str:
    return " ".join(text.casefold().split())
