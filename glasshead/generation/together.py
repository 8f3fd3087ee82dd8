"""Texts continued together, each in its own way, joining and leaving at any step.

    together = Together(model)
    poem = together.join([3, 1, 4], max_tokens=20)
    while together.texts:
        for new in together.step():
            print(new.key, new.id)      # texts may `join` and `leave` between any two steps

A text gets the ids that `generate` gives it alone: it draws from a random stream of its own, and
sees only itself. What goes wrong with one text ends that text.

Reading a prompt takes longer than going on, so it is done in chunks, one a step: the texts that
are there go on meanwhile. Short prompts are read several at once, equal ones once, and a long one
lets the others pass between its chunks.
"""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from glasshead.attention.mask import Mask
from glasshead.generation.decode import check_max_tokens, check_prompts, evaluating
from glasshead.generation.lean import LeanStep, lean_serves
from glasshead.generation.prompts import Prompts, Text, isolated
from glasshead.generation.sampling import PLAIN, SamplingConfig, choose
from glasshead.generation.slots import Slots
from glasshead.model.gpt import GPT

__all__ = ["New", "Together"]

# Ids of prompts that are read in a step: on a CPU, as many as take a tenth of a second or so.
CHUNK = {"cpu": 64, "cuda": 1024}
MOST, WORK = 512, 1 << 32  # ids; products of two numbers


@dataclass(frozen=True)
class New:
    """What a step gave to one text."""

    key: int
    id: int | None = None  # None where a text ended without one: at a stop id, or by an error
    logprob: float = 0.0  # of the id, by the model as it is, however it was sampled
    alternatives: tuple[tuple[int, float], ...] = ()  # the most probable ids, and their logprobs
    finish: Literal["stop", "length", "error"] | None = None
    error: Exception | None = None


