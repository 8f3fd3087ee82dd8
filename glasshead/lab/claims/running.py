"""Measure claims, one after the other or side by side, and store each as soon as it is known."""

import math
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch

from glasshead.errors import InputError
from glasshead.lab.claims import load_claim
from glasshead.lab.claims.claim import Budget, result_seeds
from glasshead.lab.claims.drawing import render
from glasshead.lab.claims.store import (
    StoredResult,
    code_hash,
    machine_facts,
    read_result,
    through_json,
    write_result,
)
from glasshead.lab.processes import WorkerDiedError, fixed_threads, run_workers
from glasshead.lab.texts import LANGUAGES

__all__ = ["ClaimsPlan", "expected_seconds", "measure_claims", "suffices"]

# Seconds on one core of a quiet machine (quick, full): only for estimating the time left.
EXPECTED: dict[int, tuple[float, float]] = {
    1: (1, 5), 2: (1, 2), 3: (1, 8), 4: (1, 1), 5: (60, 540), 6: (23, 430), 7: (15, 140),
    8: (7, 50), 9: (10, 290), 10: (57, 400), 11: (40, 400), 12: (3, 15), 13: (1, 1), 14: (4, 41),
    15: (44, 620), 16: (15, 450), 17: (37, 290), 18: (53, 510), 19: (10, 210), 20: (40, 330),
    21: (1, 5), 22: (5, 30), 23: (10, 60), 24: (30, 280), 25: (50, 550),
}  # fmt: skip
# These use the same models, which a process trains once.
SHARED = ((5, 9, 12), (20, 21, 22, 23, 24))
# These measure time: nothing runs beside them, and they may use every core.
TIMED = frozenset({8, 14})
# These have parts that do not depend on each other: the number of processes that they can use.
PARTS = {5: 8, 6: 3, 9: 8, 10: 2, 11: 8, 12: 5, 17: 2}

Progress = Callable[[int, float, str], object]  # (claim, done from 0 to 1, what)


@dataclass(frozen=True)
class ClaimsPlan:
    """How to measure the claims; with `seeds` None as many as usual, 3 or 5.

    `seed_list` are the seeds themselves, instead of a number of them, and `search` those with which
    rates are chosen.
    """

    folder: Path
    quick: bool = False
    seeds: int | None = None
    jobs: int = 1
    again: bool = False
    seed_list: tuple[int, ...] = ()
    search: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        budget = self.budget()
        shared = sorted(set(budget.seeds) & set(budget.search_seeds))
        if shared:
            raise InputError(
                f"seed {shared[0]} is both for results and for choosing rates",
                hint=f"choose others than {', '.join(map(str, budget.search_seeds))}",
            )

    def budget(
        self, progress: Callable[[float, str], object] = lambda done, what: None, jobs: int = 1
    ) -> Budget:
        seeds = self.seed_list or result_seeds(self.seeds or (3 if self.quick else 5))
        return Budget(self.quick, seeds, progress, jobs, self.search)


def suffices(result: StoredResult, plan: ClaimsPlan) -> bool:
    """Return whether a stored result is as good as a new one: same code, same seeds or more."""
    if plan.again or not result.is_current:
        return False
    wanted = plan.budget().seeds
    if plan.search and plan.search != result.search_seeds:
        return False
    # A full result says all that a quick one would.
    return (plan.quick or not result.quick) and set(wanted) <= set(result.seeds)


def expected_seconds(number: int, plan: ClaimsPlan) -> float:
    return EXPECTED[number][0 if plan.quick else 1]


def measure_claims(
    numbers: Sequence[int], plan: ClaimsPlan, progress: Progress = lambda number, done, what: None
) -> Iterator[tuple[StoredResult, bool]]:
    """Yield results as they come, and whether each is new. Stored ones that suffice come first.

    Raises:
        RuntimeError: a claim in a process of its own failed; raised after all others are done.
    """
    todo = []
    for number in numbers:
        stored = read_result(plan.folder, number)
        if stored is not None and suffices(stored, plan):
            yield stored, False
        else:
            todo.append(number)
    plan.folder.mkdir(parents=True, exist_ok=True)
    timed = [number for number in todo if number in TIMED]
    rest = [number for number in todo if number not in TIMED]
    failed: dict[int, str] = {}
    if plan.jobs > 1 and (len(rest) > 1 or set(rest) & set(PARTS)):
        yield from _side_by_side(_units(rest, plan), plan, progress, failed)
    else:
        for number in sorted(rest):
            yield measure_claim(number, plan, progress, threads=1), True
    for number in timed:
        yield measure_claim(number, plan, progress, threads=torch.get_num_threads()), True
    if failed:
        each = (f"claim {number} could not be measured:\n{what}" for number, what in failed.items())
        raise RuntimeError("\n".join(each))


