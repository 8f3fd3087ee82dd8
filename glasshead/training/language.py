"""Language modelling: a GPT learns to predict each token of a text from those before it."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from glasshead.errors import ConfigError, InputError, check_choices, check_range
from glasshead.model.gpt import GPT
from glasshead.model.loss import feature_loss
from glasshead.text.batches import Batch, TextBatches
from glasshead.text.bpe import split_gpt2_words, split_words
from glasshead.text.corpus import Report, read_pieces, split_by_position
from glasshead.text.token_store import token_store
from glasshead.text.tokenizer import BPETokenizer, ByteTokenizer, CharTokenizer, Tokenizer
from glasshead.training.config import TrainConfig
from glasshead.training.dataset import Dataset, Sources, split_excerpts
from glasshead.training.task import Task, move_batch

__all__ = [
    "Corpus", "LanguageTask", "TextConfig", "TextDataset", "pick_vocab_size", "read_corpus",
    "train_tokenizer",
]  # fmt: skip

MOST_CHARACTERS = 512  # distinct ones, up to which each character becomes an id
WIDE = 2.0  # bytes a character on average, above which characters are the first tokens of BPE
SMALL_TEXT = 5_000_000  # bytes, up to which that is so
EXCERPT = 2000  # tokens of held-out text to take examples from
LEARNED = 50_000_000  # bytes of text that a tokenizer learns words from: counting takes memory
RESIDENT = 2**28  # ids that are kept on a GPU: 1 GiB


@dataclass(frozen=True)
class TextConfig:
    """How text becomes ids. Every field is a flag of `glasshead train`."""

    tokenizer: str = "auto"  # auto, char, byte, bpe
    split: str = "position"  # position: validate on the end of the text; document: on documents
    val_share: float = 0.1  # share of the text to validate on
    field: str = "text"  # of .jsonl files that has the text
    portable: bool = False  # tokenizer for llama.cpp: split words as GPT-2 does, always have <eos>

    def __post_init__(self) -> None:
        check_choices(
            self, tokenizer=["auto", "char", "byte", "bpe"], split=["position", "document"]
        )
        check_range(self, "val_share", above=0, below=1)


@dataclass(frozen=True, eq=False)
class Corpus:
    """The ids of a text, in two parts."""

    training: NDArray[Any]
    validation: NDArray[Any]

    @property
    def fingerprint(self) -> str:
        """A hash of the lengths and of ids from all over, which tells other texts and splits."""
        digest = sha256()
        for ids in (self.training, self.validation):
            some = ids[:: max(1, len(ids) // 4096)]
            digest.update(len(ids).to_bytes(8, "little") + some.astype("<u4").tobytes())
        return digest.hexdigest()[:20]


def train_tokenizer(
    sources: Sequence[str | Path],
    config: TextConfig,
    vocab_size: int | None = None,
    *,
    progress: Callable[[int, int], object] = lambda done, total: None,
    report: Report | None = None,
) -> Tokenizer:
    """Train the tokenizer that the config names on the sources.

    'auto' makes each character an id if there are few of them and the text is small; otherwise it
    is BPE, whose first tokens are the characters if most of them take three bytes, as in Chinese.
    `<eos>` ends each document if there are several, or if the tokenizer must be portable. BPE
    learns from at most LEARNED bytes of the text, taken evenly.

    Args:
        progress: called with (bytes read, total bytes); the text is read several times.
        report: gets a note if BPE learns from a part of the text.
    """

    def texts() -> Iterator[str]:
        pieces = read_pieces(sources, field=config.field, progress=progress)
        return (text for text, _ in pieces)

    def some_texts() -> Iterator[str]:
        return _take_evenly(texts(), n_bytes, LEARNED)

    n_documents, n_bytes, n_characters, characters = 0, 0, 0, set[str]()
    for text, ends in read_pieces(sources, field=config.field, progress=progress):
        n_documents += ends
        n_bytes += len(text.encode(errors="replace"))
        n_characters += len(text)
        if len(characters) <= MOST_CHARACTERS:
            characters.update(text)
    few = len(characters) <= MOST_CHARACTERS and n_bytes < SMALL_TEXT
    specials = ["<eos>"] if n_documents > 1 or config.portable else []
    match config.tokenizer if config.tokenizer != "auto" else "char" if few else "bpe":
        case "char":
            return CharTokenizer.train(texts(), specials)
        case "byte":
            return ByteTokenizer(specials)
    size = vocab_size or pick_vocab_size(n_bytes)
    cut = split_gpt2_words if config.portable else split_words
    if n_bytes > LEARNED and report is not None:
        learned, all_of_it = f"{LEARNED / 1e6:,.0f} MB", f"{n_bytes / 1e6:,.0f} MB"
        report.notes.append(f"the tokenizer learns from {learned} of the text's {all_of_it}")
    if n_bytes > WIDE * n_characters:
        grow = vocab_size is None
        return BPETokenizer.train_on_characters(some_texts, size, specials, cut, grow=grow)
    return BPETokenizer.train(some_texts(), size, specials, cut)


def _take_evenly(texts: Iterable[str], total: int, most: int) -> Iterator[str]:
    """Yield texts of `most` bytes out of `total`, from everywhere; all if there are no more.

    >>> list(_take_evenly(["ab", "cd", "ef", "gh", "ij", "kl"], 12, 4))
    ['ab', 'gh']
    """
    seen = taken = 0
    for text in texts:
        if total <= most or taken * total <= seen * most:
            taken += len(text.encode(errors="replace"))
            yield text
        seen += len(text.encode(errors="replace"))


def pick_vocab_size(n_bytes: int) -> int:
    """Return the size of a BPE vocabulary for so much text: more text can teach more words.

    >>> [pick_vocab_size(n) for n in (10_000, 1_000_000, 100_000_000, 10**12)]
    [512, 2048, 16384, 32768]
    """
    return min(32768, max(512, 2 ** round(math.log2(2 * math.sqrt(max(n_bytes, 1))))))


def read_corpus(
    sources: Sequence[str | Path],
    tokenizer: Tokenizer,
    config: TextConfig,
    cache: str | Path,
    *,
    progress: Callable[[int, int], object] = lambda done, total: None,
    report: Report | None = None,
) -> Corpus:
    """Tokenise the sources, or find their ids in the cache, and split them."""
    store = token_store(
        sources,
        tokenizer,
        cache,
        field=config.field,
        separator=tokenizer.specials.get("<eos>"),
        progress=progress,
        report=report,
    )
    if config.split == "document":
        return Corpus(*store.split_by_document(config.val_share))
    return Corpus(*split_by_position(store.ids, config.val_share))


class TextDataset(Dataset):
    """A text, which a GPT learns to continue."""

    name, kind, config_class = "text", "gpt", TextConfig
    example = "glasshead train my.txt"
    fixed = frozenset({"tokenizer", "portable"})
    same_shapes = True
    config: TextConfig

    def read(self, sources: Sources, tokenizer: Tokenizer | None, vocab_size: int | None) -> None:
        context, report = self.context, Report()
        texts = context.save_streams(sources["sources"])
        self.sources = {"sources": texts}
        listener = context.listener
        self.tokenizer = tokenizer or train_tokenizer(
            texts, self.config, vocab_size, progress=listener.on_read, report=report
        )
        progress = listener.on_tokenised
        self.corpus = read_corpus(
            texts, self.tokenizer, self.config, context.cache, progress=progress, report=report
        )
        self.fingerprint = self.corpus.fingerprint
        context.say_report(report)

    def excerpts(self) -> list[str]:
        return split_excerpts(self.tokenizer.decode(self.corpus.validation[:EXCERPT].tolist()))

    @classmethod
    def make_config(cls, settings: dict[str, Any], flags: dict[str, Any]) -> TextConfig:
        config: TextConfig = super().make_config(settings, flags)
        if not settings.get("vocab_size"):
            return config
        if config.tokenizer == "auto":
            return replace(config, tokenizer="bpe")
        if config.tokenizer != "bpe" and "vocab_size" in flags:
            raise ConfigError(
                f"vocab_size ({flags['vocab_size']}) is for a bpe tokenizer; the text decides how "
                f"many ids a {config.tokenizer} tokenizer has",
                hint="leave --vocab-size out, or use --tokenizer bpe",
            )
        return config

    def task(self, model: nn.Module, train: TrainConfig) -> "LanguageTask":
        assert isinstance(model, GPT)
        sampler, tokenizer = self.context.sampler, self.tokenizer
        return LanguageTask(
            model,
            self.corpus,
            batch_size=train.batch_size,
            eval_batches=train.eval_batches or 20,
            seed=train.seed,
            sample=(lambda model: sampler(model, tokenizer)) if sampler else None,
        )


class LanguageTask(Task):
    """Predict each token of a text from those before it."""

    model: GPT
    same_shapes = True

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
        n = min(len(corpus.training), len(corpus.validation))
        if n <= block:
            part = "validation" if n == len(corpus.validation) else "training"
            raise InputError(
                f"the {part} part of the text has {n} tokens, "
                f"but blocks of max_len ({block}) and the token after them need {block + 1}",
                hint=f"give more text, or --max-len {n - 1}" if n > 2 else "give more text",
            )
        self.model, self._sample = model, sample
        self._compiled: Callable[[Tensor], Tensor] | None = None
        self._batches = TextBatches(corpus.training, batch_size=batch_size, block=block, seed=seed)
        held = TextBatches(corpus.validation, batch_size=batch_size, block=block, seed=seed)
        self._validation = held.evenly_spaced(eval_batches)
        self._resident: Tensor | None = None  # the training text on a GPU, if it has room

    def batch(self, number: int) -> Batch:
        device = self.model.embedding.weight.device
        if device.type != "cuda" or self._batches.ids.size > RESIDENT:
            return move_batch(self._batches.at(number), device)
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
        features = self._compiled or self.model.features
        return feature_loss(self.model, features(batch.ids), batch.targets)

    def watched_ids(self) -> Tensor:
        return self._validation[0].ids

    def compile(self) -> None:
        # Not the loss, which has a kernel of its own.
        self._compiled = torch.compile(self.model.features)

    def share(self, batch: Batch, rank: int, size: int) -> tuple[Batch, float]:
        rows = slice(rank, None, size)
        part = Batch(batch.ids[rows], batch.targets[rows])
        return (part, len(part.ids) / len(batch.ids)) if len(part.ids) else (batch, 0.0)

    def evaluate(self) -> dict[str, float]:
        device = self.model.embedding.weight.device
        losses = [self.loss(move_batch(batch, device)) for batch in self._validation]
        return {"val_loss": torch.stack(losses).mean().item()}

    def sample(self) -> str | None:
        return self._sample(self.model) if self._sample else None
