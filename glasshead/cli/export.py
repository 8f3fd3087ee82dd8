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

    \b
    Examples:
      glasshead export runs/poems -o models/poems
      glasshead export runs/poems --out ../poems-for-transformers

    It becomes a GPT-2 (learned positions, LayerNorm), or a Llama, Qwen2 or Qwen3 (rotary
    positions, RMSNorm, SwiGLU), whichever is the same model; where none is, what stands in the
    way is listed. --preset llama always fits. The tokenizer and a model card go along.
    """
    from glasshead.checkpoint import export_model

    made = export_model(run, out)
    sys.stderr.write(f"a {made.architecture} of {made.n_params:,} parameters\n")
    print(made.path)
