"""Import a model of another program as a run.

All names and shapes are checked first; then the tensors are copied from file to file, one at a time
and in their own dtype, which saves memory and every bit.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.checkpoint.foreign_model import ForeignModel, kind_of, open_foreign
from glasshead.checkpoint.run import KINDS, Run, RunConfig, check_model_memory, parameters
from glasshead.checkpoint.run_folder import RunFolder, load_run
from glasshead.checkpoint.safetensors_folder import ForeignTensors
from glasshead.errors import ConfigError, InputError
from glasshead.model.pretrained import Family, ForeignConfig, ParameterSource, family_of

__all__ = ["import_model", "load"]

Say = Callable[[str], object]
OTHER_MODEL = "config.json and the tensors are of different models; put the right ones together"


def import_model(source: str | Path, out: str | Path, say: Say | None = None) -> RunFolder:
    """Convert a model of another program into a run.

    >>> import glasshead
    >>> run = glasshead.train("abc\\n" * 99, preset="llama", steps=2, max_len=8, quiet=True)
    >>> exported = glasshead.export_model(run, "models/llama")  # or a model of yours
    >>> glasshead.import_model(exported.path, "runs/llama").config.kind
    'gpt'

    Args:
        source: a folder with config.json, safetensors and a tokenizer, a name on the hub, or a
            GGUF file.
        out: the run's folder, which must not exist yet.
        say: is called with a line about what is downloaded, and about what is left out.
    """
    foreign = open_foreign(source, say)
    conversion = _plan(foreign)
    if say:
        for line in conversion.notes:
            say(line)
    shapes = foreign.tensors.shapes
    joined = {
        name: entry.join([shapes[theirs] for theirs in entry.theirs])
        for name, entry in conversion.entries.items()
    }

    def write_model(run: RunFolder) -> None:
        conversion.check_copies(foreign.tensors)
        run.save_tensors(joined, read=lambda name: conversion.read(name, foreign.tensors))

    return RunFolder.create_with(
        out, conversion.run_config(foreign), foreign.tokenizer, write_model
    )


def load(path: str | Path) -> Run:
    """Load a model that is ready for use, its tokenizer and its config.

    >>> import glasshead
    >>> path = glasshead.train("abc\\n" * 99, steps=2, d_model=16, max_len=8, quiet=True).path
    >>> run = glasshead.load(path)
    >>> run.tokenizer.encode_ids("abc").tolist(), run.model.training
    ([1, 2, 3], False)

    Args:
        path: a run, of which the best parameters so far are loaded; or a folder of the transformers
            library, or a GGUF file, as for `import_model`.

    Returns:
        `.model` is a torch module in evaluation mode, `.tokenizer` turns text into ids and back,
        `.config` has the kind, the settings and the data; `.path` and `.step` where it is from.
    """
    if kind_of(path) not in ("transformers", "gguf"):
        return load_run(path)
    foreign = open_foreign(path)
    conversion = _plan(foreign)
    conversion.check_copies(foreign.tensors)
    config = conversion.run_config(foreign)
    with torch.device("meta"):
        check_model_memory(config.new_model(), path)
    model = config.new_model()
    with torch.no_grad():
        for name, tensor in parameters(model).items():
            tensor.copy_(conversion.read(name, foreign.tensors))
    return Run(model.eval(), foreign.tokenizer, config, Path(path), 0)


@dataclass(frozen=True, eq=False)
class _Conversion:
    """Which of our parameters is made of which of theirs."""

    family: Family[Any]
    config: Any
    entries: dict[str, ParameterSource]  # by our names, with their names as the files have them
    copies: dict[str, str]  # names of tensors that must equal others
    notes: list[str]

    def run_config(self, foreign: ForeignModel) -> RunConfig:
        data = {
            "task": {"gpt": "text", "transformer": "pairs"}.get(self.family.kind),
            "imported": {"from": foreign.name, "family": self.family.name, **foreign.extras},
        }
        return RunConfig(self.family.kind, asdict(self.config), {}, data)

    def read(self, name: str, tensors: ForeignTensors) -> Tensor:
        entry = self.entries[name]
        return entry.join([tensors.read(theirs) for theirs in entry.theirs])

    def check_copies(self, tensors: ForeignTensors) -> None:
        """Raise InputError if a tied head is in the file and differs from the embedding."""
        for copy, original in self.copies.items():
            one, other = (tensors.shapes[name].shape for name in (copy, original))
            if one != other or not torch.equal(tensors.read(copy), tensors.read(original)):
                raise InputError(
                    f"{tensors.source}: '{copy}' and '{original}' differ, but config.json says "
                    "that they are tied",
                    hint='if they should differ, set "tie_word_embeddings" to false in config.json',
                )


def _plan(foreign: ForeignModel) -> _Conversion:
    """Match all tensors with our parameters by name and shape, without reading them."""
    tensors, where = foreign.tensors, f"{foreign.name}: config.json"
    family = family_of(foreign.config, where)
    try:
        config = family.config(ForeignConfig(foreign.config, where))
        # Before so many layers are made.
        layers = (config.n_layers, getattr(config, "n_decoder_layers", None) or 0)
        if max(layers) > len(tensors.shapes):
            raise InputError(
                f"{where} has {max(layers)} layers, but there are only {len(tensors.shapes)} "
                "tensors",
                hint=OTHER_MODEL,
            )
        with torch.device("meta"):
            model: nn.Module = KINDS[family.kind][1](config)
    except ConfigError as error:
        raise InputError(f"{where} does not describe a model: {error}", hint=error.hint) from None
    _check_tokenizer(foreign, config.vocab_size, family.kind, where)
    bare = not any(name.startswith(family.prefix) for name in tensors.shapes)
    prefix = family.prefix if bare else ""

    def name_in_file(theirs: str) -> str:
        name = theirs.removeprefix(prefix)
        older = family.older_name(name)
        return older if name not in tensors.shapes and older in tensors.shapes else name

    entries = {
        entry.ours: replace(entry, theirs=tuple(map(name_in_file, entry.theirs)))
        for entry in family.entries(config)
    }
    copies = {name_in_file(a): name_in_file(b) for a, b in family.copies(config).items()}
    copies = {a: b for a, b in copies.items() if a in tensors.shapes}
    own, expected = parameters(model), dict[str, tuple[int, ...]]()
    assert entries.keys() == own.keys(), entries.keys() ^ own.keys()
    for name, entry in entries.items():
        expected |= entry.shapes(own[name].shape)
    _check_shapes(tensors, expected)
    others = tensors.shapes.keys() - expected.keys() - copies.keys()
    others = {name for name in others if not family.ignored.fullmatch(name)}
    left_out = {name for name in others if family.left_out.fullmatch(name)}
    if unknown := sorted(others - left_out):
        raise InputError(
            f"{tensors.source} has '{unknown[0]}', which no {family.name} has "
            f"({len(unknown)} tensors are unknown)",
            hint="this variant of the model is not supported: a part of it would be lost",
        )
    notes = [f"left out: {_abbreviate(left_out)}"] if left_out else []
    return _Conversion(family, config, entries, copies, notes)


def _check_shapes(tensors: ForeignTensors, expected: Mapping[str, tuple[int, ...]]) -> None:
    if missing := sorted(expected.keys() - tensors.shapes.keys()):
        raise InputError(
            f"{tensors.source} lacks '{missing[0]}' ({len(missing)} of {len(expected)} tensors "
            "are missing)",
            hint=f"the folder is not complete, or {OTHER_MODEL}",
        )
    for name, shape in expected.items():
        if (given := tuple(tensors.shapes[name].shape)) != shape:
            raise InputError(
                f"{tensors.source} has '{name}' of shape {given}, but config.json makes it {shape}",
                hint=OTHER_MODEL,
            )
        if not tensors.shapes[name].is_floating_point():
            raise InputError(
                f"{tensors.source} has '{name}' as {tensors.shapes[name].dtype}",
                hint="use a version of the model that is not quantised",
            )


def _check_tokenizer(foreign: ForeignModel, vocab_size: int, kind: str, where: str) -> None:
    """Raise InputError if the tokenizer cannot be that of the model."""
    tokenizer = foreign.tokenizer
    if tokenizer.vocab_size > vocab_size:
        raise InputError(
            f"{foreign.name}: the tokenizer has {tokenizer.vocab_size} ids, the model {vocab_size}",
            hint="it is the tokenizer of another model; put the right one into the folder",
        )
    specials = {"decoder_start_token_id": "<bos>", "eos_token_id": "<eos>", "pad_token_id": "<pad>"}
    for name, token in specials.items() if kind == "transformer" else ():
        given, own = foreign.config.get(name), tokenizer.specials.get(token)
        if own is None or given not in (own, None):
            raise InputError(
                f"{where}: {name} is {given}, but {token} of the tokenizer is {own}",
                hint="put the model's own tokenizer into the folder: source.spm, target.spm and "
                "vocab.json",
            )


def _abbreviate(names: set[str]) -> str:
    """
    >>> _abbreviate({"pooler.dense.weight", "pooler.dense.bias", "cls.x"})
    'cls.*, pooler.* (3 tensors)'
    """
    first = sorted({re.sub(r"\..*", ".*", name) for name in names})
    return f"{', '.join(first)} ({len(names)} tensors)"
