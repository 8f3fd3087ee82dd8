"""The translators of claim 11, some of which may look only at words in about the same place."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import islice

import torch
from torch import Tensor, nn

from glasshead.attention.hooks import Layer, PendingCall
from glasshead.lab.alignments import Langs, story_ids, write_true_translations
from glasshead.lab.attention_maps import cross_attentions, record_weights
from glasshead.lab.claims.claim import Budget
from glasshead.lab.claims.readers import (
    FACTORS,
    State,
    load_state,
    numpy_state,
    scaled_config,
    search_factor,
)
from glasshead.lab.claims.search import RateSearch
from glasshead.lab.processes import map_processes
from glasshead.model.transformer import Transformer, TransformerConfig
from glasshead.observe.ablation import ChangeHook, attach_change_hooks
from glasshead.observe.layers import find_layers
from glasshead.text.base_tokenizer import Ids
from glasshead.text.pairs import Pair
from glasshead.text.tinyworld import Story, World
from glasshead.text.tinyworld.tokens import world_tokenizer
from glasshead.text.tokenizer import WordTokenizer
from glasshead.training.loop import Trainer
from glasshead.training.parallel_corpus import PairConfig, ParallelCorpus
from glasshead.training.presets import find_preset
from glasshead.training.translation import TranslationTask

__all__ = [
    "Reach",
    "TranslationTrace",
    "TranslatorPlan",
    "limit_reach",
    "trace_translations",
    "train_translators",
    "untrained_translator",
]

STORIES, HELD = 8000, 64


@dataclass(frozen=True)
class Reach:
    """How many places away from its own a word may look; None: anywhere."""

    cross: int | None = None  # from a word that is written to the words of the source
    encoder: int | None = None  # from a word of the source to the others


@dataclass(frozen=True)
class TranslatorPlan:
    steps: int
    search_steps: int
    max_tokens: int = 768  # of a batch


class _ReachHook(ChangeHook):
    """Hides the keys that lie farther away than `reach`."""

    hides = True

    def __init__(self, layer: Layer, reach: int) -> None:
        super().__init__(layer)
        self.reach = reach

    def hidden(self, call: PendingCall) -> Tensor:
        places = torch.arange(call.T, device=call.device)[:, None]
        return (torch.arange(call.S, device=call.device) - places).abs() > self.reach  # (T, S)


@contextmanager
def limit_reach(model: Transformer, reach: Reach) -> Iterator[None]:
    """Inside the `with`, attention reaches no farther than this."""
    hooks: dict[nn.Module, ChangeHook] = {}
    for layer, module in find_layers(model):
        far = reach.cross if layer.kind == "cross" else None
        far = reach.encoder if layer.part == "encoder" else far
        if far is not None:
            hooks[module] = _ReachHook(layer, far)
    with attach_change_hooks(hooks):
        yield


class _CachedTokenizer(WordTokenizer):
    """Encodes each text once, although every training encodes all stories."""

    def __init__(self, words: WordTokenizer) -> None:
        super().__init__(words.words, tuple(words.specials))
        self._cache: dict[str, Ids] = {}

    def encode_ids(self, text: str) -> Ids:
        if text not in self._cache:
            self._cache[text] = super().encode_ids(text)
        return self._cache[text]


@cache
def _corpus(langs: Langs) -> tuple[WordTokenizer, ParallelCorpus]:
    (source, target), stories = langs, World().stories("train")
    parts = (
        [
            Pair(story.text(source), story.text(target), n)
            for n, story in enumerate(islice(stories, k), 1)
        ]
        for k in (STORIES, HELD)
    )
    return _CachedTokenizer(world_tokenizer(*langs)), ParallelCorpus(*parts)


def untrained_translator(langs: Langs, seed: int) -> Transformer:
    """Build a translator with one layer of cross-attention: all that is seen of the source."""
    words, preset = _corpus(langs)[0], find_preset("translator", "world")
    torch.manual_seed(seed)
    shape = {**preset.model, "n_layers": 1, "pad": words.specials["<pad>"]}
    return Transformer(TransformerConfig(words.vocab_size, **shape)).eval()


_MODELS: dict[tuple[Langs, Reach, int, TranslatorPlan], Transformer] = {}
_RATES: dict[tuple[Langs, Reach, TranslatorPlan, tuple[int, ...]], RateSearch] = {}

Side = tuple[Langs, Reach, Sequence[int]]  # and the seeds


def train_translators(
    budget: Budget, sides: Sequence[Side], plan: TranslatorPlan
) -> list[tuple[list[Transformer], RateSearch]]:
    """Train all translators; return for each side one per seed, and the search for their rate."""
    missing = [(langs, reach, seed, plan) for langs, reach, seeds in sides for seed in seeds
               if (langs, reach, seed, plan) not in _MODELS]  # fmt: skip
    with_seeds = budget.search_seeds
    keys = dict.fromkeys((*key[:2], plan, with_seeds) for key in missing)
    searches = [key for key in keys if key not in _RATES]
    cost = len(FACTORS) * len(with_seeds) * plan.search_steps
    report = budget.step_counter(cost * len(searches) + plan.steps * len(missing), 0.98)
    report(0, "translators")
    found = map_processes(_search, searches, budget.jobs)
    for search, rates in zip(searches, found, strict=True):
        _RATES[search] = rates
        report(cost, f"{'→'.join(search[0])}, search for a rate")
    items = [(*key, _RATES[*key[:2], plan, with_seeds].best) for key in missing]
    for key, state in zip(missing, map_processes(_learn, items, budget.jobs), strict=True):
        _MODELS[key] = untrained_translator(key[0], key[2])
        load_state(_MODELS[key], state)
        report(plan.steps, f"{'→'.join(key[0])}, seed {key[2]}")
    return [
        (
            [_MODELS[langs, reach, seed, plan] for seed in seeds],
            _RATES[langs, reach, plan, with_seeds],
        )
        for langs, reach, seeds in sides
    ]


def _search(langs: Langs, reach: Reach, plan: TranslatorPlan, seeds: tuple[int, ...]) -> RateSearch:
    steps = plan.search_steps
    return search_factor(
        lambda factor, seed: _train(langs, reach, seed, plan, steps, factor)[1], seeds, steps
    )


def _learn(langs: Langs, reach: Reach, seed: int, plan: TranslatorPlan, factor: float) -> State:
    return numpy_state(_train(langs, reach, seed, plan, plan.steps, factor)[0])


def _train(
    langs: Langs,
    reach: Reach,
    seed: int,
    plan: TranslatorPlan,
    steps: int,
    factor: float,
) -> tuple[Transformer, float]:
    """Return the model, and its loss on stories that it was not trained on."""
    words, parts = _corpus(langs)
    model = untrained_translator(langs, seed)
    pairs = PairConfig(max_tokens=plan.max_tokens, eval_pairs=HELD)
    task = TranslationTask(model, words, parts, pairs, seed=seed)
    config = scaled_config(steps, seed, factor)
    with limit_reach(model, reach):
        if Trainer(task, config).train().signal:
            raise KeyboardInterrupt
        model.eval()
        with torch.no_grad():
            return model, task.evaluate()["val_loss"]


@dataclass(frozen=True, eq=False)
class TranslationTrace:
    """What happens while the true translations are written, word by word."""

    right: list[Tensor]  # for each story (T,): whether the model would have written this word
    maps: list[Tensor]  # (L, H, T, S) what each word looked at in the source


@torch.no_grad()
def trace_translations(
    model: Transformer, reach: Reach, langs: Langs, stories: Sequence[Story]
) -> TranslationTrace:
    words = _corpus(langs)[0]
    source, target = (story_ids(words, stories, lang) for lang in langs)
    layers = cross_attentions(model.decoder)
    with limit_reach(model, reach), record_weights(layers) as seen:
        written = write_true_translations(model, words, langs, stories).argmax(-1)  # (N, T)
    maps = torch.stack(list(seen), 1)  # (N, L, H, T, S)
    return TranslationTrace(
        [row[: len(ids)] == torch.tensor(ids) for row, ids in zip(written, target, strict=True)],
        [one[:, :, : len(ids), : len(read)]
         for one, read, ids in zip(maps, source, target, strict=True)],
    )  # fmt: skip
