"""The loop: step, evaluate, save, and survive. It knows nothing of what it trains.

    trainer = Trainer(task, TrainConfig(steps=2000), run)
    outcome = trainer.train()

A run that was killed at any moment goes on from its last checkpoint and ends, on a CPU, with bit
for bit the parameters and metrics of a run that was never stopped. Everything that decides what
comes next is in the checkpoint, or follows from the config and the step.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from glasshead.checkpoint import RunFolder, State, load_parameters, parameters
from glasshead.checkpoint.files import read_tensors
from glasshead.checkpoint.processes import ALONE, Processes
from glasshead.errors import CheckpointError, ConfigError, NotFiniteError
from glasshead.training.config import TrainConfig
from glasshead.training.cuda_graph import StepGraph
from glasshead.training.ema import EMA
from glasshead.training.interrupt import Interrupt
from glasshead.training.optim import OPTIMIZERS
from glasshead.training.progress import ProgressListener, Status
from glasshead.training.run_log import RunLog
from glasshead.training.schedule import SCHEDULES
from glasshead.training.strategy import spread_over
from glasshead.training.task import Outcome, Progress, Task

if TYPE_CHECKING:
    from glasshead.checkpoint.sharded import ShardWriter

__all__ = ["Trainer"]

MOST_BAD = 5  # steps in a row that are not finite, then the run goes back
MOST_RETURNS = 8  # each with half the rate, then it gives up
SAVE_SECONDS = 300.0  # the most work that a kill can cost where evaluations are far apart
DRAW_SECONDS = 20.0  # between two drawings of loss.png


class Trainer:
    """Trains a task. Without a run nothing is kept on disk, and there is no state to go back to.

    Args:
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
        self._clock = clock
        self.task, self.model, self.run, self.listener = (
            task,
            task.model,
            run,
            listener or ProgressListener(),
        )
        self.config, self.processes = config.resolve_auto(task.model), processes
        self.spread = spread_over(processes, task, self.config)
        self.device = self.spread.device
        self._params = list(self.model.parameters())
        self.optimizers = OPTIMIZERS[self.config.optimizer](self.model, self.config)
        self.mean = EMA(self.model, self.config.ema) if self.config.ema else None
        graphs = self.config.graph == "on" and task.alike and processes.size == 1
        self._graph = StepGraph(self._update, self.device) if graphs else None
        if graphs:
            self.optimizers.make_recordable()
        folder = run.path if run and processes.first else None
        self.recorder = RunLog(folder, self.config.tensorboard)
        self._parts = _part_writer(processes) if processes.size > 1 else None
        self.progress = Progress()
        self._pending: list[Tensor] = []  # (loss, norm) of steps not yet looked at
        self._good = 0  # finite steps since the last checkpoint: they prove it
        self._saved_step, self._saved_at, self._drawn_at = -1, -math.inf, self._clock()
        self._loss: float | None = None  # smoothed, to be shown
        self._share = 0.0  # of the peak learning rates, at the last step
        self._speed = 0.0  # tokens a second, evaluations left out
        self._stepping, self._stepped_tokens = 0.0, 0  # since the last line
        self._zero = self._clock()  # when the run would have begun, had it never paused
        self._agreed = 0.0  # seconds since then, by the clock of the first of several processes

    def train(self) -> Outcome:
        """Train to the end, or until a signal comes."""
        with self._prepared(), Interrupt(patient=self.processes.size > 1) as interrupt:
            while True:
                signal = self._meet(interrupt.signal)
                ends = self._done() >= 1
                evaluates = ends or self._evaluation_due()
                if evaluates or signal or self._save_due():
                    self._save(at_once=bool(signal))
                if signal:
                    return Outcome("interrupted", self.progress, signal)
                if evaluates:
                    self._evaluate()
                if 0 < self.config.patience <= self.progress.stale:
                    return Outcome("stopped early", self.progress)
                if ends:
                    return Outcome("finished", self.progress)
                self._step()
                if self.progress.bad >= MOST_BAD:
                    self._go_back()

    def _step(self) -> None:
        """One step of the optimizer, called off if the loss or the gradient is not finite."""
        c, p, started = self.config, self.progress, self._clock()
        shape = SCHEDULES[c.schedule](self._done(0.5), c.warmup, c.cooldown, c.final_lr)
        self._share = p.rate * shape
        self.optimizers.set_rate(self._share)
        self.spread.begin_step(p.step)
        numbers = range(p.step * c.accumulate, (p.step + 1) * c.accumulate)
        batches = [self.task.batch(number) for number in numbers]
        tokens = sum(self.task.tokens(batch) for batch in batches)
        update = self._update if self._graph is None else self._graph
        self._pending.append(update(batches))
        p.step += 1
        if self.mean:
            self.mean.update(p.step)
        p.tokens += tokens
        logs = p.step % c.log_every == 0
        if logs or self.device.type == "cpu":
            self._look()
        self._stepping += self._clock() - started
        self._stepped_tokens += tokens
        if logs:
            self._log()
        self.listener.on_step(self._now())

    def _update(self, batches: Sequence[Any]) -> Tensor:
        """The loss and the norm of its gradient, (2,); nobody waits for them here."""
        loss = torch.zeros((), device=self.device)
        try:
            for left, batch in zip(reversed(range(len(batches))), batches, strict=True):
                loss += self.spread.backward(batch, len(batches), last=not left)
        except NotFiniteError:  # attention looks for itself where looking is cheap
            loss += math.nan
        loss = self.spread.total(loss)
        norm = self.spread.clip(self._params, self.config.clip or math.inf)
        self.optimizers.step(bad=~(loss.isfinite() & norm.isfinite()))
        self.optimizers.zero_grad()
        return torch.stack((loss, norm))

    def _look(self) -> None:
        """Count the steps that were finite. On a GPU this waits, so it is not done at each."""
        p = self.progress
        pending, self._pending = self._pending, []
        for loss, norm in torch.stack(pending).tolist() if pending else ():
            if p.bad >= MOST_BAD:
                break  # what came after will be done again
            if math.isfinite(loss) and math.isfinite(norm):
                p.bad, p.grad_norm = 0, norm
                p.window.append(loss)
                self._good += 1
                self._loss = loss if self._loss is None else 0.9 * self._loss + 0.1 * loss
            else:
                p.bad += 1
                p.skipped += 1

    def _log(self) -> None:
        p = self.progress
        self._speed = self._stepped_tokens / max(self._stepping, 1e-9)
        self._stepping, self._stepped_tokens = 0.0, 0
        if p.window:
            line = {
                "loss": sum(p.window) / len(p.window),
                "lr": self.config.lr * self._share,
                "grad_norm": p.grad_norm,
                "skipped": p.skipped,
                "tokens": p.tokens,
                "tokens_per_s": round(self._speed, 1),
            }
            p.window = []
            self._write(line)

    def _evaluate(self) -> None:
        """Measure, keep the best, show a sample. The checkpoint of this step is on disk already."""
        p = self.progress
        if p.bad:
            return
        now = self._now()
        self.model.eval()
        with self.mean.in_place() if self.mean else nullcontext():
            judge = self.spread.judge()
            found, sample = self.processes.broadcast(self._found(judge) if judge else None)
            values = {name: value for name, value in found.items() if math.isfinite(value)}
            best = self._is_best(values)
            if self.run and judge and (best or not p.best):
                self.run.save_model(judge.model, p.step)
        self.model.train()
        self._meet()  # it may have taken long
        if best:
            p.best, p.best_step, p.stale = values, p.step, 0
        elif values:
            p.stale += 1
        if values:
            self._write({**values, "best": best})
        if sample is not None:
            self.recorder.sample(p.step, sample)
        self.listener.on_evaluation(now, values, best, sample)
        if self._done() >= 1 or self._clock() - self._drawn_at > DRAW_SECONDS:
            self.recorder.draw()
            self._drawn_at = self._clock()
        p.evaluated_at = self._seconds()

    def _found(self, judge: Task) -> tuple[dict[str, float], str | None]:
        found, sample = dict[str, float](), None
        try:
            with torch.no_grad(), self.spread.autocast():
                found = judge.evaluate()
                sample = judge.sample()
        except NotFiniteError as error:
            self.listener.say(f"step {self.progress.step}: no evaluation: {error}")
        return found, sample

    def _is_best(self, values: dict[str, float]) -> bool:
        """A loss is the better the lower it is, anything else the higher."""
        on = self.config.stop_on
        name, sign = ("val_loss", -1) if on == "loss" else (on, 1)
        if name not in values:
            return False
        return not self.progress.best or sign * values[name] > sign * self.progress.best[name]

    def _save(self, at_once: bool = False, rotate: bool = True) -> None:
        """A checkpoint, unless this step has one; amid bad steps only if it must be now."""
        self._look()
        p = self.progress
        if self.run is None or p.step == self._saved_step or (p.bad and not at_once):
            return
        p.seconds, p.lengths = self._seconds(), self.recorder.synced_lengths()
        tensors = {f"model.{name}": t for name, t in parameters(self.model).items()}
        tensors |= {f"optimizer.{name}": t for name, t in self.optimizers.tensors().items()}
        if self.mean:
            tensors |= {f"mean.{name}": t for name, t in self.mean.tensors.items()}
        if self.processes.first:
            tensors["rng.cpu"] = torch.get_rng_state()
            if self.device.type == "cuda":
                tensors["rng.cuda"] = torch.cuda.get_rng_state(self.device)
        if self._parts is None:
            self.run.save_state(State(tensors, asdict(p)), rotate)
        else:
            self.run.save_parts(State(tensors, asdict(p)), self._parts, rotate)
        self._saved_step, self._saved_at, self._good = p.step, self._seconds(), 0

    def _restore(self, state: State, file: Path) -> None:
        load_parameters(self.model, state.part("model."), file)
        self.optimizers.load(state.part("optimizer."), file)
        if self.mean:
            self.mean.load(state.part("mean."), file)
        try:
            self.progress = Progress(**state.progress)
            torch.set_rng_state(state.tensors["rng.cpu"])
            if self.device.type == "cuda" and "rng.cuda" in state.tensors:
                torch.cuda.set_rng_state(state.tensors["rng.cuda"], self.device)
        except (TypeError, KeyError, RuntimeError) as error:
            raise CheckpointError(
                f"{file} is no state of this run: {error}", hint="take it from a copy"
            ) from None
        p = self.progress
        self.recorder.cut(p.lengths, p.step)
        self._zero, self._agreed = self._clock() - p.seconds, p.seconds
        self._saved_step, self._saved_at, self._good = p.step, p.seconds, 0
        self._pending, self._loss = [], None
        if self._graph:
            self._graph.forget()

    def _load(self, last_is_good: bool = True) -> bool:
        assert self.run
        like = self.spread.like if self._parts else None
        return self.run.load_state(self._restore, last_is_good, self.processes, like)

    def _go_back(self) -> None:
        """To the last checkpoint that a finite step followed, with half the rate."""
        lost, seconds = self.progress, self._seconds()
        if self.run is None or lost.returns >= MOST_RETURNS:
            raise NotFiniteError(
                f"{MOST_BAD} steps in a row up to step {lost.step} were not finite, "
                f"after {lost.returns} returns with ever lower rates",
                hint="train again with a lower --lr and --muon-lr; the best model so far is kept",
            )
        if self._parts:
            self._parts.wait()
        self._load(last_is_good=self._good > 0)
        p = self.progress
        p.returns, p.rate, p.skipped = lost.returns + 1, lost.rate / 2, lost.skipped
        p.best, p.best_step = lost.best, lost.best_step  # model.safetensors is still it
        self._zero, self._agreed = self._clock() - seconds, seconds
        self._write({"returned_from": lost.step, "rate": p.rate})
        self._saved_step = -1
        self._save(rotate=False)
        self.listener.say(
            f"{MOST_BAD} steps in a row up to step {lost.step} were not finite: "
            f"back to step {p.step}, at {p.rate:g} of the learning rate"
        )

    @contextmanager
    def _prepared(self) -> Iterator[None]:
        """The machine as the config wants it, the folder ours alone, the last state loaded."""
        ours = self.run.lock() if self.run and self.processes.first else nullcontext()
        threads = torch.get_num_threads()
        torch.set_num_threads(self.config.threads or threads)
        torch.manual_seed(self.config.seed)
        self.model.train()
        try:
            with ours, self.recorder:
                if self.run and not self._load():
                    file = self.run.path / "model.safetensors"  # how it was when the run was made
                    load_parameters(self.model, read_tensors(file, self.spread.like)[0], file)
                    if self.mean:
                        self.mean.restart()
                    self.recorder.cut({}, -1)
                with self.listener:
                    yield
                    if self._parts:
                        self._parts.wait()
        except torch.OutOfMemoryError:
            raise ConfigError(
                f"a batch is too much for {self.device}'s memory",
                hint="halve --batch-size (of pairs: --max-tokens) and double --accumulate, "
                "which keeps the steps as large",
            ) from None
        except OSError as error:
            if self.run is None:
                raise
            step = max(self._saved_step, 0)
            raise CheckpointError(
                f"cannot write {error.filename or self.run.path}: {error.strerror}",
                hint=f"the checkpoint of step {step} is whole: make room, then "
                f"`glasshead train --resume {self.run.path}`",
            ) from None
        finally:
            torch.set_num_threads(threads)

    def _write(self, values: dict[str, Any]) -> None:
        values = {**values, "seconds": round(self._seconds(), 3)}
        self.recorder.write(self.progress.step, values)
        self.listener.on_log(self.progress.step, values)

    def _meet(self, signal: Signals | None = None) -> Signals | None:
        """All processes have one clock, and end by a signal that any of them got."""
        seconds = self._clock() - self._zero if self.processes.first else 0.0
        self._agreed, number = self.processes.max(seconds, float(signal or 0))
        return Signals(int(number)) if number else None

    def _seconds(self) -> float:
        return self._agreed if self._parts else self._clock() - self._zero

    def _done(self, ahead: float = 0.0) -> float:
        """How much of the run is done, 0 to 1, or will be `ahead` steps from now."""
        c = self.config
        if c.minutes is not None:
            return min(1.0, self._seconds() / max(60 * c.minutes, 1e-9))
        return min(1.0, (self.progress.step + ahead) / c.steps) if c.steps else 1.0

    def _evaluation_due(self) -> bool:
        c, p = self.config, self.progress
        if c.eval_every:
            return p.step % c.eval_every == 0
        return p.step == 0 or self._seconds() - p.evaluated_at >= 60 * (c.minutes or 0) / 20

    def _save_due(self) -> bool:
        every = self.config.save_every
        by_step = every is not None and self.progress.step % every == 0
        return by_step or (self.run is not None and self._seconds() - self._saved_at > SAVE_SECONDS)

    def _now(self) -> Status:
        done = self._done()
        left = self._seconds() * (1 - done) / done if 0 < done < 1 else None
        return Status(self.progress.step, done, self._loss, self._speed, left)


def _part_writer(processes: Processes) -> "ShardWriter":
    from glasshead.checkpoint.sharded import ShardWriter

    return ShardWriter(processes)
