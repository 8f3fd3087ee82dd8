"""One model continues all texts that are asked of it, on a thread of its own."""

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from glasshead.errors import BusyError, ClosingError, GlassheadError, InputError
from glasshead.generation.sampling import PLAIN, SamplingConfig
from glasshead.generation.together import New, Together
from glasshead.model.gpt import GPT
from glasshead.serve.library import Served
from glasshead.serve.spoken import Spoken, Token
from glasshead.text.tokenizer import Tokenizer

__all__ = ["Ask", "Job", "Writer", "silent_ids", "writing"]

CACHE = 2 << 30  # bytes of keys and values of a batch; a single text may take more
BEHIND = 2048  # tokens that a client may leave unread
IDLE = 30.0  # seconds that a thread waits for more to do
# Who else wants the model gets it: a lock is not fair to those that sleep before it.
TURN, PAUSE = 0.025, 0.0005  # seconds


@dataclass(frozen=True)
class Ask:
    """A text to go on with, and how."""

    ids: Sequence[int]
    sampling: SamplingConfig = PLAIN
    max_tokens: int = 256
    stop: Sequence[str] = ()
    stop_ids: Collection[int] | None = None  # those that stand for no text, when None
    seed: int = 0
    place: int = 0  # which of several samples of one seed
    alternatives: int = 0  # how many of the most probable tokens are told each time


class Job:
    """A text on its way, and where its tokens go."""

    def __init__(self, ask: Ask, spoken: Spoken) -> None:
        self.ask, self.spoken = ask, spoken
        self.loop = asyncio.get_running_loop()
        self.queue: asyncio.Queue[Token | Exception] = asyncio.Queue()
        self.gone = False
        self.began = time.monotonic()

    def put(self, found: Token | Exception) -> None:
        """Tell it. Who does not read is not waited for, and what they left is not kept."""
        if self.gone:
            return
        if self.queue.qsize() >= BEHIND:
            self.gone = True
            while not self.queue.empty():
                self.queue.get_nowait()
            found = GlassheadError("the answer was not read", hint="read it as it is written")
        self.queue.put_nowait(found)


