"""`glasshead generate`: a run's model goes on with a text."""

import os
import shlex
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glasshead.cli.flags import with_flags
from glasshead.cli.terminal import Device, read_text, say

if TYPE_CHECKING:
    from glasshead.generation.stream import TextPiece

__all__ = ["generate"]


class Precision(StrEnum):
    float32 = "float32"
    bf16 = "bf16"
    int8 = "int8"


@with_flags(defaults=True, Sampling=("generation/sampling.py", "SamplingConfig"))
def generate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a trained run.")],
    prompt: Annotated[
        str | None,
        typer.Argument(
            metavar="PROMPT",
            help="The text to go on with; - reads it from stdin, as does leaving it out in a pipe.",
        ),
    ] = None,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", metavar="N", help="New tokens at most.")
    ] = 256,
    n: Annotated[int, typer.Option("--n", metavar="N", help="How many samples.")] = 1,
    stop: Annotated[
        list[str] | None,
        typer.Option(
            "--stop", metavar="TEXT", help="End before this text; may be given several times."
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", metavar="S", min=0, help="Repeats a sample [default: drawn and shown]"
        ),
    ] = None,
    precision: Annotated[
        Precision, typer.Option("--precision", help="int8 is the fastest on a CPU, and rounds.")
    ] = Precision.float32,
    device: Device = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line for each sample.")
    ] = False,
    **flags: Any,
) -> None:
    """Go on with a text, as a run's model would.

    Prompt and continuation go to stdout, as they come; several samples are divided by lines
    of ---.

    \b
    Examples:
      glasshead generate runs/poems "春江" --max-tokens 100 --temperature 0.8
      glasshead generate runs/poems "春江" --n 3 --seed 7 --stop 。
      echo "春江" | glasshead generate runs/poems --top-p 0.9

    One line end at the end of stdin is dropped. An empty prompt starts from <bos> or <eos> if the
    tokenizer has one, else from a line end, else from its first token.

    What the model sees is at most its max_len tokens: of a longer prompt only the last are read,
    and a text that grows past it is read again from its last half and grows from there.
    """
    import random

    from glasshead.machine import settle_half_precision

    if precision is not Precision.float32:
        settle_half_precision()  # before torch computes anything
    from glasshead.errors import ConfigError, InputError
    from glasshead.generation.opening import open_gpt
    from glasshead.generation.sampling import SamplingConfig
    from glasshead.generation.stream import start_ids, stream
    from glasshead.generation.text_state import find_end_ids
    from glasshead.machine import pick_device

    config = SamplingConfig(**{name: value for name, value in flags.items() if value is not None})
    if n < 1:
        raise ConfigError(f"n ({n}) must be at least 1", hint="try --n 3")
    # Of os.path, which takes any text: one too long for a name is no file, not an OSError.
    if prompt and not os.path.exists(run) and os.path.isfile(os.path.join(prompt, "config.json")):
        right = f"{shlex.quote(prompt)} {shlex.quote(str(run))}"
        raise InputError(
            f"{run} does not exist",
            hint=f"the run comes first, then the prompt: glasshead generate {right}",
        )
    text = read_text(prompt)
    seed = random.randrange(2**32) if seed is None else seed
    loaded, model = open_gpt(run, pick_device(device), precision)
    ids = loaded.tokenizer.prompt_ids(text) or start_ids(loaded.tokenizer)
    if len(ids) > (limit := model.config.max_len):
        say(f"the prompt has {len(ids)} tokens: only the last {limit} (max_len) are read")
    pieces = stream(
        model, loaded.tokenizer, [ids] * n, config,
        max_tokens=max_tokens, stop=stop or (), seed=seed,
        end_ids=find_end_ids(model, loaded.tokenizer, loaded.config),
    )  # fmt: skip
    show = JsonSamples(text, n, seed) if as_json else Samples(text, n)
    show.show()
    count, start = 0, time.perf_counter()
    for piece in pieces:
        count += 1
        show.add(piece)
    speed = count / (time.perf_counter() - start)
    say(f"seed {seed}, {count} tokens, {speed:.1f} tokens/s")


class Samples:
    """Prints the first sample as it comes, the others when those before are complete."""

    def __init__(self, prompt: str, n: int) -> None:
        self.waiting = [prompt] * n
        self.ended = [False] * n
        self.turn = 0
        self.last = ""

    def add(self, piece: "TextPiece") -> None:
        self.waiting[piece.row] += piece.text
        self.ended[piece.row] = piece.finish is not None
        self.show()

    def show(self) -> None:
        """Print what may be printed."""
        text = ""
        while self.turn < len(self.waiting):
            text += self.waiting[self.turn]
            self.waiting[self.turn] = ""
            self.last = text[-1:] or self.last
            if not self.ended[self.turn]:
                break
            text += "" if self.last == "\n" else "\n"
            self.turn += 1
            text += "---\n" if self.turn < len(self.waiting) else ""
            self.last = "\n"
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()


class JsonSamples:
    """One JSON object a line for each sample, when it is complete."""

    def __init__(self, prompt: str, n: int, seed: int) -> None:
        self.prompt, self.seed = prompt, seed
        self.texts, self.tokens = [""] * n, [0] * n

    def show(self) -> None:
        """Print nothing yet."""

    def add(self, piece: "TextPiece") -> None:
        import json

        self.texts[piece.row] += piece.text
        self.tokens[piece.row] += 1
        if piece.finish is not None:
            sample = {
                "prompt": self.prompt,
                "text": self.texts[piece.row],
                "finish": piece.finish,
                "tokens": self.tokens[piece.row],
                "seed": self.seed,
                "sample": piece.row,
            }
            print(json.dumps(sample, ensure_ascii=False), flush=True)
