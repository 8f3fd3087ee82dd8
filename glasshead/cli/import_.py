"""`glasshead import`: a model of another program becomes a run."""

import sys
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["import_"]


def import_(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER|NAME|FILE.gguf",
            help="A folder with config.json, a name on the hub, or a GGUF file.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="RUN", help="The folder to make.")],
) -> None:
    """Make a run of a model of the transformers library.

    A run comes out that generate, translate, score, look, atlas, serve and `train --from` take like
    any other; its folder is printed.

    \b
    Examples:
      glasshead import models/gpt2 -o runs/gpt2
      glasshead import Qwen/Qwen3-0.6B -o runs/qwen
      glasshead import SmolLM2-135M-Instruct.Q4_1.gguf -o runs/smol

    Known are GPT-2, Llama, Qwen2 and Qwen3 (dense), the encoders of BERT and MiniLM, and Marian's
    translators; of GGUF files Llama, Qwen2 and Qwen3. A folder needs config.json, safetensors and a
    tokenizer; nothing that is pickled is read. Parameters keep their dtype, so that an export gives
    them back bit for bit; quantised ones become float32.
    """
    from glasshead.checkpoint import import_model

    run = import_model(source, out, say=lambda line: sys.stderr.write(f"{line}\n"))
    about = run.config
    sys.stderr.write(f"{about.kind} of the family {about.data['imported']['family']}\n")
    print(run.path)
