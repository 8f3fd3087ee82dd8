"""The translators that claim 11 looks into: some may look only at words in about the same place."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import islice

import torch
from torch import Tensor, nn

from glasshead.attention.hooks import Layer, PendingCall
from glasshead.lab.claims.claim import SEARCH_SEEDS, Budget
from glasshead.lab.claims.readers import (
    FACTORS,
    State,
    by_factor,
    state_of,
    usual_with,
    with_state,
)
from glasshead.lab.claims.search import RateSearch
from glasshead.lab.claims.spread import spread
from glasshead.lab.looking import crossings, looking
from glasshead.model.transformer import Transformer, TransformerConfig
from glasshead.observe.ablation import ChangeHook, attach_change_hooks
from glasshead.observe.layers import find_layers
from glasshead.text.pairs import Pair
from glasshead.text.table_tokenizer import Ids
from glasshead.text.tinyworld import Story, World
from glasshead.text.tinyworld.tokens import pieces, world_tokenizer
from glasshead.text.tokenizer import WordTokenizer
from glasshead.training.loop import Trainer
from glasshead.training.parallel_corpus import PairConfig, ParallelCorpus
from glasshead.training.presets import find_preset
from glasshead.training.translation import TranslationTask

__all__ = [
    "Langs",
    "Reach",
    "Settings",
    "Written",
    "fresh",
    "told",
    "translators",
    "within",
    "written",
]

Langs = tuple[str, str]  # from, to

STORIES, HELD = 8000, 64


@dataclass(frozen=True)
class Reach:
    """How many places from its own a word may look; None: anywhere."""

    cross: int | None = None  # from a word that is written to the words of the source
    encoder: int | None = None  # from a word of the source to the others


@dataclass(frozen=True)
class Settings:
    steps: int
    search_steps: int
    max_tokens: int = 768  # of a batch


class _Band(ChangeHook):
    """Hides what lies farther than `reach`."""

    hides = True

    def __init__(self, layer: Layer, reach: int) -> None:
        super().__init__(layer)
        self.reach = reach

    def hidden(self, call: PendingCall) -> Tensor:
        places = torch.arange(call.T, device=call.device)[:, None]
        return (torch.arange(call.S, device=call.device) - places).abs() > self.reach  # (T, S)


@contextmanager
def within(model: Transformer, reach: Reach) -> Iterator[None]:
    """Inside the `with`, attention reaches no farther."""
    hooks: dict[nn.Module, ChangeHook] = {}
    for layer, module in find_layers(model, partly=False):
        far = reach.cross if layer.kind == "cross" else None
        far = reach.encoder if layer.part == "encoder" else far
        if far is not None:
            hooks[module] = _Band(layer, far)
    with attach_change_hooks(hooks):
        yield


class _Remembering(WordTokenizer):
    """Every training encodes all stories; here each is cut into words only once."""

    def __init__(self, words: WordTokenizer) -> None:
        super().__init__(words.words, tuple(words.specials))
        self._seen: dict[str, Ids] = {}

    def encode_ids(self, text: str) -> Ids:
        if text not in self._seen:
            self._seen[text] = super().encode_ids(text)
        return self._seen[text]


@cache
def told(langs: Langs) -> tuple[WordTokenizer, ParallelCorpus]:
    (source, target), stories = langs, World().stories("train")
    parts = (
        [
            Pair(story.text(source), story.text(target), n)
            for n, story in enumerate(islice(stories, k), 1)
        ]
        for k in (STORIES, HELD)
    )
    return _Remembering(world_tokenizer(*langs)), ParallelCorpus(*parts)


def fresh(langs: Langs, seed: int) -> Transformer:
    """One layer each, so that what one layer of cross-attention sees is all that is seen."""
    words, preset = told(langs)[0], find_preset("translator", "world")
    torch.manual_seed(seed)
    shape = {**preset.model, "n_layers": 1, "pad": words.specials["<pad>"]}
    return Transformer(TransformerConfig(words.vocab_size, **shape)).eval()


_MODELS: dict[tuple[Langs, Reach, int, Settings], Transformer] = {}
_RATES: dict[tuple[Langs, Reach, Settings], RateSearch] = {}

Side = tuple[Langs, Reach, Sequence[int]]  # and the seeds


def translators(
    budget: Budget, sides: Sequence[Side], settings: Settings
) -> list[tuple[list[Transformer], RateSearch]]:
    """For each side one for each seed, with the learning rate that was best."""
    missing = [(langs, reach, seed, settings) for langs, reach, seeds in sides for seed in seeds
               if (langs, reach, seed, settings) not in _MODELS]  # fmt: skip
    searches = [key for key in dict.fromkeys((*key[:2], settings) for key in missing)
                if key not in _RATES]  # fmt: skip
    cost = len(FACTORS) * settings.search_steps
    total, done = max(1, cost * len(searches) + settings.steps * len(missing)), 0

    def tell(steps: int, what: str) -> None:
        nonlocal done
        done += steps
        budget.progress(0.98 * done / total, what)

    tell(0, "translators")
    for search, rates in zip(searches, spread(_search, searches, budget.jobs), strict=True):
        _RATES[search] = rates
        tell(cost, f"{'→'.join(search[0])}, search for a rate")
    items = [(*key, _RATES[*key[:2], settings].best) for key in missing]
    for key, state in zip(missing, spread(_learn, items, budget.jobs), strict=True):
        _MODELS[key] = fresh(key[0], key[2])
        with_state(_MODELS[key], state)
        tell(settings.steps, f"{'→'.join(key[0])}, seed {key[2]}")
    return [
        ([_MODELS[langs, reach, seed, settings] for seed in seeds], _RATES[langs, reach, settings])
        for langs, reach, seeds in sides
    ]


def _search(langs: Langs, reach: Reach, settings: Settings) -> RateSearch:
    steps = settings.search_steps
    return by_factor(
        lambda factor: _train(langs, reach, SEARCH_SEEDS[0], settings, steps, factor)[1], steps
    )


def _learn(langs: Langs, reach: Reach, seed: int, settings: Settings, factor: float) -> State:
    return state_of(_train(langs, reach, seed, settings, settings.steps, factor)[0])


def _train(
    langs: Langs,
    reach: Reach,
    seed: int,
    settings: Settings,
    steps: int,
    factor: float,
) -> tuple[Transformer, float]:
    """The model, and its loss on stories that it was not trained on."""
    words, parts = told(langs)
    model = fresh(langs, seed)
    pairs = PairConfig(max_tokens=settings.max_tokens, eval_pairs=HELD)
    task = TranslationTask(model, words, parts, pairs, seed=seed)
    config = usual_with(steps, seed, factor)
    with within(model, reach):
        if Trainer(task, config).train().signal:
            raise KeyboardInterrupt
        model.eval()
        with torch.no_grad():
            return model, task.evaluate()["val_loss"]


@dataclass(frozen=True, eq=False)
class Written:
    """What happens while the true translations are written, word by word."""

    right: list[Tensor]  # for each story (T,): whether the model would have written this word
    maps: list[Tensor]  # (L, H, T, S) what each word looked at in the source


@torch.no_grad()
def written(model: Transformer, reach: Reach, langs: Langs, stories: Sequence[Story]) -> Written:
    words, pad = told(langs)[0], model.config.pad
    source, target = (
        [words.ids_of(pieces(story.tokens[lang], lang)) for story in stories] for lang in langs
    )
    bos = words.specials["<bos>"]
    with within(model, reach), looking(crossings(model.decoder)) as seen:
        logits = model(_padded(source, pad), _padded([[bos, *ids] for ids in target], pad))
    said, maps = logits.argmax(-1), torch.stack(list(seen), 1)  # (N, T), (N, L, H, T, S)
    right, kept = [], []
    for n, (read, ids) in enumerate(zip(source, target, strict=True)):
        right.append(said[n, : len(ids)] == torch.tensor(ids))
        kept.append(maps[n, :, :, : len(ids), : len(read)])
    return Written(right, kept)


def _padded(rows: Sequence[Sequence[int]], pad: int) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[pad] * (width - len(row))] for row in rows])
