"""Work for several processes: a claim that trains many models may have more than one."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import wait
from typing import TypeVar

import torch

from glasshead.lab.claims.claim import Budget

__all__ = ["end_with_parent", "parted", "settled", "spread"]

Result = TypeVar("Result")


def spread(
    work: Callable[..., Result], items: Sequence[tuple[object, ...]], jobs: int
) -> Iterator[Result]:
    """`work(*item)` for each item, in order: in so many processes, or here if one is enough.

    `work` is a function of a module, and what it gives can be pickled.
    """
    if min(jobs, len(items)) < 2:
        yield from (work(*item) for item in items)
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(items)), spawn, _begin) as pool:
        yield from pool.map(work, *zip(*items, strict=True))


def parted(
    budget: Budget,
    work: Callable[..., Result],
    items: Sequence[tuple[object, ...]],
    weights: Sequence[float] | None = None,
) -> list[Result]:
    """`work(its budget, *item)` for each part of an experiment; a part's name is its first item.

    `weights` say which parts take longer: where there are several processes, those come first.
    """
    parts, done = list(enumerate(items)), 0.0
    weights = weights or [1.0] * len(items)
    share = [weight / sum(weights) for weight in weights]
    found: dict[int, Result] = {}

    def within(part: float, what: str) -> None:
        n, item = parts[len(found)]
        budget.progress(done + share[n] * part, f"{item[0]}, {what}")

    own = Budget(budget.quick, budget.seeds)
    if min(budget.jobs, len(items)) < 2:
        own = replace(own, progress=within)  # which cannot go to another process
    else:
        parts.sort(key=lambda part: -share[part[0]])
        budget.progress(0.0, f"{parts[0][1][0]}")
    results = spread(work, [(own, *item) for _, item in parts], budget.jobs)
    for (n, item), result in zip(parts, results, strict=True):
        found[n], done = result, done + share[n]
        budget.progress(done, f"{item[0]}")
    return [found[n] for n in range(len(items))]


def _begin() -> None:
    """Numbers are to come out as they do in a process that works alone."""
    end_with_parent()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)


def end_with_parent() -> None:
    """No process outlives the one that started it, however that one ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it ends it
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def settled(threads: int) -> Iterator[None]:
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
