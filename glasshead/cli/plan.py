"""`glasshead plan`: what a model will cost, before it is run."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from glasshead.cli.flags import flags_of, with_flags
from glasshead.cli.terminal import Language, console, language

if TYPE_CHECKING:
    from glasshead.lab.plan.measuring import Comparison
    from glasshead.lab.plan.plans import Scenario

__all__ = ["plan"]

_TRAIN = ("training/config.py", "TrainConfig")
_PLANNED = {"batch_size", "accumulate", "optimizer"}
_WITHOUT = {flag.name for flag in flags_of(*_TRAIN)} - _PLANNED


@with_flags(without=_WITHOUT, Training=_TRAIN, Model=("model/gpt.py", "GPTConfig"))
def plan(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="A preset (nano, ... gpt2), a known shape (gpt2-xl, llama-8b, ...) or a run.",
        ),
    ] = None,
    gpu: Annotated[str, typer.Option("--gpu", help="h200, h100, a100, l40s, cpu")] = "h200",
    gpus: Annotated[int, typer.Option("--gpus", metavar="N", help="How many.")] = 1,
    parallel: Annotated[
        str,
        typer.Option("--parallel", help="ddp: a copy of the model on each; fsdp: a shard of it"),
    ] = "ddp",
    tensor: Annotated[
        int, typer.Option("--tensor", metavar="N", help="GPUs that share each matrix.")
    ] = 1,
    context: Annotated[
        int, typer.Option("--context", metavar="N", help="GPUs that share each text.")
    ] = 1,
    precision: Annotated[
        str | None,
        typer.Option("--precision", help="bf16, float32 [default: bf16; float32 on cpu]"),
    ] = None,
    compile: Annotated[
        bool | None,
        typer.Option(
            "--compile/--no-compile", help="Whether kernels are fused [default: on a GPU]"
        ),
    ] = None,
    texts: Annotated[
        int, typer.Option("--texts", metavar="N", help="Texts generated at a time.")
    ] = 1,
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Run a few steps here; print expected against measured."),
    ] = False,
    lang: Annotated[
        Language | None,
        typer.Option("--lang", help="Language of the tables [default: the locale's]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
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

    Speeds are what the data sheet promises times the share that programs get of it; --measure
    takes the speeds of this machine instead and tells how well the plan does.
    """
    from dataclasses import asdict, fields

    from glasshead.lab.plan.layout import Layout
    from glasshead.lab.plan.plans import Scenario, make_plan
    from glasshead.lab.plan.plans import as_json as plan_as_json
    from glasshead.lab.plan.shapes import find_shape
    from glasshead.model.gpt import GPTConfig

    given = {name: value for name, value in flags.items() if value is not None}
    shape = {f.name for f in fields(GPTConfig)}
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
    made, out = make_plan(scenario), console()
    if as_json:
        import json

        data = plan_as_json(made)
        if measure:
            data["measured"] = [asdict(one) for one in found]
        print(json.dumps(data, ensure_ascii=out.options.ascii_only, allow_nan=False))
        return
    from glasshead.lab.plan.tables import measurement_table, plan_tables

    words = lang.value if lang else language()
    parts = [*plan_tables(made, words)]
    if measure:
        parts += measurement_table(found, gpu if gpu == "cpu" else "cuda", words)
    for part in parts:
        out.print(part)


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
