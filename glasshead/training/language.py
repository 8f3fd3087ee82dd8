"""Language modelling: text files become ids, and the task is to predict each from those before."""

import math
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from glasshead.errors import ConfigError, InputError, did_you_mean
from glasshead.model.gpt import GPT
from glasshead.model.loss import feature_loss
from glasshead.text.batches import Batch, TextBatches
from glasshead.text.bpe import gpt2_words, own_words
from glasshead.text.corpus import Report, read_documents, split_by_position
from glasshead.text.store import token_store
from glasshead.text.tokenizer import BPETokenizer, ByteTokenizer, CharTokenizer, Tokenizer
from glasshead.training.config import TrainConfig
from glasshead.training.dataset import Context, Dataset, Sources, TrainingData

__all__ = [
    "Corpus",
    "LanguageTask",
    "TextConfig",
    "TextDataset",
    "fitting_vocabulary",
    "new_tokenizer",
    "read_corpus",
]

MOST_CHARACTERS = 512  # distinct ones that a vocabulary of characters is good for
SMALL_TEXT = 5_000_000  # bytes
RESIDENT = 2**28  # ids that are kept on a GPU: 1 GiB


@dataclass(frozen=True)
class TextConfig:
    """How text becomes ids. Every field is a flag of `glasshead train`."""

    tokenizer: str = "auto"  # auto, char, byte, bpe
    split: str = "position"  # what validates: the end of the text (position), or whole documents
    val_share: float = 0.1  # how much of the text validates
    field: str = "text"  # of .jsonl: where the text is
    portable: bool = False  # as llama.cpp can cut it: words as GPT-2's, and always an <eos>

    def __post_init__(self) -> None:
        for name, choices in (
            ("tokenizer", ["auto", "char", "byte", "bpe"]),
            ("split", ["position", "document"]),
        ):
            if getattr(self, name) not in choices:
                value = getattr(self, name)
                raise ConfigError(f"unknown {name} '{value}'", hint=did_you_mean(value, choices))
        if not 0 < self.val_share < 1:
            raise ConfigError(
                f"val_share ({self.val_share}) must lie between 0 and 1",
                hint="0.1 holds out a tenth",
            )


