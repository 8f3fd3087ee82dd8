"""Continue many texts at once, each with its own settings, joining and leaving at any step.

    batch = GenerationBatch(model)
    poem = batch.join([3, 1, 4], max_tokens=20)
    while batch.active:
        for new in batch.step():
            print(new.key, new.id)      # texts may `join` and `leave` between any two steps

A text gets the ids that it gets alone: it draws from a random stream of its own and sees only
itself. An error in one text ends that text only.

The model never sees more than its `max_len`, whatever its positions are:

    a prompt that is longer      only its last max_len ids are read
    a text that grows past it    is read again from its last max_len / 2 ids, and grows from there

Rotary, ALiBi, sinusoidal and no positions could go on further, but were not trained to.
"""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from glasshead.attention.multihead import MultiHeadAttention
from glasshead.errors import ConfigError, InputError
from glasshead.generation.look_ahead import AheadStep, LookAhead
from glasshead.generation.prompt_queue import PromptQueue, run_alone
from glasshead.generation.sampling import PLAIN, SamplingConfig, choose, not_finite_error
from glasshead.generation.step import DecodeStep, ModuleStep, eval_mode, has_hooks, pick_step
from glasshead.generation.text_state import TextState, seen_ids
from glasshead.generation.text_stream import TextStream
from glasshead.model.gpt import GPT

__all__ = ["GenerationBatch", "NewToken", "check_max_tokens", "check_prompts", "chunk_size"]

Picked = tuple[int, float, tuple[tuple[int, float], ...]]  # id, logprob, alternatives


@dataclass(slots=True)
class NewToken:
    """What a step gave to one text."""

    key: int
    id: int | None = None  # None where a text ended without one: at an end id, or by an error
    text: str = ""  # what is certain now, if the text has a stream
    logprob: float = 0.0  # of the id (or end id), by the model as it is, however it was sampled
    alternatives: tuple[tuple[int, float], ...] = ()  # the most probable ids and their logprobs
    finish: Literal["stop", "length", "error"] | None = None
    error: Exception | None = None
    end_id: int | None = None  # the end id, if it was one that ended the text


