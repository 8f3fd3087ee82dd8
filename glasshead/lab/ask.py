"""Ask a reader what the pronouns of a sentence stand for, or a translator for a translation.

The models know one small world. Outside of it they answer as well, and surely: a softmax over words
has no way to say "none of them". So three things are asked before an answer is given:

shape       is the text a story that can be told in that world (text/tinyworld/recognition.py)?
words       are all words known, and is there one reading, not several?
confidence  is the model as sure as it is where it is right? Its probabilities are calibrated on
            stories that it was not trained on, and so is the least confidence that is answered.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glasshead.checkpoint import Run, load
from glasshead.errors import InputError
from glasshead.lab.alignments import (
    Langs,
    story_ids,
    translate_stories,
    write_true_translations,
)
from glasshead.lab.attention_maps import (
    Head,
    cross_attentions,
    hide_keys,
    record_weights,
    self_attentions,
)
from glasshead.lab.referents import Truth, head_figures, rows_of
from glasshead.model.transformer import Reader, Transformer
from glasshead.text.tinyworld import Story, World
from glasshead.text.tinyworld.recognition import Recognition, recognize
from glasshead.text.tinyworld.tokens import pieces
from glasshead.text.tokenizer import WordTokenizer
from glasshead.training.pronouns import NOWHERE, story_batch

__all__ = ["AnswerCalibration", "Asked", "PronounAnswer", "Respondent", "ask"]

CALIBRATING = 256  # stories; those of the splits for training, but not trained on
TEMPERATURES = torch.logspace(0, 1.5, 31)  # 1 and more: never surer than the model itself
LEAST = 0.5


@dataclass(frozen=True)
class PronounAnswer:
    """What a pronoun stands for, where it looks, and what changes if it may not look there."""

    index: int  # the pronoun's place among the words
    pronoun: str
    word: str  # the answer
    confidence: float
    looks_at: int  # the noun it looks at most in the best head
    weight: float
    cut_word: str  # the answer if no head lets it see that noun
    cut_confidence: float


@dataclass(frozen=True)
class Asked:
    """An answer, or why there is none: `outside` is empty if there is one.

    outside: unknown (a word), shape, ambiguous, impossible (see tinyworld/recognition.py), or
        unsure: the model is less sure than it is where it is right
    """

    text: str
    lang: str
    outside: str
    detail: str = ""  # the unknown word
    choices: tuple[str, ...] = ()  # what an ambiguous pronoun can stand for
    words: tuple[str, ...] = ()
    answers: tuple[PronounAnswer, ...] = ()
    translation: str = ""
    confidence: float = 0.0  # the least of the answers', or that of the translation
    least: float = 0.0  # the least confidence that is answered

    @property
    def is_inside(self) -> bool:
        return not self.outside

    def as_json(self) -> dict[str, Any]:
        return {"inside": self.is_inside, **asdict(self)}


@dataclass(frozen=True)
class AnswerCalibration:
    """How sure a model is where it is right, measured on stories that it was not trained on."""

    temperature: float
    least: float  # the least confidence that is answered
    best: Head  # the head whose looks are shown

    def probabilities(self, logits: Tensor) -> Tensor:
        return (logits.double() / self.temperature).softmax(-1)

    @classmethod
    def fit(cls, logits: Tensor, answers: Tensor, best: Head) -> "AnswerCalibration":
        """Choose the temperature with the least loss, and a confidence above all mistakes.

        Args:
            logits: (N, V), of answers that are known.
            answers: (N,)
        """
        logits = logits.double()
        losses = [torch.nn.functional.cross_entropy(logits / t, answers) for t in TEMPERATURES]
        temperature = TEMPERATURES[int(torch.stack(losses).argmin())].item()
        sure, given = (logits / temperature).softmax(-1).max(-1)
        wrong = sure[given != answers]
        # With no mistake to be above, half of what the least sure answer has.
        least = wrong.max().item() if len(wrong) else sure.min().item() / 2
        return cls(temperature, max(least, LEAST), best)


class Respondent:
    """A run that can be asked, calibrated once.

    Raises:
        InputError: the run is no reader and no translator of the embedded world.
    """

    def __init__(self, run: str | Path | Run) -> None:
        run = run if isinstance(run, Run) else load(run)
        data = run.config.data
        settings = data.get(data.get("task", ""), {})
        readers = isinstance(run.model, Reader) and data.get("task") == "refer"
        translators = isinstance(run.model, Transformer) and data.get("task") == "world"
        if not (readers or translators) or not isinstance(run.tokenizer, WordTokenizer):
            raise InputError(
                f"{run.path} cannot be asked: it is no reader or translator of the embedded world",
                hint="glasshead demo trains both; then: glasshead ask runs/demo/reader",
            )
        self.model, self.tokenizer = run.model, run.tokenizer
        if readers:
            self.langs = (settings["lang"],)
        else:
            self.langs = tuple(settings["langs"].split(","))
        start = settings["stories"] + settings["val_stories"]
        told = World(settings["world"]).stories("train", start)
        self.stories = list(islice(told, CALIBRATING))
        self.calibration = self._calibrate()

    @torch.no_grad()
    def _calibrate(self) -> AnswerCalibration:
        lang = self.langs[0]
        if isinstance(self.model, Reader):
            batch, truth = (
                story_batch(self.stories, self.tokenizer, lang),
                Truth.of(self.stories, lang),
            )
            with record_weights(self_attentions(self.model.encoder)) as maps:
                logits = self.model(batch.ids)
            best = head_figures(rows_of(maps, truth.pronouns), truth).best
            at = batch.answers != NOWHERE
            return AnswerCalibration.fit(logits[at], batch.answers[at], best)
        assert isinstance(self.model, Transformer)
        langs = self._pair()
        with record_weights(cross_attentions(self.model.decoder)) as crossed:
            logits = write_true_translations(self.model, self.tokenizer, langs, self.stories)
        read, written = (Truth.of(self.stories, lang) for lang in langs)
        best = head_figures(rows_of(crossed, written.pronouns), read).best
        target = story_ids(self.tokenizer, self.stories, langs[1])
        rows = [logits[n, : len(ids)] for n, ids in enumerate(target)]
        return AnswerCalibration.fit(
            torch.cat(rows), torch.tensor([*chain.from_iterable(target)]), best
        )

    def _pair(self) -> Langs:
        return self.langs[0], self.langs[-1]

    def ask(self, text: str) -> Asked:
        """Answer, or say why this is outside of what the model can know."""
        lang = self.langs[0]
        found = recognize(text, lang)
        if found.why == "shape":  # the last full stop may be left out
            found = _first_inside(found, recognize(text + ".", lang))
        if found.story is None:
            return Asked(text, lang, found.why, found.detail, found.choices)
        if isinstance(self.model, Reader):
            return self._read(text, found.story)
        return self._translate(text, found.story)

    @torch.no_grad()
    def _read(self, text: str, story: Story) -> Asked:
        assert isinstance(self.model, Reader)
        lang, layers = self.langs[0], self_attentions(self.model.encoder)
        ids = story_batch([story], self.tokenizer, lang).ids
        with record_weights(layers) as maps:
            logits = self.model(ids)[0]
        words = tuple(one.strip() for one in pieces(story.tokens[lang], lang))
        nouns = list(story.nouns[lang])
        layer, head = self.calibration.best
        answers = []
        for pronoun in story.pronouns[lang]:
            word, confidence = self._pick(logits[pronoun.index])
            row = maps[layer][0, head, pronoun.index]
            seen = nouns[int(row[nouns].argmax())]
            with hide_keys(layers, torch.tensor([pronoun.index]), torch.tensor([seen])):
                cut, cut_confidence = self._pick(self.model(ids)[0, pronoun.index])
            answers.append(
                PronounAnswer(
                    pronoun.index,
                    words[pronoun.index],
                    word,
                    confidence,
                    seen,
                    row[seen].item(),
                    cut,
                    cut_confidence,
                )
            )
        confidence = min(one.confidence for one in answers)
        known = {word.lower() for word in words}
        sure = confidence > self.calibration.least and all(
            one.word.lower() in known for one in answers
        )
        return Asked(text, lang, "" if sure else "unsure", words=words, answers=tuple(answers),
                     confidence=confidence, least=self.calibration.least)  # fmt: skip

    @torch.no_grad()
    def _translate(self, text: str, story: Story) -> Asked:
        assert isinstance(self.model, Transformer)
        source, _ = self._pair()
        [ids] = translate_stories(self.model, self.tokenizer, source, [story])
        [read] = story_ids(self.tokenizer, [story], source)
        written = torch.tensor([[self.tokenizer.specials["<bos>"], *ids]])
        layers = cross_attentions(self.model.decoder)
        with record_weights(layers) as crossed:
            logits = self.model(torch.tensor([read]), written)[0, : len(ids)]
        sure = self.calibration.probabilities(logits).max(-1).values
        confidence = sure.min().item() if ids else 0.0
        words = tuple(self.tokenizer.decode([one]).strip() for one in read)
        answers = self._written_pronouns(ids, read, written, crossed, sure, story)
        inside = confidence > self.calibration.least
        return Asked(text, source, "" if inside else "unsure", words=words, answers=answers,
                     translation=self.tokenizer.decode(ids), confidence=confidence,
                     least=self.calibration.least)  # fmt: skip

    def _written_pronouns(
        self,
        ids: Sequence[int],
        read: Sequence[int],
        written: Tensor,
        crossed: list[Tensor],
        sure: Tensor,
        story: Story,
    ) -> tuple[PronounAnswer, ...]:
        """Where each pronoun of the translation looked in the source, and what cutting changes."""
        assert isinstance(self.model, Transformer)
        source, target = self._pair()
        layers = cross_attentions(self.model.decoder)
        forms = {story.tokens[target][one.index] for one in story.pronouns[target]}
        (layer, head), nouns = self.calibration.best, list(story.nouns[source])
        found = []
        for place, one in enumerate(ids):
            word = self.tokenizer.decode([one]).strip()
            if word not in forms:
                continue
            row = crossed[layer][0, head, place]
            seen = nouns[int(row[nouns].argmax())]
            with hide_keys(layers, torch.tensor([place]), torch.tensor([seen])):
                cut, cut_confidence = self._pick(
                    self.model(torch.tensor([read]), written)[0, place]
                )
            noun = self.tokenizer.decode([read[seen]]).strip()
            found.append(
                PronounAnswer(
                    place,
                    word,
                    noun,
                    sure[place].item(),
                    seen,
                    row[seen].item(),
                    cut,
                    cut_confidence,
                )
            )
        return tuple(found)

    def _pick(self, logits: Tensor) -> tuple[str, float]:
        probs = self.calibration.probabilities(logits)
        token = int(probs.argmax())
        return self.tokenizer.decode([token]).strip(), probs[token].item()


def _first_inside(one: Recognition, other: Recognition) -> Recognition:
    return one if other.why == "shape" else other


def ask(run: str | Path | Run, text: str) -> Asked:
    """Ask a reader or a translator of the embedded world about a sentence.

    >>> import glasshead
    >>> small = {"n_layers": 1, "d_model": 16, "quiet": True}
    >>> run = glasshead.train(task="refer", steps=2, batch_size=8, **small)
    >>> asked = glasshead.ask(run, "恐龙饿坏了。")
    >>> asked.outside, asked.detail
    ('unknown', '恐龙')

    Args:
        run: a reader (`glasshead train --task refer`) or a translator of the world, as `glasshead
            demo` trains them: what `load` returned, or its path.
        text: a sentence in the reader's language, or in the translator's first.

    Returns:
        The answers; or why the sentence is outside of what the run can know.
    """
    return Respondent(run).ask(text)
