"""Work in several spawned processes, none of which outlives the one that started it."""

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import Any, TypeVar

import torch

__all__ = ["WorkerDiedError", "fixed_threads", "map_processes", "run_workers"]

Result = TypeVar("Result")


class WorkerDiedError(Exception):
    """A process ended before its work was done: out of memory, or killed by a signal."""

    def __init__(self, item: Any, exit_code: int) -> None:
        super().__init__(f"a process ended with exit code {exit_code}")
        self.item = item  # what it worked on, None if it had not begun
        self.exit_code = exit_code


def map_processes(
    work: Callable[..., Result], items: Sequence[tuple[object, ...]], jobs: int
) -> Iterator[Result]:
    """Yield `work(*item)` for each item, in order, from up to `jobs` processes.

    One job needs no process. `work` is a function of a module, and its results can be pickled.
    """
    if min(jobs, len(items)) < 2:
        yield from (work(*item) for item in items)
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(items)), spawn, _begin) as pool:
        yield from pool.map(work, *zip(*items, strict=True))


def run_workers(
    work: Callable[..., object], items: Sequence[tuple[Any, ...]], n_workers: int
) -> Iterator[Any]:
    """Call `work(send, *item)` for each item in `n_workers` processes; yield all that they send.

    Raises:
        WorkerDiedError: a process ended before its work was done.
    """
    # Spawned, not forked: a copy of a process with running threads can hang.
    context: Any = multiprocessing.get_context("spawn")
    waiting, messages = context.Queue(), context.Queue()
    workers = [
        context.Process(target=_work_on, args=(work, waiting, messages)) for _ in range(n_workers)
    ]
    for item in [*items, *[None] * n_workers]:
        waiting.put(item)
    current: dict[int, Any] = {}  # what each process works on
    left = len(items)
    try:
        for worker in workers:
            worker.start()
        while left:
            try:
                pid, kind, value = messages.get(timeout=0.5)
            except queue.Empty:
                for worker in workers:
                    if worker.exitcode:
                        raise WorkerDiedError(current.get(worker.pid), worker.exitcode) from None
                continue
            if kind == "sent":
                yield value
            elif kind == "began":
                current[pid] = value
            else:
                left -= 1
    finally:
        waiting.cancel_join_thread()
        for worker in workers:
            if worker.pid is not None:
                worker.kill()  # and what it has started ends with it
                worker.join()


def _work_on(work: Callable[..., object], waiting: Any, messages: Any) -> None:
    _end_with_parent()
    pid = os.getpid()

    def send(message: object) -> None:
        messages.put((pid, "sent", message))

    while (item := waiting.get()) is not None:
        messages.put((pid, "began", item))
        work(send, *item)
        messages.put((pid, "ended", None))


def _begin() -> None:
    """Set up a process so that numbers come out as in a process that works alone."""
    _end_with_parent()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)


def _end_with_parent() -> None:
    """End this process when the one that started it ends, even if that one is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it and ends its workers
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def fixed_threads(threads: int) -> Iterator[None]:
    """Use this many threads, a fixed seed, and no subnormal numbers, which are slow."""
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
