"""Glasshead: build a Transformer from its attention up, and see what every head attends to."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glasshead.checkpoint import Loaded

__all__ = ["__version__", "load"]

__version__ = "0.1.0"


def load(path: str | Path) -> "Loaded":
    """A trained run, or a folder of the transformers library: its `.model`, `.tokenizer` and
    `.config`."""
    from glasshead.checkpoint import load  # here, so that `import glasshead` is cheap

    return load(path)
