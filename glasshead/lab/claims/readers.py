"""The readers that claims 5, 9 and 12 look into: trained once in a process, looked at by all three.

All read the same stories, from the same start, in the same batches. What differs is what they must
answer at a pronoun: the word that it stands for, or only one of a few classes of words, such as its
German gender.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from random import Random
from typing import Any

import torch
from torch import Tensor

from glasshead.lab.claims.claim import SEARCH_SEEDS, Budget
from glasshead.lab.looking import attentions, looking
from glasshead.lab.referents import Head, Truth, head_figures, rows_of
from glasshead.model.transformer import Reader, TransformerConfig
from glasshead.text.tinyworld import Story, World
from glasshead.text.tinyworld.lexicon import NOUNS, PLACES
from glasshead.text.tinyworld.tokens import world_tokenizer
from glasshead.text.tokenizer import WordTokenizer
from glasshead.train.config import TrainConfig
from glasshead.train.loop import Trainer
from glasshead.train.presets import find_preset
from glasshead.train.progress import Now, Watch
from glasshead.train.refer import NOWHERE, ReferTask, Stories, StoryBatch, story_batch

__all__ = [
    "FACTORS",
    "GENDER",
    "LANG",
    "LEARNED",
    "NAME",
    "SHUFFLED",
    "Trained",
    "Training",
    "answered",
    "best_factor",
    "best_head",
    "classes_of",
    "pronoun_rows",
    "readers",
    "referents",
    "seen_stories",
    "tokenizer",
    "trained",
    "unseen_stories",
    "untrained",
    "usual_with",
]

LANG = "zh"
# What is answered. A number: which of so many classes, drawn by chance. SHUFFLED is a control: the
# word that some pronoun of another story stands for.
NAME, GENDER, SHUFFLED = "name", "gender", "shuffled"
FACTORS = (1.0, 0.5, 2.0)  # of the usual learning rates: what the search tries
STORIES, SEEN = 20_000, 500
LEARNED = 0.9  # a reader that is right less often has not learned its task, and shows nothing


@dataclass(frozen=True)
class Training:
    """How long, and how. Everything else is as in `glasshead train --task refer`."""

    steps: int
    search_steps: int
    optimizer: str = "muon"
    batch_size: int = 32

    @classmethod
    def of(cls, budget: Budget) -> "Training":
        return cls(600, 200) if budget.quick else cls(1000, 400)


@dataclass(frozen=True, eq=False)
class Trained:
    model: Reader
    classes: Tensor  # (V,): the answer that each word counts as
    factor: float  # of the preset's learning rates


@cache
def tokenizer() -> WordTokenizer:
    return world_tokenizer(LANG)


@cache
def _told() -> tuple[StoryBatch, tuple[Story, ...]]:
    told = World().stories("train")
    return story_batch(list(islice(told, STORIES)), tokenizer(), LANG), tuple(islice(told, SEEN))


def seen_stories(n: int = SEEN) -> tuple[Story, ...]:
    """Of the kind that was trained on, but others."""
    return _told()[1][:n]


@cache
def unseen_stories(n: int) -> tuple[Story, ...]:
    """Whose pair of actor and thing is in no training story."""
    return tuple(islice(World().stories("test"), n))


def referents() -> list[int]:
    """The ids of all words that a pronoun can stand for."""
    return [tokenizer().ids_of([noun.word(LANG)])[0] for noun in (*NOUNS, *PLACES)]


@cache
def classes_of(answers: str) -> Tensor:
    """(V,) the answer that each word counts as: a word that stands for its whole class."""
    nouns, ids = [*NOUNS, *PLACES], referents()
    if answers in (NAME, SHUFFLED):
        names: Sequence[object] = range(len(nouns))
    elif answers == GENDER:
        names = [noun.gender for noun in nouns]
    else:
        order = Random(0).sample(range(len(nouns)), len(nouns))
        names = [place % int(answers) for place in order]
    classes, first = torch.arange(tokenizer().vocab_size), dict[object, int]()
    for name, number in zip(names, ids, strict=True):
        classes[number] = first.setdefault(name, number)
    return classes


def answered(batch: StoryBatch, classes: Tensor) -> StoryBatch:
    """The same stories with answers by class."""
    answers = batch.answers.where(batch.answers == NOWHERE, classes[batch.answers.clamp(min=0)])
    return replace(batch, answers=answers)


@cache
def untrained(seed: int) -> Reader:
    """How the reader of this seed was before it learned anything."""
    torch.manual_seed(seed)
    words, preset = tokenizer(), find_preset("reader", "refer")
    config = TransformerConfig(words.vocab_size, pad=words.specials["<pad>"], **preset.model)
    return Reader(config).eval()


# What was trained in this process, so that three claims need not train it three times.
_READERS: dict[tuple[str, int, Training], Trained] = {}
_FACTORS: dict[tuple[str, Training], float] = {}


def trained(answers: str, seed: int, training: Training, watch: Watch | None = None) -> Trained:
    """The reader of this seed, with the learning rate that was best for such answers."""
    key = (answers, seed, training)
    if key not in _READERS:
        factor = _factor(answers, training, watch)
        model, _ = _train(answers, seed, training, training.steps, factor, watch)
        _READERS[key] = Trained(model, classes_of(answers), factor)
    return _READERS[key]


def best_factor(score: Callable[[float], float]) -> float:
    """Of the usual learning rates: the one with the lowest score; what is not finite is the worst.

    >>> best_factor(lambda factor: abs(factor - 1.2))
    1.0
    """
    scores = {factor: score(factor) for factor in FACTORS}
    return min(FACTORS, key=lambda factor: (not math.isfinite(scores[factor]), scores[factor]))


def usual_with(steps: int, seed: int, factor: float, **more: Any) -> TrainConfig:
    """The usual training at so many times its learning rates, on the CPU and without logs."""
    usual = TrainConfig()
    return replace(
        usual,
        steps=steps,
        seed=seed,
        lr=usual.lr * factor,
        muon_lr=usual.muon_lr * factor,
        eval_every=max(steps, 1),
        device="cpu",
        threads=torch.get_num_threads(),
        compile="off",
        tensorboard=False,
        **more,
    )


def _factor(answers: str, training: Training, watch: Watch | None) -> float:
    """By the loss on stories not trained on, with a seed that no result has."""

    def score(factor: float) -> float:
        steps = training.search_steps
        return _train(answers, SEARCH_SEEDS[0], training, steps, factor, watch)[1]

    if answers == SHUFFLED:  # there is nothing to learn, so no rate is better at it
        return _factor(NAME, training, watch)
    key = (answers, replace(training, steps=0))
    if key not in _FACTORS:
        _FACTORS[key] = best_factor(score) if training.search_steps else 1.0
    return _FACTORS[key]


def _train(
    answers: str, seed: int, training: Training, steps: int, factor: float, watch: Watch | None
) -> tuple[Reader, float]:
    """The model, and its loss on stories that it was not trained on."""
    torch.manual_seed(seed)
    model, classes = Reader(untrained(seed).config), classes_of(answers)
    model.load_state_dict(untrained(seed).state_dict())
    told, held = _told()
    if answers == SHUFFLED:
        told = _shuffled(told)
    stories = Stories(
        answered(told, classes), answered(story_batch(held, tokenizer(), LANG), classes)
    )
    size = training.batch_size
    task = ReferTask(model, tokenizer(), stories, LANG, batch_size=size, seed=seed)
    config = usual_with(steps, seed, factor, batch_size=size, optimizer=training.optimizer)
    outcome = Trainer(task, config, watch=watch).train()
    if outcome.signal:
        raise KeyboardInterrupt
    model.eval()
    with torch.no_grad():
        return model, task.evaluate()["val_loss"]


def _shuffled(batch: StoryBatch) -> StoryBatch:
    at = batch.answers != NOWHERE
    given = batch.answers[at]
    order = torch.randperm(len(given), generator=torch.Generator().manual_seed(0))
    return replace(batch, answers=batch.answers.masked_scatter(at, given[order]))


class _Telling(Watch):
    """Tells a claim's progress how far its trainings are."""

    def __init__(self, total: int, tell: Callable[[float, str], object]) -> None:
        self.total, self.tell, self.what, self.steps = total, tell, "", 0

    def stepped(self, now: Now) -> None:
        self.steps += 1
        if self.steps % 20 == 0:
            self.tell(min(0.95, self.steps / self.total), self.what)


