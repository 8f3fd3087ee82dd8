"""Plan a model as a whole: training, generating and observing; whether it fits, and what would."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from glasshead.errors import ConfigError, did_you_mean
from glasshead.lab.plan.devices import Device, find_device
from glasshead.lab.plan.generating import GeneratingPlan, plan_generating
from glasshead.lab.plan.layout import Layout
from glasshead.lab.plan.observing import ObservingPlan, plan_observing
from glasshead.lab.plan.shapes import Counts, count
from glasshead.lab.plan.training import TrainingPlan, plan_training
from glasshead.model.gpt import GPTConfig
from glasshead.training.optim import OPTIMIZERS

__all__ = ["Plan", "Scenario", "as_json", "find_fitting", "make_plan"]

BYTES = {"bf16": 2, "float32": 4}
DEEPEST = 10_000  # layers
ONE_GPU = Layout()


@dataclass(frozen=True)
class Scenario:
    """What is to be planned."""

    config: GPTConfig
    gpu: str = "h200"
    layout: Layout = ONE_GPU
    batch_size: int = 32  # sequences of a batch, on all GPUs
    accumulate: int = 1
    optimizer: str = "muon"
    precision: str | None = None  # bf16 on a GPU, float32 on a CPU
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

    def plan_training(self, device: Device) -> TrainingPlan:
        return plan_training(
            self.config, device, self.layout, batch_size=self.batch_size,
            accumulate=self.accumulate, optimizer=self.optimizer, itemsize=self.itemsize,
            compiled=self.is_compiled,
        )  # fmt: skip


@dataclass(frozen=True)
class Plan:
    scenario: Scenario
    counts: Counts
    device: Device
    training: TrainingPlan
    generating: GeneratingPlan
    observing: ObservingPlan

    def fits(self, peak: float) -> bool:
        return peak <= self.device.usable


def make_plan(scenario: Scenario) -> Plan:
    s, device = scenario, find_device(scenario.gpu)
    return Plan(
        s,
        count(s.config),
        device,
        s.plan_training(device),
        plan_generating(
            s.config, device, texts=s.texts, tensor=s.layout.tensor, itemsize=s.itemsize
        ),
        plan_observing(s.config, device, itemsize=s.itemsize),
    )


def find_fitting(plan: Plan) -> Scenario | None:
    """Find a change with which training fits: shards, then smaller batches, then more GPUs."""
    for scenario in _changes(plan.scenario):
        try:
            if plan.fits(scenario.plan_training(plan.device).memory.peak):
                return scenario
        except ConfigError:  # not divisible
            continue
    return None


def _changes(s: Scenario) -> Iterator[Scenario]:
    start = [s]
    if s.layout.gpus > 1 and s.layout.parallel == "ddp":
        sharded = replace(s, layout=replace(s.layout, parallel="fsdp"))
        yield sharded
        start.append(sharded)
    for some in start:
        batch, times = some.batch_size, some.accumulate
        while batch % 2 == 0 and batch // 2 >= some.layout.data:
            batch, times = batch // 2, times * 2
            yield replace(some, batch_size=batch, accumulate=times)
    for doublings in range(1, 11):
        more = replace(s.layout, gpus=s.layout.gpus << doublings, parallel="fsdp")
        yield replace(s, layout=more, batch_size=max(s.batch_size, more.data))


def as_json(plan: Plan) -> dict[str, Any]:
    """Return the plan as one object, in bytes, seconds and operations."""
    s, peak = plan.scenario, plan.training.memory.peak
    better = None if plan.fits(peak) else find_fitting(plan)
    batch = ("batch_size", "accumulate")
    return {
        "model": asdict(s.config),
        "parameters": asdict(plan.counts),
        "device": asdict(plan.device),
        "layout": {**asdict(s.layout), "data": s.layout.data},
        **{name: getattr(s, name) for name in (*batch, "optimizer")},
        "precision": "bf16" if s.itemsize == 2 else "float32",
        "compiled": s.is_compiled,
        "training": {
            **asdict(plan.training),
            "fits": plan.fits(peak),
            "would_fit": better
            and {**asdict(better.layout), **{name: getattr(better, name) for name in batch}},
        },
        "generating": {**asdict(plan.generating), "fits": plan.fits(plan.generating.peak)},
        "observing": {**asdict(plan.observing), "fits": plan.fits(plan.observing.peak)},
    }
