"""Check a folder of the transformers library before the library reads it.

It would wait at a named pipe and build as many layers as config.json asks for.
"""

import json
from pathlib import Path
from typing import Any

from glasshead.errors import CheckpointError, InputError
from glasshead.files.checksums import check_content
from glasshead.files.reading import check_regular, read_small
from glasshead.files.tensors import TensorFile

__all__ = ["check_foreign_folder"]

MOST_TEXT = 256 << 20  # bytes of a vocabulary or of a list of merges
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers",
          "decoder_layers", "num_decoder_layers", "num_encoder_layers")  # fmt: skip
# Settings that are sizes of tensors: none of them can be larger than the model.
SIZES = ("hidden_size", "n_embd", "d_model", "vocab_size", "intermediate_size", "n_inner",
         "num_attention_heads", "n_head", "num_key_value_heads", "head_dim", "type_vocab_size",
         "encoder_ffn_dim", "decoder_ffn_dim", "encoder_attention_heads",
         "decoder_attention_heads", "decoder_vocab_size", "embedding_size")  # fmt: skip
POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx", "sliding_window")
MOST_POSITIONS = 1 << 27
DOWNLOAD = "the file is damaged or not complete; download it again"


def check_foreign_folder(folder: Path) -> int:
    """Raise InputError unless all files are regular, undamaged and of sizes that fit together.

    Tensors with digests, those of our exports, are read and checked. Return how many numbers all
    tensors have.
    """
    tensors, elements = 0, 0
    for file in sorted(folder.iterdir()):
        try:
            if file.suffix == ".safetensors":
                opened = TensorFile(file)
                tensors += len(opened.shapes)
                elements += opened.elements
                for name in opened.shapes if opened.verified else ():
                    opened.read(name)
            elif file.suffix == ".json":
                content = read_small(file, MOST_TEXT)
                check_content(file, content)
            elif file.suffix in (".txt", ".model", ".jinja", ".spm"):
                check_regular(file)
        except CheckpointError as error:
            raise InputError(str(error), hint=error.hint) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"{file} is damaged: {reason}", hint=DOWNLOAD) from None
    if tensors:
        _check_sizes(folder / "config.json", tensors, elements)
    return elements


def _check_sizes(file: Path, tensors: int, elements: int) -> None:
    try:
        config = json.loads(read_small(file))
    except (OSError, ValueError, RecursionError):
        return  # the library says what is wrong
    limits = dict.fromkeys(LAYERS, tensors) | dict.fromkeys(SIZES, max(elements, 1 << 20))
    limits |= dict.fromkeys(POSITIONS, max(elements, MOST_POSITIONS))
    for part in (config, *(config.values() if isinstance(config, dict) else ())):
        for name, value in part.items() if isinstance(part, dict) else ():
            _check_size(file, name, value, limits.get(name))


def _check_size(file: Path, name: str, value: Any, limit: int | None) -> None:
    if limit is not None and isinstance(value, int | float) and value > limit:
        raise InputError(
            f"{file} has {name} {value:.6g}, which does not fit the tensors beside it",
            hint="config.json and the tensors are of different models; put the right ones together",
        )
