"""A run becomes a folder that the transformers library, and whatever reads its folders, loads; or
one GGUF file."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from glasshead.checkpoint.files import atomic_write, sync_folder, write_error, write_tensors
from glasshead.checkpoint.gguf_writer import check_gguf, write_gguf
from glasshead.checkpoint.model_card import model_card
from glasshead.checkpoint.run import KINDS, RunFolder, parameters
from glasshead.checkpoint.safetensors_folder import SafetensorsFolder
from glasshead.errors import CheckpointError
from glasshead.model.pretrained import HoldingFamily, ParameterSource, family_for
from glasshead.text.gguf_tokenizer import tokenizer_fields
from glasshead.text.hugging_face import tokenizer_files
from glasshead.text.sentencepiece_model import sentencepiece_model
from glasshead.text.tokenizer import MarianTokenizer, Tokenizer

__all__ = ["Exported", "export_model"]


@dataclass(frozen=True)
class Exported:
    path: Path
    architecture: str
    n_params: int


def export_model(run: str | Path, out: str | Path) -> Exported:
    """Write the best parameters of a run as a folder that the transformers library loads.

    >>> import glasshead
    >>> run = glasshead.train("abc\\n" * 99, preset="llama", steps=2, max_len=8, quiet=True)
    >>> glasshead.export_model(run.path, "models/abc").architecture
    'LlamaForCausalLM'

    Args:
        run: a run's folder.
        out: the folder to make: config.json, safetensors, tokenizer and a model card, in the family
            that is the same model. Where none is, the error lists what stands in the way. A name
            that ends in .gguf makes the one file that llama.cpp runs.
    """
    opened, out = RunFolder.open(run), Path(out)
    about = opened.config
    with torch.device("meta"):
        own = parameters(about.new_model())
    config: Any = KINDS[about.kind][0](**about.model)
    imported = about.data.get("imported", {})
    family = family_for(about.kind, config, imported.get("family"))
    tokenizer = opened.tokenizer()
    weights = SafetensorsFolder(opened.path)
    _check(weights.shapes, own, opened.path)
    to_file = out.suffix.lower() == ".gguf"
    if to_file and out.is_dir():
        raise CheckpointError(
            f"{out} is a folder, which is in the way of the file",
            hint="remove it, or choose another -o",
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CheckpointError(f"{out} exists already", hint="choose another --out")
    marks, n_params = _marks(tokenizer, imported), sum(tensor.numel() for tensor in own.values())
    if to_file:
        settings = {"model_type": family.name, **family.settings(config)}
        shapes, read = _tensors(family, config, weights)
        check_gguf(settings, shapes)
        numbers = {name: number for name, (_, number) in marks.items()}
        fields = tokenizer_fields(
            tokenizer, numbers, config.vocab_size, imported.get("chat_template")
        )
        write_gguf(out, settings, shapes, read, fields)
        return Exported(out, family.architecture, n_params)
    files = tokenizer_files(tokenizer, lowercase=about.reads_small_letters)
    ids = {f"{name}_id": number for name, (_, number) in marks.items()}
    search: dict[str, Any] = {}
    if about.kind == "transformer":
        ids["decoder_start_token_id"] = tokenizer.specials["<bos>"]
        search = imported.get("generation") or _search(tokenizer, config)
        ids["forced_eos_token_id"] = search.get("forced_eos_token_id")
    dtype = str(next(iter(weights.shapes.values())).dtype).removeprefix("torch.")
    settings = {
        "architectures": [family.architecture],
        "model_type": family.name,
        **family.settings(config),
        **ids,
        "dtype": dtype,
        "torch_dtype": dtype,  # as programs older than transformers 5 call it
    }
    spoken = _tokenizer_config(config, tokenizer, marks, imported)
    # Without an end of its own, llama.cpp would take the third character for one.
    ends = family.name == "llama" and "<eos>" in tokenizer.specials
    if ends and (pieces := sentencepiece_model(tokenizer)) is not None:
        files["tokenizer.model"] = pieces
        # Its converter would take both for granted.
        spoken |= {"add_prefix_space": False, "add_bos_token": False}
    with _own_folder(out) as made:
        shapes, read = _tensors(family, config, weights)
        with atomic_write(made / "model.safetensors") as file:
            write_tensors(file, shapes, {"format": "pt"}, read)
        for name, data in (
            ("config.json", settings),
            ("generation_config.json", {**search, **ids}),
            ("tokenizer_config.json", spoken),
        ):
            files[name] = (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode()
        files["README.md"] = model_card(opened, out.name, family, n_params).encode()
        for name, content in files.items():
            with atomic_write(made / name) as file:
                file.write(content)
    return Exported(out, family.architecture, n_params)


@contextmanager
def _own_folder(out: Path) -> Iterator[Path]:
    """A folder that no other export writes into. It becomes `out` once it is whole, or is gone."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{out.name}.", suffix=".new", dir=out.parent) as own:
            made = Path(own, out.name)
            made.mkdir()
            yield made
            os.replace(made, out)
        sync_folder(out.parent)
    except OSError as error:
        raise write_error(f"cannot make the folder {out}", error) from None


