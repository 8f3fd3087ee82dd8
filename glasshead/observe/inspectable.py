"""Something to look into: a model that can be given a text while its attention is recorded.

    subject.record("The cat sat.")          an Atlas of what its heads looked at

`transformers_folder.py` makes one of a folder with a `transformers` model. What makes one of our
runs lies in `generation/inspectable_runs.py`: observing knows no models of ours.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.errors import ConfigError, InputError
from glasshead.observe.recording import observing
from glasshead.observe.trace import Trace, open_glass
from glasshead.observe.words import Token, as_token, characters

__all__ = [
    "ALL",
    "GlassFile",
    "Inspectable",
    "InspectableModel",
    "RecordConfig",
    "bytes_of",
    "written",
]

Progress = Callable[[int, int], object]  # layers that are done, and how many there are


@dataclass(frozen=True)
class RecordConfig:
    """How to record a text."""

    layers: tuple[int | str, ...] | None = None  # which layers of attention; all when None
    keep: str = "tensors"  # tensors, statistics or both
    max_tokens: int | None = None  # read no more of the text
    beyond: bool = False  # whether it may be longer than the texts the model was trained on
    progress: Progress | None = None
    folder: Path | None = None  # for what does not fit in memory

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ConfigError(
                f"max_tokens ({self.max_tokens}) must be at least 1", hint="leave it out for all"
            )


ALL = RecordConfig()  # every layer of the whole text


class Inspectable(ABC):
    """What can be looked into: a model, or a file with what was recorded of one."""

    name: str

    @abstractmethod
    def record(self, text: str, config: RecordConfig = ALL) -> Trace:
        """Record what the heads look at while the model reads the text, and translates it if it
        does."""


class GlassFile(Inspectable):
    """A .glass file. It holds a trace with the text that was read."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.name
        self.trace = open_glass(path)

    def record(self, text: str, config: RecordConfig = ALL) -> Trace:
        """Return the trace in the file; `text` must be empty."""
        if text:
            raise InputError(
                f"{self.path} holds a text of its own",
                hint=f"leave the text out: glasshead look {self.path}",
            )
        return self.trace


class InspectableModel(Inspectable):
    """A model, and how it reads."""

    def __init__(self, name: str, model: nn.Module, device: torch.device) -> None:
        self.name, self.device = name, device
        self.model = model.to(device).eval()

    def _recorded(
        self,
        config: RecordConfig,
        call: Callable[[], object],
        about: dict[str, Any],
        tokens: Sequence[Token],
        ids: Tensor | None = None,
        source_tokens: Sequence[Token] | None = None,
    ) -> Trace:
        """Run `call` while the model is observed."""
        with (
            torch.no_grad(),
            observing(
                self.model,
                layers=config.layers,
                keep=config.keep,
                ids=None if ids is None else ids.cpu(),
                tokens=list(tokens),
                source_tokens=None if source_tokens is None else list(source_tokens),
                folder=config.folder,
            ) as seen,
            _announcing(self.model, seen, config.progress),
        ):
            call()
        seen.about = {"name": self.name, **about}
        return seen

    def _cut(self, ids: Sequence[int], config: RecordConfig) -> list[int]:
        cut = list(ids if config.max_tokens is None else ids[: config.max_tokens])
        if not cut:
            raise InputError("the text is empty", hint="give a text to look at")
        return cut

    def _fits(self, n: int, limit: int | None, config: RecordConfig, can_go_on: bool) -> None:
        """Raise if so many tokens are more than the model can read, or was trained to."""
        if limit is None or n <= limit or (config.beyond and can_go_on):
            return
        raise InputError(
            f"the text has {n:,} tokens, but {self.name} was made for {limit:,}",
            hint=f"--max-tokens {limit} reads the beginning"
            + ("; --beyond reads all, at positions it never saw in training" if can_go_on else ""),
        )


def written(tokens: Sequence[Token]) -> tuple[list[Token], dict[str, Any]]:
    """Of all tokens of a translation, first to last mark: those read, and what to note of the last.

    A word is written at the position before it, where cross-attention serves it: rows of
    cross-attention are named for what is written there, and the last of that is not read.
    """
    read, last = list(tokens[:-1]), tokens[-1]
    return read, {"last": last if isinstance(last, str) else characters([last])[0].text}


def bytes_of(token: str, table: dict[str, int]) -> Token:
    """A token of a byte-level tokenizer, where each byte is written as some character."""
    if all(c in table for c in token):
        return as_token(bytes(table[c] for c in token))
    return token


@contextmanager
def _announcing(model: nn.Module, seen: Trace, progress: Progress | None) -> Iterator[None]:
    """Tell how many of the layers are done."""
    if progress is None:
        yield
        return
    total, done = len(seen.layers), 0

    def advance(*_: object) -> None:
        nonlocal done
        done += 1
        progress(min(done, total), total)

    progress(0, total)
    hooks = [
        model.get_submodule(layer.name).register_forward_hook(advance) for layer in seen.layers
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
