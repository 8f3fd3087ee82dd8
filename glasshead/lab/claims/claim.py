"""What a claim is: a sentence, an experiment, and what was agreed beforehand to count."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from glasshead.lab.claims.stats import Interval
from glasshead.lab.claims.verdict import CANNOT_TELL, HOLDS_WHEN, UNSURE, VERDICTS, Verdict
from glasshead.lab.texts import Words

__all__ = [
    "OTHER_SEARCH_SEEDS",
    "SEARCH_SEEDS",
    "Budget",
    "Claim",
    "Evidence",
    "Finding",
    "Numbers",
    "result_seeds",
]

# For choosing learning rates: every side of a comparison gets these and no result is measured with
# them. A quick run takes the first only. The others are for choosing the rates a second time.
SEARCH_SEEDS = (1009, 1013, 1019)
OTHER_SEARCH_SEEDS = (2003, 2011, 2017)


def result_seeds(n: int) -> tuple[int, ...]:
    """Return `n` seeds for results. Designs were tried with seeds 0 to 9, so these are others.

    >>> result_seeds(3)
    (11, 12, 13)
    """
    return tuple(range(11, 11 + n))


def _no_progress(done: float, what: str) -> None:
    pass


@dataclass(frozen=True)
class Budget:
    """How much an experiment may spend. `progress(done, what)`: done goes from 0 to 1.

    `jobs` is how many processes it may use; most claims need one. `search` are the seeds with which
    rates are chosen, if not the usual ones.
    """

    quick: bool
    seeds: tuple[int, ...]
    progress: Callable[[float, str], object] = _no_progress
    jobs: int = 1
    search: tuple[int, ...] = ()

    @property
    def search_seeds(self) -> tuple[int, ...]:
        """Return the seeds with which rates are chosen; one if this is quick, else three.

        >>> Budget(quick=True, seeds=(11, 12)).search_seeds
        (1009,)
        """
        return self.search or SEARCH_SEEDS[: 1 if self.quick else None]

    def step_counter(self, total: int, share: float) -> Callable[[int, str], None]:
        """Return a function that adds steps to those done and reports them as part of `share`."""
        done = 0

        def add(steps: int, what: str) -> None:
            nonlocal done
            done += steps
            self.progress(share * done / max(1, total), what)

        return add

    def part(self, start: float, share: float, prefix: str = "") -> "Budget":
        """Return the budget of one part, which takes this share of the progress from `start` on."""

        def report(done: float, what: str) -> None:
            self.progress(start + share * done, prefix + what)

        return replace(self, progress=report, jobs=1)


# What was measured: lists of numbers per seed and condition, and what was fixed (sizes, steps, the
# rates chosen). It is stored as JSON, so keys are strings and sequences are lists.
Evidence = dict[str, Any]
Numbers = dict[str, Interval | float]


@dataclass(frozen=True)
class Finding:
    """`words` states the result with its numbers, and under which condition it holds, if any.

    `when` is that condition in at most twelve words, for tables: "holds only when {when}". It is
    used where that is the verdict. `why`, as short, says why one cannot tell where that is the
    verdict: which side did not learn its task, or, if it is empty, that the intervals do not tell.
    """

    verdict: Verdict
    words: Words
    numbers: Mapping[str, Interval | float]
    when: Words = Words("", "")  # noqa: RUF009, it is frozen
    why: Words = Words("", "")  # noqa: RUF009

    @property
    def label(self) -> Words:
        """The verdict as tables show it, with its condition or reason."""
        if self.verdict is Verdict.UNCLEAR:
            return CANNOT_TELL.format(why=self.why or UNSURE)
        known = self.verdict is Verdict.HOLDS_WHEN and self.when
        return HOLDS_WHEN.format(when=self.when) if known else VERDICTS[self.verdict]


Measure = Callable[[Budget], Evidence]
Judge = Callable[[Evidence], Finding]
Draw = Callable[[Evidence, Any, Mapping[str, str]], None]


@dataclass(frozen=True)
class Claim:
    """An experiment and its texts, which are in the TOML file beside its module.

    `measure` collects numbers; `judge` turns them into a verdict and uses nothing else. The
    thresholds in `counts_for` and `counts_against` are constants that are fixed before the run that
    is reported. `tried` has a date for whatever was changed after a look at earlier results.

    `measure` may take keywords beside the budget, with the honest choice as default: a test uses
    them to make the claim false on purpose and checks that the verdict changes.

    `draw(evidence, figure, say)` fills an empty matplotlib Figure of 7.2 × 3.6 inches (it may call
    `figure.set_size_inches`); `say` has the claim's texts in the figure's language, `say["lang"]`.
    Fonts are set; `glasshead.lab.claims.drawing` has colours and axes.
    """

    number: int
    measure: Measure
    judge: Judge
    draw: Draw
    texts: Mapping[str, Words]
    title: Words  # a few words
    claim: Words  # what the documents say, in one sentence
    source: Words  # which documents: "000, 004"
    how: Words  # what is done: what changes, what stays equal, which controls
    counts_for: Words  # which results support it, with numbers
    counts_against: Words  # which results refute it, with numbers
    tried: Words | None = None  # what was changed after a look at results, and when
    correction: Words | None = None  # where a document is wrong about this: the correct form
    attack: Words | None = None  # what was tried to make it come out the other way

    @classmethod
    def of(
        cls,
        number: int,
        texts: Mapping[str, Words],
        measure: Measure,
        judge: Judge,
        draw: Draw,
        **values: object,
    ) -> "Claim":
        """Make a claim whose description is filled in with these values, such as thresholds."""
        names = ("title", "claim", "source", "how", "counts_for", "counts_against")
        optional = [name for name in ("tried", "correction", "attack") if name in texts]
        described = {name: texts[name].format(**values) for name in (*names, *optional)}
        return cls(number, measure, judge, draw, texts, **described)
