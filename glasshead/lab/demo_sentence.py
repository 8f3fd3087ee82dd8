"""The document's own sentence in the two models: answers, attention, and what hiding changes."""

from dataclasses import dataclass

import torch
from torch import Tensor

from glasshead.lab.alignments import story_ids, translate_stories
from glasshead.lab.attention_maps import (
    Head,
    cross_attentions,
    hide_keys,
    record_weights,
    self_attentions,
)
from glasshead.model.transformer import Reader, Transformer
from glasshead.text.tinyworld import Story
from glasshead.text.tokenizer import WordTokenizer
from glasshead.training.pronouns import story_batch

__all__ = ["Answer", "Rendering", "StoryReading", "read_story", "render_story"]

LANG = "zh"
PRONOUNS = {"er", "sie", "es", "ihn", "ihm", "ihr"}


@dataclass(frozen=True)
class Answer:
    word: str
    probability: float


@dataclass(frozen=True, eq=False)
class StoryReading:
    """A story in the reader."""

    tokens: tuple[str, ...]
    answers: dict[int, Answer]  # by the places of the pronouns
    wanted: dict[int, str]
    maps: Tensor  # (L, H, S, S)
    best: Head
    hidden: int  # the word that the last pronoun attends to most in the best head
    cut_best: Answer  # its answer if it may not see that word in the best head
    cut_all: Answer  # or in any head
    instead: int  # the word that it then attends to most in the best head

    @property
    def last(self) -> int:
        return max(self.answers)

    @property
    def row(self) -> Tensor:
        """(S,): the weights of the last pronoun in the best head."""
        return self.maps[self.best][self.last]


@torch.no_grad()
def read_story(model: Reader, tokenizer: WordTokenizer, story: Story, best: Head) -> StoryReading:
    batch = story_batch([story], tokenizer, LANG)
    layers = self_attentions(model.encoder)
    with record_weights(layers) as maps:
        probs = model(batch.ids)[0].softmax(-1)  # (S, V)
    weights = torch.stack([one[0] for one in maps])  # (L, H, S, S)
    places = [pronoun.index for pronoun in story.pronouns[LANG]]
    last = places[-1]
    hidden = int(weights[best][last].argmax())

    def answer_without(only: Head | None) -> tuple[Answer, list[Tensor]]:
        with hide_keys(layers, torch.tensor([last]), torch.tensor([hidden]), only) as changed:
            answer = _answer(model(batch.ids)[0, last].softmax(-1), tokenizer)
        return answer, changed

    cut_all, changed = answer_without(None)
    return StoryReading(
        tokens=story.tokens[LANG],
        answers={place: _answer(probs[place], tokenizer) for place in places},
        wanted={pronoun.index: pronoun.word for pronoun in story.pronouns[LANG]},
        maps=weights,
        best=best,
        hidden=hidden,
        cut_best=answer_without(best)[0],
        cut_all=cut_all,
        instead=int(changed[best[0]][0, best[1], last].argmax()),
    )


def _answer(probs: Tensor, tokenizer: WordTokenizer) -> Answer:
    token = int(probs.argmax())
    return Answer(tokenizer.decode([token]), probs[token].item())


@dataclass(frozen=True, eq=False)
class Rendering:
    """A story in the translator."""

    source: tuple[str, ...]
    target: tuple[str, ...]  # words as written, without spaces
    text: str
    wanted: str
    crossing: Tensor  # (L, H, T, S): where each word looked while it was written
    reading: Tensor  # (L, H, S, S): in the encoder
    links: frozenset[tuple[int, int]]  # what belongs together, if the text is the wanted one
    asked: int  # the place of the source's last pronoun
    pronoun: int | None  # the place of the translation's last pronoun, if it has one
    before: str  # the text up to its end


@torch.no_grad()
def render_story(
    model: Transformer, tokenizer: WordTokenizer, story: Story, langs: tuple[str, str]
) -> Rendering:
    source, target = langs
    [ids] = translate_stories(model, tokenizer, source, [story])
    [read_ids] = story_ids(tokenizer, [story], source)
    with (
        record_weights(cross_attentions(model.decoder)) as crossed,
        record_weights(self_attentions(model.encoder)) as maps,
    ):
        model(torch.tensor([read_ids]), torch.tensor([[tokenizer.specials["<bos>"], *ids]]))
    words = tuple(tokenizer.decode([token]).strip() for token in ids)
    pronouns = [place for place, word in enumerate(words) if word in PRONOUNS]
    text = tokenizer.decode(ids)
    return Rendering(
        source=story.tokens[source],
        target=words,
        text=text,
        wanted=story.text(target),
        crossing=torch.stack([weights[0] for weights in crossed])[:, :, : len(ids)],
        reading=torch.stack([weights[0] for weights in maps]),
        links=story.alignment(source, target) if text == story.text(target) else frozenset(),
        asked=story.pronouns[source][-1].index,
        pronoun=pronouns[-1] if pronouns else None,
        before=tokenizer.decode(ids[: pronouns[-1] + 1]) if pronouns else "",
    )