def _tensors(
    family: HoldingFamily[Any], config: Any, weights: SafetensorsFolder
) -> tuple[dict[str, Tensor], Callable[[str], Tensor]]:
    """Theirs on the meta device, and what reads one by its name."""
    shapes, owners = dict[str, Tensor](), dict[str, ParameterSource]()
    for entry in family.entries(config):
        if entry.ours in weights.shapes:
            parts = entry.split(weights.shapes[entry.ours])
        else:  # a bias that ours does without
            assert entry.zero, entry.ours
            weight = weights.shapes[entry.beside or entry.ours.removesuffix("bias") + "weight"]
            parts = entry.split(torch.empty(len(weight), dtype=weight.dtype, device="meta"))
        shapes |= parts
        owners |= dict.fromkeys(parts, entry)

    def read(name: str) -> Tensor:
        entry = owners[name]
        if entry.ours not in weights.shapes:
            return torch.zeros(shapes[name].shape, dtype=shapes[name].dtype)
        return entry.split(weights.read(entry.ours))[name]

    return shapes, read


def _marks(tokenizer: Tokenizer, imported: Mapping[str, Any]) -> dict[str, tuple[str | None, Any]]:
    """Name and id of the special tokens. Those that are not there are said not to be, or their
    programs would take other ids for them."""
    tokens, ids = imported.get("tokens", {}), imported.get("ids", {})
    usual = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"}
    found: dict[str, tuple[str | None, Any]] = {}
    for name, own in usual.items():
        word = tokens.get(name, own)
        number = ids.get(f"{name}_id", tokenizer.specials.get(word, tokenizer.specials.get(own)))
        found[name] = (word if word in tokenizer.specials else None, number)
    return found


def _search(tokenizer: Tokenizer, config: Any) -> dict[str, Any]:
    """So that their bare `generate` writes what `glasshead translate --beam 1` does: nothing that
    stands for no text, and as much as the model can."""
    never = sorted({*tokenizer.specials.values()} - {tokenizer.specials["<eos>"]})
    return {"max_length": config.max_len, "bad_words_ids": [[number] for number in never]}


def _tokenizer_config(
    config: Any,
    tokenizer: Tokenizer,
    marks: Mapping[str, tuple[str | None, Any]],
    imported: Mapping[str, Any],
) -> dict[str, Any]:
    if isinstance(tokenizer, MarianTokenizer):
        return {
            "tokenizer_class": "MarianTokenizer",
            "model_max_length": config.max_len,
            "separate_vocabs": False,
            **imported.get("languages", {}),
            **imported.get("tokens", {}),
        }
    named = {name: word for name, (word, _) in marks.items() if word is not None}
    template = imported.get("chat_template")
    return {
        # Not a class of one family, which would put its own ways in the place of the file's.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config.max_len,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
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
