"""Every name and default that a user gets: presets, configs, functions at the top, flags.

They are listed in defaults.json, so that none of them changes unnoticed. After a change that is
meant, `python -m tests.test_defaults` writes the list anew.
"""

import dataclasses
import importlib
import inspect
import json
import pkgutil
from pathlib import Path
from typing import Any

import glasshead
from glasshead.attention.multihead import MultiHeadAttention
from glasshead.cli import COMMANDS
from glasshead.training.presets import PRESETS

LIST = Path(__file__).with_name("defaults.json")
PARTS = ("attention", "model", "observe", "training", "generation", "serve", "text", "api")


def config_classes() -> dict[str, type]:
    found = {}
    for part in PARTS:
        package = importlib.import_module(f"glasshead.{part}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "triton" in module.name or "kernel" in module.name or "programs" in module.name:
                continue
            for name, kind in vars(importlib.import_module(module.name)).items():
                ours = isinstance(kind, type) and kind.__module__ == module.name
                if ours and name.endswith(("Config", "Request", "Query")):
                    found[name] = kind
    return found


def defaults_of(kind: Any) -> dict[str, Any]:
    if hasattr(kind, "model_fields"):
        fields = kind.model_fields.items()
        return {name: one.default for name, one in fields if not one.is_required()}
    made = {
        one.name: one.default_factory()
        for one in (dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ())
        if one.default_factory is not dataclasses.MISSING
    }
    parameters = inspect.signature(kind).parameters.values()
    return {one.name: one.default for one in parameters if one.default is not one.empty} | made


def public_names(part: str) -> list[str]:
    return sorted(getattr(importlib.import_module(f"glasshead.{part}"), "__all__", ()))


def all_defaults() -> dict[str, Any]:
    tops = {name: getattr(glasshead, name) for name in glasshead.__all__}
    known = {name: one for name, one in tops.items() if callable(one)}
    commands = {f"glasshead {word}": command for word, command in COMMANDS.items()}
    found = {
        **known, **config_classes(), **commands, "MultiHeadAttention": MultiHeadAttention,
    }  # fmt: skip
    listed = {name: defaults_of(one) for name, one in found.items()}
    presets = {name: dataclasses.asdict(one) for name, one in PRESETS.items()}
    everything = {
        "defaults": {name: one for name, one in listed.items() if one},
        "presets": presets,
        "names": {part: public_names(part) for part in PARTS},
    }
    return json.loads(json.dumps(everything, default=str, sort_keys=True))


def test_defaults_are_those_of_the_list():
    listed, found = json.loads(LIST.read_text("utf-8")), all_defaults()
    for kind, table in found.items():
        for name, values in table.items():
            assert listed[kind].get(name) == values, f"{kind}: {name}; see tests/test_defaults.py"
        assert table.keys() == listed[kind].keys()


if __name__ == "__main__":
    LIST.write_text(json.dumps(all_defaults(), indent=1, sort_keys=True) + "\n", "utf-8")
