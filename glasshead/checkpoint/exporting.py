"""A run becomes a folder that the transformers library, and whatever reads its folders, loads."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glasshead.checkpoint.card import model_card
from glasshead.checkpoint.files import new_folder, replacing, write_tensors
from glasshead.checkpoint.run import KINDS, Run, parameters
from glasshead.checkpoint.weights import SafetensorsFolder
from glasshead.errors import CheckpointError
from glasshead.model.pretrained import Entry, HoldingFamily, family_for
from glasshead.text.foreign import as_hugging_face
from glasshead.text.tokenizer import Tokenizer

__all__ = ["Exported", "export_model"]


@dataclass(frozen=True)
class Exported:
    path: Path
    architecture: str
    n_params: int


def export_model(run: str | Path, out: str | Path) -> Exported:
    """Write the best parameters of a run in the family that fits, with its tokenizer and a card."""
    opened, out = Run.open(run), Path(out)
    about = opened.config
    with torch.device("meta"):
        own = parameters(about.new_model())
    config: Any = KINDS[about.kind][0](**about.model)
    imported = about.data.get("imported", {})
    family = family_for(about.kind, config, imported.get("family"))
    tokenizer = opened.tokenizer()
    written = as_hugging_face(tokenizer)
    weights = SafetensorsFolder(opened.path)
    _check(weights.shapes, own, opened.path)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CheckpointError(f"{out} exists already", hint="choose another --out")
    marks = _marks(tokenizer, imported)
    dtype = str(next(iter(weights.shapes.values())).dtype).removeprefix("torch.")
    settings = {
        "architectures": [family.architecture],
        "model_type": family.name,
        **family.settings(config),
        **{f"{name}_id": number for name, (_, number) in marks.items()},
        "dtype": dtype,
        "torch_dtype": dtype,  # as programs older than transformers 5 call it
    }
    with new_folder(out) as made:
        _write_tensors(made, family, config, weights)
        for name, data in (
            ("config.json", settings),
            ("generation_config.json", {f"{n}_id": number for n, (_, number) in marks.items()}),
            ("tokenizer_config.json", _tokenizer_config(config, marks, imported)),
        ):
            _write(made / name, json.dumps(data, indent=2, ensure_ascii=False) + "\n")
        _write(made / "tokenizer.json", written)
        n_params = sum(tensor.numel() for tensor in own.values())
        _write(made / "README.md", model_card(opened, out.name, family, n_params))
    return Exported(out, family.architecture, n_params)


def _write_tensors(
    folder: Path, family: HoldingFamily[Any], config: Any, weights: SafetensorsFolder
) -> None:
    shapes, owners = dict[str, Tensor](), dict[str, Entry]()
    for entry in family.entries(config):
        if entry.ours in weights.shapes:
            parts = entry.split(weights.shapes[entry.ours])
        else:  # a bias that ours does without
            assert entry.zero, entry.ours
            weight = weights.shapes[entry.ours.removesuffix("bias") + "weight"]
            parts = entry.split(torch.empty(len(weight), dtype=weight.dtype, device="meta"))
        shapes |= parts
        owners |= dict.fromkeys(parts, entry)

    def read(name: str) -> Tensor:
        entry = owners[name]
        if entry.ours not in weights.shapes:
            return torch.zeros(shapes[name].shape, dtype=shapes[name].dtype)
        return entry.split(weights.read(entry.ours))[name]

    with replacing(folder / "model.safetensors") as file:
        write_tensors(file, shapes, {"format": "pt"}, read)


def _marks(tokenizer: Tokenizer, imported: Mapping[str, Any]) -> dict[str, tuple[str | None, Any]]:
    """Name and id of the special tokens. Those that are not there are said not to be, or their
    programs would take other ids for them."""
    tokens, ids = imported.get("tokens", {}), imported.get("ids", {})
    usual = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"}
    found: dict[str, tuple[str | None, Any]] = {}
    for name, word in usual.items():
        word = tokens.get(name, word)
        number = ids.get(f"{name}_id", tokenizer.specials.get(word))
        found[name] = (word if word in tokenizer.specials else None, number)
    return found


def _tokenizer_config(
    config: Any, marks: Mapping[str, tuple[str | None, Any]], imported: Mapping[str, Any]
) -> dict[str, Any]:
    named = {name: word for name, (word, _) in marks.items() if word is not None}
    template = imported.get("chat_template")
    return {
        # Not a class of one family, which would put its own ways in the place of the file's.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config.max_len,
        "clean_up_tokenization_spaces": False,
        **imported.get("tokens", {}),
        **named,
        **({"chat_template": template} if template else {}),
    }


def _check(given: Mapping[str, Tensor], own: Mapping[str, Tensor], path: Path) -> None:
    hint = "config.json and model.safetensors are not of one run; put back the one that was changed"
    if odd := sorted(own.keys() ^ given.keys()):
        what = "lacks" if odd[0] in own else "has an unknown"
        raise CheckpointError(f"{path}/model.safetensors {what} '{odd[0]}'", hint)
    for name, tensor in own.items():
        if tensor.shape != given[name].shape:
            raise CheckpointError(
                f"{path}/model.safetensors has '{name}' of shape {tuple(given[name].shape)}, "
                f"but config.json makes it {tuple(tensor.shape)}",
                hint,
            )


def _write(file: Path, text: str) -> None:
    with replacing(file) as stream:
        stream.write(text.encode())
