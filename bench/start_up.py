"""Starting up: seconds from a command to its first word, each in a new process, in turns."""

import subprocess
import sys
import tempfile
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch

from bench.peers import missing_package, to_transformers
from bench.table import Row, Settings
from bench.timing import time_in_turns
from glasshead.checkpoint import RunConfig, RunFolder
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.text.tokenizer import ByteTokenizer

__all__ = ["rows"]

NOTHING, TORCH, TRANSFORMERS = "nothing", "import torch", "import transformers"
HELP, FIRST, THEIR_FIRST = "--help", "generate", "their generate"

# What someone would write to get one token out of a model's folder.
GENERATE = """
import sys, torch, transformers
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1])
print(model.generate(torch.tensor([[65]]), max_new_tokens=1, do_sample=False, pad_token_id=0))
"""


def small_model() -> GPT:
    torch.manual_seed(1)
    config = GPTConfig(
        vocab_size=ByteTokenizer().vocab_size, max_len=64, n_layers=2, n_heads=4, d_model=64,
        feed_forward="gelu-tanh", qkv_bias=True, tied=True, head_bias=False, init="gpt2",
    )  # fmt: skip
    return GPT(config).eval()


def rows(settings: Settings) -> list[Row]:
    reason = missing_package("transformers")
    with tempfile.TemporaryDirectory() as folder:
        run, theirs = Path(folder) / "run", Path(folder) / "theirs"
        model = small_model()
        about = RunConfig(kind="gpt", model=asdict(model.config), train={}, data={})
        RunFolder.create(run, about, ByteTokenizer(), model)
        glasshead, python = [sys.executable, "-m", "glasshead"], [sys.executable, "-c"]
        commands = {
            NOTHING: [*python, "pass"],
            TORCH: [*python, "import torch"],
            HELP: [*glasshead, "--help"],
            FIRST: [*glasshead, "generate", str(run), "A", "--max-tokens", "1", "--device", "cpu"],
        }
        if not reason:
            to_transformers(model).save_pretrained(theirs)
            lazy = "import transformers; transformers.GPT2LMHeadModel"
            commands |= {TRANSFORMERS: [*python, lazy],
                         THEIR_FIRST: [*python, GENERATE, str(theirs)]}  # fmt: skip
        runs = {
            name: partial(subprocess.run, command, check=True, capture_output=True)
            for name, command in commands.items()
        }
        seconds = time_in_turns(runs, settings.repeats, "cpu")
    at_best = {HELP: seconds[NOTHING], FIRST: seconds[TORCH]}
    pairs = [
        ("glasshead --help", HELP, "python -c 'import torch'", TORCH),
        ("glasshead --help", HELP, "import of transformers' GPT-2", TRANSFORMERS),
        ("glasshead generate: the first token", FIRST, "transformers, load and generate",
         THEIR_FIRST),
    ]  # fmt: skip
    return [
        Row(name, peer, "seconds", seconds[ours], seconds.get(other), at_best[ours],
            "" if other in seconds else reason or "")
        for name, ours, peer, other in pairs
    ]  # fmt: skip


if __name__ == "__main__":
    from bench.__main__ import main

    main("start-up")
