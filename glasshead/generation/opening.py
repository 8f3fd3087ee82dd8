"""Open what a user names: a run, a folder of the transformers library, a GGUF or a .glass file.

open_inspectable("runs/poems").record("春江潮水连海平")     # a trace of its attention
run, model = open_gpt("runs/poems", device)              # a model that continues texts
"""

from collections.abc import Callable
from pathlib import Path

import torch

from glasshead.checkpoint import Run, kind_of, load
from glasshead.checkpoint.hub import fetch_model, is_hub_name
from glasshead.errors import InputError
from glasshead.generation.inspectable_runs import InspectableReader, InspectableTranslator
from glasshead.generation.int8 import to_int8
from glasshead.model.gpt import GPT
from glasshead.model.transformer import Transformer
from glasshead.observe.inspectable import GlassFile, Inspectable, InspectableModel
from glasshead.observe.transformers_folder import TransformersFolder

__all__ = ["make_inspectable", "open_gpt", "open_inspectable", "open_translator"]


def open_inspectable(
    path: str | Path,
    device: torch.device | None = None,
    say: Callable[[str], object] | None = None,
) -> Inspectable:
    """Open a model to record its attention, or a .glass file with what was recorded.

    A folder of transformers, or OWNER/NAME on the hub, runs in that library; `say` gets a line
    about what is downloaded.
    """
    device = device or torch.device("cpu")
    if is_hub_name(path):
        return TransformersFolder(fetch_model(str(path), say), device, Path(path).name)
    match kind_of(path):
        case "glass":
            return GlassFile(Path(path))
        case "transformers":
            return TransformersFolder(Path(path), device)
    return make_inspectable(load(path), device)


def make_inspectable(run: Run, device: torch.device | None = None) -> InspectableModel:
    """Prepare a loaded run for recording, on its own device unless another is given."""
    translates = isinstance(run.model, Transformer)
    device = device or next(run.model.parameters()).device
    return (InspectableTranslator if translates else InspectableReader)(run, device)


def open_gpt(path: str | Path, device: torch.device, precision: str = "float32") -> tuple[Run, GPT]:
    """Open a model that continues texts; `precision` is "float32", "bf16" or "int8"."""
    run = load(path)
    if not isinstance(run.model, GPT):
        word = "translate" if run.config.kind == "transformer" else "look"
        raise InputError(
            f"{path} is a {run.config.kind}, which does not continue texts",
            hint=f"try: glasshead {word} {path}",
        )
    model = run.model.to(device)
    if precision == "bf16":
        model = model.to(torch.bfloat16)
    return run, to_int8(model) if precision == "int8" else model


def open_translator(path: str | Path, device: torch.device) -> tuple[Run, Transformer]:
    """Open a model that translates."""
    run = load(path)
    if not isinstance(run.model, Transformer):
        hint = f"try: glasshead generate {path}" if run.config.kind == "gpt" else "name another run"
        raise InputError(f"{path} is a {run.config.kind}, which does not translate", hint=hint)
    return run, run.model.to(device)
