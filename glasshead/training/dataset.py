"""What a run can be trained on. Text, pairs and the reader's stories all begin and go on alike.

A new dataset is a class such as `Text` in language.py, and its line in `DATASETS` of runs.py.
config.json keeps which one it was, with its settings and where it lies, so `--resume` finds it:

    "data": {"task": "text", "sources": [...], "text": {its settings}, "fingerprint": ...}
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from torch import nn

from glasshead.checkpoint.processes import ALONE, Processes
from glasshead.errors import InputError
from glasshead.text.store import keep_streams
from glasshead.text.tokenizer import Tokenizer
from glasshead.training.config import TrainConfig
from glasshead.training.progress import ProgressListener
from glasshead.training.task import Task

if TYPE_CHECKING:
    from glasshead.model.gpt import GPT
    from glasshead.model.transformer import Transformer

__all__ = ["Context", "Dataset", "Sources", "TrainingData", "Translate", "of"]

# Names of files by what they are for, as config.json keeps them: sources, val.
Sources = Mapping[str, Sequence[str | Path]]
# The ids of sources become those of their translations, without specials.
Translate = Callable[["Transformer", Sequence[Sequence[int]]], list[list[int]]]
Config = TypeVar("Config")
Data = TypeVar("Data")


@dataclass(frozen=True, eq=False)
class Context:
    """Where a run reads and writes, who watches and samples, and who trains with it."""

    cache: Path  # a folder for tokenised texts
    listener: ProgressListener
    sampler: "Callable[[GPT, Tokenizer], str] | None" = None
    translator: Callable[[Tokenizer], Translate] | None = None
    progress: Callable[[int, int], object] = lambda done, total: None  # bytes tokenised
    processes: Processes = ALONE

    def kept(self, sources: Sequence[str | Path]) -> list[str | Path]:
        """The same, with what can be read only once kept in the cache."""
        try:
            self.cache.mkdir(parents=True, exist_ok=True)
            return keep_streams(sources, self.cache)
        except OSError as error:
            raise InputError(
                f"cannot write to {self.cache}: {error.strerror}", hint="choose another --cache"
            ) from None


@dataclass(frozen=True, eq=False)
class TrainingData(Generic[Data]):
    """What was read, and the tokenizer that reads it."""

    tokenizer: Tokenizer
    data: Data
    fingerprint: str  # tells other data, or another split of it
    sources: Sources  # where it lies now


class Dataset(ABC, Generic[Config, Data]):
    """How data is read, and the task that it makes."""

    name: ClassVar[str]  # the word of `--task`, and the key of the settings in config.json
    kind: ClassVar[str]  # of model, as in checkpoint.KINDS
    config: type[Config]  # its settings, a dataclass; every field is a flag
    example: ClassVar[str] = ""  # how its files are named on a command line; empty: it needs none
    unused: ClassVar[frozenset[str]] = frozenset()  # settings of TrainConfig without a meaning here
    fixed: ClassVar[frozenset[str]] = frozenset()  # settings that belong to trained parameters
    alike: ClassVar[bool] = False  # as `Task.alike` of its task
    measures: ClassVar[tuple[str, ...]] = ("loss",)  # what `stop_on` can name

    def settings(self, settings: dict[str, Any], flags: dict[str, Any]) -> Config:
        """Its own settings, out of all of a new run; `flags` are those that the user gave."""
        return self.config(**of(self.config, settings))

    def model_settings(self, tokenizer: Tokenizer) -> dict[str, Any]:
        """What the tokenizer decides of the model."""
        return {"vocab_size": tokenizer.vocab_size}

    @abstractmethod
    def read(
        self,
        sources: Sources,
        config: Config,
        context: Context,
        *,
        tokenizer: Tokenizer | None = None,
        vocab_size: int | None = None,
    ) -> TrainingData[Data]:
        """Read it all. Without a tokenizer one is trained, of `vocab_size` if that is given."""

    @abstractmethod
    def task(
        self,
        model: nn.Module,
        data: TrainingData[Data],
        config: Config,
        train: TrainConfig,
        context: Context,
    ) -> Task:
        """What the loop is to do."""


def of(config: type, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are fields of a config."""
    names = {field.name for field in fields(config)}
    return {name: value for name, value in settings.items() if name in names}
