"""A model as one GGUF file, which llama.cpp runs as it is.

Its converter knows a BPE by what becomes of one fixed text, and so refuses every vocabulary that is
new; the file itself has no such limit.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from glasshead.checkpoint.files import sync_folder, write_error
from glasshead.checkpoint.gguf_reader import NAMES, gguf_package
from glasshead.errors import ConfigError

__all__ = ["check_gguf", "write_gguf"]

_KEYS = {
    "vocab_size": "vocab_size",
    "max_position_embeddings": "context_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
}
_REAL = {
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
}


def write_gguf(
    path: Path,
    settings: Mapping[str, Any],
    shapes: Mapping[str, Tensor],
    read: Callable[[str], Tensor],
    tokens: Mapping[str, Any],
) -> None:
    """Write it tensor by tensor.

    Args:
        settings: what config.json says, which `check_gguf` has nothing against.
        shapes: their tensors, on the meta device; `read` gives one by its name.
        tokens: the fields of the tokenizer.
    """
    gguf, arch = gguf_package(path), settings["model_type"]
    writer = gguf.GGUFWriter(None, arch)
    writer.add_name(path.stem)
    n_heads, width = settings["num_attention_heads"], settings["hidden_size"]
    for name, key in _KEYS.items():
        writer.add_uint32(f"{arch}.{key}", settings[name])
    for name, key in _REAL.items():
        writer.add_float32(f"{arch}.{key}", settings[name])
    for key in ("rope.dimension_count", "attention.key_length", "attention.value_length"):
        writer.add_uint32(f"{arch}.{key}", settings.get("head_dim", width // n_heads))
    for name, value in tokens.items():
        add = {str: writer.add_string, bool: writer.add_bool, int: writer.add_uint32}
        add.get(type(value), writer.add_array)(name, value)
    values = {name: _values(tensor) for name, tensor in shapes.items()}
    for name, tensor in values.items():
        bits = tensor.dtype == torch.uint8  # which numpy has no name for
        writer.add_tensor_info(
            _name(name),
            tuple(tensor.shape),
            torch.empty(0, dtype=tensor.dtype).numpy().dtype,
            tensor.numel() * tensor.element_size(),
            gguf.GGMLQuantizationType.BF16 if bits else None,
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # In a folder of its own: another export may be writing the same file.
        beside = TemporaryDirectory(prefix=f".{path.name}.", suffix=".new", dir=path.parent)
        with beside as own, closing(writer):
            part = Path(own, path.name)
            writer.write_header_to_file(part)
            writer.write_kv_data_to_file()
            writer.write_ti_data_to_file()
            for name in values:
                writer.write_tensor_data(_values(_paired(name, read(name), settings)).numpy())
            [file] = writer.fout
            file.flush()
            os.fsync(file.fileno())
            writer.close()
            os.replace(part, path)
        sync_folder(path.parent)
    except OSError as error:
        raise write_error(f"cannot write {path}", error) from None


def check_gguf(settings: Mapping[str, Any], shapes: Mapping[str, Tensor]) -> None:
    """That llama.cpp has all that the model has."""
    arch = settings["model_type"]
    reasons = {
        f"a {arch} is not among the families that are written": arch
        not in ("llama", "qwen2", "qwen3"),
        "rope_scaling stands in the way": settings.get("rope_scaling") is not None,
        "llama.cpp's Qwen3 has no bias in o_proj, the output of attention": arch == "qwen3"
        and any(name.endswith("o_proj.bias") for name in shapes),
    }
    for reason, holds in reasons.items():
        if holds:
            raise ConfigError(
                f"no GGUF file can be written of this model: {reason}",
                hint="export it as a folder, or train one that fits: "
                "glasshead train TEXT --preset llama",
            )


def _values(tensor: Tensor) -> Tensor:
    """As they stand in the file: vectors in float32, which llama.cpp asks for."""
    if tensor.dim() == 1 or tensor.dtype not in (torch.float16, torch.bfloat16):
        return tensor.float().contiguous()
    plain = tensor.contiguous()
    return plain.view(torch.uint8) if tensor.dtype == torch.bfloat16 else plain


def _paired(name: str, tensor: Tensor, settings: Mapping[str, Any]) -> Tensor:
    """Of a Llama's queries and keys the dimensions that turn together stand side by side there."""
    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
    count = heads.get(name.split(".")[-2])
    if settings["model_type"] != "llama" or count is None:
        return tensor
    n = settings[count]
    halves = tensor.view(n, 2, len(tensor) // n // 2, -1)
    return halves.transpose(1, 2).reshape(tensor.shape)


def _name(name: str) -> str:
    """
    >>> _name("model.layers.3.self_attn.q_proj.weight"), _name("lm_head.weight")
    ('blk.3.attn_q.weight', 'output.weight')
    """
    there = {theirs: short for short, theirs in NAMES.items()}
    stem, _, kind = name.rpartition(".")
    if stem.startswith("model.layers."):
        layer, _, stem = stem.removeprefix("model.layers.").partition(".")
        return f"blk.{layer}.{there[stem]}.{kind}"
    return f"{there[stem]}.{kind}"
