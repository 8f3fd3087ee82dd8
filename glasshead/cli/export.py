"""`glasshead export`: a run becomes a folder for transformers, a GGUF file, or a living page."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from glasshead.cli.terminal import argument, option, say

__all__ = ["export"]


def export(
    run: Annotated[Path, argument("RUN", "The folder of a run.")],
    out: Annotated[
        Path,
        option("--out", "FOLDER|FILE.gguf|FILE.html", "The folder, or the file, to write.", "-o"),
    ],
    precision: Annotated[
        Literal["float32", "float16", "int8"],
        typer.Option("--precision", help="How parameters are rounded in an HTML file."),
    ] = "float16",
) -> None:
    """Export a run to transformers, vLLM, llama.cpp or a live page.

    A folder has config.json, safetensors, the tokenizer and a model card, for the first two; a GGUF
    file is all that llama.cpp needs. An HTML file has the model in it and runs it in a browser,
    without a server or a network: type, generate, see every head, cut an edge. The path is printed.

    \b
    Examples:
      glasshead export runs/poems -o models/poems
      glasshead train my.txt --preset llama --out runs/mine
      glasshead export runs/mine -o models/mine
      glasshead export runs/mine -o models/mine.gguf
      glasshead export runs/poems -o poems.html --precision int8

    For a folder or a GGUF file, the run is exported as the architecture that computes the same:
    GPT-2 (learned positions, LayerNorm), Llama, Qwen2 or Qwen3 (rotary positions, RMSNorm, SwiGLU),
    or Marian for a translator. If there is none, the settings that prevent it are listed.

    These can always be exported: glasshead train TEXT --preset llama; for translators
    glasshead train --pairs SRC TGT --preset marian, or any other preset with
    --positions sinusoidal-split --norm-place post.

    A GGUF file needs a Llama, Qwen2 or Qwen3 with an end-of-text token and a tokenizer that
    llama.cpp supports: --preset llama trains one; --portable alone changes the tokenizer, not the
    architecture. llama.cpp's own converter takes folders with characters, bytes and vocabularies
    that it knows, such as GPT-2's; for a BPE that was trained here, export a GGUF file instead.

    An imported Marian keeps its two sentencepiece models, which the transformers library reads
    with the package sentencepiece; one trained here has a tokenizer.json and needs no package.

    An HTML file can have 200 MB at most. int8 makes it a quarter as large as float32, float16 half;
    what rounding changes in the predictions is measured and said, in nats a token.
    """
    if out.suffix.lower() == ".html":
        _export_page(run, out, precision)
        return
    if precision != "float16":
        from glasshead.errors import ConfigError

        raise ConfigError(
            f"--precision {precision} is for an HTML file, but -o is {out}",
            hint="name it FILE.html, or leave --precision out",
        )
    from glasshead.checkpoint import export_model

    made = export_model(run, out)
    say(f"{made.architecture}, {made.n_params:,} parameters")
    print(made.path)


def _export_page(run: Path, out: Path, precision: Literal["float32", "float16", "int8"]) -> None:
    import errno
    import os

    from glasshead.errors import InputError
    from glasshead.page.living import plan_living

    if out.exists():
        raise InputError(f"{out} exists already", hint="choose another -o")
    if not out.absolute().parent.is_dir():
        reason = os.strerror(errno.ENOENT)
        raise InputError(f"cannot write {out}: {reason}", hint="is there such a folder?")
    page = plan_living(run, precision)
    say(f"{page.size / 1e6:,.1f} MB, parameters in {precision}")
    if page.cost is not None:
        say(f"rounding changes the predictions by {page.cost:.2g} nats a token on average")
    page.write(out)
    print(out)