class Writer(threading.Thread):
    """Continues the texts of one model."""

    def __init__(
        self, served: Served, batch: int, room: int, ended: Callable[["Writer"], None]
    ) -> None:
        super().__init__(name=f"writer {served.entry.id}", daemon=True)
        self.served, self.batch, self.room = served, batch, room
        self.line: deque[Job] = deque()
        self.jobs: dict[int, Job] = {}  # by their keys in the batch
        self.tokens = 0  # made so far
        self._model, self._tokenizer = writing(served)
        self._together = Together(self._model)
        self._silent = silent_ids(served)
        self._bytes = _bytes(self._model)
        self._more = threading.Condition()
        self._closed = self._over = False
        self._ended = ended
        self._seconds = 1.0  # that a text takes, about
        self._paused = 0.0

    def put(self, job: Job) -> bool:
        """False if this thread is about to end."""
        with self._more:
            if self._over or self._closed:
                return False
            waiting = sum(not each.gone for each in self.line)
            if waiting >= self.room + self.batch - len(self.jobs):
                raise BusyError(
                    f"{len(self.jobs)} texts are being written and {waiting} are waiting",
                    hint="try again in a moment",
                    retry_after=self._patience(waiting),
                )
            self.line.append(job)
            self._more.notify()
            return True

    def close(self) -> None:
        with self._more:
            self._closed = True
            self._more.notify()

    def run(self) -> None:
        while self._has_work():
            try:
                self._turn()
            except Exception as error:  # not of one text: those are isolated
                self._fail(error)
        self._fail(ClosingError("the server is shutting down", hint="try again in a moment"))
        self._ended(self)

    def _has_work(self) -> bool:
        """Waits for more where there is nothing to do; False when this thread is to end."""
        patience = time.monotonic() + IDLE
        with self._more:
            while not (self.line or self.jobs or self._closed):
                self._more.wait(max(0.0, min(1.0, patience - time.monotonic())))
                if time.monotonic() > patience or (self.served.evicted and not self.line):
                    break
            self._over = self._closed or not (self.line or self.jobs)
            return not self._over

    def _turn(self) -> None:
        self._leave_and_join()
        if not self.jobs:
            return
        with self.served.lock:
            step = self._together.step()
        given: dict[asyncio.AbstractEventLoop, list[tuple[Job, Token | Exception]]] = {}
        for new in step:
            job = self.jobs[new.key]
            given.setdefault(job.loop, []).extend((job, token) for token in self._said(job, new))
        for loop, tokens in given.items():
            _deliver(loop, tokens)
        if time.monotonic() - self._paused > TURN:
            time.sleep(PAUSE)
            self._paused = time.monotonic()

    def _leave_and_join(self) -> None:
        for key in [key for key, job in self.jobs.items() if job.gone]:
            self._drop(key)
        if any(job.gone for job in list(self.line)):
            with self._more:
                self.line = deque(job for job in self.line if not job.gone)
        while self.line and self._has_room(self.line[0].ask):
            with self._more:
                job = self.line.popleft()
            try:
                self.jobs[self._join(job.ask)] = job
            except Exception as error:  # of this text alone
                _deliver(job.loop, [(job, error)])

    def _has_room(self, ask: Ask) -> bool:
        """In the batch, and in memory: all texts take as much of it as the longest may."""
        asks = [ask, *(job.ask for job in self.jobs.values())]
        widest = max(len(each.ids) + each.max_tokens for each in asks)
        cells = len(asks) * min(widest, self._model.config.max_len)
        fits = cells * self._bytes <= CACHE and len(asks) <= self.batch
        return fits or not self.jobs

    def _join(self, ask: Ask) -> int:
        return self._together.join(
            ask.ids,
            ask.sampling,
            max_tokens=ask.max_tokens,
            stop_ids=self._silent if ask.stop_ids is None else ask.stop_ids,
            seed=ask.seed,
            place=ask.place,
            alternatives=ask.alternatives,
        )

    def _said(self, job: Job, new: New) -> list[Token | Exception]:
        """What the client is told of a new id."""
        found: list[Token | Exception] = []
        try:
            if new.error is not None:
                raise new.error
            if new.id is not None:
                self.tokens += 1
                found += job.spoken.push(self._token(new))
            if job.spoken.done:
                found.append(Token(None, finish="stop"))
            elif new.finish is not None:
                assert new.finish != "error"
                rest, text = job.spoken.end()
                finish = "stop" if job.spoken.done else new.finish
                found += [*rest, Token(None, text, finish=finish)]
        except Exception as error:  # of this text alone
            found.append(error)
        failed = bool(found) and isinstance(found[-1], Exception)
        if new.finish is not None or job.spoken.done or failed:
            self._seconds += 0.1 * (time.monotonic() - job.began - self._seconds)
            self._drop(new.key)
        return found

    def _token(self, new: New) -> Token:
        others = tuple((i, self._shown(i), p) for i, p in new.alternatives)
        return Token(new.id, "", new.logprob, others)

    def _shown(self, token: int) -> str:
        if token >= self._tokenizer.vocab_size:
            return ""
        return self._tokenizer.decode([token])

    def _drop(self, key: int) -> None:
        self._together.leave(key)
        del self.jobs[key]

    def _fail(self, error: Exception) -> None:
        """Everyone who is here is told, and the batch begins anew."""
        with self._more:
            jobs = [*self.jobs.values(), *(self.line if self._over else ())]
            self.jobs, self._together = {}, Together(self._model)
        for job in jobs:
            _deliver(job.loop, [(job, error)])

    def _patience(self, waiting: int) -> int:
        """Seconds until there is likely room."""
        return min(60, max(1, math.ceil(self._seconds * (waiting + 1) / self.batch)))


def _deliver(loop: asyncio.AbstractEventLoop, tokens: list[tuple[Job, Token | Exception]]) -> None:
    def put() -> None:
        for job, token in tokens:
            job.put(token)

    try:
        loop.call_soon_threadsafe(put)
    except RuntimeError:  # the loop has ended, and with it all who waited
        for job, _ in tokens:
            job.gone = True


def writing(served: Served) -> tuple[GPT, Tokenizer]:
    if served.loaded is None or not isinstance(served.loaded.model, GPT):
        raise InputError(
            f"{served.entry.id} writes no text: it is of kind {served.entry.kind}",
            hint="choose a GPT",
        )
    return served.loaded.model, served.loaded.tokenizer


def silent_ids(served: Served) -> frozenset[int]:
    """The ids that end a text: specials, those beyond the tokenizer, and what the model's own
    settings name as its end."""
    model, tokenizer = writing(served)
    assert served.loaded is not None
    imported: Any = served.loaded.config.data.get("imported")
    ids = imported.get("ids") if isinstance(imported, dict) else None
    ends = ids.get("eos_token_id") if isinstance(ids, dict) else None
    named = [end for end in (ends if isinstance(ends, list) else [ends]) if isinstance(end, int)]
    beyond = range(tokenizer.vocab_size, model.config.vocab_size)
    return frozenset([*tokenizer.specials.values(), *beyond, *named])


def _bytes(model: GPT) -> int:
    """That the keys and values of one token take."""
    c = model.config
    width = (c.n_kv_heads or c.n_heads) * (c.d_head or c.d_model // c.n_heads)
    return 2 * c.n_layers * width * model.embedding.weight.itemsize