def readers(
    budget: Budget, kinds: Sequence[tuple[str, Sequence[int], Training]]
) -> dict[tuple[str, str], list[Trained]]:
    """Train them all, {(answers, optimizer): one reader a seed}, and tell how it goes."""
    total = sum(
        len(seeds) * training.steps + len(FACTORS) * training.search_steps
        for _, seeds, training in kinds
    )
    telling, found = _Telling(max(total, 1), budget.progress), {}
    for answers, seeds, training in kinds:
        telling.what = f"reader, answers: {answers} ({training.optimizer})"
        made = [trained(answers, seed, training, telling) for seed in seeds]
        found[answers, training.optimizer] = made
    return found


@torch.no_grad()
def pronoun_rows(
    model: Reader, stories: Sequence[Story], places: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """(N, L, H, S) what the last pronoun of each story (or another place) looks at, and
    (N, S) the ids that the model answers with."""
    batch = story_batch(stories, tokenizer(), LANG)
    with looking(attentions(model.encoder)) as maps:
        said = model(batch.ids).argmax(-1)
    at = Truth.of(stories, LANG).pronouns if places is None else places
    return rows_of(maps, at), said


def best_head(model: Reader) -> Head:
    """The head that finds the referent most often; chosen on stories that are not reported on."""
    stories = seen_stories()
    return head_figures(pronoun_rows(model, stories)[0], Truth.of(stories, LANG)).best
