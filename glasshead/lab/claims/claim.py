"""What a claim is: a sentence, an experiment, and what was agreed beforehand to count."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from glasshead.lab.claims.stats import Interval

__all__ = [
    "SEARCH_SEEDS",
    "VERDICTS",
    "Budget",
    "Claim",
    "Evidence",
    "Finding",
    "Verdict",
    "Words",
    "exactly",
    "result_seeds",
]

# Seeds for choosing a learning rate; no result is ever measured with one of them.
SEARCH_SEEDS = (1009, 1013, 1019)


@dataclass(frozen=True)
class Words:
    """The same text in two languages. `words["zh"]` picks one."""

    en: str
    zh: str

    def __getitem__(self, lang: str) -> str:
        return self.zh if lang == "zh" else self.en


class Verdict(StrEnum):
    HOLDS = "holds"
    HOLDS_WHEN = "holds only when"
    FAILS = "does not hold"
    UNCLEAR = "cannot tell"


VERDICTS = {
    Verdict.HOLDS: Words("holds", "成立"),
    Verdict.HOLDS_WHEN: Words("holds only when …", "仅在……时成立"),
    Verdict.FAILS: Words("does not hold", "不成立"),
    Verdict.UNCLEAR: Words("cannot tell", "无法判断"),
}


def exactly(value: float) -> Words:
    """A number that is nothing or next to nothing, in words.

    >>> exactly(0.0).en, exactly(3e-8).en
    ('exactly 0', '3e-08')
    """
    return Words(f"{value:.0e}", f"{value:.0e}") if value else Words("exactly 0", "恰好 0")


def result_seeds(n: int) -> tuple[int, ...]:
    """Designs were tried with seeds 0 to 9; results come from others.

    >>> result_seeds(3)
    (11, 12, 13)
    """
    return tuple(range(11, 11 + n))


def _no_progress(done: float, what: str) -> None:
    pass


@dataclass(frozen=True)
class Budget:
    """How much an experiment may spend. `progress(done, what)`: done goes from 0 to 1.

    `jobs` is how many processes it may have; most claims need one.
    """

    quick: bool
    seeds: tuple[int, ...]
    progress: Callable[[float, str], object] = _no_progress
    jobs: int = 1

    @classmethod
    def of(cls, quick: bool, progress: Callable[[float, str], object] = _no_progress) -> "Budget":
        return cls(quick, result_seeds(3 if quick else 5), progress)


# What was measured: lists of numbers per seed and condition, and what was fixed (sizes, steps, the
# rates chosen). JSON holds it as it is, so keys are strings and sequences are lists.
Evidence = dict[str, Any]


@dataclass(frozen=True)
class Finding:
    """`words` says what came out, with the numbers, and when, if it "holds only when"."""

    verdict: Verdict
    words: Words
    numbers: Mapping[str, Interval | float]


@dataclass(frozen=True)
class Claim:
    """`measure` gathers numbers, `judge` turns them into a verdict and looks at nothing else. The
    thresholds in `for_` and `against` stand in the code before anything runs.

    `measure` may take keywords beside the budget, with the honest choice as default: a test uses
    them to make the claim false on purpose and sees the verdict change.

    `draw(evidence, figure, lang)` fills an empty matplotlib Figure, 7.2 × 3.6 inches (it may call
    `figure.set_size_inches`); fonts are set, `glasshead.lab.claims.drawing` has colours and axes.
    """

    number: int
    title: Words  # a few words
    claim: Words  # what the documents say, in one sentence
    source: str  # which documents: "000, 004"
    how: Words  # what is done: what changes, what is held equal, which controls
    for_: Words  # what would count for it, with numbers
    against: Words  # what would count against it, with numbers
    measure: Callable[[Budget], Evidence]
    judge: Callable[[Evidence], Finding]
    draw: Callable[[Evidence, Any, str], None]
    tried: Words | None = None  # designs before this one, and why they were left
    correction: Words | None = None  # where a document errs on this: the correct form, politely
