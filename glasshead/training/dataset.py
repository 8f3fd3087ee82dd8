"""What every kind of training data has in common.

A new kind is a subclass of `Dataset`, such as `TextDataset` in language.py, and an entry in
`DATASETS` of start.py. config.json keeps its name, its settings and where its files are, so that
`--resume` can read it again:

    "data": {"task": "text", "sources": [...], "text": {its settings}, "fingerprint": ...,
             "excerpts": [lines of the held-out text, which the page offers as examples]}
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torch import nn

from glasshead.checkpoint.processes import ALONE, Processes
from glasshead.errors import InputError
from glasshead.text.sources import Report
from glasshead.text.token_store import keep_streams
from glasshead.text.tokenizer import Tokenizer
from glasshead.training.config import TrainConfig
from glasshead.training.progress import ProgressListener
from glasshead.training.task import Task

if TYPE_CHECKING:
    from glasshead.model.gpt import GPT
    from glasshead.model.transformer import Transformer

__all__ = ["Context", "Dataset", "Sources", "Translate", "select_fields", "split_excerpts"]

# Files by the name that config.json has for them: sources, val.
Sources = Mapping[str, Sequence[str | Path]]
# Takes the ids of source sentences, returns those of their translations, without special tokens.
Translate = Callable[["Transformer", Sequence[Sequence[int]]], list[list[int]]]


@dataclass(frozen=True, eq=False)
class Context:
    """What a run uses of its surroundings: a cache, listeners, samplers and other processes."""

    cache: Path  # a folder for tokenised texts
    listener: ProgressListener
    sampler: "Callable[[GPT, Tokenizer], str] | None" = None
    translator: Callable[[Tokenizer], Translate] | None = None
    processes: Processes = ALONE

    def save_streams(self, sources: Sequence[str | Path]) -> list[str | Path]:
        """Copy sources that can be read only once into the cache; return where all of them are."""
        try:
            self.cache.mkdir(parents=True, exist_ok=True)
            return keep_streams(sources, self.cache)
        except OSError as error:
            raise InputError(
                f"cannot write to the cache {self.cache}: {error.strerror}",
                hint="choose another folder: --cache DIR",
            ) from None

    def say_report(self, report: Report) -> None:
        for line in report.summary():
            self.listener.say(line)


USUAL = 50  # bytes of an excerpt: a sentence with enough words to look at


def split_excerpts(text: str, n: int = 4) -> list[str]:
    """Return whole lines or sentences of a text that fit on a line of a page, in its order.

    Those of the usual length come before single words and long lines.

    >>> split_excerpts("orn off. To be, or not to be? That is the question.\\nShort\\n江天一色。")
    ['To be, or not to be?', 'That is the question.', '江天一色。']
    """
    pieces = re.split(r"(?<=[.!?])\s+|(?<=[。！？])|\n+", text)[1:]
    found = dict.fromkeys(piece.strip() for piece in pieces)
    fitting = [one for one in found if "\ufffd" not in one and 10 <= len(one.encode()) <= 120]
    usual = sorted(fitting, key=lambda one: abs(len(one.encode()) - USUAL))[:n]
    return sorted(usual, key=fitting.index)


class Dataset(ABC):
    """The data of a run, read and split. Creating one reads it."""

    name: ClassVar[str]  # the word of `--task`, and the key of its settings in config.json
    kind: ClassVar[str]  # of model, as in checkpoint.KINDS
    config_class: ClassVar[type]  # its settings, a dataclass; every field is a flag
    example: ClassVar[str] = ""  # a command that names its files; empty if it needs none
    unused: ClassVar[frozenset[str]] = frozenset()  # settings that have no effect on it
    fixed: ClassVar[frozenset[str]] = frozenset()  # settings that trained parameters depend on
    same_shapes: ClassVar[bool] = False  # as in its task
    metrics: ClassVar[tuple[str, ...]] = ("loss",)  # what `stop_on` can name

    tokenizer: Tokenizer
    fingerprint: str  # differs if the data or its split differs

    def __init__(
        self,
        sources: Sources,
        config: Any,
        context: Context,
        *,
        tokenizer: Tokenizer | None = None,
        vocab_size: int | None = None,
    ) -> None:
        self.config, self.context = config, context
        self.sources: Sources = {}  # where its files are now
        self.read(sources, tokenizer, vocab_size)

    @abstractmethod
    def read(self, sources: Sources, tokenizer: Tokenizer | None, vocab_size: int | None) -> None:
        """Read the sources. Without a tokenizer, train one, of `vocab_size` if that is given."""

    def excerpts(self) -> list[str]:
        """Return a few short texts that the model was not trained on, as examples of its input."""
        return []

    @abstractmethod
    def task(self, model: nn.Module, train: TrainConfig) -> Task:
        """Return the task that the loop trains the model on."""

    @classmethod
    def make_config(cls, settings: dict[str, Any], flags: dict[str, Any]) -> Any:
        """Make its config from all settings of a new run; `flags` are those the user gave."""
        return cls.config_class(**select_fields(cls.config_class, settings))


def select_fields(config: type, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that are fields of a config."""
    names = {field.name for field in fields(config)}
    return {name: value for name, value in settings.items() if name in names}
