"""Does cross-attention align words? Measured against the world's own alignments, head by head.

Each word of the translation is linked to the source word that it looks at most while it is
written. The alignment error rate compares these links A with the sure ones S:

    AER = 1 - 2 |A and S| / (|A| + |S|)

(All links of the world are sure, so the possible ones are the same.) Words such as "dort" have no
counterpart, others have several: one link per word cannot reach 0. `least` is what it can reach.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glasshead.generation.beam import SearchConfig, greedy
from glasshead.generation.translation_rows import SpecialTokens
from glasshead.lab.attention_maps import Head, cross_attentions, record_weights, self_attentions
from glasshead.lab.referents import HeadFigures, Truth, head_figures, rows_of
from glasshead.model.transformer import Transformer
from glasshead.text.tinyworld import Story
from glasshead.text.tinyworld.tokens import pieces
from glasshead.text.tokenizer import WordTokenizer

__all__ = [
    "Langs",
    "Links",
    "TranslatorFigures",
    "error_rates",
    "least_error",
    "measure_translator",
    "story_ids",
    "translate_stories",
    "write_true_translations",
]

Links = frozenset[tuple[int, int]]  # (source word, target word)
Langs = tuple[str, str]  # from, to


def error_rates(looked: Sequence[Tensor], sure: Sequence[Links]) -> Tensor:
    """Return (L, H) alignment error rates over sentences.

    Args:
        looked: for each sentence (L, H, T): the source word that each of its T words looks at.
        sure: for each sentence its true links.
    """
    right = torch.zeros(looked[0].shape[:2], dtype=torch.double)
    n_links = n_sure = 0
    for words, links in zip(looked, sure, strict=True):
        table = _link_table(links, int(words.max()) + 1, words.shape[-1])
        right += table[words, torch.arange(words.shape[-1])].sum(-1)
        n_links, n_sure = n_links + words.shape[-1], n_sure + len(links)
    return 1 - 2 * right / (n_links + n_sure)


def _link_table(links: Links, n_sources: int, n_targets: int) -> Tensor:
    sources = max([n_sources, *(source + 1 for source, _ in links)])
    table = torch.zeros(sources, n_targets, dtype=torch.double)
    for source, target in links:
        table[source, target] = 1
    return table


def least_error(lengths: Sequence[int], sure: Sequence[Links]) -> float:
    """Return the error rate of one link per word, where each is right that can be."""
    right = sum(len({target for _, target in links}) for links in sure)
    return 1 - 2 * right / (sum(lengths) + sum(map(len, sure)))


@dataclass(frozen=True, eq=False)
class TranslatorFigures:
    stories: int
    exact: float  # translations that are word for word the world's
    pronouns: float  # German pronouns that are right
    errors: Tensor  # (L, H): alignment error rates
    best: Head  # of the cross-attention, chosen on other stories by its error rate
    least: float  # the lowest error rate that one link per word can have
    reading: HeadFigures  # what the source's last pronoun looks at in the encoder
    reading_best: Head  # chosen on other stories
    writing: HeadFigures  # what is looked at in the source while the last pronoun is written
    writing_best: Head

    @property
    def error(self) -> float:
        return self.errors[self.best].item()


def measure_translator(
    model: Transformer,
    tokenizer: WordTokenizer,
    langs: Langs,
    seen: Sequence[Story],
    unseen: Sequence[Story],
) -> TranslatorFigures:
    """Measure a translator on `unseen` stories; its best heads are chosen on `seen` ones."""
    chosen, found = (_measure_heads(model, tokenizer, langs, stories) for stories in (seen, unseen))
    wanted = story_ids(tokenizer, unseen, langs[1])
    given = translate_stories(model, tokenizer, langs[0], unseen)
    right = [
        given[n][at : at + 1] == wanted[n][at : at + 1]
        for n, story in enumerate(unseen)
        for at in (pronoun.index for pronoun in story.pronouns[langs[1]])
    ]
    layer, head = divmod(int(chosen.errors.argmin()), chosen.errors.shape[1])
    return TranslatorFigures(
        stories=len(unseen),
        exact=sum(one == other for one, other in zip(given, wanted, strict=True)) / len(unseen),
        pronouns=sum(right) / len(right),
        errors=found.errors,
        best=(layer, head),
        least=least_error([len(ids) for ids in wanted], [s.alignment(*langs) for s in unseen]),
        reading=found.reading,
        reading_best=chosen.reading.best,
        writing=found.writing,
        writing_best=chosen.writing.best,
    )


def story_ids(tokenizer: WordTokenizer, stories: Sequence[Story], lang: str) -> list[list[int]]:
    """Return the ids of each story in this language."""
    return [tokenizer.ids_of(pieces(story.tokens[lang], lang)) for story in stories]


def translate_stories(
    model: Transformer, tokenizer: WordTokenizer, source: str, stories: Sequence[Story]
) -> list[list[int]]:
    ids = story_ids(tokenizer, stories, source)
    # No story is longer; an untrained model would never end.
    config = SearchConfig(max_tokens=64)
    return [list(one.ids) for one in greedy(model, ids, SpecialTokens.of(tokenizer, model), config)]


@torch.no_grad()
def write_true_translations(
    model: Transformer, tokenizer: WordTokenizer, langs: Langs, stories: Sequence[Story]
) -> Tensor:
    """Return (N, T, V) logits while the true translations are read and written.

    The logits at place t are those of the word at place t, from the words before it.
    """
    source, target = (story_ids(tokenizer, stories, lang) for lang in langs)
    shifted = [[tokenizer.specials["<bos>"], *ids] for ids in target]
    logits: Tensor = model(*(_pad(rows, model.config.pad) for rows in (source, shifted)))
    return logits


def _pad(rows: Sequence[Sequence[int]], pad: int) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[pad] * (width - len(row))] for row in rows])


@dataclass(frozen=True, eq=False)
class _TranslatorHeads:
    errors: Tensor
    reading: HeadFigures
    writing: HeadFigures


def _measure_heads(
    model: Transformer, tokenizer: WordTokenizer, langs: Langs, stories: Sequence[Story]
) -> _TranslatorHeads:
    """Measure where every head looks while the true translations are read and written."""
    with (
        record_weights(cross_attentions(model.decoder)) as crossed,
        record_weights(self_attentions(model.encoder)) as read,
    ):
        write_true_translations(model, tokenizer, langs, stories)
    most = torch.stack([weights.argmax(-1) for weights in crossed], 1)  # (N, L, H, T)
    lengths = map(len, story_ids(tokenizer, stories, langs[1]))
    looked = [row[..., :length] for row, length in zip(most, lengths, strict=True)]
    truth, written = Truth.of(stories, langs[0]), Truth.of(stories, langs[1])
    return _TranslatorHeads(
        error_rates(looked, [story.alignment(*langs) for story in stories]),
        head_figures(rows_of(read, truth.pronouns), truth),
        head_figures(rows_of(crossed, written.pronouns), truth),
    )