class GenerationBatch:
    """The texts that a model continues at once.

    Args:
        chunk: how many ids of prompts are read in a step at most (see `chunk_size`), so that
            texts go on while long prompts are read; None reads all that wait.
    """

    def __init__(self, model: GPT, *, chunk: int | None = None) -> None:
        self.model = model
        self._modules = list(model.modules())
        self._attentions = [m for m in self._modules if isinstance(m, MultiHeadAttention)]
        self._prompts = PromptQueue(model, chunk)
        self._rows: list[TextState] = []  # those whose prompts were read, as the slots have them
        self._step: DecodeStep | None = None  # picked when the first text comes
        self._look_ahead: LookAhead | None = None
        self._joined = 0

    @property
    def active(self) -> bool:
        """Whether there are texts that have neither ended nor left."""
        return bool(self._rows or self._prompts)

    @property
    def texts(self) -> list[int]:
        """The keys of all texts that have neither ended nor left."""
        going = [text.key for text in self._rows if not text.ended]
        return going + [text.key for text in self._prompts.texts]

    def join(
        self,
        ids: Sequence[int],
        config: SamplingConfig = PLAIN,
        *,
        max_tokens: int,
        end_ids: Collection[int] = (),
        stream: TextStream | None = None,
        seed: int = 0,
        place: int = 0,
        alternatives: int | None = None,
    ) -> int:
        """Add a text, from the next step on. Return its key: 0, 1, 2, ...

        Args:
            end_ids: ids that end the text (see `find_end_ids`).
            stream: decodes the new ids into text, and ends it at a stop string.
            place: which of several samples of one seed, as the rows of `generate`.
            alternatives: how many of the most probable ids are reported at each step, with their
                log-probabilities and that of the picked id; None reports none.
        """
        check_max_tokens(max_tokens)
        ids, size = [int(token) for token in ids], self.model.config
        check_prompts([ids], size.vocab_size)
        text = TextState(
            key=self._joined,
            ids=ids,
            start=max(0, len(ids) - size.max_len),
            config=config,
            left=max_tokens,
            end_ids=frozenset(end_ids),
            random=random.Random(f"{seed} {place}"),
            stream=stream,
            alternatives=None if alternatives is None else min(alternatives, size.vocab_size),
        )
        self._joined += 1
        self._prompts.put(text)
        return text.key

    def leave(self, key: int) -> None:
        """Remove a text; does nothing if it has ended."""
        for text in self._rows:
            if text.key == key:
                text.ended = True
        self._prompts.remove(key)
        with torch.inference_mode():
            self._remove_ended()

    def close(self) -> None:
        """Remove all texts."""
        for key in self.texts:
            self.leave(key)

    def step(self) -> list[NewToken]:
        """Return the next id of each text whose prompt was read, and read a chunk of prompts."""
        with eval_mode(self._modules):
            if self._step is None:
                self._step = pick_step(self.model)
                if isinstance(self._step, AheadStep):
                    self._look_ahead = LookAhead(self._step, self.model.config)
            # Hooks may be attached between any two steps: then the model itself must run.
            hooked = has_hooks(self._attentions)
            step = ModuleStep(self.model, self._step.slots) if hooked else self._step
            self._requeue_full()
            new = self._decode(step)
            if self._look_ahead is None or not self._look_ahead.busy:
                new += self._read_prompts(step)
            self._remove_ended()
        return new

    def _requeue_full(self) -> None:
        """Let texts that outgrew max_len be read again from their last half."""
        max_len = self.model.config.max_len
        full = [text for text in self._rows if text.length > max_len and not text.ended]
        if full:
            for text in full:
                self._remove(text)
                text.start = len(text.ids) - max(1, max_len // 2)
            self._prompts.put_first(full)

    def _decode(self, step: DecodeStep) -> list[NewToken]:
        """Continue the texts in the slots by one id each."""
        texts = list(self._rows)
        if not texts:
            return []
        ahead = self._look_ahead
        if ahead and (ahead.busy or (step is self._step and _alike(texts))):
            ids = ahead.next_ids(texts, others_wait=len(self._prompts) > 0)
            step.slots.advance()
            both = zip(texts, ids, strict=True)
            return [_extend(text, (token, 0.0, ())) for text, token in both if not text.ended]

        def run(some: list[TextState]) -> list[NewToken]:  # all texts, or one
            first = texts.index(some[0])
            logits = step([text.ids[-1] for text in some], slice(first, first + len(some)))
            return _pick_and_extend(some, logits)

        try:
            new: Sequence[NewToken | Exception] = run(texts)
        except Exception as error:  # whatever it is, the other texts must go on
            new = run_alone(run, texts, error)
        step.slots.advance()
        pairs = zip(texts, new, strict=True)
        return [_fail(text, one) if isinstance(one, Exception) else one for text, one in pairs]

    def _read_prompts(self, step: DecodeStep) -> list[NewToken]:
        """Read a chunk of prompts, and give a first id to each text whose prompt is complete."""
        done, alone = self._prompts.read_chunk(), not self._rows
        if not done:
            return []
        failed = [(text, result) for text, result in done if isinstance(result, Exception)]
        read = [(text, result) for text, result in done if not isinstance(result, Exception)]
        new = [_fail(text, error) for text, error in failed]
        if read:
            texts = [text for text, _ in read]
            prompts = [(text.length, result.kv) for text, result in read]
            logits = step.head(torch.stack([result.features for _, result in read]))
            new += _pick_and_extend(texts, logits)
            going = [pair for pair in zip(texts, prompts, strict=True) if not pair[0].ended]
            if going:
                self._rows += [text for text, _ in going]
                max_len = self.model.config.max_len
                most = max(min(text.length + text.left, max_len) for text in self._rows)
                step.slots.join([prompt for _, prompt in going], most)
        if self._look_ahead is not None and alone:  # beside others, the GPU must stay busy
            self._look_ahead.restart()
        return new

    def _remove_ended(self) -> None:
        ended = [text for text in self._rows if text.ended]
        if self._look_ahead is not None:
            if len(ended) == len(self._rows):
                self._look_ahead.drop()
            if self._look_ahead.busy:  # rows stay where they are until what was asked for is used
                return
        for text in reversed(ended):  # in this order, fewer rows move
            self._remove(text)
        if self._step is not None and not self.active:
            self._step.close()
            self._step = self._look_ahead = None

    def _remove(self, text: TextState) -> None:
        """Take a text out of its row; the last row takes its place."""
        assert self._step is not None
        row, last = self._rows.index(text), self._rows.pop()
        if row < len(self._rows):
            self._rows[row] = last
        self._step.slots.leave(row)


def _alike(texts: list[TextState]) -> bool:
    """Return whether all texts are sampled alike, and none wants log-probabilities."""
    config = texts[0].config
    return all(text.config == config and text.alternatives is None for text in texts)


def _pick_and_extend(texts: list[TextState], logits: Tensor) -> list[NewToken]:
    """Give each text its next id, picked from logits (B, V)."""
    uniform = [text.random.random() for text in texts]
    alike: dict[SamplingConfig, list[int]] = {}
    for row, text in enumerate(texts):
        alike.setdefault(text.config, []).append(row)

    def pick(rows: list[int]) -> Sequence[Picked]:
        if len(rows) == len(texts):
            return _pick(logits, texts, uniform)
        return _pick(logits[rows], [texts[row] for row in rows], [uniform[row] for row in rows])

    picked: dict[int, Picked | Exception] = {}
    for rows in alike.values():
        try:
            picked |= zip(rows, pick(rows), strict=True)
        except Exception as error:  # whatever it is, the other texts must go on
            picked |= zip(rows, run_alone(pick, rows, error), strict=True)
    return [_extend(text, picked[row]) for row, text in enumerate(texts)]


def _pick(logits: Tensor, texts: list[TextState], uniform: list[float]) -> list[Picked]:
    """Pick the next ids of texts that are sampled alike, from logits (B, V)."""
    seen = seen_ids(texts, logits.shape[1], logits.device)
    ids = choose(logits, texts[0].config, uniform, seen)
    if all(text.alternatives is None for text in texts):
        return [(token, 0.0, ()) for token in ids.tolist()]
    logprobs = (logits if logits.dtype == torch.float64 else logits.float()).log_softmax(-1)
    own = logprobs.gather(-1, ids[:, None])[:, 0].tolist()
    best = logprobs.topk(max(text.alternatives or 0 for text in texts))
    likely = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [
        (token, logprob, tuple(zip(*pair, strict=True))[: text.alternatives or 0])
        for text, token, logprob, pair in zip(texts, ids.tolist(), own, likely, strict=True)
    ]


def _extend(text: TextState, picked: Picked | Exception) -> NewToken:
    """Add an id to a text, and say what it adds."""
    if isinstance(picked, Exception):
        return _fail(text, picked)
    token, logprob, alternatives = picked
    if token < 0:
        return _fail(text, not_finite_error())
    try:
        new, finish = text.append(token)
    except Exception as error:  # of the tokenizer: the other texts must go on
        return _fail(text, error)
    if token in text.end_ids:
        return NewToken(text.key, None, new, logprob, alternatives, finish, end_id=token)
    return NewToken(text.key, token, new, logprob, alternatives, finish)


def _fail(text: TextState, error: Exception) -> NewToken:
    text.ended = True
    return NewToken(text.key, finish="error", error=error)


def chunk_size(model: GPT) -> int:
    """Return how many ids of prompts to read in a step, so that it takes about 0.1 s on a CPU."""
    device = model.embedding.weight.device.type
    if device != "cpu":
        return 1024 if device == "cuda" else 256
    size = sum(p.numel() for p in (*model.parameters(), *model.buffers()))
    return max(64, min(512, (1 << 32) // size))


def check_max_tokens(max_tokens: int) -> None:
    if max_tokens < 1:
        raise ConfigError(f"max_tokens ({max_tokens}) must be at least 1", hint="try 256")


def check_prompts(prompts: Sequence[Sequence[int]], vocab_size: int) -> None:
    if not prompts:
        raise InputError("there is no prompt", hint="give at least one, as a list of ids")
    for row, prompt in enumerate(prompts):
        if not len(prompt):
            raise InputError(f"prompt {row} is empty", hint="start from one id at least")
        for token in (min(prompt), max(prompt)):
            if not 0 <= token < vocab_size:
                raise InputError(
                    f"prompt {row} holds id {token}, but the vocabulary has {vocab_size}",
                    hint="encode it with the tokenizer of the same run",
                )
