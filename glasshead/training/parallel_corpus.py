"""Pairs of sentences for training: read, and split so that no sentence is on both sides."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import groupby
from pathlib import Path

from glasshead.errors import ConfigError, InputError, check_range
from glasshead.text.pairs import Pair, read_pairs
from glasshead.text.sources import Report

__all__ = ["PairConfig", "ParallelCorpus", "read_parallel_corpus", "split_pairs"]


@dataclass(frozen=True)
class PairConfig:
    """How pairs are read and trained on. Every field is a flag of `glasshead train --pairs`."""

    max_tokens: int = 4096  # per batch: pairs times the longer side, with padding
    val_share: float = 0.05  # share of the pairs to validate on, without --val
    eval_pairs: int = 1000  # validation pairs per evaluation, at most
    columns: str = "1,2"  # of source and target in a .tsv
    languages: str | None = None  # such as zh,en: report pairs that look wrong
    max_chars: int = 1000  # skip longer lines
    lowercase: bool = False  # train and translate in lowercase
    bpe_dropout: float = 0.0  # probability to split words at random, such as 0.1
    label_smoothing: float = 0.0  # share of the target probability for all other tokens
    rdrop: float = 0.0  # weight of R-Drop's loss, such as 5

    def __post_init__(self) -> None:
        check_range(self, "max_tokens eval_pairs max_chars", least=1)
        check_range(self, "bpe_dropout label_smoothing", least=0, below=1)
        check_range(self, "val_share", above=0, below=1)
        check_range(self, "rdrop", least=0, below=math.inf)
        if self.languages is not None and not re.fullmatch(r"[\w-]+,[\w-]+", self.languages):
            raise ConfigError(
                f"languages ('{self.languages}') must be a source and a target",
                hint="for example --languages zh,en",
            )
        if not re.fullmatch(r"[1-9]\d*,[1-9]\d*", self.columns):
            raise ConfigError(
                f"columns ('{self.columns}') must be two numbers, counted from 1",
                hint="for example --columns 2,1",
            )


@dataclass(frozen=True, eq=False)
class ParallelCorpus:
    """Pairs of sentences, in two parts."""

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
    """Read pairs from files two by two, source and target, or from single .tsv files.

    Without `val`, hold out `val_share` of the sources.
    """
    pairs = _read_files(sources, config, report)
    if val:
        validation = _read_files(val, config, report)
        known = {_normalize(pair.target) for pair in pairs}
        both = sum(_normalize(pair.target) in known for pair in validation)
        if both:
            report.notes.append(
                f"{both} of {len(validation)} validation pairs have a target that is also in the "
                "training pairs"
            )
        return ParallelCorpus(pairs, validation)
    training, validation = split_pairs(pairs, config.val_share)
    if not (training and validation):
        raise InputError(
            f"{len(pairs)} pairs are too few to hold out val_share ({config.val_share}) of them",
            hint="give more pairs, or others to validate on: --val SRC TGT"
            if training
            else "none is left to train on: lower --val-share",
        )
    report.notes.append(
        f"{len(validation)} of {len(pairs)} pairs are held out for validation; "
        "they share no sentence with the training pairs"
    )
    return ParallelCorpus(training, validation)


def _read_files(files: Sequence[str | Path], config: PairConfig, report: Report) -> list[Pair]:
    first, second = (int(column) - 1 for column in config.columns.split(","))
    languages = config.languages.split(",") if config.languages else None
    return [
        replace(pair, source=pair.source.lower(), target=pair.target.lower())
        if config.lowercase
        else pair
        for source, target in _match_files(files)
        for pair in read_pairs(
            source,
            target,
            languages=(languages[0], languages[1]) if languages else None,
            limit=config.max_chars,
            columns=(first, second),
            report=report,
        )
    ]


def _match_files(files: Sequence[str | Path]) -> list[tuple[str, str | None]]:
    """
    >>> _match_files(["a.de", "a.en", "b.tsv.xz"])
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
                f"{run[-1]} is a source without a target",
                hint="name two files, source and target, or one .tsv",
            )
        else:
            found += zip(run[::2], run[1::2], strict=True)
    return found


def split_pairs(pairs: Sequence[Pair], share: float) -> tuple[list[Pair], list[Pair]]:
    """Split into training pairs and about `share` of them to validate on, with no sentence in both.

    Pairs that share a source or a target, ignoring case, stay together. Which are held out depends
    on their text alone, not on their order.

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
        one, other = sorted(
            (root(("s", _normalize(pair.source))), root(("t", _normalize(pair.target))))
        )
        parent[other] = one  # the first in the alphabet, whatever the order of the pairs
    groups: dict[tuple[str, str], list[int]] = {}
    for index, pair in enumerate(pairs):
        groups.setdefault(root(("t", _normalize(pair.target))), []).append(index)
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


def _normalize(text: str) -> str:
    return " ".join(text.casefold().split())
