"""Translating the embedded world: its stories in two languages, word for word known."""

from dataclasses import dataclass
from itertools import islice
from typing import Any

from torch import nn

from glasshead.errors import ConfigError, did_you_mean
from glasshead.model.transformer import Transformer
from glasshead.text.pairs import Pair
from glasshead.text.tinyworld import LANGUAGES, World
from glasshead.text.tinyworld.tokens import world_tokenizer
from glasshead.text.tokenizer import Tokenizer
from glasshead.training.config import TrainConfig
from glasshead.training.dataset import Context, Dataset, Sources, TrainingData
from glasshead.training.parallel_corpus import PairConfig, ParallelCorpus
from glasshead.training.translation import TranslationTask

__all__ = ["WorldConfig", "WorldDataset"]


@dataclass(frozen=True)
class WorldConfig:
    """Which stories are translated. Every field is a flag of `glasshead train --task world`."""

    langs: str = "zh,de"  # from, to: two of zh, en, de
    world: int = 0  # the seed of the world that tells them
    stories: int = 20_000  # to train on, each again and again
    val_stories: int = 512  # others, to validate
    max_tokens: int = 4096  # of a batch: stories times the longer side, padding included
    label_smoothing: float = 0.0  # how much of each answer is spread over all others

    def __post_init__(self) -> None:
        for lang in self.langs.split(","):
            if lang not in LANGUAGES:
                raise ConfigError(
                    f"langs ({self.langs}): the world has no language '{lang}'",
                    hint=did_you_mean(lang, LANGUAGES),
                )
        if self.langs.count(",") != 1:
            raise ConfigError(f"langs ({self.langs}) must be two", hint="write zh,de")
        for name in ("stories", "val_stories"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"{name} ({getattr(self, name)}) must be at least 1", hint=f"raise {name}"
                )
        _ = self.pairs  # which looks at the rest

    @property
    def pairs(self) -> PairConfig:
        return PairConfig(
            max_tokens=self.max_tokens,
            eval_pairs=self.val_stories,
            label_smoothing=self.label_smoothing,
        )


class WorldDataset(Dataset[WorldConfig, ParallelCorpus]):
    """A Transformer learns to translate the embedded world's stories."""

    name, kind, config = "world", "transformer", WorldConfig
    unused = frozenset({"batch_size", "eval_batches", "pad", "vocab_size"})
    fixed = frozenset({"langs"})

    def model_settings(self, tokenizer: Tokenizer) -> dict[str, Any]:
        return {**super().model_settings(tokenizer), "pad": tokenizer.specials["<pad>"]}

    def read(
        self,
        sources: Sources,
        config: WorldConfig,
        context: Context,
        *,
        tokenizer: Tokenizer | None = None,
        vocab_size: int | None = None,
    ) -> TrainingData[ParallelCorpus]:
        source, target = config.langs.split(",")
        told = World(config.world).stories("train")
        training, validation = (
            [
                Pair(story.text(source), story.text(target), line)
                for line, story in enumerate(islice(told, n), 1)
            ]
            for n in (config.stories, config.val_stories)
        )
        parts = ParallelCorpus(training, validation)
        words = tokenizer or world_tokenizer(source, target)
        return TrainingData(words, parts, parts.fingerprint, {})

    def task(
        self,
        model: nn.Module,
        data: TrainingData[ParallelCorpus],
        config: WorldConfig,
        train: TrainConfig,
        context: Context,
    ) -> TranslationTask:
        assert isinstance(model, Transformer)
        return TranslationTask(model, data.tokenizer, data.data, config.pairs, seed=train.seed)
