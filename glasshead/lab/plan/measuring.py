"""A plan beside what really happens here: a few steps trained, some tokens written, a text seen."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from glasshead.generation.decode import generate
from glasshead.generation.sampling import GREEDY
from glasshead.lab.plan.devices import DEVICES, Device
from glasshead.lab.plan.generating import plan_generating
from glasshead.lab.plan.observing import plan_observing
from glasshead.lab.plan.operations import Setting
from glasshead.lab.plan.plans import Wanted
from glasshead.lab.plan.probing import probe, seconds_a_token, timed
from glasshead.lab.plan.shapes import count
from glasshead.lab.plan.training import plan_training
from glasshead.model.gpt import GPT
from glasshead.observe.recording import observing
from glasshead.training.config import TrainConfig
from glasshead.training.language import Corpus, LanguageTask
from glasshead.training.loop import Trainer
from glasshead.training.progress import ProgressListener, Status

__all__ = ["Compared", "compare", "generating", "observing_heads", "trained", "training"]

# Seconds and bytes by a data sheet, or by the speeds that are found here.
Planned: TypeAlias = Callable[[Device, bool], tuple[float, float]]

WARM, STEPS = 5, 6  # steps before those that count, and those
WRITTEN, REPEATS = 64, 5  # tokens at most, and how often


@dataclass(frozen=True)
class Compared:
    what: str  # "train", "prefill", "decode", "observe"
    unit: str  # "s" or "B"
    measured: float
    probed: float  # expected from the speeds of this machine's parts
    sheet: float | None = None  # expected from its data sheet, if there is one

    @property
    def ratio(self) -> float:
        """Expected to measured."""
        return self.probed / self.measured


def compare(wanted: Wanted, device: torch.device) -> list[Compared]:
    """Everything that one device can show of what is wanted."""
    return [
        *training(wanted, device),
        *generating(wanted, device),
        *observing_heads(wanted, device),
    ]


def _sheet_of(device: torch.device) -> Device | None:
    """The data sheet of this device, if there is one."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device).lower()
    return next((sheet for word, sheet in DEVICES.items() if word in name), None)


def training(w: Wanted, device: torch.device) -> list[Compared]:
    times, peak = trained(w, device)
    s = _setting(w, device, B=w.batch_size, T=w.config.max_len, training=True)
    counts = count(w.config)

    def planned(sheet: Device, probed: bool) -> tuple[float, float]:
        plan = plan_training(
            w.config, counts, sheet, w.layout, batch_size=w.batch_size, accumulate=w.accumulate,
            optimizer=w.optimizer, itemsize=w.itemsize, compiled=w.is_compiled,
            rates=probe(s, device) if probed else None,
        )  # fmt: skip
        return plan.step, plan.memory.peak

    return _beside("train", device, planned, (min(times), peak))