@dataclass(frozen=True, eq=False)
class Corpus:
    """The ids of a text, in two parts."""

    training: NDArray[Any]
    validation: NDArray[Any]

    @property
    def fingerprint(self) -> str:
        """Tells another text, or another split: their lengths, and ids from all over."""
        digest = sha256()
        for ids in (self.training, self.validation):
            some = ids[:: max(1, len(ids) // 4096)]
            digest.update(len(ids).to_bytes(8, "little") + some.astype("<u4").tobytes())
        return digest.hexdigest()[:20]

    def check_block(self, block: int) -> None:
        n = min(len(self.training), len(self.validation))
        if n <= block:
            part = "validation" if n == len(self.validation) else "training"
            raise InputError(
                f"the {part} part of the text has {n} tokens, "
                f"but blocks of max_len ({block}) and the token after them need {block + 1}",
                hint=f"give more text, or --max-len {n - 1}" if n > 2 else "give more text",
            )


def new_tokenizer(
    sources: Sequence[str | Path], config: TextConfig, vocab_size: int | None = None
) -> Tokenizer:
    """The tokenizer asked for, trained on the sources.

    'auto' takes characters where they are few and the text is small, otherwise BPE. Where there
    are several documents, or other programs are to use it, `<eos>` ends each.
    """

    def texts() -> Iterator[str]:
        return (document.text for document in read_documents(sources, field=config.field))

    n_documents, n_bytes, characters = 0, 0, set[str]()
    for text in texts():
        n_documents += 1
        n_bytes += len(text.encode(errors="replace"))
        if len(characters) <= MOST_CHARACTERS:
            characters.update(text)
    few = len(characters) <= MOST_CHARACTERS and n_bytes < SMALL_TEXT
    specials = ["<eos>"] if n_documents > 1 or config.portable else []
    match config.tokenizer if config.tokenizer != "auto" else "char" if few else "bpe":
        case "char":
            return CharTokenizer.train(texts(), specials)
        case "byte":
            return ByteTokenizer(specials)
    size = vocab_size or fitting_vocabulary(n_bytes)
    cut = gpt2_words if config.portable else own_words
    return BPETokenizer.train(texts(), size, specials, cut)


def fitting_vocabulary(n_bytes: int) -> int:
    """More text can teach more words.

    >>> [fitting_vocabulary(n) for n in (10_000, 1_000_000, 100_000_000, 10**12)]
    [512, 2048, 16384, 32768]
    """
    return min(32768, max(512, 2 ** round(math.log2(2 * math.sqrt(max(n_bytes, 1))))))


def read_corpus(
    sources: Sequence[str | Path],
    tokenizer: Tokenizer,
    config: TextConfig,
    folder: str | Path,
    *,
    progress: Callable[[int, int], object] = lambda done, total: None,
    report: Report | None = None,
) -> Corpus:
    """The ids of the sources, tokenised into `folder` unless they are there already."""
    store = token_store(
        sources,
        tokenizer,
        folder,
        field=config.field,
        separator=tokenizer.specials.get("<eos>"),
        progress=progress,
        report=report,
    )
    if config.split == "document":
        return Corpus(*store.split_by_document(config.val_share))
    return Corpus(*split_by_position(store.ids, config.val_share))


class LanguageTask:
    """Predict each token of a text from those before it."""

    alike = True

    def __init__(
        self,
        model: GPT,
        corpus: Corpus,
        *,
        batch_size: int,
        eval_batches: int,
        seed: int,
        sample: Callable[[GPT], str] | None = None,
    ) -> None:
        block = model.config.max_len
        corpus.check_block(block)
        self.model, self._sample = model, sample
        self._features = model.features
        self._batches = TextBatches(corpus.training, batch_size=batch_size, block=block, seed=seed)
        held = TextBatches(corpus.validation, batch_size=batch_size, block=block, seed=seed)
        self._held = held.fixed(eval_batches)
        self._resident: Tensor | None = None  # the training text on a GPU, where it has room

    def batch(self, number: int) -> Batch:
        device = self.model.embedding.weight.device
        if device.type == "cpu" or self._batches.ids.size > RESIDENT:
            return self._on_device(self._batches.at(number))
        if self._resident is None:
            self._resident = torch.from_numpy(self._batches.ids.astype(np.int32)).to(device)
            self._window = torch.arange(self._batches.block + 1, device=device)
        offsets = torch.from_numpy(self._batches.offsets(number)).pin_memory()
        starts = offsets.to(device, non_blocking=True)
        windows = self._resident[starts[:, None] + self._window].long()  # (B, T + 1)
        return Batch(windows[:, :-1].contiguous(), windows[:, 1:].contiguous())

    def tokens(self, batch: Batch) -> int:
        return batch.ids.numel()

    def loss(self, batch: Batch) -> Tensor:
        return feature_loss(self.model, self._features(batch.ids), batch.targets)

    def compile(self) -> None:
        # The loss has a kernel of its own.
        self._features = torch.compile(self.model.features)

    def share(self, batch: Batch, rank: int, size: int) -> tuple[Batch, float]:
        rows = slice(rank, None, size)
        part = Batch(batch.ids[rows], batch.targets[rows])
        return (part, len(part.ids) / len(batch.ids)) if len(part.ids) else (batch, 0.0)

    def with_model(self, model: nn.Module) -> "LanguageTask":
        assert isinstance(model, GPT)
        other = copy(self)
        other.model, other._features = model, model.features
        return other

    def evaluate(self) -> dict[str, float]:
        losses = [self.loss(self._on_device(batch)) for batch in self._held]
        return {"val_loss": torch.stack(losses).mean().item()}

    def sample(self) -> str | None:
        return self._sample(self.model) if self._sample else None

    def _on_device(self, batch: Batch) -> Batch:
        device = self.model.embedding.weight.device
        if device.type == "cpu":
            return batch
        # From pinned memory the copy runs beside the computing.
        ids, targets = (
            t.pin_memory().to(device, non_blocking=True) for t in (batch.ids, batch.targets)
        )
        return Batch(ids, targets)


class TextDataset(Dataset[TextConfig, Corpus]):
    """A GPT learns to go on with a text."""

    name, kind, config = "text", "gpt", TextConfig
    example = "glasshead train my.txt"
    fixed = frozenset({"tokenizer", "portable"})
    alike = True

    def settings(self, settings: dict[str, Any], flags: dict[str, Any]) -> TextConfig:
        config = super().settings(settings, flags)
        if not settings.get("vocab_size"):
            return config
        if config.tokenizer == "auto":
            return replace(config, tokenizer="bpe")
        if config.tokenizer != "bpe" and "vocab_size" in flags:
            raise ConfigError(
                f"vocab_size ({flags['vocab_size']}) is for bpe; a {config.tokenizer} tokenizer "
                "has as many ids as there are",
                hint="leave --vocab-size out, or add --tokenizer bpe",
            )
        return config

    def read(
        self,
        sources: Sources,
        config: TextConfig,
        context: Context,
        *,
        tokenizer: Tokenizer | None = None,
        vocab_size: int | None = None,
    ) -> TrainingData[Corpus]:
        texts, report = context.kept(sources["sources"]), Report()
        tokenizer = tokenizer or new_tokenizer(texts, config, vocab_size)
        corpus = read_corpus(
            texts, tokenizer, config, context.cache, progress=context.progress, report=report
        )
        for line in report.summary():
            context.listener.say(line)
        return TrainingData(tokenizer, corpus, corpus.fingerprint, {"sources": texts})

    def task(
        self,
        model: nn.Module,
        data: TrainingData[Corpus],
        config: TextConfig,
        train: TrainConfig,
        context: Context,
    ) -> LanguageTask:
        assert isinstance(model, GPT)
        sampler, tokenizer = context.sampler, data.tokenizer
        return LanguageTask(
            model,
            data.data,
            batch_size=train.batch_size,
            eval_batches=train.eval_batches,
            seed=train.seed,
            sample=(lambda model: sampler(model, tokenizer)) if sampler else None,
        )
