"""Export a run as a folder of the transformers library, or as a GGUF file."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from glasshead.checkpoint.gguf_writer import check_gguf, write_gguf
from glasshead.checkpoint.model_card import model_card
from glasshead.checkpoint.run import KINDS, Run, RunConfig, parameters
from glasshead.checkpoint.run_folder import RunFolder
from glasshead.checkpoint.safetensors_folder import SafetensorsFolder
from glasshead.errors import CheckpointError
from glasshead.files.checksums import add_checksums
from glasshead.files.tensors import write_tensors
from glasshead.files.writing import atomic_path, atomic_write
from glasshead.model.pretrained import HoldingFamily, ParameterSource, family_for
from glasshead.text.gguf_tokenizer import tokenizer_fields
from glasshead.text.hugging_face import tokenizer_files
from glasshead.text.sentencepiece_model import sentencepiece_model
from glasshead.text.tokenizer import MarianTokenizer, Tokenizer

__all__ = ["Exported", "export_model"]

Specials: TypeAlias = dict[str, tuple[str | None, Any]]  # text and id, by name


@dataclass(frozen=True)
class Exported:
    path: Path
    architecture: str
    n_params: int


def export_model(run: str | Path | Run, out: str | Path) -> Exported:
    """Write the best parameters of a run as a folder that the transformers library loads.

    >>> import glasshead
    >>> run = glasshead.train("abc\\n" * 99, preset="llama", steps=2, max_len=8, quiet=True)
    >>> glasshead.export_model(run, "models/abc").architecture
    'LlamaForCausalLM'

    Args:
        run: what `load` or `train` returned, or the path of a run.
        out: the folder to create, with config.json, safetensors, tokenizer and a model card. A name
            that ends in .gguf is a single file, which llama.cpp runs.

    Raises:
        GlassheadError: no family of the transformers library is the same model; the error lists the
            settings that prevent it.
    """
    folder, out = RunFolder.open(run.path if isinstance(run, Run) else run), Path(out)
    about = folder.config
    config: Any = KINDS[about.kind][0](**about.model)
    imported = about.data.get("imported", {})
    family = family_for(about.kind, config, imported.get("family"))
    tokenizer, tensors = folder.tokenizer(), SafetensorsFolder(folder.path)
    file = folder.path / "model.safetensors"
    with torch.device("meta"):
        own = parameters(about.new_model_of(tensors.shapes, file))
    is_gguf = out.suffix.lower() == ".gguf"
    if is_gguf and out.is_dir():
        raise CheckpointError(
            f"{out} is a folder, so no file of this name can be written",
            hint="remove it, or choose another -o",
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CheckpointError(f"{out} exists already", hint="choose another -o")
    specials = _special_tokens(tokenizer, imported)
    exported = Exported(out, family.architecture, sum(tensor.numel() for tensor in own.values()))
    shapes, read = _convert(family, config, tensors)
    if is_gguf:
        settings = {"model_type": family.name, **family.settings(config)}
        check_gguf(settings, shapes)
        ids = {name: number for name, (_, number) in specials.items()}
        fields = tokenizer_fields(tokenizer, ids, config.vocab_size, imported.get("chat_template"))
        write_gguf(out, settings, shapes, read, fields)
        return exported
    dtype = str(next(iter(tensors.shapes.values())).dtype).removeprefix("torch.")
    files = _transformers_files(about, config, family, tokenizer, specials, dtype)
    files["README.md"] = model_card(folder, out.name, family, exported.n_params).encode()
    with atomic_path(out) as new:
        new.mkdir()
        with atomic_write(new / "model.safetensors") as written:
            write_tensors(written, shapes, {"format": "pt"}, read)
        add_checksums(new, files)
        for name, content in files.items():
            with atomic_write(new / name) as written:
                written.write(content)
    return exported


def _transformers_files(
    about: RunConfig,
    config: Any,
    family: HoldingFamily[Any],
    tokenizer: Tokenizer,
    specials: Specials,
    dtype: str,
) -> dict[str, bytes]:
    """Return the contents of all files but the tensors and the model card."""
    imported = about.data.get("imported", {})
    files = tokenizer_files(tokenizer, lowercase=about.lowercase)
    ids = {f"{name}_id": number for name, (_, number) in specials.items()}
    search: dict[str, Any] = {}
    if about.kind == "transformer":
        ids["decoder_start_token_id"] = tokenizer.specials["<bos>"]
        search = imported.get("generation") or _search_settings(tokenizer, config)
        ids["forced_eos_token_id"] = search.get("forced_eos_token_id")
    settings = {
        "architectures": [family.architecture],
        "model_type": family.name,
        **family.settings(config),
        **ids,
        "dtype": dtype,
        "torch_dtype": dtype,  # for programs older than transformers 5
    }
    tokenizer_config = _tokenizer_config(config, tokenizer, specials, imported)
    # Without an <eos>, llama.cpp would use the third character as one.
    has_end = family.name == "llama" and "<eos>" in tokenizer.specials
    if has_end and (pieces := sentencepiece_model(tokenizer)) is not None:
        files["tokenizer.model"] = pieces
        # The converter of llama.cpp assumes both to be true.
        tokenizer_config |= {"add_prefix_space": False, "add_bos_token": False}
    for name, data in (
        ("config.json", settings),
        ("generation_config.json", {**search, **ids}),
        ("tokenizer_config.json", tokenizer_config),
    ):
        files[name] = (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode()
    return files


def _convert(
    family: HoldingFamily[Any], config: Any, tensors: SafetensorsFolder
) -> tuple[dict[str, Tensor], Callable[[str], Tensor]]:
    """Return the family's tensors on the meta device, and a function that reads one by its name."""
    shapes, owners = dict[str, Tensor](), dict[str, ParameterSource]()
    for entry in family.entries(config):
        if entry.ours in tensors.shapes:
            parts = entry.split(tensors.shapes[entry.ours])
        else:  # a bias that our model does not have
            assert entry.zero, entry.ours
            weight = tensors.shapes[entry.beside or entry.ours.removesuffix("bias") + "weight"]
            parts = entry.split(torch.empty(len(weight), dtype=weight.dtype, device="meta"))
        shapes |= parts
        owners |= dict.fromkeys(parts, entry)

    def read(name: str) -> Tensor:
        entry = owners[name]
        if entry.ours not in tensors.shapes:
            return torch.zeros(shapes[name].shape, dtype=shapes[name].dtype)
        return entry.split(tensors.read(entry.ours))[name]

    return shapes, read


