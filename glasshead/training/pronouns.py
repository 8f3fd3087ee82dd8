"""Reading: a story goes in, and at every pronoun the word that it stands for comes out.

The stories are those of the embedded world. What validates are other stories of its split "train":
the combinations of its split "test" are left for whoever reports, and nothing is chosen by them.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshead.errors import CheckpointError, ConfigError, did_you_mean
from glasshead.model.transformer import Reader
from glasshead.text.batches import draw
from glasshead.text.tinyworld import LANGUAGES, Story, World
from glasshead.text.tinyworld.tokens import pieces, world_tokenizer
from glasshead.text.tokenizer import Tokenizer, WordTokenizer
from glasshead.training.config import TrainConfig
from glasshead.training.dataset import Context, Dataset, Sources, TrainingData

__all__ = [
    "PronounConfig",
    "PronounDataset",
    "PronounTask",
    "Stories",
    "StoryBatch",
    "named",
    "story_batch",
]

NOWHERE = -1  # the answer where there is no pronoun


@dataclass(frozen=True)
class PronounConfig:
    """Which stories a reader reads. Every field is a flag of `glasshead train --task refer`."""

    lang: str = "zh"  # of the stories: zh, en, de
    world: int = 0  # the seed of the world that tells them
    stories: int = 20_000  # to train on, each again and again
    val_stories: int = 512  # others, to validate

    def __post_init__(self) -> None:
        if self.lang not in LANGUAGES:
            raise ConfigError(
                f"the world has no language '{self.lang}'", hint=did_you_mean(self.lang, LANGUAGES)
            )
        for name in ("stories", "val_stories"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"{name} ({getattr(self, name)}) must be at least 1", hint=f"raise {name}"
                )


@dataclass(frozen=True, eq=False)
class StoryBatch:
    ids: Tensor  # (B, S) int64, padded on the right
    answers: Tensor  # (B, S): at a pronoun the id of the word it stands for, elsewhere NOWHERE
    lengths: Tensor  # (B,)

    def rows(self, rows: Tensor) -> "StoryBatch":
        longest = int(self.lengths[rows].max())
        return StoryBatch(
            self.ids[rows, :longest], self.answers[rows, :longest], self.lengths[rows]
        )

    def to(self, device: torch.device) -> "StoryBatch":
        return StoryBatch(*(t.to(device) for t in (self.ids, self.answers, self.lengths)))


def story_batch(stories: Sequence[Story], tokenizer: WordTokenizer, lang: str) -> StoryBatch:
    """
    >>> batch = story_batch([World.seed_story()], world_tokenizer("zh"), "zh")
    >>> (batch.answers != NOWHERE).nonzero()[:, 1].tolist()
    [4, 26]
    """
    rows = [tokenizer.ids_of(pieces(story.tokens[lang], lang)) for story in stories]
    lengths = [len(row) for row in rows]
    ids = np.full((len(rows), max(lengths)), tokenizer.specials["<pad>"])
    answers = np.full_like(ids, NOWHERE)
    for row, (numbers, story) in enumerate(zip(rows, stories, strict=True)):
        ids[row, : len(numbers)] = numbers
        for pronoun in story.pronouns[lang]:
            answers[row, pronoun.index] = numbers[pronoun.referent_index]
    return StoryBatch(*map(torch.from_numpy, (ids, answers, np.array(lengths))))


@dataclass(frozen=True, eq=False)
class Stories:
    """Stories in two parts."""

    training: StoryBatch
    validation: StoryBatch

    @property
    def fingerprint(self) -> str:
        digest = sha256()
        for part in (self.training, self.validation):
            for table in (part.ids, part.answers):
                digest.update(repr(tuple(table.shape)).encode() + table.numpy().tobytes())
        return digest.hexdigest()[:20]


class PronounTask:
    """Name, at every pronoun of a story, the word that it stands for."""

    alike = False

    def __init__(
        self,
        model: Reader,
        tokenizer: WordTokenizer,
        stories: Stories,
        lang: str,
        *,
        batch_size: int,
        seed: int,
    ) -> None:
        self.model, self.lang, self._tokenizer = model, lang, tokenizer
        self._stories, self._batch_size, self._seed = stories, batch_size, seed

    def batch(self, number: int) -> StoryBatch:
        drawn = draw(self._seed, number, self._batch_size)
        rows = drawn % np.uint64(len(self._stories.training.ids))
        return self._on_device(self._stories.training.rows(torch.from_numpy(rows.astype(np.int64))))

    def tokens(self, batch: StoryBatch) -> int:
        return int(batch.lengths.sum())

    def loss(self, batch: StoryBatch) -> Tensor:
        logits, answers = self._answered(batch)
        return F.cross_entropy(logits.float(), answers)

    def compile(self) -> None:
        self.model.compile()

    def share(self, batch: StoryBatch, rank: int, size: int) -> tuple[StoryBatch, float]:
        rows = torch.arange(len(batch.ids), device=batch.ids.device)[rank::size]
        mine, every = (int((a != NOWHERE).sum()) for a in (batch.answers[rows], batch.answers))
        return (batch.rows(rows), mine / every) if mine else (batch, 0.0)

    def with_model(self, model: nn.Module) -> "PronounTask":
        assert isinstance(model, Reader)
        other = copy(self)
        other.model = model
        return other

    def evaluate(self) -> dict[str, float]:
        logits, answers = self._answered(self._on_device(self._stories.validation))
        return {
            "val_loss": F.cross_entropy(logits.float(), answers).item(),
            "accuracy": (logits.argmax(-1) == answers).float().mean().item(),
        }

    def sample(self) -> str:
        """The document's own sentence, with what the model says each pronoun stands for."""
        story = World.seed_story()
        said = iter(named(self.model, [story], self._tokenizer, self.lang)[0])
        places = {pronoun.index for pronoun in story.pronouns[self.lang]}
        words = enumerate(pieces(story.tokens[self.lang], self.lang))
        return "".join(f"{word}(→{next(said)})" if at in places else word for at, word in words)

    def _answered(self, batch: StoryBatch) -> tuple[Tensor, Tensor]:
        """Logits (N, V) and answers (N,) of all pronouns of a batch."""
        at = batch.answers != NOWHERE
        return self.model.head(self.model.encoder(batch.ids)[at]), batch.answers[at]

    def _on_device(self, batch: StoryBatch) -> StoryBatch:
        return batch.to(self.model.head.weight.device)


