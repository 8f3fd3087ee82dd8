"""Train several runs side by side, each in a process and on a thread of its own.

Small models are no faster on two threads, so two of them take the time of one. There are as many at
a time as there are cores: the first is then ready as early as it can be.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glasshead.errors import ConfigError, GlassheadError
from glasshead.lab.processes import WorkerDiedError, run_workers
from glasshead.machine import count_cores, settle_half_precision

__all__ = ["TrainingJob", "train_all"]

EVERY = 10  # steps between two reports


@dataclass(frozen=True)
class TrainingJob:
    """A run to train, as by `glasshead train --task TASK --preset NAME` with these flags."""

    name: str
    task: str
    preset: str
    out: Path
    flags: dict[str, Any]


def train_all(
    jobs: Sequence[TrainingJob],
    progress: Callable[[str, float, float | None], object],
    finished: Callable[[str], object] = lambda name: None,
) -> None:
    """Train them all; report the name, the part done and the loss of each to `progress`.

    `finished` gets the name of each run that is saved.
    """
    try:
        n_workers = min(len(jobs), count_cores())
        for message in run_workers(_train, [(job,) for job in jobs], n_workers):
            if isinstance(message, GlassheadError):
                raise message
            if isinstance(message, str):
                finished(message)
            else:
                progress(*message)
    except WorkerDiedError as error:
        names = [job.name for job in error.item or ()]
        raise ConfigError(
            f"the process that trained the {' '.join(names) or 'models'} ended unexpectedly "
            f"(exit code {error.exit_code})",
            hint="perhaps memory ran out; try again with less running beside it",
        ) from None


def _train(send: Callable[[object], None], job: TrainingJob) -> None:
    """Train one run; send (name, done, loss), then its name, or the error that ended it."""
    settle_half_precision()  # before torch computes anything
    from glasshead.training.presets import find_preset
    from glasshead.training.progress import ProgressListener, Status
    from glasshead.training.start import Context, find_dataset, start_run

    class Sender(ProgressListener):
        def on_step(self, status: Status) -> None:
            if status.step % EVERY == 0 or status.done >= 1:
                send((job.name, status.done, status.loss))

    here = {"device": "cpu", "threads": 1, "tensorboard": False}
    context = Context(job.out.parent / "cache", Sender())
    preset, dataset = find_preset(job.preset, job.task), find_dataset(job.task)
    try:
        trainer = start_run(dataset, {}, preset, {**here, **job.flags}, job.out, context)
        signal = trainer.train().signal
        if signal:
            raise ConfigError(
                f"the training of the {job.name} was stopped by {signal.name}", hint="run it again"
            )
        send(job.name)
    except GlassheadError as error:
        send(error)
