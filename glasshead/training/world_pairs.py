"""Stories of the embedded world in two languages, from which a Transformer learns to translate."""

from dataclasses import dataclass
from itertools import islice

from torch import nn

from glasshead.errors import ConfigError, check_range, did_you_mean
from glasshead.model.transformer import Transformer
from glasshead.text.pairs import Pair
from glasshead.text.tinyworld import LANGUAGES, World
from glasshead.text.tinyworld.tokens import world_tokenizer
from glasshead.text.tokenizer import Tokenizer
from glasshead.training.config import TrainConfig
from glasshead.training.dataset import Dataset, Sources
from glasshead.training.parallel_corpus import PairConfig, ParallelCorpus
from glasshead.training.translation import TranslationTask

__all__ = ["WorldConfig", "WorldDataset"]


@dataclass(frozen=True)
class WorldConfig:
    """Which stories are translated. Every field is a flag of `glasshead train --task world`."""

    langs: str = "zh,de"  # source and target: two of zh, en, de
    world: int = 0  # seed of the stories
    stories: int = 20_000  # number of stories to train on
    val_stories: int = 512  # number of stories to validate on
    max_tokens: int = 4096  # per batch: stories times the longer side, with padding
    label_smoothing: float = 0.0  # share of the target probability for all other tokens

    def __post_init__(self) -> None:
        for lang in self.langs.split(","):
            if lang not in LANGUAGES:
                raise ConfigError(
                    f"langs ({self.langs}): the world has no language '{lang}'",
                    hint=did_you_mean(lang, LANGUAGES),
                )
        if self.langs.count(",") != 1:
            raise ConfigError(
                f"langs ({self.langs}) must be two languages", hint="for example --langs zh,de"
            )
        check_range(self, "stories val_stories", least=1)
        _ = self.pairs  # checks the other fields

    @property
    def pairs(self) -> PairConfig:
        return PairConfig(
            max_tokens=self.max_tokens,
            eval_pairs=self.val_stories,
            label_smoothing=self.label_smoothing,
        )


class WorldDataset(Dataset):
    """The embedded world's stories in two languages."""

    name, kind, config_class = "world", "transformer", WorldConfig
    unused = frozenset({"batch_size", "eval_batches", "vocab_size", "watch_heads"})
    fixed = frozenset({"langs"})
    config: WorldConfig

    def read(self, sources: Sources, tokenizer: Tokenizer | None, vocab_size: int | None) -> None:
        config = self.config
        source, target = config.langs.split(",")
        stories = World(config.world).stories("train")
        training, validation = (
            [
                Pair(story.text(source), story.text(target), line)
                for line, story in enumerate(islice(stories, n), 1)
            ]
            for n in (config.stories, config.val_stories)
        )
        self.parts = ParallelCorpus(training, validation)
        self.tokenizer = tokenizer or world_tokenizer(source, target)
        self.fingerprint = self.parts.fingerprint

    def task(self, model: nn.Module, train: TrainConfig) -> TranslationTask:
        assert isinstance(model, Transformer)
        pairs = self.config.pairs
        return TranslationTask(model, self.tokenizer, self.parts, pairs, seed=train.seed)
