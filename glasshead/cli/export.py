"""`glasshead export`: a run becomes a folder of the transformers library, or a GGUF file."""

from pathlib import Path
from typing import Annotated

from glasshead.cli.terminal import argument, option, say

__all__ = ["export"]


def export(
    run: Annotated[Path, argument("RUN", "The folder of a run.")],
    out: Annotated[
        Path, option("--out", "FOLDER|FILE.gguf", "The folder, or the file, to write.", "-o")
    ],
) -> None:
    """Write a run for the transformers library, vLLM or llama.cpp.

    A folder has config.json, safetensors, the tokenizer and a model card, for the first two; a GGUF
    file is all that llama.cpp needs. The path is printed.

    \b
    Examples:
      glasshead export runs/poems -o models/poems
      glasshead train my.txt --preset llama --out runs/mine
      glasshead export runs/mine -o models/mine
      glasshead export runs/mine -o models/mine.gguf

    The run is exported as the architecture that computes the same: GPT-2 (learned positions,
    LayerNorm), Llama, Qwen2 or Qwen3 (rotary positions, RMSNorm, SwiGLU), or Marian for a
    translator. If there is none, the settings that prevent it are listed.

    These can always be exported: glasshead train TEXT --preset llama; for translators
    glasshead train --pairs SRC TGT --preset marian, or any other preset with
    --positions sinusoidal-split --norm-place post.

    A GGUF file needs a Llama, Qwen2 or Qwen3 with an end-of-text token and a tokenizer that
    llama.cpp supports: --preset llama trains one; --portable alone changes the tokenizer, not the
    architecture. llama.cpp's own converter takes folders with characters, bytes and vocabularies
    that it knows, such as GPT-2's; for a BPE that was trained here, export a GGUF file instead.

    An imported Marian keeps its two sentencepiece models, which the transformers library reads
    with the package sentencepiece; one trained here has a tokenizer.json and needs no package.
    """
    from glasshead.checkpoint import export_model

    made = export_model(run, out)
    say(f"{made.architecture}, {made.n_params:,} parameters")
    print(made.path)
