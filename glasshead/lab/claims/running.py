"""Claims are run, one after the other or side by side, and each is kept as soon as it is known."""

import json
import multiprocessing
import queue
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from glasshead.lab.claims import load_claim
from glasshead.lab.claims.claim import Budget, result_seeds
from glasshead.lab.claims.drawing import render
from glasshead.lab.claims.store import Stored, code_of, here, read, write

__all__ = ["Plan", "expected_seconds", "run", "serves"]

# Seconds on one core of a quiet machine (quick, full): only for telling the time left.
EXPECTED: dict[int, tuple[float, float]] = {
    1: (1, 3), 2: (1, 3), 3: (2, 5), 4: (1, 1), 5: (80, 480), 7: (20, 70), 9: (15, 40),
    11: (65, 360), 12: (5, 15), 13: (1, 1), 14: (7, 41), 19: (15, 100),
}  # fmt: skip
USUAL = (40.0, 190.0)
# These look at the same readers, which a process trains once.
SHARED = (5, 9, 12)
# These measure time: nothing runs beside them, and they may use every core.
TIMED = frozenset({8, 14})

Progress = Callable[[int, float, str], object]  # (claim, done from 0 to 1, what)


@dataclass(frozen=True)
class Plan:
    """How the claims are to be run; `seeds` None is what the budget says, 3 or 5."""

    folder: Path
    quick: bool = False
    seeds: int | None = None
    jobs: int = 1
    again: bool = False

    def budget(self, progress: Callable[[float, str], object] = lambda done, what: None) -> Budget:
        usual = Budget.of(self.quick, progress)
        return (
            usual if self.seeds is None else Budget(self.quick, result_seeds(self.seeds), progress)
        )


def serves(stored: Stored, plan: Plan) -> bool:
    """Whether a stored result is as good as a new one: same code, same seeds or more."""
    if plan.again or not stored.is_current:
        return False
    wanted = plan.budget().seeds
    # A full result says all that a quick one would.
    return (plan.quick or not stored.quick) and set(wanted) <= set(stored.seeds)


def expected_seconds(number: int, plan: Plan) -> float:
    return EXPECTED.get(number, USUAL)[0 if plan.quick else 1]


def run(
    numbers: Sequence[int], plan: Plan, progress: Progress = lambda number, done, what: None
) -> Iterator[tuple[Stored, bool]]:
    """Results as they come, and whether each is new. Those that need not run come first."""
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
    if plan.jobs > 1 and len(rest) > 1:
        yield from _side_by_side(_units(rest, plan), plan, progress)
    else:
        for number in sorted(rest):
            yield run_one(number, plan, progress, threads=1), True
    for number in timed:
        yield run_one(number, plan, progress, threads=torch.get_num_threads()), True


def run_one(number: int, plan: Plan, progress: Progress, threads: int) -> Stored:
    """Measure, judge, draw and keep one claim, in this process."""
    claim, code = load_claim(number), code_of(number)
    budget = plan.budget(lambda done, what: progress(number, done, what))
    started = time.perf_counter()
    with _settled(threads):
        # As it will be read: what is judged now and what is judged later is the same.
        evidence = json.loads(json.dumps(claim.measure(budget)))
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


@contextmanager
def _settled(threads: int) -> Iterator[None]:
    """A fixed number of threads, and no subnormal numbers, which are slow and mean nothing."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    try:
        with torch.random.fork_rng([]):
            torch.manual_seed(0)
            yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(before)


def _units(numbers: Sequence[int], plan: Plan) -> list[list[int]]:
    """What one process does in a row; the longest first, or one of them ends up alone.

    >>> _units([1, 5, 6, 9, 12], Plan(Path("runs"), quick=True))
    [[5, 9, 12], [6], [1]]
    """
    together = [number for number in numbers if number in SHARED]
    units = [together] if together else []
    units += [[number] for number in numbers if number not in SHARED]
    return sorted(units, key=lambda unit: -sum(expected_seconds(n, plan) for n in unit))


def _side_by_side(
    units: Sequence[list[int]], plan: Plan, progress: Progress
) -> Iterator[tuple[Stored, bool]]:
    """`jobs` processes, each of which takes the next unit that is waiting."""
    context: Any = multiprocessing.get_context("spawn")
    waiting, news = context.Queue(), context.Queue()
    workers = [
        context.Process(target=_work, args=(plan, waiting, news), daemon=True)
        for _ in range(min(plan.jobs, len(units)))
    ]
    for unit in [*units, *[None] * len(workers)]:
        waiting.put(unit)
    try:
        for worker in workers:
            worker.start()
        left = {number for unit in units for number in unit}
        while left:
            number, done, what = _next(news, workers, left)
            if done is not None:
                progress(number, done, what)
                continue
            if what:
                raise RuntimeError(f"claim {number} could not be measured:\n{what}")
            left.remove(number)
            stored = read(plan.folder, number)
            assert stored is not None
            yield stored, True
    finally:
        for worker in workers:
            worker.terminate()


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


def _work(plan: Plan, waiting: Any, news: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it ends it
    while (unit := waiting.get()) is not None:
        for number in unit:
            said = ""
            try:
                run_one(number, plan, lambda *message: news.put(message), threads=1)
            except BaseException:
                said = traceback.format_exc()
            news.put((number, None, said))
