"""Open a model of another program: a folder, a name on the hub, or a GGUF file."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from glasshead.checkpoint.gguf_reader import GGUFFile
from glasshead.checkpoint.hub import fetch_model
from glasshead.checkpoint.safetensors_folder import ForeignTensors, SafetensorsFolder, read_json
from glasshead.errors import InputError
from glasshead.files.reading import read_small
from glasshead.text.hugging_face import find_tokenizer
from glasshead.text.tokenizer import Tokenizer

__all__ = ["ForeignModel", "kind_of", "open_foreign"]

_TOKENS = (
    "bos_token",
    "eos_token",
    "pad_token",
    "unk_token",
    "cls_token",
    "sep_token",
    "mask_token",
)
_SEARCH = (
    "num_beams",
    "max_length",
    "length_penalty",
    "early_stopping",
    "bad_words_ids",
    "forced_eos_token_id",
)
_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")


@dataclass(frozen=True, eq=False)
class ForeignModel:
    """A model of another program, whose tensors are not read yet."""

    name: str
    config: dict[str, Any]  # as in config.json
    tensors: ForeignTensors
    tokenizer: Tokenizer
    extras: dict[str, Any] = field(default_factory=dict)  # what the run's config.json keeps


def kind_of(path: str | Path) -> Literal["run", "transformers", "gguf", "glass"]:
    """Return what a path seems to hold, by its name and its config.json.

    The default is "run": reading it raises the error that says what is wrong.
    """
    path = Path(path)
    match path.suffix.lower():
        case ".glass":
            return "glass"
        case ".gguf":
            return "gguf"
    try:
        config = json.loads(read_small(path / "config.json"))
    except (OSError, ValueError, RecursionError):
        return "run"
    theirs = isinstance(config, dict) and "model_type" in config and "format" not in config
    return "transformers" if theirs else "run"


def open_foreign(source: str | Path, say: Callable[[str], object] | None = None) -> ForeignModel:
    """Open a model; `say` gets a line about what is downloaded for it."""
    path = Path(source)
    if not path.exists():
        path = fetch_model(str(source), say)
    if path.suffix.lower() == ".gguf" and path.is_file():
        return _from_gguf(path)
    if not path.is_dir():
        raise InputError(
            f"{path} is neither a folder nor a .gguf file",
            hint="name the folder that contains config.json",
        )
    config = read_json(path / "config.json")
    if "format" in config and "model_type" not in config:
        raise InputError(
            f"{path} is a run already", hint=f"use it as it is: glasshead generate {path} PROMPT"
        )
    tensors, extras = SafetensorsFolder(path), _read_extras(path, config)
    return ForeignModel(str(source), config, tensors, find_tokenizer(path), extras)


def _from_gguf(path: Path) -> ForeignModel:
    """Open a file, with the tokenizer.json beside it if there is one."""
    file, beside = GGUFFile(path), path.parent / "tokenizer.json"
    tokenizer = find_tokenizer(path.parent) if beside.is_file() else file.tokenizer()
    return ForeignModel(str(path), file.config, file, tokenizer, file.extras)


def _read_extras(path: Path, config: dict[str, Any]) -> dict[str, Any]:
    """Read what a run has no other place for: special tokens, chat template, and of a translator
    its languages and the settings of its beam search."""
    jinja = path / "chat_template.jinja"
    about, generation = (
        read_json(file) if (file := path / name).is_file() else {}
        for name in ("tokenizer_config.json", "generation_config.json")
    )
    tokens = {name: _token_text(about.get(name)) for name in _TOKENS}
    ids = {name: generation.get(name, config.get(name)) for name in _IDS}
    extras: dict[str, Any] = {
        "tokens": {name: word for name, word in tokens.items() if word},
        "ids": {name: number for name, number in ids.items() if _is_id(number)},
    }
    template = about.get("chat_template")
    if jinja.is_file() and jinja.stat().st_size < 1 << 20:
        template = read_small(jinja, 1 << 20).decode(errors="replace")
    if isinstance(template, str):
        extras["chat_template"] = template
    if config.get("model_type") == "marian":
        languages = {name: about.get(name) for name in ("source_lang", "target_lang")}
        extras["languages"] = {name: code for name, code in languages.items() if code}
        # Older folders have them among the settings of the model.
        found = generation or {name: config[name] for name in _SEARCH if name in config}
        origin = ("transformers_version", "_from_model_config")
        extras["generation"] = {name: v for name, v in found.items() if name not in origin}
    return extras


def _token_text(token: object) -> str | None:
    """Return the text of a special token, which may be an object with further settings."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None


def _is_id(number: object) -> bool:
    """Whether it is one id, or several that all end a text."""
    return type(number) is int or (
        isinstance(number, list) and bool(number) and all(type(n) is int for n in number)
    )
