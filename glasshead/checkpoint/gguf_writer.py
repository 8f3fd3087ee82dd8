"""Write a model as one GGUF file, which llama.cpp runs as it is.

llama.cpp's own converter recognises a BPE by how it splits one fixed text, and therefore refuses
every new vocabulary. The file format has no such limit.
"""

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glasshead.checkpoint.gguf_reader import (
    GGUF_DIGEST,
    GGUF_WRITER,
    NAMES,
    digest_gguf,
    gguf_package,
)
from glasshead.errors import ConfigError
from glasshead.files.digest import DIGITS
from glasshead.files.writing import atomic_path, sync_file

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
_REAL = {"rms_norm_eps": "attention.layer_norm_rms_epsilon", "rope_theta": "rope.freq_base"}


def write_gguf(
    path: Path,
    settings: Mapping[str, Any],
    shapes: Mapping[str, Tensor],
    read: Callable[[str], Tensor],
    tokens: Mapping[str, Any],
) -> None:
    """Write a file, tensor by tensor.

    Args:
        settings: those of config.json, after `check_gguf`.
        shapes: the tensors, on the meta device; `read` returns one by its name.
        tokens: the fields of the tokenizer.
    """
    gguf, arch = gguf_package(path), settings["model_type"]
    writer = gguf.GGUFWriter(None, arch)
    writer.add_string(GGUF_DIGEST, "0" * DIGITS)  # until the end is written
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
    writer.add_uint32(GGUF_WRITER, 1)
    values = {name: _as_written(tensor) for name, tensor in shapes.items()}
    for name, tensor in values.items():
        is_bf16 = tensor.dtype == torch.uint8  # numpy has no bf16
        writer.add_tensor_info(
            _gguf_name(name),
            tuple(tensor.shape),
            torch.empty(0, dtype=tensor.dtype).numpy().dtype,
            tensor.numel() * tensor.element_size(),
            gguf.GGMLQuantizationType.BF16 if is_bf16 else None,
        )
    with atomic_path(path) as new, closing(writer):
        writer.write_header_to_file(new)
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for name in values:
            writer.write_tensor_data(_as_written(_pair_rows(name, read(name), settings)).numpy())
        [file] = writer.fout
        file.flush()
        own, _, place = digest_gguf(new)
        file.seek(place)
        file.write(own.encode())
        sync_file(file)


def check_gguf(settings: Mapping[str, Any], shapes: Mapping[str, Tensor]) -> None:
    """Raise ConfigError if llama.cpp cannot run the model."""
    arch = settings["model_type"]
    reasons = {
        f"only llama, qwen2 and qwen3 can, not {arch}": arch not in ("llama", "qwen2", "qwen3"),
        "llama.cpp knows hidden_act silu only": settings.get("hidden_act", "silu") != "silu",
        "it has rope_scaling": settings.get("rope_scaling") is not None,
        "llama.cpp's Qwen3 has no bias in o_proj, the output of attention": arch == "qwen3"
        and any(name.endswith("o_proj.bias") for name in shapes),
    }
    for reason, holds in reasons.items():
        if holds:
            raise ConfigError(
                f"this model cannot be written as a GGUF file: {reason}",
                hint="export it as a folder, or train a model that can: "
                "glasshead train TEXT --preset llama",
            )


def _as_written(tensor: Tensor) -> Tensor:
    """Return a tensor as the file has it: vectors in float32, bf16 as bytes."""
    if tensor.dim() == 1 or tensor.dtype not in (torch.float16, torch.bfloat16):
        return tensor.float().contiguous()
    plain = tensor.contiguous()
    return plain.view(torch.uint8) if tensor.dtype == torch.bfloat16 else plain


def _pair_rows(name: str, tensor: Tensor, settings: Mapping[str, Any]) -> Tensor:
    """Put rotary dimensions that turn together side by side in a Llama's queries and keys."""
    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
    count = heads.get(name.split(".")[-2])
    if settings["model_type"] != "llama" or count is None:
        return tensor
    n = settings[count]
    halves = tensor.view(n, 2, len(tensor) // n // 2, -1)
    return halves.transpose(1, 2).reshape(tensor.shape)


def _gguf_name(name: str) -> str:
    """
    >>> _gguf_name("model.layers.3.self_attn.q_proj.weight"), _gguf_name("lm_head.weight")
    ('blk.3.attn_q.weight', 'output.weight')
    """
    there = {theirs: short for short, theirs in NAMES.items()}
    stem, _, kind = name.rpartition(".")
    if stem.startswith("model.layers."):
        layer, _, stem = stem.removeprefix("model.layers.").partition(".")
        return f"blk.{layer}.{there[stem]}.{kind}"
    return f"{there[stem]}.{kind}"
