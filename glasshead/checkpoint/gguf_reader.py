"""Read a model from a GGUF file, the format of llama.cpp, as if it were a transformers folder.

The `gguf` package knows the layout of the file and its many kinds of quantisation. Quantised
tensors become float32, one at a time.
"""

import os
import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from glasshead.errors import InputError, install_hint
from glasshead.files.digest import DIGITS, digest
from glasshead.files.reading import check_regular
from glasshead.text.gguf_tokenizer import read_tokenizer
from glasshead.text.tokenizer import Tokenizer

__all__ = ["GGUF_DIGEST", "GGUF_WRITER", "NAMES", "GGUFFile", "digest_gguf", "gguf_package"]

GGUF_DIGEST = "glasshead.digest"  # the first field: a digest of the file, in which it is zeros
GGUF_WRITER = "glasshead.version"  # the last field, of files that must have a digest

_FAMILIES = ("llama", "qwen2", "qwen3")
NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_UNQUANTISED = {"F32": torch.float32, "F16": torch.float16}
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes, by type
_STRING, _ARRAY = 8, 9
_HEAD = 4096  # bytes in which the digest is found


def gguf_package(path: Path) -> Any:
    """Import the gguf package."""
    try:
        return import_module("gguf")
    except ImportError:
        raise InputError(
            f"{path}: the package gguf is needed and not installed", hint=install_hint("hf")
        ) from None