class Together:
    """The texts that a model continues at once.

    Args:
        chunk: how many ids of prompts are read in a step; more is less work in all, but longer
            steps.
    """

    def __init__(self, model: GPT, *, chunk: int | None = None) -> None:
        self.model = model
        self._modules = list(model.modules())
        self._device = model.embedding.weight.device
        self._prompts = Prompts(model, _chunk(model) if chunk is None else chunk)
        self._slots = Slots(self._device)
        self._lean = LeanStep(model) if lean_serves(model) else None
        self._rows: list[Text] = []  # those whose prompts have been read, as the slots have them
        self._keys = 0

    @property
    def texts(self) -> list[int]:
        """The keys of all that have neither ended nor left."""
        return [text.key for text in (*self._rows, *self._prompts.texts)]

    def join(
        self,
        ids: Sequence[int],
        config: SamplingConfig = PLAIN,
        *,
        max_tokens: int,
        stop_ids: Collection[int] = (),
        seed: int = 0,
        place: int = 0,
        alternatives: int = 0,
    ) -> int:
        """A new text, from the next step on. Returns its key.

        Args:
            place: which of several samples of one seed, as those of a batch of `generate`.
            alternatives: how many of the most probable ids are told at each step.
        """
        check_max_tokens(max_tokens)
        ids, size = [int(token) for token in ids], self.model.config
        check_prompts([ids], size.vocab_size)
        self._keys += 1
        text = Text(
            key=self._keys,
            ids=ids,
            start=max(0, len(ids) - size.max_len),
            config=config,
            left=max_tokens,
            stop_ids=frozenset(stop_ids),
            stream=random.Random(f"{seed} {place}"),
            alternatives=min(alternatives, size.vocab_size),
        )
        if config.repetition_penalty != 1:
            text.seen = torch.zeros(size.vocab_size, dtype=torch.bool, device=self._device)
            text.seen[ids] = True
        self._prompts.put(text)
        return text.key

    def leave(self, key: int) -> None:
        """Take a text out; nothing happens if it has ended already."""
        for row, text in enumerate(self._rows):
            if text.key == key:
                with torch.inference_mode():
                    self._take_out(row)
                return
        self._prompts.leave(key)

    def step(self) -> list[New]:
        """The next id of each text whose prompt has been read, and one more chunk of prompts."""
        max_len = self.model.config.max_len
        with evaluating(self._modules):
            for text in [text for text in self._rows if text.length > max_len]:
                self._take_out(self._rows.index(text))
                text.start = len(text.ids) - max(1, max_len // 2)
                self._prompts.put_first(text)
            return [*self._go_on(), *self._read()]

    def _take_out(self, row: int) -> None:
        self._slots.leave(row)
        last = self._rows.pop()
        if row < len(self._rows):
            self._rows[row] = last

    def _go_on(self) -> list[New]:
        if not self._rows:
            return []
        texts = list(self._rows)
        logits = isolated(self._forward, texts)
        self._slots.advance()
        return self._continued(texts, logits)

    def _forward(self, texts: list[Text]) -> list[Tensor]:
        """Logits (V,) for each of these texts: all rows, or one."""
        first = self._rows.index(texts[0])
        rows, slots = slice(first, first + len(texts)), self._slots
        keys, positions, caches = slots.keys(rows), slots.positions(rows), slots.caches(rows)
        ids = [text.ids[-1] for text in texts]
        if self._lean is not None and not self._lean.touched:
            return list(self._lean(ids, positions, caches, keys))
        x = self.model.features(
            torch.tensor(ids, device=self._device)[:, None],
            mask=None if keys is None else Mask(keys=keys),
            positions=positions,
            caches=caches,
        )
        return list(self.model.logits(x[:, -1]))

    def _read(self) -> list[New]:
        done = self._prompts.step()
        for text, read in done:
            if not isinstance(read, Exception):
                self._slots.join(text.length, read.kv)
                self._rows.append(text)
        logits = [read if isinstance(read, Exception) else read.logits for _, read in done]
        return self._continued([text for text, _ in done], logits)

    def _continued(self, texts: list[Text], logits: Sequence[Tensor | Exception]) -> list[New]:
        """An id for each text, and those that it ends are taken out."""
        found: dict[int, New] = {}
        alike: dict[SamplingConfig, list[tuple[Text, Tensor]]] = {}
        for text, row in zip(texts, logits, strict=True):
            text.uniform = text.stream.random()
            if isinstance(row, Exception):
                found[text.key] = New(text.key, finish="error", error=row)
            else:
                alike.setdefault(text.config, []).append((text, row))
        for some in alike.values():
            for (text, _), new in zip(some, isolated(_sampled, some), strict=True):
                found[text.key] = self._with_end(text, new)
        for new in found.values():
            if new.finish is not None:
                self.leave(new.key)
        return [found[text.key] for text in texts]

    def _with_end(self, text: Text, new: New | Exception) -> New:
        if isinstance(new, Exception):
            return New(text.key, finish="error", error=new)
        assert new.id is not None
        if new.id in text.stop_ids:
            return New(text.key, finish="stop")
        text.ids.append(new.id)
        text.left -= 1
        if text.seen is not None:
            text.seen[new.id] = True
        return new if text.left else replace(new, finish="length")


def _chunk(model: GPT) -> int:
    device = model.embedding.weight.device
    least = CHUNK.get(device.type, 256)
    if device.type != "cpu":
        return least
    size = sum(p.numel() for p in (*model.parameters(), *model.buffers()))
    return max(least, min(MOST, WORK // size))


def _sampled(some: list[tuple[Text, Tensor]]) -> list[New]:
    """The next ids of texts that are sampled alike, and how probable they are."""
    texts, config = [text for text, _ in some], some[0][0].config
    logits = torch.stack([row for _, row in some])  # (B, V)
    penalized = [text.seen for text in texts if text.seen is not None]
    seen = torch.stack(penalized) if penalized else None
    ids = choose(logits, config, [text.uniform for text in texts], seen)
    logprobs = (logits if logits.dtype == torch.float64 else logits.float()).log_softmax(-1)
    own = logprobs.gather(-1, ids[:, None])[:, 0].tolist()
    best = logprobs.topk(max(text.alternatives for text in texts))
    others = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    new = []
    for text, token, logprob, (indices, values) in zip(
        texts, ids.tolist(), own, others, strict=True
    ):
        pairs = tuple(zip(indices, values, strict=True))[: text.alternatives]
        new.append(New(text.key, token, logprob, pairs))
    return new
