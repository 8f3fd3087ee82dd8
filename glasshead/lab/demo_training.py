"""Runs that train side by side, each in a process and on a thread of its own.

Small models are no faster on two threads, so two of them take the time of one.
"""

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glasshead.errors import ConfigError, GlassheadError
from glasshead.machine import settle_half_precision

__all__ = ["TrainingJob", "train_all"]

EVERY = 10  # steps between two reports


@dataclass(frozen=True)
class TrainingJob:
    """A run to train: as `glasshead train --task TASK --preset NAME` would, with these flags."""

    name: str  # of its preset too
    task: str
    out: Path
    flags: dict[str, Any]


def train_all(
    jobs: Sequence[TrainingJob], progress: Callable[[str, float, float | None], object]
) -> None:
    """Train them all; `progress` hears of each how much is done and its loss."""
    # Spawned, not forked: a copy of a process with running threads can stand still for ever.
    context = multiprocessing.get_context("spawn")
    reports: Any = context.Queue()
    processes = [
        context.Process(target=_work, args=(job, reports), name=job.name, daemon=True)
        for job in jobs
    ]
    try:
        for process in processes:
            process.start()
        waiting = {job.name for job in jobs}
        while waiting:
            try:
                name, what = reports.get(timeout=0.5)
            except queue.Empty:
                ended = [p for p in processes if p.exitcode is not None and p.name in waiting]
                if ended and reports.empty():
                    raise ConfigError(
                        f"the process that trained the {ended[0].name} ended unexpectedly "
                        f"(exit code {ended[0].exitcode})",
                        hint="perhaps memory ran out; try again with less running beside it",
                    ) from None
                continue
            if isinstance(what, GlassheadError):
                raise what
            if what is None:
                waiting.remove(name)
            else:
                progress(name, *what)
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()  # nothing of an unfinished demo is kept
            if process.pid is not None:
                process.join()


def _work(job: TrainingJob, reports: Any) -> None:
    """One process: train, and say how it goes; None at the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it and ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    settle_half_precision()  # before torch computes anything
    from glasshead.training.presets import find_preset
    from glasshead.training.progress import ProgressListener, Status
    from glasshead.training.start import Context, find_dataset, start_run

    class Told(ProgressListener):
        def on_step(self, status: Status) -> None:
            if status.step % EVERY == 0 or status.done >= 1:
                reports.put((job.name, (status.done, status.loss)))

    here = {"device": "cpu", "threads": 1, "tensorboard": False}
    context = Context(job.out.parent / "cache", Told())
    try:
        trainer = start_run(
            find_dataset(job.task),
            {},
            find_preset(job.name, job.task),
            {**here, **job.flags},
            job.out,
            context,
        )
        outcome = trainer.train()
        if outcome.signal:
            raise ConfigError(
                f"the training of the {job.name} was stopped by {outcome.signal.name}",
                hint="run it again",
            )
        reports.put((job.name, None))
    except GlassheadError as error:
        reports.put((job.name, error))
    reports.close()
    reports.join_thread()


def _end_with_parent() -> None:
    """A parent that is killed cannot end its workers, and they would train on for nobody."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
