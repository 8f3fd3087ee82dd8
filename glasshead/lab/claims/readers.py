"""The readers that claims 5, 9 and 12 look into: trained once per process, used by all three.

All read the same stories, from the same start, in the same batches. What differs is what they must
answer at a pronoun: the word that it stands for, or only one of a few classes of words, such as its
German gender.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glasshead.lab.attention_maps import Head, record_weights, self_attentions
from glasshead.lab.claims.claim import Budget
from glasshead.lab.claims.search import SEARCH_WORDS, RateSearch, search_outward
from glasshead.lab.processes import map_processes
from glasshead.lab.referents import Truth, head_figures, rows_of
from glasshead.lab.texts import read_texts
from glasshead.model.transformer import Reader, TransformerConfig
from glasshead.text.tinyworld import Story, World
from glasshead.text.tinyworld.lexicon import NOUNS, PLACES
from glasshead.text.tinyworld.tokens import world_tokenizer
from glasshead.text.tokenizer import WordTokenizer
from glasshead.training.config import TrainConfig
from glasshead.training.loop import Trainer
from glasshead.training.presets import find_preset
from glasshead.training.pronouns import NOWHERE, PronounTask, Stories, StoryBatch, story_batch

__all__ = [
    "FACTORS",
    "GENDER",
    "LANG",
    "LEARNED",
    "NAME",
    "READER_WORDS",
    "SHUFFLED",
    "State",
    "TrainedReader",
    "Training",
    "answered_batch",
    "best_head",
    "classes_of",
    "count_classes",
    "load_state",
    "numpy_state",
    "pronoun_rows",
    "referents",
    "scaled_config",
    "search_factor",
    "seen_stories",
    "tokenizer",
    "train_readers",
    "unseen_stories",
    "untrained_reader",
]

LANG = "zh"
# What is answered. A number: which of so many random classes. SHUFFLED is a control: the word that
# some pronoun of another story stands for.
NAME, GENDER, SHUFFLED = "name", "gender", "shuffled"
FACTORS = (0.5, 1.0, 2.0)  # of the usual learning rates: what the search tries
FACTOR_LADDER = (0.125, 0.25, *FACTORS, 4.0, 8.0)  # and how far it may go
# For the descriptions of claims.
READER_WORDS = {**SEARCH_WORDS, "best_factor": read_texts(__file__)["best_factor"]}
STORIES, SEEN = 20_000, 500
LEARNED = 0.9  # a reader that is right less often has not learned its task


@dataclass(frozen=True)
class Training:
    """Steps and optimizer; everything else is as in `glasshead train --task refer`."""

    steps: int
    search_steps: int
    optimizer: str = "muon"
    batch_size: int = 32

    @classmethod
    def of(cls, budget: Budget) -> "Training":
        return cls(600, 200) if budget.quick else cls(1000, 400)


@dataclass(frozen=True, eq=False)
class TrainedReader:
    model: Reader
    rates: RateSearch  # the factors of the preset's learning rates that were tried


@cache
def tokenizer() -> WordTokenizer:
    return world_tokenizer(LANG)


@cache
def _training_stories() -> tuple[StoryBatch, tuple[Story, ...]]:
    """Return the stories that are trained on, and others of the same kind."""
    stories = World().stories("train")
    batch = story_batch(list(islice(stories, STORIES)), tokenizer(), LANG)
    return batch, tuple(islice(stories, SEEN))


def seen_stories(n: int = SEEN) -> tuple[Story, ...]:
    """Return stories of the kind that was trained on, but not the same ones."""
    return _training_stories()[1][:n]


@cache
def unseen_stories(n: int) -> tuple[Story, ...]:
    """Return stories whose pair of actor and thing is in no training story."""
    return tuple(islice(World().stories("test"), n))


def referents() -> list[int]:
    """Return the ids of all words that a pronoun can stand for."""
    return [tokenizer().ids_of([noun.word(LANG)])[0] for noun in (*NOUNS, *PLACES)]


@cache
def classes_of(answers: str) -> Tensor:
    """Return (V,) the answer for each word: one word that represents its whole class."""
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


def count_classes(answers: str) -> int:
    return len(set(classes_of(answers)[referents()].tolist()))


def answer_by_class(batch: StoryBatch, answers: str) -> StoryBatch:
    """Replace each answer by the word that represents its class."""
    classes, at = classes_of(answers), batch.answers == NOWHERE
    return replace(batch, answers=batch.answers.where(at, classes[batch.answers.clamp(min=0)]))


def answered_batch(stories: Sequence[Story], answers: str = NAME) -> StoryBatch:
    """Return the stories as a batch with the answers that are asked for."""
    return answer_by_class(story_batch(stories, tokenizer(), LANG), answers)


@cache
def untrained_reader(seed: int) -> Reader:
    """Return the reader of this seed before its first step."""
    torch.manual_seed(seed)
    words, preset = tokenizer(), find_preset("reader", "refer")
    config = TransformerConfig(words.vocab_size, pad=words.specials["<pad>"], **preset.model)
    return Reader(config).eval()


# What was trained in this process, so that three claims need not train it three times.
_READERS: dict[tuple[str, int, Training], TrainedReader] = {}
_RATES: dict[tuple[str, Training, tuple[int, ...]], RateSearch] = {}


def search_factor(
    score: Callable[[float, int], float], seeds: Sequence[int], steps: int
) -> RateSearch:
    """Search for the best multiple of the usual learning rates; with 0 steps take them as usual."""
    if not steps:
        return RateSearch({1.0: math.inf})
    return search_outward(score, seeds, FACTORS, FACTOR_LADDER)


def scaled_config(steps: int, seed: int, factor: float, **more: Any) -> TrainConfig:
    """Return the usual training at `factor` times its learning rates, on the CPU, without logs."""
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


def _search(answers: str, training: Training, seeds: tuple[int, ...]) -> RateSearch:
    """Search by the loss on stories not trained on, with seeds that no result has."""
    steps = training.search_steps
    return search_factor(
        lambda factor, seed: _train(answers, seed, training, steps, factor)[1], seeds, steps
    )


def _search_key(
    answers: str, training: Training, seeds: tuple[int, ...]
) -> tuple[str, Training, tuple[int, ...]]:
    """Return what the search is for. Shuffled answers cannot be learned, so no rate is better."""
    return NAME if answers == SHUFFLED else answers, replace(training, steps=0), seeds


State = dict[str, np.ndarray]


def numpy_state(model: nn.Module) -> State:
    """Return the state of the model as arrays, which can be sent to another process."""
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def load_state(model: nn.Module, state: Mapping[str, np.ndarray]) -> None:
    """Load the arrays of `numpy_state` into a model, for evaluation."""
    model.load_state_dict({name: torch.from_numpy(array) for name, array in state.items()})
    model.eval()


def _learn(answers: str, seed: int, training: Training, factor: float) -> State:
    return numpy_state(_train(answers, seed, training, training.steps, factor)[0])


def _train(
    answers: str, seed: int, training: Training, steps: int, factor: float
) -> tuple[Reader, float]:
    """Return the model, and its loss on stories that it was not trained on."""
    torch.manual_seed(seed)
    model = Reader(untrained_reader(seed).config)
    model.load_state_dict(untrained_reader(seed).state_dict())
    training_batch, held = _training_stories()
    if answers == SHUFFLED:
        training_batch = _shuffle_answers(training_batch)
    stories = Stories(answer_by_class(training_batch, answers), answered_batch(held, answers))
    size = training.batch_size
    task = PronounTask(model, tokenizer(), stories, LANG, batch_size=size, seed=seed)
    config = scaled_config(steps, seed, factor, batch_size=size, optimizer=training.optimizer)
    if Trainer(task, config).train().signal:
        raise KeyboardInterrupt
    model.eval()
    with torch.no_grad():
        return model, task.evaluate()["val_loss"]


def _shuffle_answers(batch: StoryBatch) -> StoryBatch:
    at = batch.answers != NOWHERE
    given = batch.answers[at]
    order = torch.randperm(len(given), generator=torch.Generator().manual_seed(0))
    return replace(batch, answers=batch.answers.masked_scatter(at, given[order]))


def train_readers(
    budget: Budget, kinds: Sequence[tuple[str, Sequence[int], Training]]
) -> dict[tuple[str, str], list[TrainedReader]]:
    """Train all readers of these kinds; return {(answers, optimizer): one reader per seed}."""
    missing = [
        (answers, seed, training)
        for answers, seeds, training in kinds
        for seed in seeds
        if (answers, seed, training) not in _READERS
    ]
    with_seeds = budget.search_seeds
    keys = dict.fromkeys(_search_key(a, t, with_seeds) for a, _, t in missing)
    searches = [key for key in keys if key not in _RATES]
    tries = len(FACTORS) * len(with_seeds)
    total = sum(tries * training.search_steps for _, training, _ in searches)
    total += sum(training.steps for *_, training in missing)
    report = budget.step_counter(total, 0.95)
    report(0, "readers")
    found = map_processes(_search, searches, budget.jobs)
    for search, rates in zip(searches, found, strict=True):
        _RATES[search] = rates
        report(tries * search[1].search_steps, f"readers, search for {search[0]}")
    best = [_RATES[_search_key(answers, training, with_seeds)] for answers, _, training in missing]
    items = [(*key, rates.best) for key, rates in zip(missing, best, strict=True)]
    states = map_processes(_learn, items, budget.jobs)
    for key, rates, state in zip(missing, best, states, strict=True):
        answers, seed, training = key
        model = Reader(untrained_reader(seed).config)
        load_state(model, state)
        _READERS[key] = TrainedReader(model, rates)
        report(training.steps, f"reader, answers: {answers} ({training.optimizer})")
    return {
        (answers, training.optimizer): [_READERS[answers, seed, training] for seed in seeds]
        for answers, seeds, training in kinds
    }


@torch.no_grad()
def pronoun_rows(
    model: Reader, stories: Sequence[Story], places: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return (N, L, H, S) what the last pronoun of each story (or another place) looks at, and
    (N, S) the ids of the model's answers."""
    batch = story_batch(stories, tokenizer(), LANG)
    with record_weights(self_attentions(model.encoder)) as maps:
        answers = model(batch.ids).argmax(-1)
    at = Truth.of(stories, LANG).pronouns if places is None else places
    return rows_of(maps, at), answers


def best_head(model: Reader) -> Head:
    """Return the head that finds the referent most often, on stories that are not reported on."""
    stories = seen_stories()
    return head_figures(pronoun_rows(model, stories)[0], Truth.of(stories, LANG)).best
