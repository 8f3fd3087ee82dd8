"""Pronoun resolution: a Reader learns which word each pronoun of a story stands for.

The stories are those of the embedded world. Validation uses other stories of its split "train". The
split "test" is left for reported figures: no setting is chosen by it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshead.errors import CheckpointError, ConfigError, check_range, did_you_mean
from glasshead.model.transformer import Reader
from glasshead.text.batches import draw
from glasshead.text.tinyworld import LANGUAGES, Story, World
from glasshead.text.tinyworld.tokens import pieces, world_tokenizer
from glasshead.text.tokenizer import Tokenizer, WordTokenizer
from glasshead.training.config import TrainConfig
from glasshead.training.dataset import Dataset, Sources
from glasshead.training.task import Task, move_batch

__all__ = [
    "PronounConfig", "PronounDataset", "PronounTask", "Stories", "StoryBatch", "predict_referents",
    "story_batch",
]  # fmt: skip

NOWHERE = -1  # the answer where there is no pronoun


@dataclass(frozen=True)
class PronounConfig:
    """Which stories a reader reads. Every field is a flag of `glasshead train --task refer`."""

    lang: str = "zh"  # of the stories: zh, en, de
    world: int = 0  # seed of the stories
    stories: int = 20_000  # number of stories to train on
    val_stories: int = 512  # number of stories to validate on

    def __post_init__(self) -> None:
        if self.lang not in LANGUAGES:
            raise ConfigError(
                f"the world has no language '{self.lang}'", hint=did_you_mean(self.lang, LANGUAGES)
            )
        check_range(self, "stories val_stories", least=1)


@dataclass(frozen=True, eq=False)
class StoryBatch:
    ids: Tensor  # (B, S) int64, padded on the right
    answers: Tensor  # (B, S): at a pronoun the id of the word it stands for, elsewhere NOWHERE
    lengths: Tensor  # (B,)

    def rows(self, rows: Tensor) -> "StoryBatch":
        """Select rows, without the padding that none of them needs."""
        longest = int(self.lengths[rows].max())
        return StoryBatch(
            self.ids[rows, :longest], self.answers[rows, :longest], self.lengths[rows]
        )


def story_batch(stories: Sequence[Story], tokenizer: WordTokenizer, lang: str) -> StoryBatch:
    """Make a padded batch of ids and answers.

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
    """Encoded stories, in two parts."""

    training: StoryBatch
    validation: StoryBatch

    @property
    def fingerprint(self) -> str:
        digest = sha256()
        for part in (self.training, self.validation):
            for table in (part.ids, part.answers):
                digest.update(repr(tuple(table.shape)).encode() + table.numpy().tobytes())
        return digest.hexdigest()[:20]


class PronounDataset(Dataset):
    """Stories of the embedded world, in which a Reader learns to resolve pronouns."""

    name, kind, config_class = "refer", "reader", PronounConfig
    unused = frozenset({"eval_batches", "watch_heads", "vocab_size", "n_decoder_layers", "shared"})
    fixed = frozenset({"lang"})
    config: PronounConfig

    def read(self, sources: Sources, tokenizer: Tokenizer | None, vocab_size: int | None) -> None:
        config = self.config
        words = tokenizer or world_tokenizer(config.lang)
        if not isinstance(words, WordTokenizer):
            raise CheckpointError(
                f"the stories need a tokenizer of words, not of kind '{words.kind}'",
                hint="put back the run's own tokenizer.json",
            )
        told = World(config.world).stories("train")
        parts = (
            story_batch(list(islice(told, n)), words, config.lang)
            for n in (config.stories, config.val_stories)
        )
        self.stories = Stories(*parts)
        self.tokenizer: WordTokenizer = words
        self.fingerprint = self.stories.fingerprint

    def task(self, model: nn.Module, train: TrainConfig) -> "PronounTask":
        assert isinstance(model, Reader)
        return PronounTask(
            model,
            self.tokenizer,
            self.stories,
            self.config.lang,
            batch_size=train.batch_size,
            seed=train.seed,
        )


class PronounTask(Task):
    """Predict, at every pronoun of a story, the word that it stands for."""

    model: Reader

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
        batch = self._stories.training.rows(torch.from_numpy(rows.astype(np.int64)))
        return move_batch(batch, self.model.head.weight.device)

    def tokens(self, batch: StoryBatch) -> int:
        return int(batch.lengths.sum())

    def loss(self, batch: StoryBatch) -> Tensor:
        logits, answers = self._predict(batch)
        return F.cross_entropy(logits.float(), answers)

    def share(self, batch: StoryBatch, rank: int, size: int) -> tuple[StoryBatch, float]:
        rows = torch.arange(len(batch.ids), device=batch.ids.device)[rank::size]
        mine, every = (int((a != NOWHERE).sum()) for a in (batch.answers[rows], batch.answers))
        return (batch.rows(rows), mine / every) if mine else (batch, 0.0)

    def evaluate(self) -> dict[str, float]:
        validation = move_batch(self._stories.validation, self.model.head.weight.device)
        logits, answers = self._predict(validation)
        return {
            "val_loss": F.cross_entropy(logits.float(), answers).item(),
            "accuracy": (logits.argmax(-1) == answers).float().mean().item(),
        }

    def sample(self) -> str:
        """Return the seed story with the model's answer behind each pronoun."""
        story = World.seed_story()
        said = iter(predict_referents(self.model, [story], self._tokenizer, self.lang)[0])
        places = {pronoun.index for pronoun in story.pronouns[self.lang]}
        words = enumerate(pieces(story.tokens[self.lang], self.lang))
        return "".join(f"{word}(→{next(said)})" if at in places else word for at, word in words)

    def _predict(self, batch: StoryBatch) -> tuple[Tensor, Tensor]:
        """Return logits (N, V) and answers (N,) of all pronouns of a batch."""
        at = batch.answers != NOWHERE
        return self.model.head(self.model.encoder(batch.ids)[at]), batch.answers[at]


@torch.no_grad()
def predict_referents(
    model: Reader, stories: Sequence[Story], tokenizer: WordTokenizer, lang: str
) -> list[list[str]]:
    """Return, for each story, the word that the model predicts for each of its pronouns."""
    batch = move_batch(story_batch(stories, tokenizer, lang), model.head.weight.device)
    said = model(batch.ids).argmax(-1)  # (B, S)
    return [
        [tokenizer.decode([token]).strip() for token in row[answers != NOWHERE].tolist()]
        for row, answers in zip(said, batch.answers, strict=True)
    ]
