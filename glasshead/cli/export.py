"""`glasshead export`: a run becomes a folder of the transformers library, or a GGUF file."""

import sys
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["export"]


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="FOLDER|FILE.gguf", help="The folder, or the file, to make."
        ),
    ],
) -> None:
    """Write a run for the transformers library, vLLM or llama.cpp.

    A folder has config.json, safetensors, the tokenizer and a model card, for the first two; a GGUF
    file is all that llama.cpp needs. What was made is printed.

    \b
    Examples:
      glasshead export runs/poems -o models/poems
      glasshead train my.txt --preset llama --out runs/mine
      glasshead export runs/mine -o models/mine
      glasshead export runs/mine -o models/mine.gguf

    It becomes a GPT-2 (learned positions, LayerNorm), or a Llama, Qwen2 or Qwen3 (rotary
    positions, RMSNorm, SwiGLU), whichever is the same model; a translator becomes a Marian. Where
    none is the same, what stands in the way is listed.

    What always fits: glasshead train TEXT --preset llama; for translators
    glasshead train --pairs SRC TGT --preset marian, or any other preset with
    --positions sinusoidal-split --norm-place post.

    A GGUF file holds a Llama, Qwen2 or Qwen3 whose tokenizer llama.cpp can repeat and that knows
    how a text ends: --preset llama trains so; --portable alone changes the tokenizer, not the
    shape. llama.cpp's own converter, from a folder, takes characters, bytes and vocabularies that
    it knows, such as GPT-2's; a BPE that was trained here it refuses, and the GGUF file is the way.

    An imported Marian keeps its two sentencepiece models, which the transformers library reads
    with the package sentencepiece; one trained here has a tokenizer.json and needs nothing.
    """
    from glasshead.checkpoint import export_model

    made = export_model(run, out)
    sys.stderr.write(f"a {made.architecture} of {made.n_params:,} parameters\n")
    print(made.path)
