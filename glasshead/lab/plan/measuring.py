"""Run a scenario on this machine for a moment, and compare it with its plan."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch

from glasshead.generation.decode import generate
from glasshead.generation.sampling import GREEDY
from glasshead.lab.plan.devices import DEVICES, Device
from glasshead.lab.plan.generating import plan_generating
from glasshead.lab.plan.observing import plan_observing
from glasshead.lab.plan.operations import OperationCounter
from glasshead.lab.plan.scenario import Scenario
from glasshead.lab.plan.training import plan_training
from glasshead.model.gpt import GPT
from glasshead.observe.recording import observing
from glasshead.training.config import TrainConfig
from glasshead.training.language import Corpus, LanguageTask
from glasshead.training.loop import Trainer
from glasshead.training.progress import ProgressListener, Status

__all__ = ["MEASUREMENTS", "Comparison", "compare", "train_steps"]

Figures: TypeAlias = dict[tuple[str, str], float]  # by what is measured and its unit

WARM, STEPS = 5, 6  # training steps that are not timed, and those that are
WRITTEN, REPEATS = 64, 5  # tokens at most, and runs of which the fastest counts
LONG = 0.02  # seconds of a timed run
# Shares of the data sheet that products of large matrices and sums reached on an H200.
MATRIX_PEAK, READ_PEAK = 0.79, 0.90


@dataclass(frozen=True)
class Comparison:
    what: str  # "train", "prefill", "decode" or "observe"
    unit: str  # "s" or "B"
    measured: float
    probed: float  # expected of a device as fast as this one
    sheet: float | None = None  # expected from its data sheet, if there is one

    @property
    def ratio(self) -> float:
        """Expected to measured."""
        return self.probed / self.measured


def compare(s: Scenario, device: torch.device, parts: str = "tgo") -> list[Comparison]:
    """Measure training, generating and observing, and compare them with their plans."""
    measured = {
        key: value for part in parts for key, value in MEASUREMENTS[part](s, device).items()
    }
    probed, sheet = _expect(s, measure_device(device, s.itemsize)), Figures()
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device).lower()
        sheet = next((_expect(s, one) for word, one in DEVICES.items() if word in name), sheet)
    return [Comparison(*key, measured[key], probed[key], sheet.get(key)) for key in measured]


def _expect(s: Scenario, device: Device) -> Figures:
    train, observe = plan_training(s, device), plan_observing(s, device)
    write = plan_generating(s, device, _lengths(s)[0])
    return {
        ("train", "s"): train.step,
        ("train", "B"): train.memory.peak,
        ("prefill", "s"): write.prefill,
        ("decode", "s"): write.decode,
        ("decode", "B"): write.peak,
        ("observe", "s"): observe.forward + observe.look,
        ("observe", "B"): observe.peak,
    }


def measure_device(device: torch.device, itemsize: int) -> Device:
    """Return a data sheet with this machine's matrix and memory speed."""
    cuda = device.type == "cuda"
    n, dtype = 4096 if cuda else 1024, torch.bfloat16 if itemsize == 2 else torch.float32
    matrix, numbers = torch.randn(n, n).to(device, dtype), torch.ones(n * n * 8, device=device)
    peak = 2.0 * n**3 / _time(lambda: matrix @ matrix, device)
    read = numbers.nbytes / _time(lambda: numbers.sum(), device)
    if cuda:
        peak, read = peak / MATRIX_PEAK, read / READ_PEAK
    like = DEVICES["h100" if cuda else "cpu"]
    return replace(like, half=peak, single=peak, bandwidth=read)


def _measure_training(s: Scenario, device: torch.device) -> Figures:
    times, peak = train_steps(s, device)
    return {("train", "s"): min(times), ("train", "B"): peak}


def _measure_generating(s: Scenario, device: torch.device) -> Figures:
    """Measure prompts that leave room for some tokens, the last of which fills max_len."""
    (prompt, new), model = _lengths(s), _new_model(s, device)
    prompts = [[1] * prompt] * s.texts

    def write(tokens: int) -> float:
        """Return the seconds of each token after the first."""
        steps = generate(model, prompts, GREEDY, max_tokens=tokens)
        next(steps)
        start = _clock(device)
        list(steps)
        return (_clock(device) - start) / max(1, tokens - 1)

    write(new)
    return {
        ("prefill", "s"): _time(lambda: write(1), device),
        ("decode", "s"): min(write(new) for _ in range(REPEATS)),
        ("decode", "B"): _size(model) + _peak_of(lambda: write(new), device),
    }


