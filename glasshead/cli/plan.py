"""`glasshead plan`: what a model will cost, before it is run."""

from typing import TYPE_CHECKING, Annotated, Any

from glasshead.cli.flags import flags_of, with_flags
from glasshead.cli.terminal import (
    AsJson,
    Lang,
    argument,
    console,
    drop_none,
    language,
    option,
    print_json,
)

if TYPE_CHECKING:
    from glasshead.lab.plan.measuring import Comparison
    from glasshead.lab.plan.scenario import Scenario

__all__ = ["plan"]

_TRAIN = ("training/config.py", "TrainConfig")
_PLANNED = {"batch_size", "accumulate", "optimizer"}
_WITHOUT = {flag.name for flag in flags_of(*_TRAIN)} - _PLANNED
_MODEL = "A preset (nano, ... gpt2), a known shape (gpt2-xl, llama-8b, ...) or a run."
_PARALLEL = "ddp: a copy of the model on each; fsdp: a shard of it"
_PRECISION = "bf16, float32 [default: bf16; float32 on cpu]"
_COMPILE = "Whether kernels are fused [default: on a GPU]"


@with_flags(without=_WITHOUT, Training=_TRAIN, Model=("model/gpt.py", "GPTConfig"))
def plan(
    model: Annotated[str | None, argument("MODEL", _MODEL)] = None,
    gpu: Annotated[str, option("--gpu", None, "h200, h100, a100, l40s, cpu")] = "h200",
    gpus: Annotated[int, option("--gpus", "N", "How many.")] = 1,
    parallel: Annotated[str, option("--parallel", None, _PARALLEL)] = "ddp",
    tensor: Annotated[int, option("--tensor", "N", "GPUs that share each matrix.")] = 1,
    context: Annotated[int, option("--context", "N", "GPUs that share each text.")] = 1,
    precision: Annotated[str | None, option("--precision", None, _PRECISION)] = None,
    compile: Annotated[bool | None, option("--compile/--no-compile", None, _COMPILE)] = None,
    texts: Annotated[int, option("--texts", "N", "Texts generated at a time.")] = 1,
    measure: Annotated[
        bool, option("--measure", None, "Run a few steps here; print expected against measured.")
    ] = False,
    lang: Lang = None,
    as_json: AsJson = False,
    **flags: Any,
) -> None:
    """Plan a model: what it takes in memory, time and GPUs.

    \b
    Examples:
      glasshead plan gpt2 --batch-size 64
      glasshead plan llama-8b --gpus 64 --parallel fsdp --batch-size 128
      glasshead plan llama-70b --gpus 64 --gpu h100 --parallel fsdp --tensor 8 --batch-size 64
      glasshead plan --n-layers 6 --n-heads 6 --d-model 384 --vocab-size 65 --gpu cpu
      glasshead plan nano --vocab-size 65 --gpu cpu --measure

    Operations and bytes are counted on the model itself. Speeds are the data sheet's, times the
    share that programs get of it; --measure compares a plan with what this machine does.
    """
    from dataclasses import asdict, fields

    from glasshead.lab.plan.layout import Layout
    from glasshead.lab.plan.plans import as_json as plan_as_json
    from glasshead.lab.plan.plans import make_plan
    from glasshead.lab.plan.scenario import Scenario
    from glasshead.lab.plan.shapes import find_shape
    from glasshead.model.gpt import GPTConfig

    given, shape = drop_none(flags), {field.name for field in fields(GPTConfig)}
    scenario = Scenario(
        find_shape(model, {name: value for name, value in given.items() if name in shape}),
        gpu=gpu,
        layout=Layout(gpus, parallel, tensor, context),
        precision=precision,
        compiled=compile,
        texts=texts,
        **{name: value for name, value in given.items() if name in _PLANNED},
    )
    found = _measure(scenario) if measure else []
    made = make_plan(scenario)
    if as_json:
        measured = {"measured": [asdict(one) for one in found]} if measure else {}
        print_json({**plan_as_json(made), **measured})
        return
    from glasshead.lab.plan.tables import measurement_table, plan_tables

    tables = [*plan_tables(made, language(lang))]
    if measure:
        tables += measurement_table(found, gpu if gpu == "cpu" else "cuda", language(lang))
    out = console()
    for table in tables:
        out.print(table)


def _measure(scenario: "Scenario") -> list["Comparison"]:
    from glasshead.errors import ConfigError
    from glasshead.machine import settle_half_precision

    settle_half_precision()  # before torch computes anything
    from glasshead.lab.plan.measuring import compare
    from glasshead.machine import pick_device

    if scenario.layout.gpus > 1:
        raise ConfigError(
            f"--measure runs on one device, not on {scenario.layout.gpus}", hint="leave --gpus out"
        )
    return compare(scenario, pick_device("cpu" if scenario.gpu == "cpu" else "cuda"))