@torch.no_grad()
def named(
    model: Reader, stories: Sequence[Story], tokenizer: WordTokenizer, lang: str
) -> list[list[str]]:
    """For each story the words that the model says its pronouns stand for, first to last."""
    batch = story_batch(stories, tokenizer, lang).to(model.head.weight.device)
    said = model(batch.ids).argmax(-1)  # (B, S)
    return [
        [tokenizer.decode([token]).strip() for token in row[answers != NOWHERE].tolist()]
        for row, answers in zip(said, batch.answers, strict=True)
    ]


class PronounDataset(Dataset[PronounConfig, Stories]):
    """A Reader learns what the pronouns of the embedded world's stories stand for."""

    name, kind, config = "refer", "reader", PronounConfig
    unused = frozenset({"pad", "eval_batches", "vocab_size", "n_decoder_layers", "shared"})
    fixed = frozenset({"lang"})

    def model_settings(self, tokenizer: Tokenizer) -> dict[str, Any]:
        return {**super().model_settings(tokenizer), "pad": tokenizer.specials["<pad>"]}

    def read(
        self,
        sources: Sources,
        config: PronounConfig,
        context: Context,
        *,
        tokenizer: Tokenizer | None = None,
        vocab_size: int | None = None,
    ) -> TrainingData[Stories]:
        words = tokenizer or world_tokenizer(config.lang)
        if not isinstance(words, WordTokenizer):
            raise CheckpointError(
                f"a {words.kind} tokenizer does not read the world's words",
                hint="put back the run's own tokenizer.json",
            )
        told = World(config.world).stories("train")
        parts = (
            story_batch(list(islice(told, n)), words, config.lang)
            for n in (config.stories, config.val_stories)
        )
        stories = Stories(*parts)
        return TrainingData(words, stories, stories.fingerprint, {})

    def task(
        self,
        model: nn.Module,
        data: TrainingData[Stories],
        config: PronounConfig,
        train: TrainConfig,
        context: Context,
    ) -> PronounTask:
        assert isinstance(model, Reader)
        assert isinstance(data.tokenizer, WordTokenizer)
        return PronounTask(
            model,
            data.tokenizer,
            data.data,
            config.lang,
            batch_size=train.batch_size,
            seed=train.seed,
        )
