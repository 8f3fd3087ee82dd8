"""The training loop: step, evaluate, save. It knows nothing of what it trains.

    trainer = Trainer(task, TrainConfig(steps=2000), run)
    outcome = trainer.train()

A run that was killed at any moment continues from its last checkpoint and ends, on a CPU, with bit
for bit the parameters and metrics of a run that was never stopped. Everything that decides what
comes next is in the checkpoint, or follows from the config and the step.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from signal import Signals
from typing import Any

import torch
from torch import Tensor

from glasshead.checkpoint import RunFolder, State, load_parameters, parameters
from glasshead.checkpoint.processes import ALONE, Processes
from glasshead.errors import CheckpointError, ConfigError, NotFiniteError
from glasshead.files.tensors import read_tensors
from glasshead.files.writing import what_to_do
from glasshead.training.config import TrainConfig
from glasshead.training.cuda_graph import StepGraph
from glasshead.training.ema import EMA
from glasshead.training.head_watch import HeadWatch
from glasshead.training.interrupt import catch_signals
from glasshead.training.optim import OPTIMIZERS
from glasshead.training.progress import ProgressListener, Status
from glasshead.training.run_log import RunLog
from glasshead.training.schedule import SCHEDULES
from glasshead.training.strategy import choose_strategy
from glasshead.training.task import Outcome, Progress, Task

__all__ = ["Trainer"]

MOST_BAD = 5  # steps in a row that are not finite, before the run returns to a checkpoint
MOST_RETURNS = 8  # each with half the learning rate, before it gives up
SAVE_SECONDS = 300.0  # between checkpoints at most: the work that a kill can cost
DRAW_SECONDS = 20.0  # between two drawings of loss.png at least


class Trainer:
    """Trains a task.

    Args:
        run: the folder to save to. Without one, nothing is saved, and there is no checkpoint to
            return to after steps that are not finite.
        clock: returns seconds and never goes back. Everything that depends on time reads it.
    """

    def __init__(
        self,
        task: Task,
        config: TrainConfig,
        run: RunFolder | None = None,
        listener: ProgressListener | None = None,
        processes: Processes = ALONE,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.task, self.model, self.run = task, task.model, run
        self.listener, self.processes = listener or ProgressListener(), processes
        self._clock = clock
        self.config = config.resolve_auto(task.model)
        self.strategy = choose_strategy(processes, task, self.config)
        self.device = self.strategy.device
        self._params = list(self.model.parameters())
        self.optimizers = OPTIMIZERS[self.config.optimizer](self.model, self.config)
        self.ema = EMA(self.model, self.config.ema) if self.config.ema else None
        self._graph: StepGraph | None = None
        if self.config.graph == "on" and task.same_shapes and processes.size == 1:
            self._graph = StepGraph(self._update, self.device)
            self.optimizers.make_capturable()
        folder = run.path if run and processes.first else None
        self.run_log = RunLog(folder, self.config.tensorboard)
        every = self.config.watch_heads
        self._watch = HeadWatch(every, task, self.run_log, self.listener) if every else None
        self.progress = Progress()
        self._pending: list[Tensor] = []  # (loss, norm) of steps that were not checked yet
        self._good = 0  # finite steps since the last checkpoint, which show that it is sound
        self._saved_step, self._saved_at, self._drawn_at = -1, -math.inf, self._clock()
        self._loss: float | None = None  # smoothed, to be shown
        self._rate = 0.0  # share of the peak learning rates, at the last step
        self._tokens_per_s = 0.0  # without evaluations
        self._step_seconds, self._step_tokens = 0.0, 0  # since the last line of metrics
        self._started_at = self._clock()  # minus the seconds that the run had trained before
        self._evaluation_seconds = 0.0  # that the last evaluation took
        self._shared_seconds = 0.0  # seconds of training, by the clock of the first process

    def train(self) -> Outcome:
        """Train to the end, or until SIGINT or SIGTERM arrives."""
        with self._prepare(), catch_signals(repeatedly=self.processes.size > 1) as received:
            while True:
                signal = self._synchronize(received[-1] if received else None)
                ends = self._fraction_done() >= 1
                evaluates = ends or self._evaluation_due()
                if evaluates or signal or self._save_due():
                    self._save(at_once=bool(signal))
                if signal:
                    return Outcome("interrupted", self.progress, signal)
                if evaluates:
                    self._evaluate()
                if self._watch and (ends or self._watch.due(self.progress.step)):
                    self._watch.measure(self.strategy.evaluation_task(), self.progress)
                if 0 < self.config.patience <= self.progress.stale:
                    return Outcome("stopped early", self.progress)
                if ends:
                    return Outcome("finished", self.progress)
                self._step()
                if self.progress.bad >= MOST_BAD:
                    self._return_to_checkpoint()

    def _step(self) -> None:
        """Take one step of the optimizer, and log it when that is due."""
        c, p, started = self.config, self.progress, self._clock()
        schedule = SCHEDULES[c.schedule]
        self._rate = p.rate * schedule(self._fraction_done(0.5), c.warmup, c.cooldown, c.final_lr)
        self.optimizers.set_rate(self._rate)
        self.strategy.start_step(p.step)
        numbers = range(p.step * c.accumulate, (p.step + 1) * c.accumulate)
        batches = [self.task.batch(number) for number in numbers]
        tokens = sum(self.task.tokens(batch) for batch in batches)
        update = self._update if self._graph is None else self._graph
        self._pending.append(update(batches))
        p.step += 1
        if self.ema:
            self.ema.update(p.step)
        p.tokens += tokens
        logs = p.step % c.log_every == 0
        if logs or self.device.type == "cpu":  # on a GPU checking waits for the step to end
            self._check_finite()
        self._step_seconds += self._clock() - started
        self._step_tokens += tokens
        if logs:
            self._tokens_per_s = self._step_tokens / max(self._step_seconds, 1e-9)
            self._step_seconds, self._step_tokens = 0.0, 0
        if logs and p.window:
            values = {
                "loss": sum(p.window) / len(p.window),
                "lr": c.lr * self._rate,
                "grad_norm": p.grad_norm,
                "skipped": p.skipped,
                "tokens": p.tokens,
                "tokens_per_s": round(self._tokens_per_s, 1),
            }
            p.window = []
            self._log(values)
        self.listener.on_step(self._status())

    def _update(self, batches: Sequence[Any]) -> Tensor:
        """Update the parameters, unless the loss or the gradient is not finite.

        Returns (loss, gradient norm), of shape (2,), without synchronizing with the GPU.
        """
        loss = torch.zeros((), device=self.device)
        try:
            for left, batch in zip(reversed(range(len(batches))), batches, strict=True):
                loss += self.strategy.backward(batch, len(batches), last=not left)
        except NotFiniteError:  # raised by attention, where checking is cheap
            loss += math.nan
        loss = self.processes.sum(loss)
        norm = self.strategy.clip(self._params, self.config.clip or math.inf)
        self.optimizers.step(skip=~(loss.isfinite() & norm.isfinite()))
        return torch.stack((loss, norm))

    def _check_finite(self) -> None:
        """Count which of the pending steps were finite. On a GPU this synchronizes."""
        p = self.progress
        pending, self._pending = self._pending, []
        for loss, norm in torch.stack(pending).tolist() if pending else ():
            if p.bad >= MOST_BAD:
                break  # the steps after it will be repeated
            if math.isfinite(loss) and math.isfinite(norm):
                p.bad, p.grad_norm = 0, norm
                p.window.append(loss)
                self._good += 1
                self._loss = loss if self._loss is None else 0.9 * self._loss + 0.1 * loss
            else:
                p.bad += 1
                p.skipped += 1

    def _evaluate(self) -> None:
        """Evaluate, save the best parameters and a sample. The checkpoint is on disk already."""
        p, on = self.progress, self.config.stop_on
        if p.bad:
            return
        status, started = self._status(), self._seconds()
        self.model.eval()
        with self.ema.swap_in() if self.ema else nullcontext():
            task = self.strategy.evaluation_task()
            found, sample = self.processes.broadcast(self._measure(task) if task else None)
            values = {name: value for name, value in found.items() if math.isfinite(value)}
            name, sign = ("val_loss", -1) if on == "loss" else (on, 1)
            best = name in values and (not p.best or sign * values[name] > sign * p.best[name])
            if self.run and task and (best or not p.best):
                self.run.save_model(task.model, p.step)
        self.model.train()
        self._synchronize()  # it may have taken long
        if best:
            p.best, p.best_step, p.stale = values, p.step, 0
        elif values:
            p.stale += 1
        if values:
            self._log({**values, "best": best})
        if sample is not None:
            self.run_log.write_sample(p.step, sample)
        self.listener.on_evaluation(status, values, best, sample)
        if self._fraction_done() >= 1 or self._clock() - self._drawn_at > DRAW_SECONDS:
            try:
                self.run_log.draw()
            except OSError as error:  # a picture is not worth a run
                self.listener.say(f"cannot draw {error.filename}: {error.strerror}")
            self._drawn_at = self._clock()
        p.evaluated_at = self._seconds()
        self._evaluation_seconds = p.evaluated_at - started

    def _measure(self, task: Task) -> tuple[dict[str, float], str | None]:
        """Return the results of an evaluation, none if it fails, and a sample."""
        found, sample = dict[str, float](), None
        try:
            with torch.no_grad(), self.strategy.autocast():
                found = task.evaluate()
                sample = task.sample()
        except NotFiniteError as error:
            self.listener.say(f"step {self.progress.step}: the evaluation failed: {error}")
        return found, sample

    def _save(self, at_once: bool = False, rotate: bool = True) -> None:
        """Save a checkpoint, unless this step has one; amid bad steps only if `at_once`."""
        self._check_finite()
        p = self.progress
        if self.run is None or p.step == self._saved_step or (p.bad and not at_once):
            return
        p.seconds, (p.lengths, p.digests) = self._seconds(), self.run_log.sync()
        tensors = {f"model.{name}": t for name, t in parameters(self.model).items()}
        tensors |= {f"optimizer.{name}": t for name, t in self.optimizers.tensors().items()}
        if self.ema:
            tensors |= {f"mean.{name}": t for name, t in self.ema.tensors.items()}
        if self.processes.first:
            tensors["rng.cpu"] = torch.get_rng_state()
            if self.device.type == "cuda":
                tensors["rng.cuda"] = torch.cuda.get_rng_state(self.device)
        if self.strategy.shard_writer is None:
            self.run.save_state(State(tensors, asdict(p)), rotate)
        else:
            self.run.save_shards(State(tensors, asdict(p)), self.strategy.shard_writer, rotate)
        self._saved_step, self._saved_at, self._good = p.step, self._seconds(), 0

    def _load(self, last_is_good: bool = True) -> bool:
        """Load the last checkpoint, or the one before it; return False if there is none."""
        assert self.run
        return self.run.load_state(self._restore, last_is_good, self.processes, self.strategy.like)

    def _check_best(self) -> None:
        """Forget the best evaluation if its parameters are damaged: the next one saves its own."""
        assert self.run
        error = self.run.set_damaged_model_aside() if self.processes.first else None
        if self.processes.broadcast(error is not None):
            self.progress.best = {}
            self.listener.say(f"{error}; the next evaluation writes new parameters")

    def _restore(self, state: State, file: Path) -> None:
        load_parameters(self.model, state.part("model."), file)
        self.optimizers.load(state.part("optimizer."), file)
        if self.ema:
            self.ema.load(state.part("mean."), file)
        try:
            self.progress = Progress(**state.progress)
            torch.set_rng_state(state.tensors["rng.cpu"])
            if self.device.type == "cuda" and "rng.cuda" in state.tensors:
                torch.cuda.set_rng_state(state.tensors["rng.cuda"], self.device)
        except (TypeError, KeyError, RuntimeError) as error:
            raise CheckpointError(
                f"{file} is not a checkpoint of this run: {error}", hint="restore it from a backup"
            ) from None
        p = self.progress
        self._set_seconds(p.seconds)
        self._saved_step, self._saved_at, self._good = p.step, p.seconds, 0
        for path, copy in self.run_log.truncate(p.lengths, p.step, p.digests).items():
            if copy:
                self.listener.say(f"{path} is damaged, the training goes on; copied to {copy}")
            else:
                self.listener.say(f"{path} is missing, the training goes on")
        self._pending, self._loss = [], None
        if self._graph:
            self._graph.reset()

    def _return_to_checkpoint(self) -> None:
        """Continue with half the learning rate from the last checkpoint known to be sound."""
        lost, seconds = self.progress, self._seconds()
        if self.run is None or lost.returns >= MOST_RETURNS:
            raise NotFiniteError(
                f"{MOST_BAD} steps in a row up to step {lost.step} were not finite, "
                f"after {lost.returns} returns to a checkpoint with ever lower learning rates",
                hint="train again with a lower --lr and --muon-lr; the best model so far is saved",
            )
        if self.strategy.shard_writer:
            self.strategy.shard_writer.wait()
        self._load(last_is_good=self._good > 0)
        p = self.progress
        p.returns, p.rate, p.skipped = lost.returns + 1, lost.rate / 2, lost.skipped
        p.best, p.best_step = lost.best, lost.best_step  # model.safetensors still has them
        self._set_seconds(seconds)
        self._log({"returned_from": lost.step, "rate": p.rate})
        self._saved_step = -1
        self._save(rotate=False)
        self.listener.say(
            f"{MOST_BAD} steps in a row up to step {lost.step} were not finite: "
            f"back to step {p.step}, with {p.rate:g} of the learning rate"
        )

    @contextmanager
    def _prepare(self) -> Iterator[None]:
        """Set threads and seed, lock the run's folder, load the last checkpoint."""
        lock = self.run.lock() if self.run and self.processes.first else nullcontext()
        threads = torch.get_num_threads()
        torch.set_num_threads(self.config.threads or threads)
        torch.manual_seed(self.config.seed)
        self.model.train()
        try:
            with lock, closing(self.run_log):
                if self.run and self._load():
                    self._check_best()
                elif self.run:
                    file = self.run.path / "model.safetensors"  # as it was when the run was made
                    load_parameters(self.model, read_tensors(file, self.strategy.like)[0], file)
                    if self.ema:
                        self.ema.restart()
                    self.run_log.truncate({}, -1)
                with self.listener:
                    yield
                    if self.strategy.shard_writer:
                        self.strategy.shard_writer.wait()
        except torch.OutOfMemoryError:
            raise ConfigError(
                f"a batch does not fit into the memory of {self.device}",
                hint="halve --batch-size (for pairs: --max-tokens) and double --accumulate, "
                "which keeps the size of a step",
            ) from None
        except OSError as error:
            if self.run is None:
                raise
            step = max(self._saved_step, 0)
            raise CheckpointError(
                f"cannot write {error.filename or self.run.path}: {error.strerror}",
                hint=f"the checkpoint of step {step} is intact: {what_to_do(error)}, then "
                f"`glasshead train --resume {self.run.path}`",
            ) from None
        finally:
            torch.set_num_threads(threads)

    def _log(self, values: dict[str, Any]) -> None:
        values = {**values, "seconds": round(self._seconds(), 3)}
        self.run_log.write(self.progress.step, values)
        self.listener.on_log(self.progress.step, values)

    def _synchronize(self, signal: Signals | None = None) -> Signals | None:
        """Agree with all processes on the time and on a signal that any of them received."""
        seconds = self._clock() - self._started_at if self.processes.first else 0.0
        self._shared_seconds, number = self.processes.max(seconds, float(signal or 0))
        return Signals(int(number)) if number else None

    def _seconds(self) -> float:
        alone = self.processes.size == 1
        return self._clock() - self._started_at if alone else self._shared_seconds

    def _set_seconds(self, seconds: float) -> None:
        self._started_at, self._shared_seconds = self._clock() - seconds, seconds

    def _fraction_done(self, steps_ahead: float = 0.0) -> float:
        """Return how much of the run is done, from 0 to 1, now or so many steps from now."""
        c = self.config
        if c.minutes is not None:
            return min(1.0, self._seconds() / max(60 * c.minutes, 1e-9))
        return min(1.0, (self.progress.step + steps_ahead) / c.steps) if c.steps else 1.0

    def _evaluation_due(self) -> bool:
        c, p = self.config, self.progress
        if c.eval_every:
            return p.step % c.eval_every == 0
        # Evaluations take a tenth of the time at most.
        pause = max(60 * (c.minutes or 0) / 20, 9 * self._evaluation_seconds)
        return p.step == 0 or self._seconds() - p.evaluated_at >= pause

    def _save_due(self) -> bool:
        every = self.config.save_every
        by_step = every is not None and self.progress.step % every == 0
        return by_step or (self.run is not None and self._seconds() - self._saved_at > SAVE_SECONDS)

    def _status(self) -> Status:
        done = self._fraction_done()
        left = self._seconds() * (1 - done) / done if 0 < done < 1 else None
        return Status(self.progress.step, done, self._loss, self._tokens_per_s, left)
