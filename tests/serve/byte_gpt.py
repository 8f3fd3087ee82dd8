"""A small GPT that reads any text, byte by byte, and knows nothing."""

from dataclasses import asdict
from pathlib import Path

import torch

from glasshead.checkpoint import RunConfig, RunFolder
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.text.tokenizer import ByteTokenizer

__all__ = ["byte_gpt"]


def byte_gpt(path: Path, max_len: int = 2003) -> Path:
    torch.manual_seed(0)
    config = GPTConfig(vocab_size=256, max_len=max_len, n_layers=2, n_heads=3, d_model=24)
    RunFolder.create(path, RunConfig("gpt", asdict(config), {}, {}), ByteTokenizer(), GPT(config))
    return path
