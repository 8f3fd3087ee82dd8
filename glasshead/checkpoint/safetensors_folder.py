"""Read the tensors of another program's model, one at a time, from the safetensors in its folder.

Names, shapes and dtypes come from the headers of the files, which the library checks against their
size: tensors are read only after everything is known to fit.
"""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from glasshead.errors import CheckpointError, InputError, did_you_mean
from glasshead.files.checksums import check_content
from glasshead.files.reading import read_small
from glasshead.files.tensors import DTYPES, TensorFile, unique_keys

__all__ = ["ForeignTensors", "SafetensorsFolder", "read_json"]

_DOWNLOAD = "the file is damaged or not complete; download it again"

# A command for the user that converts a pickled file into safetensors.
_CONVERT = (
    "from torch import load; from safetensors.torch import save_file; "
    "found = load({0}, weights_only=True); "
    "save_file({{name: tensor.clone() for name, tensor in found.items()}}, {1})"
)


class ForeignTensors(Protocol):
    """Tensors by name. `shapes` has them on the meta device: shape and dtype, but no memory."""

    source: str
    shapes: Mapping[str, Tensor]

    def read(self, name: str) -> Tensor: ...


class SafetensorsFolder:
    """model.safetensors, or the shards that model.safetensors.index.json lists."""

    def __init__(self, folder: Path) -> None:
        self.source = str(folder)
        index = folder / "model.safetensors.index.json"
        whole = folder / "model.safetensors"
        self._file_of: dict[str, Path] = {}
        self.shapes: Mapping[str, Tensor] = {}
        self._opened: dict[Path, TensorFile] = {}
        if whole.exists():
            self._add(whole)
        elif index.exists():
            for file, names in _shards(index).items():
                self._add(file, names)
        else:
            raise _no_safetensors(folder)

    def read(self, name: str) -> Tensor:
        file = self._file_of[name]
        try:
            return self._opened[file].read(name)
        except (OSError, ValueError) as error:
            raise InputError(f"{file} is damaged: {error}", hint=_DOWNLOAD) from None

    def _add(self, file: Path, listed: set[str] | None = None) -> None:
        try:
            opened = TensorFile(file)
            about = opened.shapes
        except FileNotFoundError:
            raise InputError(
                f"{file} is missing", hint="download the complete folder again"
            ) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"{file} is damaged: {reason}", hint=_DOWNLOAD) from None
        if listed is not None and (odd := sorted(about.keys() ^ listed)):
            what = "lacks" if odd[0] in listed else "has, unlike the index,"
            raise InputError(
                f"{file} {what} '{odd[0]}' ({len(odd)} tensors do not fit)", hint=_DOWNLOAD
            )
        shapes: dict[str, Tensor] = {}
        for name, (shape, dtype) in about.items():
            if dtype not in DTYPES:
                raise InputError(
                    f"{file} has '{name}' as {dtype}, which cannot be imported",
                    hint="use a version of the model that is not quantised",
                )
            shapes[name] = torch.empty(shape, dtype=DTYPES[dtype], device="meta")
            self._file_of[name] = file
        self.shapes = {**self.shapes, **shapes}
        self._opened[file] = opened


def _shards(index: Path) -> dict[Path, set[str]]:
    """Return the files of an index, and the names of the tensors in each."""
    table = read_json(index).get("weight_map")
    if not isinstance(table, dict) or not all(isinstance(file, str) for file in table.values()):
        raise InputError(f"{index} has no weight_map of names and files", hint=_DOWNLOAD)
    files: dict[Path, set[str]] = {}
    for name, file in table.items():
        if Path(file).name != file or "\\" in file or not file.endswith(".safetensors"):
            raise InputError(
                f"{index} lists {file!r}, which is not a safetensors file in its own folder",
                hint="shards are beside their index; do not trust this folder",
            )
        files.setdefault(index.parent / file, set()).add(name)
    return files


def read_json(file: Path) -> dict[str, Any]:
    """Read an object; raise InputError if the file is too large or has a field twice."""
    try:
        content = read_small(file)
        check_content(file, content)
        data = json.loads(content, object_pairs_hook=unique_keys)
    except OSError as error:
        raise InputError(
            f"cannot read {file}: {error.strerror}",
            hint="name a folder that `save_pretrained` of the transformers library wrote",
        ) from None
    except CheckpointError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} cannot be read: {error}", hint=_DOWNLOAD) from None
    if not isinstance(data, dict):
        raise InputError(f"{file} is not a JSON object", hint=_DOWNLOAD)
    return data


def _no_safetensors(folder: Path) -> InputError:
    pickled = sorted([*folder.glob("*.bin"), *folder.glob("*.pt"), *folder.glob("*.pth")])
    if not pickled:
        others = [str(file.parent) for file in folder.glob("*/*.safetensors")]
        hint = did_you_mean(str(folder), others) if others else "download the complete folder again"
        return InputError(f"{folder} has no model.safetensors", hint=hint)
    first = pickled[0]
    paths = (json.dumps(str(file)) for file in (first, folder / "model.safetensors"))
    command = f"python -c {shlex.quote(_CONVERT.format(*paths))}"
    if len(pickled) > 1:
        return InputError(
            f"{folder} has {len(pickled)} pickled files such as {first.name}, which can run code",
            hint="if you trust them, load the model with the transformers library and call "
            "`save_pretrained`, which writes safetensors",
        )
    return InputError(
        f"{folder} has only {first.name}, which is pickled and can run code",
        hint=f"if you trust it, convert it: {command}",
    )
