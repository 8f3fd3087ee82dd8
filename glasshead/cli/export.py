"""`glasshead export`: a run becomes a folder of the transformers library."""

import sys
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["export"]


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="The folder to make.")],
) -> None:
    """Write a run as a folder that the transformers library loads.

    config.json, safetensors, the tokenizer and a model card come out; the folder's name is printed.

    \b
    Examples:
      glasshead export runs/poems -o models/poems
      glasshead train my.txt --preset llama --out runs/mine
      glasshead export runs/mine -o models/mine

    It becomes a GPT-2 (learned positions, LayerNorm), or a Llama, Qwen2 or Qwen3 (rotary
    positions, RMSNorm, SwiGLU), whichever is the same model; a translator becomes a Marian. Where
    none is the same, what stands in the way is listed.

    What always fits: glasshead train TEXT --preset llama; for translators
    glasshead train --pairs SRC TGT --preset marian, or any other preset with
    --positions sinusoidal-split --norm-place post.

    llama.cpp's converter takes models with a vocabulary that it knows, such as GPT-2's, and a Llama
    of characters or bytes that was trained on several documents and so knows how one ends. A BPE
    that was trained here it does not know.

    An imported Marian keeps its two sentencepiece models, which the transformers library reads
    with the package sentencepiece; one trained here has a tokenizer.json and needs nothing.
    """
    from glasshead.checkpoint import export_model

    made = export_model(run, out)
    sys.stderr.write(f"a {made.architecture} of {made.n_params:,} parameters\n")
    print(made.path)
