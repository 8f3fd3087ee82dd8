"""Models of other programs: which of their families we know, and which of them can hold ours.

A family is a small table: how its settings become ours and ours become its own, and what each
parameter is called there. Files are read and written elsewhere (`glasshead.checkpoint`).

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
    refused,
)
from glasshead.model.pretrained.gpt2 import GPT2
from glasshead.model.pretrained.llama import Llama, Qwen2, Qwen3
from glasshead.model.pretrained.marian import Marian

__all__ = [
    "FAMILIES", "Family", "ForeignConfig", "HoldingFamily", "ParameterSource", "family_for",
    "family_of",
]  # fmt: skip

# One line a family. Of several that can hold a model of ours, the first is taken.
FAMILIES: dict[str, Family[Any]] = {
    family.name: family for family in (GPT2(), Llama(), Qwen3(), Qwen2(), Bert(), Marian())
}


# What gives a model that can be exported, for each kind that can.
_FITTING = {
    "gpt": "train with these settings changed, or: glasshead train TEXT --preset llama",
    "transformer": (
        "train with these settings changed, or: glasshead train --pairs SRC TGT --preset marian"
    ),
    "encoder": "one that was imported from a BERT fits",
}


def family_of(config: Mapping[str, Any], source: str = "config.json") -> Family[Any]:
    """The family of a model by its config.json."""
    name = config.get("model_type")
    if not isinstance(name, str):
        raise InputError(
            f"{source} has no model_type",
            hint="name a folder that save_pretrained of the transformers library wrote",
        )
    if name not in FAMILIES:
        raise InputError(
            f"{source}: models of type '{name}' cannot be imported",
            hint=did_you_mean(name, FAMILIES),
        )
    return FAMILIES[name]


def family_for(kind: str, config: Any, origin: str | None = None) -> HoldingFamily[Any]:
    """The family that can hold a model of ours; the one it came from, if it still can."""
    holding = [family for family in FAMILIES.values() if isinstance(family, HoldingFamily)]
    fitting = {family.name: family for family in holding if family.kind == kind}
    if not fitting:
        raise InputError(
            f"a {kind} cannot be exported: no family that we write is like it",
            hint=f"these can: {', '.join(sorted({family.kind for family in holding}))}",
        )
    obstacles = {name: family.obstacles(config) for name, family in fitting.items()}
    able = [name for name, found in obstacles.items() if not found]
    if not able:
        raise refused(obstacles, _FITTING[kind])
    return fitting[origin if origin in able else able[0]]
