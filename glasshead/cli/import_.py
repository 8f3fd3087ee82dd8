"""`glasshead import`: a model of another program becomes a run."""

from pathlib import Path
from typing import Annotated

from glasshead.cli.terminal import argument, option, say

__all__ = ["import_"]


def import_(
    source: Annotated[
        str,
        argument(
            "FOLDER|NAME|FILE.gguf", "A folder with config.json, a name on the hub, or a GGUF file."
        ),
    ],
    out: Annotated[Path, option("--out", "RUN", "The folder to write.", "-o")],
) -> None:
    """Convert a model of the transformers library to a run.

    The run works with generate, translate, score, look, atlas, serve and `train --from` like any
    other; its folder is printed.

    \b
    Examples:
      glasshead import models/gpt2 -o runs/gpt2
      glasshead import Qwen/Qwen3-0.6B -o runs/qwen
      glasshead import SmolLM2-135M-Instruct.Q4_1.gguf -o runs/smol

    Supported are GPT-2, Llama, Qwen2 and Qwen3 (dense), the encoders of BERT and MiniLM, and
    Marian's translators; in GGUF files Llama, Qwen2 and Qwen3. A folder needs config.json,
    safetensors and a tokenizer; pickled files are not read. Parameters keep their dtype, so that an
    export returns them bit for bit; quantised ones become float32.

    Of a model on the hub, what is downloaded and how large it is are said first. When that breaks
    off, files that are complete stay; afterwards it works without a network. No code of the model
    runs.
    """
    from glasshead.checkpoint import import_model

    run = import_model(source, out, say=say)
    say(f"{run.config.kind} of the family {run.config.data['imported']['family']}")
    print(run.path)
