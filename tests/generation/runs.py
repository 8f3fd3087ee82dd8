"""Folders of runs whose models are tiny and untrained."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from glasshead.checkpoint import RunConfig, RunFolder
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.text.tokenizer import Tokenizer


def make_run(
    path: Path, tokenizer: Tokenizer, data: dict[str, Any] | None = None, **fields: object
) -> Path:
    torch.manual_seed(0)
    size = {"max_len": 13, "n_layers": 2, "d_model": 32}
    config = GPTConfig(vocab_size=tokenizer.vocab_size, **(size | fields))
    about = RunConfig(kind="gpt", model=asdict(config), train={}, data=data or {})
    RunFolder.create(path, about, tokenizer, GPT(config))
    return path