def _lengths(s: Scenario) -> tuple[int, int]:
    """Return the tokens of a prompt, and those after it."""
    new = max(2, min(WRITTEN, s.config.max_len // 2))
    return max(1, s.config.max_len - new), new


def _measure_observing(s: Scenario, device: torch.device) -> Figures:
    model = _new_model(s, device)
    ids = torch.randint(s.config.vocab_size, (1, s.config.max_len), device=device)

    def observe() -> None:
        with torch.inference_mode(), observing(model, keep="statistics"):
            model.features(ids)

    observe()
    return {
        ("observe", "s"): _time(observe, device),
        ("observe", "B"): _size(model) + _peak_of(observe, device),
    }


MEASUREMENTS: dict[str, Callable[[Scenario, torch.device], Figures]] = {
    "t": _measure_training,
    "g": _measure_generating,
    "o": _measure_observing,
}


def train_steps(
    s: Scenario, device: torch.device, steps: int = WARM + STEPS
) -> tuple[list[float], float]:
    """Train as `glasshead train` does; return the seconds of steps after WARM, and peak bytes."""
    drawn = np.random.default_rng(0).integers(s.config.vocab_size, size=20 * (s.config.max_len + 1))
    ids = drawn.astype(np.uint32)
    task = LanguageTask(
        GPT(s.config), Corpus(ids, ids), batch_size=s.batch_size, eval_batches=1, seed=1
    )
    clock = _StepClock(device)
    settings = TrainConfig(
        steps=steps, batch_size=s.batch_size, accumulate=s.accumulate,
        optimizer=s.optimizer, device=str(device), compile="on" if s.is_compiled else "off",
        precision="bf16" if s.itemsize == 2 else "float32", eval_every=10**6,
        threads=torch.get_num_threads(), tensorboard=False, lr=1e-5, muon_lr=1e-5,
    )  # fmt: skip
    trainer = Trainer(task, settings, listener=clock)
    trainer.train()
    state = trainer.optimizers.tensors().values()
    held = sum(t.nbytes for t in (*trainer.model.parameters(), *state))
    return clock.times, held + clock.peak


class _StepClock(ProgressListener):
    """Times the last steps of a short run, and records the memory of the second one."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.peak, self.times = device, 0.0, list[float]()
        self._memory: _PeakMemory | None = None
        self._last = 0.0

    def on_step(self, status: Status) -> None:
        step_end = _clock(self.device)
        if self._memory is not None:
            self.peak, self._memory = self._memory.stop(), None
        elif status.step > WARM:
            self.times.append(step_end - self._last)
        if status.step == 1:  # later steps may be those of a CUDA graph, which allocates nothing
            self._memory = _PeakMemory(self.device)
        self._last = _clock(self.device)


class _PeakMemory:
    """The most bytes in use until `stop`, beyond those in use now."""

    def __init__(self, device: torch.device) -> None:
        self.device, self._before = device, 0
        self._counter = OperationCounter()
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            self._before = torch.cuda.memory_allocated(device)
        else:
            self._counter.__enter__()

    def stop(self) -> float:
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) - self._before
        self._counter.__exit__(None, None, None)
        return self._counter.peak


def _peak_of(run: Callable[[], object], device: torch.device) -> float:
    memory = _PeakMemory(device)
    run()
    return memory.stop()


def _new_model(s: Scenario, device: torch.device) -> GPT:
    return GPT(s.config).to(device, torch.bfloat16 if s.itemsize == 2 else torch.float32).eval()


def _size(model: GPT) -> int:
    return sum(p.nbytes for p in model.parameters())


def _time(run: Callable[[], object], device: torch.device) -> float:
    """Return the seconds of the fastest of some runs: other programs slow down the others."""

    def once(times: int) -> float:
        start = _clock(device)
        for _ in range(times):
            run()
        return (_clock(device) - start) / times

    once(1)  # warms up
    times = max(1, min(1000, round(LONG / max(once(1), 1e-9))))
    return min(once(times) for _ in range(REPEATS))


def _clock(device: torch.device) -> float:
    """Return the time in seconds, once the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
