"""Texts are continued, a token of each at a time.

    for step in generate(model, [[3, 1, 4], [1, 5]], GREEDY, max_tokens=20):
        print(step)                     # one new id for each text; None for those that have ended

Prompts of different lengths are padded on the left and masked, so that a batch gives what its
texts give one by one. Every text draws from a random stream of its own, so a sample depends on
the seed and on its place in the batch, not on what else is in it.

What a model sees never exceeds its `max_len`, whatever its positions are:

    a prompt that is longer      only its last max_len ids are read
    a text that grows past it    is read again from its last max_len / 2 ids, and grows from there

Rotary, ALiBi, sinusoidal and no positions could go on further, but were not trained to.
"""

import random
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile

import torch
from torch import Tensor, nn

from glasshead.attention.cache import Cache
from glasshead.attention.mask import Mask
from glasshead.errors import ConfigError, InputError
from glasshead.generation.sampling import PLAIN, SamplingConfig, choose
from glasshead.model.gpt import GPT

__all__ = ["PlainDecoder", "check_max_tokens", "check_prompts", "evaluating", "generate"]


def generate(
    model: GPT,
    prompts: Sequence[Sequence[int]],
    config: SamplingConfig = PLAIN,
    *,
    max_tokens: int,
    stop_ids: Collection[int] = (),
    seed: int = 0,
    cached: bool = True,
) -> Iterator[list[int | None]]:
    """Steps of one new id for each prompt, None where a text has ended at one of `stop_ids`.

    A stop id itself is not given out. `cached=False` computes all keys and values anew for each
    token: slow, and the same.
    """
    check_max_tokens(max_tokens)
    if cached:
        from glasshead.generation.graphed import new_decoder

        decoder = new_decoder(
            model, prompts, config, max_tokens=max_tokens, stop_ids=stop_ids, seed=seed
        )
    else:
        decoder = PlainDecoder(model, prompts, config, stop_ids=stop_ids, seed=seed, cached=False)
    return (decoder.step() for _ in takewhile(lambda _: decoder.live, range(max_tokens)))


class PlainDecoder:
    """Texts being continued: `step` adds an id to each, `finish` ends one from outside."""

    def __init__(
        self,
        model: GPT,
        prompts: Sequence[Sequence[int]],
        config: SamplingConfig = PLAIN,
        *,
        stop_ids: Collection[int] = (),
        seed: int = 0,
        cached: bool = True,
    ) -> None:
        self.model, self.config, self.cached = model, config, cached
        self.stop_ids = frozenset(stop_ids)
        self.texts = [[int(token) for token in prompt] for prompt in prompts]
        self.live = list(range(len(self.texts)))  # the texts that have not ended
        check_prompts(self.texts, model.config.vocab_size)
        self._modules = list(model.modules())
        self._device = model.embedding.weight.device
        self._streams = [random.Random(f"{seed} {row}") for row in self.live]
        self._starts = [max(0, len(text) - model.config.max_len) for text in self.texts]
        self._rows: list[int] = []  # the texts that the caches hold, in their order
        self._caches: list[Cache] | None = None
        self._pads: Tensor | None = None  # (B, 1) padding before each of them
        self._width = 0  # columns of the caches
        self._seen: Tensor | None = None
        if config.repetition_penalty != 1:
            shape = len(self.texts), model.config.vocab_size
            self._seen = torch.zeros(shape, dtype=torch.bool, device=self._device)
            for row, text in enumerate(self.texts):
                self._seen[row, text] = True

    def finish(self, row: int) -> None:
        self.live.remove(row)

    def step(self) -> list[int | None]:
        """The next id of each text that is live, None for the others."""
        new: list[int | None] = [None] * len(self.texts)
        if not self.live:
            return new
        uniform = [self._streams[row].random() for row in self.live]
        seen = None if self._seen is None else self._seen[self.live]
        with evaluating(self._modules):
            chosen = choose(self._logits(), self.config, uniform, seen).tolist()
        for row, token in zip(tuple(self.live), chosen, strict=True):
            if token in self.stop_ids:
                self.finish(row)
                continue
            new[row] = token
            self.texts[row].append(token)
            if self._seen is not None:
                self._seen[row, token] = True
        return new

    def _logits(self) -> Tensor:
        """(B, V) for the id after each live text."""
        max_len = self.model.config.max_len
        full = [row for row in self.live if len(self.texts[row]) - self._starts[row] > max_len]
        for row in full:
            self._starts[row] = len(self.texts[row]) - max(1, max_len // 2)
        if self._caches is None or full:
            return self._read_all()
        return self._read_last(self._caches)

    def _read_all(self) -> Tensor:
        """Everything each text sees, padded on the left."""
        contexts = [self.texts[row][self._starts[row] :] for row in self.live]
        width = max(map(len, contexts))
        pads = [width - len(context) for context in contexts]
        padded = [[0] * pad + context for pad, context in zip(pads, contexts, strict=True)]
        self._rows, self._width = list(self.live), width
        self._pads = self._tensor(pads)[:, None] if any(pads) else None
        self._caches = self.model.new_caches() if self.cached else None
        return self._run(padded, self._caches)

    def _read_last(self, caches: list[Cache]) -> Tensor:
        """The last id of each text; the caches know the others."""
        if self._rows != self.live:
            kept = self._tensor([self._rows.index(row) for row in self.live])
            for cache in caches:
                cache.reorder(kept)
            self._pads = None if self._pads is None else self._pads[kept]
            self._rows = list(self.live)
        self._width += 1
        return self._run([self.texts[row][-1:] for row in self.live], caches)

    def _run(self, ids: list[list[int]], caches: list[Cache] | None) -> Tensor:
        columns = torch.arange(self._width, device=self._device)
        positions, mask = columns[-len(ids[0]) :], None
        if self._pads is not None:
            mask = Mask(keys=columns >= self._pads)  # (B, S)
            positions = (positions - self._pads).clamp(min=0)  # (B, T)
        x = self.model.features(self._tensor(ids), mask=mask, positions=positions, caches=caches)
        return self.model.logits(x[:, -1])

    def _tensor(self, numbers: list[int] | list[list[int]]) -> Tensor:
        return torch.tensor(numbers, device=self._device)


@contextmanager
def evaluating(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Dropout off and no gradients; afterwards each of a model's `modules()` is as it was."""
    training = [module for module in modules if module.training]
    try:
        for module in training:
            module.training = False
        with torch.inference_mode():
            yield
    finally:
        for module in training:
            module.training = True


def check_max_tokens(max_tokens: int) -> None:
    if max_tokens < 1:
        raise ConfigError(f"max_tokens ({max_tokens}) must be at least 1", hint="try 256")


def check_prompts(prompts: list[list[int]], vocab_size: int) -> None:
    if not prompts:
        raise InputError("there is no prompt", hint="give at least one, as a list of ids")
    for row, prompt in enumerate(prompts):
        if not prompt:
            raise InputError(f"prompt {row} is empty", hint="start from one id at least")
        for token in (min(prompt), max(prompt)):
            if not 0 <= token < vocab_size:
                raise InputError(
                    f"prompt {row} holds id {token}, but the vocabulary has {vocab_size}",
                    hint="encode it with the tokenizer of the same run",
                )
