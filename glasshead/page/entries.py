"""Describe a model's folder or a .glass file from its JSON and the headers of its safetensors."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from glasshead.checkpoint import KINDS, Run, RunFolder, kind_of
from glasshead.checkpoint.safetensors_folder import SafetensorsFolder, read_json
from glasshead.errors import ConfigError, GlassheadError, InputError, did_you_mean
from glasshead.files.tensors import TensorFile
from glasshead.model.pretrained import FAMILIES, ForeignConfig, family_of
from glasshead.observe.glass_file import VERSION
from glasshead.observe.trace import Trace
from glasshead.page.examples import world_languages
from glasshead.page.look_answers import has_words

__all__ = ["Entry", "describe", "entry_of_model", "entry_of_trace"]

COPY_AGAIN = "copy the whole folder again"
KIND_NAMES = {"transformer": "translator"}  # what people call our kinds of models
CAN: dict[str, tuple[str, ...]] = {
    "gpt": ("atlas", "look", "steps", "write"),
    "translator": ("atlas", "look", "steps", "translate"),
    "reader": ("atlas", "look", "steps"),
    "encoder": ("atlas", "look", "steps"),
    "transformers": ("atlas", "look"),
    "glass": ("atlas",),
    "broken": (),
}


@dataclass(frozen=True)
class Entry:
    """A model or a .glass file, as the page lists it."""

    id: str  # where it lies, from the served folder on
    name: str
    kind: str  # gpt, translator, reader, encoder, transformers, glass, broken
    reason: str = ""  # why it is broken, or only to be looked at
    n_layers: int | None = None
    n_heads: int | None = None
    max_len: int | None = None
    vocab_size: int | None = None
    reads: str | None = None  # the language of the embedded world that it was trained to read
    can: tuple[str, ...] = ()  # look, write, translate, steps, atlas, chat

    def as_broken(self, reason: str) -> "Entry":
        return replace(self, kind="broken", reason=reason, can=CAN["broken"])


def entry_of_trace(trace: Trace, kind: str = "glass") -> Entry:
    """Describe what was recorded, in memory or in a .glass file."""
    shapes = [trace.shape(layer) for layer in trace.layer_traces]
    name = Path(str(trace.about.get("name") or trace.model or "atlas")).name
    return Entry(
        name, name, kind,
        n_layers=len(shapes),
        n_heads=max((H for _, H, _, _ in shapes), default=0),
        max_len=max((max(T, S) for _, _, T, S in shapes), default=0),
        can=("look", "atlas") if has_words(trace) else ("atlas",),
    )  # fmt: skip


def entry_of_model(path: Path, trace: Trace, run: Run | None) -> Entry:
    """Describe the model, or the .glass file, at `path` that a trace comes from.

    `run` is the opened model if it is one of ours.
    """
    match kind_of(path):
        case "run":
            return describe(path.resolve().name, path)
        case "glass":
            return entry_of_trace(trace)
    kind = "transformers" if run is None else KIND_NAMES.get(run.config.kind, run.config.kind)
    return entry_of_trace(trace, kind)


def describe(name: str, path: Path) -> Entry:
    """Describe what lies at `path`; an entry of kind "broken" says why it cannot be opened."""
    entry = Entry(name, name.rpartition("/")[2], "broken")
    try:
        match kind_of(path):
            case "glass":
                found = _describe_glass_file(entry, path)
            case "transformers":
                found = _describe_transformers(entry, path)
            case _:
                found = _describe_run(entry, path)
    except GlassheadError as error:
        return entry.as_broken(str(error))
    return replace(found, can=(*CAN[found.kind], *found.can))


def _describe_run(entry: Entry, path: Path) -> Entry:
    run = RunFolder.open(path)
    config, kind = run.config, run.config.kind
    if kind not in KINDS:
        raise InputError(f"unknown kind of model '{kind}'", hint=did_you_mean(kind, KINDS))
    try:
        KINDS[kind][0](**config.model)
    except (TypeError, ArithmeticError) as error:
        raise InputError(
            f"config.json does not describe a {kind}: {error}", hint=COPY_AGAIN
        ) from None
    _check_weights([path / "model.safetensors", *run.state_files], config.model)
    run.tokenizer()
    chats = isinstance(config.data.get("imported"), dict) and kind == "gpt"
    template = config.data["imported"].get("chat_template") if chats else None
    return replace(
        entry,
        kind=KIND_NAMES.get(kind, kind),
        reads=next(iter(world_languages(config.data)), None),
        can=("chat",) if template else (),
        **_sizes(config.model),
    )


def _describe_transformers(entry: Entry, path: Path) -> Entry:
    """As one of ours if the family is known; else only for looking, in the transformers library."""
    config = read_json(path / "config.json")
    SafetensorsFolder(path)
    where = "config.json"
    try:
        family = family_of(config, where)
        ours = family.config(ForeignConfig(config, where))
    except (ConfigError, InputError) as error:
        known = config.get("model_type") in FAMILIES
        said = f"only to be looked at: {error}" if known else ""
        return replace(entry, kind="transformers", reason=said, **_transformers_sizes(config))
    chats = family.kind == "gpt" and _has_chat_template(path)
    return replace(
        entry,
        kind=KIND_NAMES.get(family.kind, family.kind),
        can=("chat",) if chats else (),
        **_sizes(vars(ours)),
    )


def _describe_glass_file(entry: Entry, path: Path) -> Entry:
    try:
        about = TensorFile(path).metadata
        if about.get("glass") != str(VERSION):
            raise InputError(
                "not a .glass file of a version that this program knows",
                hint="write it again with glasshead atlas",
            )
        header = json.loads(about["header"])
        shapes = [layer["record"]["shape"] for layer in header["layers"] if layer["record"]]
        longest = max((max(T, S) for _, _, T, S in shapes), default=0)
        heads = max((H for _, H, _, _ in shapes), default=0)
        if _count(longest) is None or _count(heads) is None:
            raise ValueError("sizes that are no counts")
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        if isinstance(error, GlassheadError):
            raise
        raise InputError(
            f"damaged, or no .glass file ({type(error).__name__})",
            hint="write it again with glasshead atlas",
        ) from None
    return replace(
        entry, kind="glass", n_layers=len(header["layers"]), n_heads=heads, max_len=longest
    )


def _check_weights(files: list[Path], config: Mapping[str, Any]) -> None:
    """Raise unless one of these files is whole, by the sizes in its header."""
    wrong = ""
    for file in files:
        try:
            tensors = len(TensorFile(file).shapes)
        except (OSError, ValueError) as error:
            missing = isinstance(error, FileNotFoundError)
            reason = getattr(error, "strerror", None) or error
            wrong = wrong or f"{file.name} is {'missing' if missing else f'damaged: {reason}'}"
            continue
        # A model is built before its weights are read, and one that is not there may fill memory.
        layers, width, words = (
            _count(config.get(name)) or 0 for name in ("n_layers", "d_model", "vocab_size")
        )
        if layers > tensors or width * words > file.stat().st_size:
            raise InputError(
                f"config.json describes a larger model than {file.name} holds", hint=COPY_AGAIN
            )
        return
    raise InputError(wrong, hint=COPY_AGAIN)


def _has_chat_template(path: Path) -> bool:
    if (path / "chat_template.jinja").is_file():
        return True
    about = path / "tokenizer_config.json"
    return about.is_file() and isinstance(read_json(about).get("chat_template"), str)


def _sizes(config: Mapping[str, Any]) -> dict[str, Any]:
    names = ("n_layers", "n_heads", "max_len", "vocab_size")
    return {name: _count(config.get(name)) for name in names}


def _transformers_sizes(config: Mapping[str, Any]) -> dict[str, Any]:
    def first(*names: str) -> int | None:
        return next((n for name in names if (n := _count(config.get(name))) is not None), None)

    return {
        "n_layers": first("num_hidden_layers", "n_layer", "num_layers", "encoder_layers"),
        "n_heads": first("num_attention_heads", "n_head", "num_heads", "encoder_attention_heads"),
        "max_len": first("max_position_embeddings", "n_positions"),
        "vocab_size": first("vocab_size"),
    }


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 2**53 else None