def generating(w: Wanted, device: torch.device) -> list[Compared]:
    """Prompts that leave room for some tokens, so that the last is at full length."""
    new = max(2, min(WRITTEN, w.config.max_len // 2))
    prompt = max(1, w.config.max_len - new)
    model, counts = _model(w, device), count(w.config)

    def write(tokens: int) -> None:
        for _ in generate(model, [[1] * prompt] * w.texts, GREEDY, max_tokens=tokens):
            pass

    write(new)
    peak = _size(model) + _peak(lambda: write(new), device)
    first = timed(lambda: write(1), device, REPEATS)
    each = seconds_a_token(model, w.texts, prompt, new, device, REPEATS)
    reading = _setting(w, device, B=w.texts, T=prompt, training=False)
    writing = replace(reading, T=1, S=w.config.max_len)

    def planned(s: Setting) -> Planned:
        def plan(sheet: Device, probed: bool) -> tuple[float, float]:
            found = plan_generating(
                w.config, counts, sheet, texts=w.texts, prompt=prompt, itemsize=w.itemsize,
                rates=probe(s, device) if probed else None,
            )  # fmt: skip
            return found.prefill if s is reading else found.decode, found.peak

        return plan

    read = _beside("prefill", device, planned(reading), (first, peak))
    return [read[0], *_beside("decode", device, planned(writing), (each, peak))]


def observing_heads(w: Wanted, device: torch.device) -> list[Compared]:
    model = _model(w, device)
    ids = torch.randint(w.config.vocab_size, (1, w.config.max_len), device=device)
    s = _setting(w, device, B=1, T=w.config.max_len, training=False)

    def look() -> None:
        with torch.inference_mode(), observing(model, keep="statistics"):
            model.features(ids)

    def planned(sheet: Device, probed: bool) -> tuple[float, float]:
        plan = plan_observing(
            w.config, count(w.config), sheet, itemsize=w.itemsize,
            rates=probe(s, device) if probed else None,
        )  # fmt: skip
        return plan.forward + plan.look, plan.peak

    look()
    peak = _peak(look, device)
    seconds = timed(look, device, REPEATS)
    return _beside("observe", device, planned, (seconds, _size(model) + peak))


def _beside(
    what: str,
    device: torch.device,
    planned: Planned,
    measured: tuple[float, float],
) -> list[Compared]:
    sheet = _sheet_of(device)
    probed = planned(sheet or DEVICES["cpu" if device.type == "cpu" else "h100"], True)
    expected = planned(sheet, False) if sheet else (None, None)
    return [
        Compared(what, unit, real, mine, paper)
        for unit, real, mine, paper in zip("sB", measured, probed, expected, strict=True)
    ]


def _setting(w: Wanted, device: torch.device, B: int, T: int, training: bool) -> Setting:
    return Setting(
        w.config, B=B, T=T, itemsize=w.itemsize, compiled=w.is_compiled and training,
        cuda=device.type == "cuda", training=training, last_only=not training,
    )  # fmt: skip


def _model(w: Wanted, device: torch.device) -> GPT:
    dtype = torch.bfloat16 if w.itemsize == 2 else torch.float32
    return GPT(w.config).to(device, dtype).eval()


def _size(model: GPT) -> int:
    return sum(p.nbytes for p in model.parameters())


def trained(
    w: Wanted, device: torch.device, steps: int = WARM + STEPS
) -> tuple[list[float], float]:
    """Seconds of each step after the first WARM, and bytes at the worst moment of one.

    As `glasshead train` does it.
    """
    model = GPT(w.config)
    drawn = np.random.default_rng(0).integers(w.config.vocab_size, size=20 * (w.config.max_len + 1))
    ids = drawn.astype(np.uint32)
    task = LanguageTask(model, Corpus(ids, ids), batch_size=w.batch_size, eval_batches=1, seed=1)
    clock = _Clock(device)
    settings = TrainConfig(
        steps=steps, batch_size=w.batch_size, accumulate=w.accumulate,
        optimizer=w.optimizer, device=str(device), compile="on" if w.is_compiled else "off",
        precision="bf16" if w.itemsize == 2 else "float32", eval_every=10**6,
        threads=torch.get_num_threads(), tensorboard=False, lr=1e-5, muon_lr=1e-5,
    )  # fmt: skip
    trainer = Trainer(task, settings, listener=clock)
    clock.static = lambda: sum(
        t.nbytes for t in (*trainer.model.parameters(), *trainer.optimizers.tensors().values())
    )
    trainer.train()
    return clock.times, clock.peak


class _Clock(ProgressListener):
    """Times the last steps of a short run; one before them it watches for its memory."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.times: list[float] = []
        self.peak = 0.0
        self.static: Callable[[], float] = lambda: 0.0
        self._memory: _Memory | None = None
        self._last = 0.0

    def on_step(self, status: Status) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        if self._memory is not None:
            self.peak = self.static() + self._memory.stop()
            self._memory = None
        elif status.step > WARM:
            self.times.append(time.perf_counter() - self._last)
        if status.step == 1:  # before a step is recorded, after which nothing is allocated
            self._memory = _Memory(self.device)
        self._last = time.perf_counter()


def _peak(run: Callable[[], object], device: torch.device) -> float:
    memory = _Memory(device)
    run()
    return memory.stop()


class _Memory:
    """The most bytes in use since it was made, beyond those in use then."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        if device.type == "cuda":
            torch.cuda.synchronize(device)
            torch.cuda.reset_peak_memory_stats(device)
            self._before = torch.cuda.memory_allocated(device)
            return
        self._made = _Made()
        self._made.__enter__()

    def stop(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            return torch.cuda.max_memory_allocated(self.device) - self._before
        self._made.__exit__(None, None, None)
        return self._made.most


class _Made(TorchDispatchMode):
    """Adds up what operations on a CPU make, and forgets what nobody holds any more."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self._alive: dict[StorageWeakRef, int] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        old = {id_of(x) for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, torch.Tensor) and id_of(x) not in old:
                self._alive.setdefault(
                    StorageWeakRef(x.untyped_storage()), x.untyped_storage().nbytes()
                )
        self._alive = {ref: size for ref, size in self._alive.items() if not ref.expired()}
        self.most = max(self.most, sum(self._alive.values()))
        return out


def id_of(x: torch.Tensor) -> int:
    return x.untyped_storage()._cdata