def measure_claim(
    number: int, plan: ClaimsPlan, progress: Progress, threads: int, jobs: int = 1
) -> StoredResult:
    """Measure, judge, draw and store one claim, in this process and up to `jobs` that it starts."""
    claim, code = load_claim(number), code_hash(number)
    budget = plan.budget(lambda done, what: progress(number, done, what), jobs)
    started = time.perf_counter()
    with fixed_threads(threads):
        # Through JSON, so that the verdict now is that of the stored evidence later.
        evidence = through_json(claim.measure(budget), f"the evidence of claim {number}")
        finding = claim.judge(evidence)
    versions, machine = machine_facts(threads)
    result = StoredResult(
        number=number,
        quick=plan.quick,
        seeds=budget.seeds,
        search_seeds=budget.search_seeds,
        evidence=evidence,
        finding=finding,
        code=code,
        seconds=round(time.perf_counter() - started, 2),
        when=datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        versions=versions,
        machine=machine,
    )
    write_result(plan.folder, result, {lang: render(claim, evidence, lang) for lang in LANGUAGES})
    progress(number, 1.0, "")
    return result


def _units(numbers: Sequence[int], plan: ClaimsPlan) -> list[list[int]]:
    """Return what one process does in a row; the longest first, so that none ends up alone.

    >>> _units([1, 5, 6, 9, 12], ClaimsPlan(Path("runs"), quick=True))
    [[5, 9, 12], [6], [1]]
    """
    groups = [[number for number in numbers if number in group] for group in SHARED]
    shared = [number for group in groups for number in group]
    units = [group for group in groups if group]
    units += [[number] for number in numbers if number not in shared]
    return sorted(units, key=lambda unit: -sum(expected_seconds(n, plan) for n in unit))


def _shares(units: Sequence[list[int]], plan: ClaimsPlan) -> list[int]:
    """Return how many processes each unit may use, so that the longest ones end with the others.

    >>> _shares([[5, 9, 12], [11], [6], [16]], ClaimsPlan(Path("runs"), jobs=8))
    [4, 2, 2, 1]
    """
    seconds = [sum(expected_seconds(n, plan) for n in unit) for unit in units]
    fair = sum(seconds) / plan.jobs
    return [
        min(math.ceil(some / fair), max(PARTS.get(number, 1) for number in unit))
        for unit, some in zip(units, seconds, strict=True)
    ]


def _side_by_side(
    units: Sequence[list[int]], plan: ClaimsPlan, progress: Progress, failed: dict[int, str]
) -> Iterator[tuple[StoredResult, bool]]:
    shares = _shares(units, plan)
    free = plan.jobs - sum(share - 1 for share in shares)
    items = [(unit, share, plan) for unit, share in zip(units, shares, strict=True)]
    left = {number for unit in units for number in unit}
    try:
        for number, done, what in run_workers(_measure_unit, items, max(1, min(free, len(units)))):
            if done is not None:
                progress(number, done, what)
                continue
            left.remove(number)
            if what:
                failed[number] = what
            else:
                stored = read_result(plan.folder, number)
                assert stored is not None
                yield stored, True
    except WorkerDiedError as error:
        raise RuntimeError(f"{error}; not measured: {left}") from None


def _measure_unit(
    send: Callable[[object], None], unit: Sequence[int], jobs: int, plan: ClaimsPlan
) -> None:
    """Measure the claims of a unit; send (number, done, what), at the end (number, None, error)."""
    for number in unit:
        error = ""
        try:
            measure_claim(number, plan, lambda *message: send(message), threads=1, jobs=jobs)
        except BaseException:
            error = traceback.format_exc()
        send((number, None, error))
