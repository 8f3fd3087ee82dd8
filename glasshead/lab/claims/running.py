"""Claims are run, one after the other or side by side, and each is kept as soon as it is known."""

import math
import multiprocessing
import queue
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from glasshead.lab.claims import load_claim
from glasshead.lab.claims.claim import Budget, result_seeds
from glasshead.lab.claims.drawing import render
from glasshead.lab.claims.spread import end_with_parent, settled
from glasshead.lab.claims.store import Stored, as_stored, code_of, here, read, write

__all__ = ["ClaimsPlan", "expected_seconds", "run", "serves"]

# Seconds on one core of a quiet machine (quick, full): only for telling the time left.
EXPECTED: dict[int, tuple[float, float]] = {
    1: (1, 5), 2: (1, 2), 3: (1, 8), 4: (1, 1), 5: (60, 540), 6: (23, 430), 7: (15, 140),
    8: (7, 50), 9: (10, 290), 10: (57, 400), 11: (40, 400), 12: (3, 15), 13: (1, 1), 14: (4, 41),
    15: (44, 620), 16: (15, 450), 17: (37, 290), 18: (53, 510), 19: (10, 210),
}  # fmt: skip
# These look at the same readers, which a process trains once.
SHARED = (5, 9, 12)
# These measure time: nothing runs beside them, and they may use every core.
TIMED = frozenset({8, 14})
# These have parts that do not depend on each other: how many processes they can have in all.
PARTS = {5: 8, 6: 3, 9: 8, 10: 2, 11: 8, 12: 5, 17: 2}

Progress = Callable[[int, float, str], object]  # (claim, done from 0 to 1, what)


@dataclass(frozen=True)
class ClaimsPlan:
    """How the claims are to be run; `seeds` None is what the budget says, 3 or 5."""

    folder: Path
    quick: bool = False
    seeds: int | None = None
    jobs: int = 1
    again: bool = False

    def budget(
        self, progress: Callable[[float, str], object] = lambda done, what: None, jobs: int = 1
    ) -> Budget:
        usual = replace(Budget.of(self.quick, progress), jobs=jobs)
        return usual if self.seeds is None else replace(usual, seeds=result_seeds(self.seeds))


def serves(stored: Stored, plan: ClaimsPlan) -> bool:
    """Whether a stored result is as good as a new one: same code, same seeds or more."""
    if plan.again or not stored.is_current:
        return False
    wanted = plan.budget().seeds
    # A full result says all that a quick one would.
    return (plan.quick or not stored.quick) and set(wanted) <= set(stored.seeds)


def expected_seconds(number: int, plan: ClaimsPlan) -> float:
    return EXPECTED[number][0 if plan.quick else 1]


def run(
    numbers: Sequence[int], plan: ClaimsPlan, progress: Progress = lambda number, done, what: None
) -> Iterator[tuple[Stored, bool]]:
    """Results as they come, and whether each is new. Those that need not run come first.

    A claim that breaks in a process of its own stops no other; it is told in the end.
    """
    todo = []
    for number in numbers:
        stored = read(plan.folder, number)
        if stored is not None and serves(stored, plan):
            yield stored, False
        else:
            todo.append(number)
    plan.folder.mkdir(parents=True, exist_ok=True)
    timed = [number for number in todo if number in TIMED]
    rest = [number for number in todo if number not in TIMED]
    broken: dict[int, str] = {}
    if plan.jobs > 1 and (len(rest) > 1 or set(rest) & set(PARTS)):
        yield from _side_by_side(_units(rest, plan), plan, progress, broken)
    else:
        for number in sorted(rest):
            yield run_one(number, plan, progress, threads=1), True
    for number in timed:
        yield run_one(number, plan, progress, threads=torch.get_num_threads()), True
    if broken:
        told = (f"claim {number} could not be measured:\n{what}" for number, what in broken.items())
        raise RuntimeError("\n".join(told))


def run_one(
    number: int, plan: ClaimsPlan, progress: Progress, threads: int, jobs: int = 1
) -> Stored:
    """Measure, judge, draw and keep one claim, in this process and in so many that it may start."""
    claim, code = load_claim(number), code_of(number)
    budget = plan.budget(lambda done, what: progress(number, done, what), jobs)
    started = time.perf_counter()
    with settled(threads):
        # As it will be read: what is judged now and what is judged later is the same.
        evidence = as_stored(claim.measure(budget), f"the evidence of claim {number}")
        finding = claim.judge(evidence)
    versions, machine = here(threads)
    stored = Stored(
        number=number,
        quick=plan.quick,
        seeds=budget.seeds,
        evidence=evidence,
        finding=finding,
        code=code,
        seconds=round(time.perf_counter() - started, 2),
        when=datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        versions=versions,
        machine=machine,
    )
    write(plan.folder, stored, {lang: render(claim, evidence, lang) for lang in ("en", "zh")})
    progress(number, 1.0, "")
    return stored


def _units(numbers: Sequence[int], plan: ClaimsPlan) -> list[list[int]]:
    """What one process does in a row; the longest first, or one of them ends up alone.

    >>> _units([1, 5, 6, 9, 12], ClaimsPlan(Path("runs"), quick=True))
    [[5, 9, 12], [6], [1]]
    """
    together = [number for number in numbers if number in SHARED]
    units = [together] if together else []
    units += [[number] for number in numbers if number not in SHARED]
    return sorted(units, key=lambda unit: -sum(expected_seconds(n, plan) for n in unit))


def _shares(units: Sequence[list[int]], plan: ClaimsPlan) -> list[int]:
    """How many processes each unit may start, so that no long one keeps all others waiting.

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
    units: Sequence[list[int]], plan: ClaimsPlan, progress: Progress, broken: dict[int, str]
) -> Iterator[tuple[Stored, bool]]:
    """`jobs` processes; of those that take units, each takes the next that is waiting."""
    context: Any = multiprocessing.get_context("spawn")
    waiting, news = context.Queue(), context.Queue()
    shares = _shares(units, plan)
    n = plan.jobs - sum(share - 1 for share in shares)
    workers = [
        context.Process(target=_work, args=(plan, waiting, news))
        for _ in range(max(1, min(n, len(units))))
    ]
    for item in [*zip(units, shares, strict=True), *[None] * len(workers)]:
        waiting.put(item)
    try:
        for worker in workers:
            worker.start()
        left = {number for unit in units for number in unit}
        while left:
            number, done, what = _next(news, workers, left)
            if done is not None:
                progress(number, done, what)
                continue
            left.remove(number)
            if what:
                broken[number] = what
                continue
            stored = read(plan.folder, number)
            assert stored is not None
            yield stored, True
    finally:
        waiting.cancel_join_thread()
        for worker in workers:
            if worker.pid is not None:
                worker.kill()  # and what it has started ends with it
                worker.join()


def _next(news: Any, workers: Sequence[Any], left: set[int]) -> tuple[int, float | None, str]:
    while True:
        with suppress(queue.Empty):
            message: tuple[int, float | None, str] = news.get(timeout=0.5)
            return message
        for worker in workers:
            if worker.exitcode:  # died without a word: out of memory, a signal
                raise RuntimeError(
                    f"a process ended with exit code {worker.exitcode}; not measured: {left}"
                )


def _work(plan: ClaimsPlan, waiting: Any, news: Any) -> None:
    end_with_parent()
    while (item := waiting.get()) is not None:
        unit, jobs = item
        for number in unit:
            said = ""
            try:
                run_one(number, plan, lambda *message: news.put(message), threads=1, jobs=jobs)
            except BaseException:
                said = traceback.format_exc()
            news.put((number, None, said))