def _special_tokens(tokenizer: Tokenizer, imported: Mapping[str, Any]) -> Specials:
    """Return text and id of the special tokens.

    Missing ones are None, and written so: programs would otherwise use other ids for them.
    """
    tokens, ids = imported.get("tokens", {}), imported.get("ids", {})
    usual = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"}
    found: Specials = {}
    for name, own in usual.items():
        word = tokens.get(name, own)
        number = ids.get(f"{name}_id", tokenizer.specials.get(word, tokenizer.specials.get(own)))
        found[name] = (word if word in tokenizer.specials else None, number)
    return found


def _search_settings(tokenizer: Tokenizer, config: Any) -> dict[str, Any]:
    """Make transformers' `generate` write what `glasshead translate --beam 1` does: no special
    tokens, and as much text as the model can."""
    never = sorted({*tokenizer.specials.values()} - {tokenizer.specials["<eos>"]})
    return {"max_length": config.max_len, "bad_words_ids": [[number] for number in never]}


def _tokenizer_config(
    config: Any, tokenizer: Tokenizer, specials: Specials, imported: Mapping[str, Any]
) -> dict[str, Any]:
    if isinstance(tokenizer, MarianTokenizer):
        return {
            "tokenizer_class": "MarianTokenizer",
            "model_max_length": config.max_len,
            "separate_vocabs": False,
            **imported.get("languages", {}),
            **imported.get("tokens", {}),
        }
    named = {name: word for name, (word, _) in specials.items() if word is not None}
    template = imported.get("chat_template")
    return {
        # Not a class of one family, which would override what tokenizer.json says.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config.max_len,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        **imported.get("tokens", {}),
        **named,
        **({"chat_template": template} if template else {}),
    }
