"""The readers that claims 5, 9 and 12 look into: trained once in a process, looked at by all three.

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

from glasshead.lab.claims.claim import SEARCH_SEEDS, Budget, Words
from glasshead.lab.claims.search import RateSearch, outward
from glasshead.lab.claims.spread import spread
from glasshead.lab.looking import attentions, looking
from glasshead.lab.referents import Head, Truth, head_figures, rows_of
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
    "BEST_FACTOR",
    "FACTORS",
    "GENDER",
    "LANG",
    "LEARNED",
    "NAME",
    "SHUFFLED",
    "State",
    "Trained",
    "Training",
    "answered",
    "best_head",
    "by_factor",
    "classes_of",
    "pronoun_rows",
    "readers",
    "referents",
    "seen_stories",
    "state_of",
    "tokenizer",
    "unseen_stories",
    "untrained",
    "usual_with",
    "with_state",
]

LANG = "zh"
# What is answered. A number: which of so many classes, drawn by chance. SHUFFLED is a control: the
# word that some pronoun of another story stands for.
NAME, GENDER, SHUFFLED = "name", "gender", "shuffled"
FACTORS = (0.5, 1.0, 2.0)  # of the usual learning rates: what the search tries
FACTOR_LADDER = (0.125, 0.25, *FACTORS, 4.0, 8.0)  # and how far it may go
BEST_FACTOR = Words(
    "learning rates (half, once and twice the usual, and further out while the best lies at the "
    "edge, to an eighth and eight times at most)",
    "学习率搜索（通常的一半、一倍、两倍；只要最好的在边缘就再往外试，最多到八分之一与八倍）",
)
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
    rates: RateSearch  # of the preset's learning rates, the factors that were tried


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
_RATES: dict[tuple[str, Training], RateSearch] = {}


def by_factor(score: Callable[[float], float], steps: int) -> RateSearch:
    """The scores of multiples of the usual learning rates; with no steps for it, no search."""
    return outward(score, FACTORS, FACTOR_LADDER) if steps else RateSearch({1.0: math.inf})


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


def _search(answers: str, training: Training) -> RateSearch:
    """By the loss on stories not trained on, with a seed that no result has."""
    steps = training.search_steps
    return by_factor(
        lambda factor: _train(answers, SEARCH_SEEDS[0], training, steps, factor)[1], steps
    )


def _searched(answers: str, training: Training) -> tuple[str, Training]:
    """Whose search it is. In shuffled answers there is nothing to learn, so no rate is better."""
    return NAME if answers == SHUFFLED else answers, replace(training, steps=0)


State = dict[str, np.ndarray]


def state_of(model: nn.Module) -> State:
    """What another process needs to have the model, too."""
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def with_state(model: nn.Module, state: Mapping[str, np.ndarray]) -> None:
    model.load_state_dict({name: torch.from_numpy(array) for name, array in state.items()})
    model.eval()


def _learn(answers: str, seed: int, training: Training, factor: float) -> State:
    return state_of(_train(answers, seed, training, training.steps, factor)[0])


def _train(
    answers: str, seed: int, training: Training, steps: int, factor: float
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
    task = PronounTask(model, tokenizer(), stories, LANG, batch_size=size, seed=seed)
    config = usual_with(steps, seed, factor, batch_size=size, optimizer=training.optimizer)
    outcome = Trainer(task, config).train()
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


def readers(
    budget: Budget, kinds: Sequence[tuple[str, Sequence[int], Training]]
) -> dict[tuple[str, str], list[Trained]]:
    """Train them all, {(answers, optimizer): one reader a seed}, and tell how it goes."""
    missing = [
        (answers, seed, training)
        for answers, seeds, training in kinds
        for seed in seeds
        if (answers, seed, training) not in _READERS
    ]
    searches = [key for key in dict.fromkeys(_searched(a, t) for a, _, t in missing)
                if key not in _RATES]  # fmt: skip
    total = sum(len(FACTORS) * training.search_steps for _, training in searches)
    total, done = max(1, total + sum(training.steps for *_, training in missing)), 0

    def tell(steps: int, what: str) -> None:
        nonlocal done
        done += steps
        budget.progress(0.95 * done / total, what)

    tell(0, "readers")
    for search, rates in zip(searches, spread(_search, searches, budget.jobs), strict=True):
        _RATES[search] = rates
        tell(len(FACTORS) * search[1].search_steps, f"readers, search for {search[0]}")
    found = [_RATES[_searched(answers, training)] for answers, _, training in missing]
    items = [(*key, rates.best) for key, rates in zip(missing, found, strict=True)]
    states = spread(_learn, items, budget.jobs)
    for key, rates, state in zip(missing, found, states, strict=True):
        answers, seed, training = key
        model = Reader(untrained(seed).config)
        with_state(model, state)
        _READERS[key] = Trained(model, classes_of(answers), rates)
        tell(training.steps, f"reader, answers: {answers} ({training.optimizer})")
    return {
        (answers, training.optimizer): [_READERS[answers, seed, training] for seed in seeds]
        for answers, seeds, training in kinds
    }


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
