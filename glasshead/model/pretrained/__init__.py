"""Families of models of other programs, which can be imported and exported.

A family translates settings in both directions, and the names of parameters. `glasshead.checkpoint`
reads and writes the files.

    >>> family_of({"model_type": "bert"}).kind
    'encoder'
"""

from collections.abc import Mapping
from typing import Any

from glasshead.errors import InputError, did_you_mean
from glasshead.model.pretrained.bert import Bert
from glasshead.model.pretrained.family import (
    Family,
    ForeignConfig,
    HoldingFamily,
    ParameterSource,
    export_error,
)
from glasshead.model.pretrained.gpt2 import GPT2
from glasshead.model.pretrained.llama import Llama, Qwen2, Qwen3
from glasshead.model.pretrained.marian import Marian

__all__ = [
    "FAMILIES", "Family", "ForeignConfig", "HoldingFamily", "ParameterSource", "family_for",
    "family_of",
]  # fmt: skip

# A model of ours that fits several families is exported as the first of them.
FAMILIES: dict[str, Family[Any]] = {
    family.name: family for family in (GPT2(), Llama(), Qwen3(), Qwen2(), Bert(), Marian())
}


# How to get a model that can be exported, by its kind.
_HINTS = {
    "gpt": "train with these settings changed, or: glasshead train TEXT --preset nano",
    "transformer": (
        "train with these settings changed, or: glasshead train --pairs SRC TGT --preset marian"
    ),
    "encoder": "only an encoder that was imported from a BERT can be exported",
}


def family_of(config: Mapping[str, Any], source: str = "config.json") -> Family[Any]:
    """Return the family of a model by its config.json."""
    name = config.get("model_type")
    if not isinstance(name, str):
        raise InputError(
            f"{source} has no model_type",
            hint="name a folder that `save_pretrained` of the transformers library wrote",
        )
    if name not in FAMILIES:
        raise InputError(
            f"{source}: models of type '{name}' cannot be imported",
            hint=did_you_mean(name, FAMILIES),
        )
    return FAMILIES[name]


def family_for(kind: str, config: Any, origin: str | None = None) -> HoldingFamily[Any]:
    """Return the family to export a model to: the one it was imported from, if it still fits."""
    holding = [family for family in FAMILIES.values() if isinstance(family, HoldingFamily)]
    fitting = {family.name: family for family in holding if family.kind == kind}
    if not fitting:
        raise InputError(
            f"a {kind} cannot be exported: no supported family is like it",
            hint=f"these kinds can: {', '.join(sorted({family.kind for family in holding}))}",
        )
    obstacles = {name: family.obstacles(config) for name, family in fitting.items()}
    able = [name for name, found in obstacles.items() if not found]
    if not able:
        raise export_error(obstacles, _HINTS[kind])
    return fitting[origin if origin in able else able[0]]
