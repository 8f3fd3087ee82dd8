"""A model of another program becomes a run.

Everything is checked by names and shapes first; then the tensors go from file to file, one at a
time and in the dtype they have, so that neither memory nor a bit is lost.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.checkpoint.foreign_model import ForeignModel, kind_of, open_source
from glasshead.checkpoint.run import KINDS, Run, RunConfig, RunFolder, parameters
from glasshead.checkpoint.run import load as load_run
from glasshead.checkpoint.safetensors_folder import Weights
from glasshead.errors import ConfigError, InputError
from glasshead.model.pretrained import Family, ForeignConfig, ParameterSource, family_of

__all__ = ["import_model", "load"]

Say = Callable[[str], object]


def import_model(source: str | Path, out: str | Path, say: Say | None = None) -> RunFolder:
    """Convert a model of another program into a run.

    >>> import glasshead
    >>> run = glasshead.train("abc\\n" * 99, preset="llama", steps=2, max_len=8, quiet=True)
    >>> exported = glasshead.export_model(run.path, "models/llama")  # or a model of yours
    >>> glasshead.import_model(exported.path, "runs/llama").config.kind
    'gpt'

    Args:
        source: a folder with config.json, safetensors and a tokenizer, a name on the hub, or a
            GGUF file.
        out: the run's folder, which must not be there yet.
        say: is told what is left out.
    """
    found = open_source(source)
    plan = _plan(found)
    if say:
        for line in plan.notes:
            say(line)
    shapes, weights = found.weights.shapes, found.weights
    made = {
        name: entry.join([shapes[theirs] for theirs in entry.theirs])
        for name, entry in plan.entries.items()
    }

    def fill(run: RunFolder) -> None:
        _check_copies(plan.copies, weights)
        run.save_tensors(made, read=lambda name: plan.read(name, weights))

    return RunFolder.make(out, plan.run_config(found), found.tokenizer, fill)


def load(path: str | Path) -> Run:
    """Load a model that is ready for use, its tokenizer and its config.

    >>> import glasshead
    >>> path = glasshead.train("abc\\n" * 99, steps=2, d_model=16, max_len=8, quiet=True).path
    >>> run = glasshead.load(path)
    >>> run.tokenizer.encode_ids("abc").tolist(), run.model.training
    ([1, 2, 3], False)

    Args:
        path: a run, of which the best parameters so far are taken; or a folder of the transformers
            library, or a GGUF file, which are read as `import_model` would.

    Returns:
        `.model` is a torch module in evaluation mode, `.tokenizer` turns text into ids and back,
        `.config` tells the kind, the settings and the data; `.path` and `.step` where from.
    """
    if kind_of(path) not in ("transformers", "gguf"):
        return load_run(path)
    found = open_source(path)
    plan = _plan(found)
    _check_copies(plan.copies, found.weights)
    config = plan.run_config(found)
    model = config.new_model()
    with torch.no_grad():
        for name, tensor in parameters(model).items():
            tensor.copy_(plan.read(name, found.weights))
    return Run(model.eval(), found.tokenizer, config, Path(path), 0)


@dataclass(frozen=True, eq=False)
class _Plan:
    """What is to become what; `theirs` of each entry as the files have it."""

    family: Family[Any]
    config: Any
    entries: dict[str, ParameterSource]  # by our names
    copies: dict[str, str]
    notes: list[str]

    def run_config(self, source: ForeignModel) -> RunConfig:
        data = {
            "task": {"gpt": "text", "transformer": "pairs"}.get(self.family.kind),
            "imported": {"from": source.name, "family": self.family.name, **source.kept},
        }
        return RunConfig(self.family.kind, asdict(self.config), {}, data)

    def read(self, name: str, weights: Weights) -> Tensor:
        entry = self.entries[name]
        return entry.join([weights.read(theirs) for theirs in entry.theirs])


def _plan(source: ForeignModel) -> _Plan:
    weights, where = source.weights, f"{source.name}: config.json"
    family = family_of(source.config, where)
    try:
        config = family.config(ForeignConfig(source.config, where))
        # Before anything is made in that number.
        layers = (config.n_layers, getattr(config, "n_decoder_layers", None) or 0)
        if max(layers) > len(weights.shapes):
            raise InputError(
                f"{where} has {max(layers)} layers, but there are only {len(weights.shapes)} "
                "tensors",
                hint="config.json and the safetensors are not of one model",
            )
        with torch.device("meta"):
            model: nn.Module = KINDS[family.kind][1](config)
    except ConfigError as error:
        raise InputError(f"{where} describes no model: {error}", hint=error.hint) from None
    _check_vocabulary(source, config.vocab_size)
    if family.kind == "transformer":
        _check_marks(source, where)
    bare = not any(name.startswith(family.prefix) for name in weights.shapes)
    short = family.prefix if bare else ""

    def named(theirs: str) -> str:
        name = theirs.removeprefix(short)
        older = family.older(name)
        return older if name not in weights.shapes and older in weights.shapes else name

    entries = {
        entry.ours: replace(entry, theirs=tuple(map(named, entry.theirs)))
        for entry in family.entries(config)
    }
    copies = {named(a): named(b) for a, b in family.copies(config).items()}
    copies = {a: b for a, b in copies.items() if a in weights.shapes}
    expected = dict(_expected(entries, parameters(model)))
    _check_shapes(weights, expected)
    others = weights.shapes.keys() - expected.keys() - copies.keys()
    others = {name for name in others if not family.silent.fullmatch(name)}
    left_out = {name for name in others if family.left_out.fullmatch(name)}
    if unknown := sorted(others - left_out):
        raise InputError(
            f"{weights.source} has '{unknown[0]}', which no {family.name} has "
            f"({len(unknown)} tensors are unknown)",
            hint="it may be of a kind that is not supported; a part of it would be lost",
        )
    notes = [f"left out: {_shortened(left_out)}"] if left_out else []
    return _Plan(family, config, entries, copies, notes)


def _expected(
    entries: Mapping[str, ParameterSource], own: Mapping[str, Tensor]
) -> Iterator[tuple[str, tuple[int, ...]]]:
    assert entries.keys() == own.keys(), entries.keys() ^ own.keys()
    for name, entry in entries.items():
        yield from entry.shapes(own[name].shape).items()


def _check_shapes(weights: Weights, expected: Mapping[str, tuple[int, ...]]) -> None:
    if missing := sorted(expected.keys() - weights.shapes.keys()):
        raise InputError(
            f"{weights.source} lacks '{missing[0]}' ({len(missing)} of {len(expected)} tensors "
            "are missing)",
            hint="the folder is not complete, or of another model than its config.json says",
        )
    for name, shape in expected.items():
        if (given := tuple(weights.shapes[name].shape)) != shape:
            raise InputError(
                f"{weights.source} has '{name}' of shape {given}, but config.json makes it {shape}",
                hint="config.json and the safetensors are not of one model",
            )
        if not weights.shapes[name].is_floating_point():
            raise InputError(
                f"{weights.source} has '{name}' as {weights.shapes[name].dtype}",
                hint="take a version that is not quantised",
            )


def _check_copies(copies: Mapping[str, str], weights: Weights) -> None:
    """A head that is tied may be written all the same, if it is the same."""
    for copy, original in copies.items():
        shapes = [weights.shapes[name].shape for name in (copy, original)]
        if shapes[0] != shapes[1] or not torch.equal(weights.read(copy), weights.read(original)):
            raise InputError(
                f"{weights.source} has '{copy}' and '{original}', which differ, though "
                "config.json says that they are one",
                hint='if they shall differ, set "tie_word_embeddings" to false in config.json',
            )


def _check_vocabulary(source: ForeignModel, vocab_size: int) -> None:
    if source.tokenizer.vocab_size > vocab_size:
        raise InputError(
            f"{source.name}: the tokenizer has {source.tokenizer.vocab_size} ids, the model "
            f"{vocab_size}",
            hint="the tokenizer is another model's; put the right one into the folder",
        )


def _check_marks(source: ForeignModel, where: str) -> None:
    """A translator begins, ends and is padded with what the tokenizer takes for it."""
    for name, mark in (
        ("decoder_start_token_id", "<bos>"),
        ("eos_token_id", "<eos>"),
        ("pad_token_id", "<pad>"),
    ):
        given, own = source.config.get(name), source.tokenizer.specials.get(mark)
        if own is None or given not in (own, None):
            raise InputError(
                f"{where}: {name} is {given}, but {mark} of the tokenizer is {own}",
                hint="put the model's own tokenizer into the folder: source.spm, target.spm and "
                "vocab.json",
            )


def _shortened(names: set[str]) -> str:
    """
    >>> _shortened({"pooler.dense.weight", "pooler.dense.bias", "cls.x"})
    'cls.*, pooler.* (3 tensors)'
    """
    first = sorted({re.sub(r"\..*", ".*", name) for name in names})
    return f"{', '.join(first)} ({len(names)} tensors)"
