"""Does attention show what a pronoun stands for? Measured on stories whose answers are known.

All figures are of the last pronoun of a story, the one that its ending decides, except for the
accuracy, which counts every pronoun. The best head is chosen on training stories and reported on
unseen ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glasshead.lab.attention_maps import Head, hide_keys, record_weights, self_attentions
from glasshead.model.transformer import Reader
from glasshead.text.tinyworld import Story
from glasshead.text.tokenizer import WordTokenizer
from glasshead.training.pronouns import NOWHERE, story_batch

__all__ = [
    "HeadFigures",
    "ReaderFigures",
    "Truth",
    "both_endings",
    "head_figures",
    "measure_reader",
    "rows_of",
]


@dataclass(frozen=True, eq=False)
class Truth:
    """The places in each story of its last pronoun, of the word it stands for, and of all nouns."""

    pronouns: Tensor  # (N,)
    referents: Tensor  # (N,)
    nouns: Tensor  # (N, S) bool

    @classmethod
    def of(cls, stories: Sequence[Story], lang: str) -> "Truth":
        last = [story.pronouns[lang][-1] for story in stories]
        width = max(len(story.tokens[lang]) for story in stories)
        nouns = torch.zeros(len(stories), width, dtype=torch.bool)
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


@dataclass(frozen=True, eq=False)
class HeadFigures:
    """For each layer and head, over stories."""

    share: Tensor  # (L, H): how often the most-attended noun is the referent
    weight: Tensor  # (L, H): the mean weight on the referent

    @property
    def best(self) -> Head:
        """The head that finds the referent most often; of equals, that with more weight on it."""
        score = (self.share + 1e-3 * self.weight).flatten()
        layer, head = divmod(int(score.argmax()), self.share.shape[1])
        return layer, head


def head_figures(rows: Tensor, truth: Truth) -> HeadFigures:
    """Compute the figures from the pronouns' rows of attention, (N, L, H, S)."""
    only_nouns = rows.masked_fill(~truth.nouns[:, None, None, : rows.shape[-1]], -1.0)
    found = only_nouns.argmax(-1) == truth.referents[:, None, None]  # (N, L, H)
    at = truth.referents[:, None, None, None].expand(*rows.shape[:3], 1)
    return HeadFigures(found.double().mean(0), rows.gather(-1, at).double().mean((0, 3)))


def rows_of(maps: Sequence[Tensor], places: Tensor) -> Tensor:
    """(N, L, H, S): from each layer's maps (N, H, T, S), the row of one place in each story."""
    stories = torch.arange(len(places))
    return torch.stack([weights[stories, :, places] for weights in maps], 1)


@dataclass(frozen=True, eq=False)
class ReaderFigures:
    stories: int
    accuracy: float  # over all pronouns
    flips: float  # stories whose other ending gives the other answer, both of them right
    heads: HeadFigures  # on these stories
    best: Head  # chosen on training stories
    chance: float
    # How often the answer changes when the pronoun may not see a noun. Over `both_endings`, so that
    # the referent and the other noun are hidden at the same places.
    cut_best: float  # the referent, in the best head
    cut_all: float  # the referent, in any head
    cut_other: float  # the noun that the other ending would be about, in any head

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
    """Measure a reader on `unseen` stories; its best head is chosen on `seen` ones."""
    layers = self_attentions(model.encoder)
    known, truth = Truth.of(seen, lang), Truth.of(unseen, lang)
    with record_weights(layers) as maps:
        model.encoder(story_batch(seen, tokenizer, lang).ids)
    best = head_figures(rows_of(maps, known.pronouns), known).best
    batch, stories = story_batch(unseen, tokenizer, lang), torch.arange(len(unseen))
    with record_weights(layers) as maps:
        given = model(batch.ids).argmax(-1)  # (N, S)
    right = (given == batch.answers)[stories, truth.pronouns]
    flipped = _is_right(model, tokenizer, lang, [story.flip() for story in unseen])
    cut_best, cut_all, cut_other = _cut(model, tokenizer, lang, both_endings(unseen), best)
    return ReaderFigures(
        stories=len(unseen),
        accuracy=(given == batch.answers)[batch.answers != NOWHERE].double().mean().item(),
        flips=(right & flipped).double().mean().item(),
        heads=head_figures(rows_of(maps, truth.pronouns), truth),
        best=best,
        chance=truth.chance,
        cut_best=cut_best,
        cut_all=cut_all,
        cut_other=cut_other,
    )


def both_endings(stories: Sequence[Story]) -> list[Story]:
    """Return each story twice in a row, once about one of its two nouns and once about the other.

    The referent of the one is the other noun of its neighbour.
    """
    about_a_noun = [story.flip() for story in stories]  # a story about its place becomes one
    return [one for story in about_a_noun for one in (story, story.flip())]


def _cut(
    model: Reader, tokenizer: WordTokenizer, lang: str, pairs: Sequence[Story], best: Head
) -> tuple[float, float, float]:
    """Return how often the answer changes: `cut_best`, `cut_all`, `cut_other`."""
    layers = self_attentions(model.encoder)
    batch, truth = story_batch(pairs, tokenizer, lang), Truth.of(pairs, lang)
    rows = torch.arange(len(pairs))
    before = model(batch.ids).argmax(-1)[rows, truth.pronouns]
    others = truth.referents.unflatten(0, (-1, 2)).flip(1).flatten()

    def share_changed(keys: Tensor, only: Head | None = None) -> float:
        with hide_keys(layers, truth.pronouns, keys, only):
            now = model(batch.ids).argmax(-1)[rows, truth.pronouns]
        return (now != before).double().mean().item()

    return (
        share_changed(truth.referents, best),
        share_changed(truth.referents),
        share_changed(others),
    )


def _is_right(
    model: Reader, tokenizer: WordTokenizer, lang: str, stories: Sequence[Story]
) -> Tensor:
    """(N,) whether the answer at the last pronoun of each story is right."""
    batch, places = story_batch(stories, tokenizer, lang), Truth.of(stories, lang).pronouns
    return (model(batch.ids).argmax(-1) == batch.answers)[torch.arange(len(places)), places]
