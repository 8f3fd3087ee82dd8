"""Plan a model as a whole: training, generating and observing; whether it fits, and what would."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from glasshead.errors import ConfigError
from glasshead.lab.plan.devices import Device, find_device
from glasshead.lab.plan.generating import GeneratingPlan, plan_generating
from glasshead.lab.plan.observing import ObservingPlan, plan_observing
from glasshead.lab.plan.scenario import Scenario
from glasshead.lab.plan.shapes import Counts, count
from glasshead.lab.plan.training import TrainingPlan, plan_training

__all__ = ["Plan", "as_json", "find_fitting", "make_plan"]


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
    device = find_device(scenario.gpu)
    return Plan(
        scenario,
        count(scenario.config),
        device,
        plan_training(scenario, device),
        plan_generating(scenario, device),
        plan_observing(scenario, device),
    )


def find_fitting(plan: Plan) -> Scenario | None:
    """Find a change with which training fits: shards, then smaller batches, then more GPUs."""
    for scenario in _changes(plan.scenario):
        try:
            if plan.fits(plan_training(scenario, plan.device).memory.peak):
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
