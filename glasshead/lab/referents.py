"""Does attention show what a pronoun stands for? Measured on stories whose truth is known.

All figures are of the last pronoun of a story, the one that its ending decides, but for the
accuracy, which counts every pronoun. Which head is best is decided on training stories and
reported on unseen ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glasshead.attention.multihead import MultiHeadAttention
from glasshead.lab.looking import attentions, cut, looking
from glasshead.model.transformer import Reader
from glasshead.text.tinyworld import Story
from glasshead.text.tokenizer import WordTokenizer
from glasshead.training.pronouns import NOWHERE, StoryBatch, story_batch

__all__ = ["Head", "Heads", "ReaderFigures", "Truth", "head_figures", "measure_reader", "rows_of"]

Head = tuple[int, int]  # layer and head, from 0 on


@dataclass(frozen=True, eq=False)
class Truth:
    """Where in each story its last pronoun stands, the word it stands for, and all the nouns."""

    pronouns: Tensor  # (N,)
    referents: Tensor  # (N,)
    nouns: Tensor  # (N, S) bool

    @classmethod
    def of(cls, stories: Sequence[Story], lang: str) -> "Truth":
        last = [story.pronouns[lang][-1] for story in stories]
        nouns = torch.zeros(
            len(stories), max(len(story.tokens[lang]) for story in stories), dtype=torch.bool
        )
        for row, story in zip(nouns, stories, strict=True):
            row[list(story.nouns[lang])] = True
        return cls(
            torch.tensor([pronoun.index for pronoun in last]),
            torch.tensor([pronoun.referent_index for pronoun in last]),
            nouns,
        )

    @property
    def chance(self) -> float:
        """How often a noun picked by chance is the referent."""
        return (1 / self.nouns.sum(1)).mean().item()

    @property
    def others(self) -> Tensor:
        """(N,) for each story a noun that is not the referent, the one nearest to the pronoun."""
        rows = torch.arange(len(self.nouns))
        other = self.nouns.clone()
        other[rows, self.referents] = False
        places = torch.arange(other.shape[1]).expand_as(other)
        return places.masked_fill(~other, -1).argmax(1)


@dataclass(frozen=True, eq=False)
class Heads:
    """For each layer and head, over stories."""

    share: Tensor  # (L, H): how often the most-attended noun is the referent
    weight: Tensor  # (L, H): the mean weight on the referent

    @property
    def best(self) -> Head:
        """The head that finds the referent most often; of equals, the one that looks hardest."""
        score = (self.share + 1e-3 * self.weight).flatten()
        layer, head = divmod(int(score.argmax()), self.share.shape[1])
        return layer, head


def head_figures(rows: Tensor, truth: Truth) -> Heads:
    """From the pronouns' rows of attention, (N, L, H, S)."""
    only_nouns = rows.masked_fill(~truth.nouns[:, None, None, : rows.shape[-1]], -1.0)
    found = only_nouns.argmax(-1) == truth.referents[:, None, None]  # (N, L, H)
    at = truth.referents[:, None, None, None].expand(*rows.shape[:3], 1)
    return Heads(found.double().mean(0), rows.gather(-1, at).double().mean((0, 3)))


def rows_of(maps: Sequence[Tensor], places: Tensor) -> Tensor:
    """(N, L, H, S): from each layer's maps (N, H, T, S), the row of one place in each story."""
    stories = torch.arange(len(places))
    return torch.stack([weights[stories, :, places] for weights in maps], 1)


@dataclass(frozen=True, eq=False)
class ReaderFigures:
    stories: int
    accuracy: float  # over all pronouns
    flips: float  # stories whose other ending gives the other answer, both of them right
    heads: Heads  # on these stories
    best: Head  # chosen on training stories
    chance: float
    # How often the answer changes when the pronoun may not see
    cut_best: float  # the referent, in the best head
    cut_all: float  # the referent, in any head
    cut_other: float  # another noun, in any head

    @property
    def share(self) -> float:
        return self.heads.share[self.best].item()

    @property
    def weight(self) -> float:
        return self.heads.weight[self.best].item()


@torch.no_grad()
def measure_reader(
    model: Reader,
    tokenizer: WordTokenizer,
    lang: str,
    seen: Sequence[Story],
    unseen: Sequence[Story],
) -> ReaderFigures:
    """What a reader does on `unseen` stories; its best head is chosen on `seen` ones."""
    layers = attentions(model.encoder)
    known, truth = Truth.of(seen, lang), Truth.of(unseen, lang)
    with looking(layers) as maps:
        model.encoder(story_batch(seen, tokenizer, lang).ids)
    best = head_figures(rows_of(maps, known.pronouns), known).best
    batch = story_batch(unseen, tokenizer, lang)
    with looking(layers) as maps:
        said = model(batch.ids).argmax(-1)  # (N, S)
    at = batch.answers != NOWHERE
    last = _at(said, truth.pronouns)
    right = last == _at(batch.answers, truth.pronouns)

    def changed(keys: Tensor, only: Head | None = None) -> float:
        now = _answers_without(model, layers, batch, truth.pronouns, keys, only)
        return (now != last).double().mean().item()

    return ReaderFigures(
        stories=len(unseen),
        accuracy=(said == batch.answers)[at].double().mean().item(),
        flips=(right & _right([s.flip() for s in unseen], model, tokenizer, lang))
        .double()
        .mean()
        .item(),
        heads=head_figures(rows_of(maps, truth.pronouns), truth),
        best=best,
        chance=truth.chance,
        cut_best=changed(truth.referents, best),
        cut_all=changed(truth.referents),
        cut_other=changed(truth.others),
    )


def _right(stories: Sequence[Story], model: Reader, tokenizer: WordTokenizer, lang: str) -> Tensor:
    """(N,) whether the last pronoun of each story is understood."""
    batch, truth = story_batch(stories, tokenizer, lang), Truth.of(stories, lang)
    said = model(batch.ids).argmax(-1)
    return _at(said, truth.pronouns) == _at(batch.answers, truth.pronouns)


def _answers_without(
    model: Reader,
    layers: Sequence[MultiHeadAttention],
    batch: StoryBatch,
    pronouns: Tensor,
    keys: Tensor,
    only: Head | None,
) -> Tensor:
    with cut(layers, pronouns, keys, only):
        return _at(model(batch.ids).argmax(-1), pronouns)


def _at(table: Tensor, places: Tensor) -> Tensor:
    return table[torch.arange(len(places)), places]
