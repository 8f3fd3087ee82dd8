"""The whole plan of a model: training, generating, observing; whether it fits, and what would."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from glasshead.errors import ConfigError, did_you_mean
from glasshead.lab.plan.devices import Device, Rates, find_device
from glasshead.lab.plan.generating import GeneratingPlan, plan_generating
from glasshead.lab.plan.layout import Layout
from glasshead.lab.plan.observing import ObservingPlan, plan_observing
from glasshead.lab.plan.shapes import Counts, count
from glasshead.lab.plan.training import TrainingPlan, plan_training
from glasshead.model.gpt import GPTConfig
from glasshead.training.optim import OPTIMIZERS

__all__ = ["Plan", "Wanted", "as_json", "make_plan", "what_fits"]

BYTES = {"bf16": 2, "float32": 4}
DEEPEST = 10_000  # layers: operations are listed one by one
ALONE = Layout()


@dataclass(frozen=True)
class Wanted:
    """What is to be planned."""

    config: GPTConfig
    gpu: str = "h200"
    layout: Layout = ALONE
    batch_size: int = 32  # sequences of a batch, on all GPUs
    accumulate: int = 1
    optimizer: str = "muon"
    precision: str | None = None  # bf16, but float32 on a CPU
    compiled: bool | None = None  # on a GPU
    texts: int = 1  # continued at a time

    def __post_init__(self) -> None:
        for name, table in (("optimizer", OPTIMIZERS), ("precision", BYTES)):
            value = getattr(self, name)
            if value is not None and value not in table:
                raise ConfigError(f"unknown {name} '{value}'", hint=did_you_mean(value, table))
        for name in ("accumulate", "texts"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} ({getattr(self, name)}) must be at least 1", hint="1")
        if not 1 <= self.config.n_layers <= DEEPEST:
            raise ConfigError(
                f"n_layers ({self.config.n_layers}) must be from 1 to {DEEPEST:,} for a plan",
                hint="GPT-2 has 12, the largest models about a hundred: --n-layers 12",
            )

    @property
    def itemsize(self) -> int:
        return BYTES[self.precision or ("float32" if self.gpu == "cpu" else "bf16")]

    @property
    def is_compiled(self) -> bool:
        return self.gpu != "cpu" if self.compiled is None else self.compiled


@dataclass(frozen=True)
class Plan:
    wanted: Wanted
    counts: Counts
    device: Device
    training: TrainingPlan
    generating: GeneratingPlan
    observing: ObservingPlan

    def fits(self, peak: float) -> bool:
        return peak <= self.device.usable


def make_plan(wanted: Wanted, counts: Counts | None = None, rates: Rates | None = None) -> Plan:
    """`rates` are those of the data sheet when None."""
    w, device = wanted, find_device(wanted.gpu)
    counts = counts or count(w.config)
    return Plan(
        w,
        counts,
        device,
        _training(w, counts, device, rates),
        plan_generating(
            w.config,
            counts,
            device,
            texts=w.texts,
            tensor=w.layout.tensor,
            itemsize=w.itemsize,
            rates=rates,
        ),
        plan_observing(w.config, counts, device, itemsize=w.itemsize, rates=rates),
    )


def _training(
    w: Wanted, counts: Counts, device: Device, rates: Rates | None = None
) -> TrainingPlan:
    return plan_training(
        w.config,
        counts,
        device,
        w.layout,
        batch_size=w.batch_size,
        accumulate=w.accumulate,
        optimizer=w.optimizer,
        itemsize=w.itemsize,
        compiled=w.is_compiled,
        rates=rates,
    )


def what_fits(plan: Plan) -> Wanted | None:
    """A change with which training fits: shards, then smaller batches, then more GPUs."""
    for wanted in _changes(plan.wanted):
        try:
            if plan.fits(_training(wanted, plan.counts, plan.device).memory.peak):
                return wanted
        except ConfigError:  # what does not divide
            continue
    return None


def _changes(w: Wanted) -> Iterator[Wanted]:
    start = [w]
    if w.layout.gpus > 1 and w.layout.parallel == "ddp":
        sharded = replace(w, layout=replace(w.layout, parallel="fsdp"))
        yield sharded
        start.append(sharded)
    for some in start:
        batch, times = some.batch_size, some.accumulate
        while batch % 2 == 0 and batch // 2 >= some.layout.data:
            batch, times = batch // 2, times * 2
            yield replace(some, batch_size=batch, accumulate=times)
    for doublings in range(1, 11):
        more = replace(w.layout, gpus=w.layout.gpus << doublings, parallel="fsdp")
        yield replace(w, layout=more, batch_size=max(w.batch_size, more.data))


def as_json(plan: Plan) -> dict[str, Any]:
    """The plan as one object; bytes, seconds and operations as they are, without units."""
    w, t, g, o = plan.wanted, plan.training, plan.generating, plan.observing
    better = None if plan.fits(t.memory.peak) else what_fits(plan)
    return {
        "model": asdict(w.config),
        "parameters": asdict(plan.counts),
        "device": asdict(plan.device),
        "layout": {**asdict(w.layout), "data": w.layout.data},
        "batch_size": w.batch_size,
        "accumulate": w.accumulate,
        "optimizer": w.optimizer,
        "precision": "bf16" if w.itemsize == 2 else "float32",
        "compiled": w.is_compiled,
        "training": {
            **asdict(t),
            "step": t.step,
            "tokens_per_s": t.tokens_per_s,
            "fits": plan.fits(t.memory.peak),
            "would_fit": better and {
                **asdict(better.layout),
                "batch_size": better.batch_size,
                "accumulate": better.accumulate,
            },
        },
        "generating": {
            **asdict(g), "tokens_per_s": g.tokens_per_s, "fits": plan.fits(g.peak)
        },
        "observing": {**asdict(o), "tokens_per_s": o.tokens_per_s, "fits": plan.fits(o.peak)},
    }  # fmt: skip
