"""Does cross-attention align words? Measured against the world's own alignments, head by head.

Each word of the translation is linked to the source word that it looks at most while it is
written. The alignment error rate compares these links A with the sure ones S:

    AER = 1 - 2 |A and S| / (|A| + |S|)

(All links of the world are sure, so the possible ones are the same.) Words such as "dort" have no
counterpart, others have several: one link a word cannot reach 0. `least` is what it can reach.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glasshead.generation.beam import SearchConfig, greedy
from glasshead.generation.rows import SpecialTokens
from glasshead.lab.looking import attentions, crossings, looking
from glasshead.lab.referents import Head, Heads, Truth, head_figures, rows_of
from glasshead.model.transformer import Transformer
from glasshead.text.tinyworld import Story
from glasshead.text.tinyworld.tokens import pieces
from glasshead.text.tokenizer import WordTokenizer

__all__ = [
    "Links",
    "TranslatorFigures",
    "error_rates",
    "least_error",
    "measure_translator",
    "translations",
]

Links = frozenset[tuple[int, int]]  # (source word, target word)


def error_rates(looked: Sequence[Tensor], sure: Sequence[Links]) -> Tensor:
    """(L, H) alignment error rates over sentences.

    Args:
        looked: for each sentence (L, H, T): the source word that each of its T words looks at.
        sure: for each sentence its true links.
    """
    right = torch.zeros(looked[0].shape[:2], dtype=torch.double)
    n_links = n_sure = 0
    for words, links in zip(looked, sure, strict=True):
        table = _table(links, int(words.max()) + 1, words.shape[-1])
        right += table[words, torch.arange(words.shape[-1])].sum(-1)
        n_links, n_sure = n_links + words.shape[-1], n_sure + len(links)
    return 1 - 2 * right / (n_links + n_sure)


def least_error(lengths: Sequence[int], sure: Sequence[Links]) -> float:
    """The error rate of one link for each word, where each is right that can be."""
    right = sum(len({target for _, target in links}) for links in sure)
    return 1 - 2 * right / (sum(lengths) + sum(map(len, sure)))


@dataclass(frozen=True, eq=False)
class TranslatorFigures:
    stories: int
    exact: float  # translations that are word for word the world's
    pronouns: float  # German pronouns that are right
    errors: Tensor  # (L, H): alignment error rates
    best: Head  # of the cross-attention, chosen on other stories by its error rate
    least: float  # the lowest error rate that one link a word can have
    reading: Heads  # what the source's last pronoun looks at in the encoder
    reading_best: Head  # chosen on other stories
    writing: Heads  # what is looked at in the source while the last pronoun is written
    writing_best: Head

    @property
    def error(self) -> float:
        return self.errors[self.best].item()


def measure_translator(
    model: Transformer,
    tokenizer: WordTokenizer,
    langs: tuple[str, str],
    seen: Sequence[Story],
    unseen: Sequence[Story],
) -> TranslatorFigures:
    """What a translator does on `unseen` stories; its best heads are chosen on `seen` ones."""
    chosen, found = (_looks(model, tokenizer, langs, stories) for stories in (seen, unseen))
    target = langs[1]
    wanted = [tokenizer.ids_of(pieces(story.tokens[target], target)) for story in unseen]
    said = translations(model, tokenizer, langs[0], unseen)
    places = [
        (story, pronoun.index)
        for story, story_pronouns in enumerate(s.pronouns[target] for s in unseen)
        for pronoun in story_pronouns
    ]
    right = [said[n][at : at + 1] == wanted[n][at : at + 1] for n, at in places]
    layer, head = divmod(int(chosen.errors.argmin()), chosen.errors.shape[1])
    return TranslatorFigures(
        stories=len(unseen),
        exact=sum(one == other for one, other in zip(said, wanted, strict=True)) / len(unseen),
        pronouns=sum(right) / len(right),
        errors=found.errors,
        best=(layer, head),
        least=least_error([len(ids) for ids in wanted], [s.alignment(*langs) for s in unseen]),
        reading=found.reading,
        reading_best=chosen.reading.best,
        writing=found.writing,
        writing_best=chosen.writing.best,
    )


def translations(
    model: Transformer, tokenizer: WordTokenizer, source: str, stories: Sequence[Story]
) -> list[list[int]]:
    ids = [tokenizer.ids_of(pieces(story.tokens[source], source)) for story in stories]
    # No story is longer; a model that was not trained would never come to an end.
    config = SearchConfig(max_tokens=64)
    return [list(one.ids) for one in greedy(model, ids, SpecialTokens.of(tokenizer, model), config)]


@dataclass(frozen=True, eq=False)
class _Looks:
    errors: Tensor
    reading: Heads
    writing: Heads


@torch.no_grad()
def _looks(
    model: Transformer, tokenizer: WordTokenizer, langs: tuple[str, str], stories: Sequence[Story]
) -> _Looks:
    """Where every head looks while the true translations are read and written."""
    sides = [
        [tokenizer.ids_of(pieces(story.tokens[lang], lang)) for story in stories] for lang in langs
    ]
    bos = tokenizer.specials["<bos>"]
    source, target_in = _padded(sides[0], model), _padded([[bos, *ids] for ids in sides[1]], model)
    with (
        looking(crossings(model.decoder)) as crossed,
        looking(attentions(model.encoder)) as read,
    ):
        model(source, target_in)
    # The word at place t is written at place t of target_in, from those before it.
    most = torch.stack([weights.argmax(-1) for weights in crossed], 1)  # (N, L, H, T)
    looked = [row[..., : len(ids)] for row, ids in zip(most, sides[1], strict=True)]
    truth, written = Truth.of(stories, langs[0]), Truth.of(stories, langs[1])
    return _Looks(
        error_rates(looked, [story.alignment(*langs) for story in stories]),
        head_figures(rows_of(read, truth.pronouns), truth),
        head_figures(rows_of(crossed, written.pronouns), truth),
    )


def _padded(rows: Sequence[Sequence[int]], model: Transformer) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[model.config.pad] * (width - len(row))] for row in rows])


def _table(links: Links, n_sources: int, n_targets: int) -> Tensor:
    sources = max([n_sources, *(source + 1 for source, _ in links)])
    table = torch.zeros(sources, n_targets, dtype=torch.double)
    for source, target in links:
        table[source, target] = 1
    return table