class GGUFFile:
    """A file as ForeignTensors, with the settings and names of the transformers library."""

    def __init__(self, path: Path) -> None:
        self.source, gguf = str(path), gguf_package(path)
        try:
            check_regular(path)
            check_gguf_lengths(path)
            reader = gguf.GGUFReader(path)
            self._fields = {name: field.contents() for name, field in reader.fields.items()}
        except Exception as error:  # the package checks little, and numpy can raise anything
            raise InputError(
                f"{path} cannot be read as GGUF: {' '.join(str(error).split())[:160]}",
                hint="the file is damaged or not complete; download it again",
            ) from None
        check_gguf_digest(path, GGUF_WRITER in self._fields)
        self._dequantize: Any = gguf.dequantize
        self._arch = str(self._fields.get("general.architecture"))
        if self._arch not in _FAMILIES:
            raise InputError(
                f"{path} holds a model of type '{self._arch}', which cannot be imported",
                hint=f"these can: {', '.join(_FAMILIES)}",
            )
        self._tensors = {_transformers_name(tensor.name): tensor for tensor in reader.tensors}
        if len(self._tensors) < len(reader.tensors):
            raise InputError(
                f"{path} has two tensors of the same name",
                hint="the file is damaged; download it again",
            )
        self.shapes: Mapping[str, Tensor] = {
            name: torch.empty(
                [int(n) for n in reversed(tensor.shape)],  # innermost first in the file
                dtype=_UNQUANTISED.get(tensor.tensor_type.name, torch.float32),
                device="meta",
            )
            for name, tensor in self._tensors.items()
        }

    @property
    def config(self) -> dict[str, Any]:
        """The content of the config.json that the model had."""
        get, n_heads = self._get, self._get("attention.head_count")
        if not isinstance(n_heads, int) or n_heads < 1:
            raise InputError(
                f"{self.source}: attention.head_count is {n_heads!r}",
                hint="only models with the same number of heads in all layers can be imported",
            )
        d_head = get("attention.key_length", int(get("embedding_length", 0)) // n_heads)
        if "rope_freqs.weight" in self.shapes or get("rope.scaling.type", "none") != "none":
            raise InputError(
                f"{self.source} scales its rotary positions, and does not say how",
                hint="import the folder with safetensors from which it was made",
            )
        if get("rope.dimension_count", d_head) != d_head:
            raise InputError(
                f"{self.source} rotates {get('rope.dimension_count')} of {d_head} dimensions",
                hint="only models that rotate all of them can be imported",
            )
        return {
            "model_type": self._arch,
            "vocab_size": self.shapes["model.embed_tokens.weight"].shape[0]
            if "model.embed_tokens.weight" in self.shapes
            else None,
            "max_position_embeddings": get("context_length"),
            "num_hidden_layers": get("block_count"),
            "num_attention_heads": n_heads,
            "num_key_value_heads": get("attention.head_count_kv", n_heads),
            "hidden_size": get("embedding_length"),
            "head_dim": d_head,
            "intermediate_size": get("feed_forward_length"),
            "rms_norm_eps": get("attention.layer_norm_rms_epsilon"),
            "rope_theta": get("rope.freq_base"),
            "attention_bias": "model.layers.0.self_attn.q_proj.bias" in self.shapes,
            "mlp_bias": "model.layers.0.mlp.down_proj.bias" in self.shapes,
            "tie_word_embeddings": "lm_head.weight" not in self.shapes,
        }

    @property
    def extras(self) -> dict[str, Any]:
        """Special tokens and chat template, for the run's config.json."""
        tokens = self._fields.get("tokenizer.ggml.tokens", [])
        words = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding"}
        ids = {
            name: number
            for name, word in words.items()
            if isinstance(number := self._fields.get(f"tokenizer.ggml.{word}_token_id"), int)
            and 0 <= number < len(tokens)
        }
        found: dict[str, Any] = {
            "tokens": {name: tokens[number] for name, number in ids.items()},
            "ids": {f"{name}_id": number for name, number in ids.items()},
        }
        template = self._fields.get("tokenizer.chat_template")
        return {**found, "chat_template": template} if isinstance(template, str) else found

    def tokenizer(self) -> Tokenizer:
        return read_tokenizer(self._fields, self.source)

    def read(self, name: str) -> Tensor:
        tensor = self._tensors[name]
        try:
            if tensor.tensor_type.name in _UNQUANTISED:
                values = np.array(tensor.data)
            else:
                values = self._dequantize(tensor.data, tensor.tensor_type)
            found = torch.from_numpy(values).view(self.shapes[name].shape)
        except Exception as error:  # a kind of quantisation that the package does not know
            raise InputError(
                f"{self.source}: '{name}' ({tensor.tensor_type.name}) cannot be read: {error}",
                hint="use a file with another quantisation, such as Q8_0",
            ) from None
        return self._unpair_rows(name, found)

    def _unpair_rows(self, name: str, tensor: Tensor) -> Tensor:
        """Put rotary dimensions that turn together half a head apart in a Llama's queries and keys.

        In the file they are side by side.
        """
        heads = {"q": "attention.head_count", "k": "attention.head_count_kv"}
        found = re.search(r"self_attn\.([qk])_proj\.", name)
        if self._arch != "llama" or found is None:
            return tensor
        n = self._get(heads[found[1]], self._get("attention.head_count"))
        pairs = tensor.view(n, len(tensor) // n // 2, 2, -1)
        return pairs.transpose(1, 2).reshape(tensor.shape)

    def _get(self, name: str, usual: Any = None) -> Any:
        return self._fields.get(f"{self._arch}.{name}", usual)


def _transformers_name(name: str) -> str:
    """
    >>> _transformers_name("blk.3.attn_q.weight")
    'model.layers.3.self_attn.q_proj.weight'
    """
    found = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)", name)
    if found is None or found[2] not in NAMES:
        return name
    layer = "" if found[1] is None else f"model.layers.{found[1]}."
    return f"{layer}{NAMES[found[2]]}.{found[3]}"


def check_gguf_digest(path: Path, is_ours: bool) -> None:
    """Raise InputError if a file that we wrote is not what was written."""
    own, written, _ = digest_gguf(path)
    if own != written or (is_ours and not own):
        raise InputError(
            f"{path} is damaged: it is not what was written",
            hint="export it again, or copy it again",
        )


def digest_gguf(path: Path) -> tuple[str, str, int]:
    """Return a file's digest, the one that is written in it, and where; "" if there is none."""
    content = np.memmap(path, np.uint8, "c")  # changes stay in memory
    key = GGUF_DIGEST.encode()
    field = len(key).to_bytes(8, "little") + key + _STRING.to_bytes(4, "little")
    field += DIGITS.to_bytes(8, "little")
    start = content[:_HEAD].tobytes().find(field)
    if start < 0:
        return "", "", 0
    start += len(field)
    place = content[start : start + DIGITS]
    written = place.tobytes().decode("latin-1")
    place[:] = ord("0")
    return digest(content), written, start


def check_gguf_lengths(path: Path) -> None:
    """Raise ValueError if a field or tensor reaches beyond the end of the file.

    The package believes every count: a wrong one makes it grow until the memory is full.
    """
    with path.open("rb") as file:
        _skip(file, 8)  # magic number and version
        tensors, fields = _read_number(file, 8), _read_number(file, 8)
        for _ in range(fields):
            _skip_string(file)
            _skip_value(file, _read_number(file, 4))
        for _ in range(tensors):
            _skip_string(file)
            _skip(file, 8 * _read_number(file, 4) + 12)  # its shape, type and place


def _skip_value(file: BinaryIO, kind: int) -> None:
    if kind == _STRING:
        _skip_string(file)
    elif kind == _ARRAY:
        inner, count = _read_number(file, 4), _read_number(file, 8)
        if inner == _STRING:
            for _ in range(count):
                _skip_string(file)
        else:
            _skip(file, count * _size_of(inner))
    else:
        _skip(file, _size_of(kind))


def _size_of(kind: int) -> int:
    if kind not in _SIZES:
        raise ValueError(f"type {kind} is unknown")
    return _SIZES[kind]


def _skip_string(file: BinaryIO) -> None:
    _skip(file, _read_number(file, 8))


def _read_number(file: BinaryIO, size: int) -> int:
    data = file.read(size)
    if len(data) < size:
        raise ValueError("it ends in the middle of a number")
    return int.from_bytes(data, "little")


def _skip(file: BinaryIO, n: int) -> None:
    left = os.fstat(file.fileno()).st_size - file.tell()
    if n > left:
        raise ValueError(f"it announces {n} bytes where {left} are left")
    file.seek(n, os.SEEK_CUR)
