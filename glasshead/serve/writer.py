"""Continue all texts that are requested of one model, on a thread of its own."""

import asyncio
import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from glasshead.errors import BusyError, ClosingError, GlassheadError, InputError
from glasshead.generation.batch import GenerationBatch, NewToken, chunk_size
from glasshead.generation.sampling import PLAIN, SamplingConfig
from glasshead.generation.text_state import find_end_ids
from glasshead.model.gpt import GPT
from glasshead.serve.library import ServedModel
from glasshead.serve.token_buffer import Token, TokenBuffer
from glasshead.text.tokenizer import Tokenizer

__all__ = ["Ask", "Job", "Writer", "model_and_tokenizer"]

CACHE = 2 << 30  # bytes of keys and values of a batch; a single text may take more
UNREAD = 2048  # tokens that a client may leave unread
IDLE = 30.0  # seconds that a thread waits for more to do
# Other threads use the model, too: pause now and then, since locks are not fair.
TURN, PAUSE = 0.025, 0.0005  # seconds


@dataclass(frozen=True)
class Ask:
    """A text to continue, and how."""

    ids: Sequence[int]
    sampling: SamplingConfig = PLAIN
    max_tokens: int = 256
    stop: Sequence[str] = ()
    end_ids: Collection[int] | None = None  # those of `find_end_ids` when None
    seed: int = 0
    place: int = 0  # which of several samples of one seed
    alternatives: int | None = None  # how many likely tokens to report; None: no logprobs


class Job:
    """A text that is being written, and the queue for its tokens."""

    def __init__(self, ask: Ask, buffer: TokenBuffer) -> None:
        self.ask, self.buffer = ask, buffer
        self.loop = asyncio.get_running_loop()
        self.queue: asyncio.Queue[Token | Exception] = asyncio.Queue()
        self.gone = False  # whether the client has left
        self.began = time.monotonic()

    def put(self, result: Token | Exception) -> None:
        """Queue a token. If the client does not read its tokens, drop them and the job."""
        if self.gone:
            return
        if self.queue.qsize() >= UNREAD:
            self.gone = True
            while not self.queue.empty():
                self.queue.get_nowait()
            result = GlassheadError(
                f"{UNREAD} tokens of the answer were not read", hint="read them as they come"
            )
        self.queue.put_nowait(result)


class Writer(threading.Thread):
    """Continues the texts of one model.

    Args:
        size: how many texts are continued at once.
        room: how many more may wait.
    """

    def __init__(
        self, served: ServedModel, size: int, room: int, on_end: Callable[["Writer"], None]
    ) -> None:
        super().__init__(name=f"writer {served.entry.id}", daemon=True)
        self.served, self.size, self.room = served, size, room
        self.line: deque[Job] = deque()
        self.jobs: dict[int, Job] = {}  # by their keys in the batch
        self.tokens = 0  # written so far
        self._model, self._tokenizer = model_and_tokenizer(served)
        self._batch = self._new_batch()
        assert served.run is not None
        self._end_ids = find_end_ids(self._model, self._tokenizer, served.run.config)
        self._column_bytes = _column_bytes(self._model)
        self._more = threading.Condition()
        self._closed = self._over = False
        self._on_end = on_end
        self._seconds = 1.0  # that a text takes, about
        self._paused = 0.0

    def put(self, job: Job) -> bool:
        """Add a job to the line. Return False if this thread is about to end."""
        with self._more:
            if self._over or self._closed:
                return False
            waiting = sum(not each.gone for each in self.line)
            if waiting >= self.room + self.size - len(self.jobs):
                raise BusyError(
                    f"{len(self.jobs)} texts are being written and {waiting} are waiting",
                    hint="try again in a moment",
                    retry_after=self._seconds_to_wait(waiting),
                )
            self.line.append(job)
            self._more.notify()
            return True

    def close(self) -> None:
        with self._more:
            self._closed = True
            self._more.notify()

    def run(self) -> None:
        while self._wait_for_work():
            try:
                self._write()
            except Exception as error:  # of all texts; those of one text end that text only
                self._fail(error)
        self._fail(ClosingError("the server is shutting down", hint="try again in a moment"))
        self._on_end(self)

    def _wait_for_work(self) -> bool:
        """Wait until there is something to do; return False when this thread is to end."""
        until = time.monotonic() + IDLE
        with self._more:
            while not (self.line or self.jobs or self._closed):
                self._more.wait(max(0.0, min(1.0, until - time.monotonic())))
                if time.monotonic() > until or (self.served.evicted and not self.line):
                    break
            self._over = self._closed or not (self.line or self.jobs)
            return not self._over

    def _write(self) -> None:
        """Write the next id of each text, and pass it on."""
        self._leave_and_join()
        if not self.jobs:
            return
        with self.served.lock:
            step = self._batch.step()
        given: dict[asyncio.AbstractEventLoop, list[tuple[Job, Token | Exception]]] = {}
        for new in step:
            job = self.jobs[new.key]
            given.setdefault(job.loop, []).extend((job, token) for token in self._answer(job, new))
        for loop, tokens in given.items():
            _deliver(loop, tokens)
        if time.monotonic() - self._paused > TURN:
            time.sleep(PAUSE)
            self._paused = time.monotonic()

    def _leave_and_join(self) -> None:
        """Drop the jobs whose clients have left, and take in those that wait."""
        for key in [key for key, job in self.jobs.items() if job.gone]:
            self._drop(key)
        if any(job.gone for job in list(self.line)):
            with self._more:
                self.line = deque(job for job in self.line if not job.gone)
        while self.line and self._has_room(self.line[0].ask):
            with self._more:
                job = self.line.popleft()
            try:
                self.jobs[self._join(job)] = job
            except Exception as error:  # of this text only
                _deliver(job.loop, [(job, error)])

    def _has_room(self, ask: Ask) -> bool:
        """Return whether the batch and the memory have room: each row is as long as the longest."""
        asks = [ask, *(job.ask for job in self.jobs.values())]
        longest = max(len(each.ids) + each.max_tokens for each in asks)
        columns = len(asks) * min(longest, self._model.config.max_len)
        fits = columns * self._column_bytes <= CACHE and len(asks) <= self.size
        return fits or not self.jobs

    def _join(self, job: Job) -> int:
        ask = job.ask
        return self._batch.join(
            ask.ids,
            ask.sampling,
            max_tokens=ask.max_tokens,
            end_ids=self._end_ids if ask.end_ids is None else ask.end_ids,
            stream=job.buffer.stream,
            seed=ask.seed,
            place=ask.place,
            alternatives=ask.alternatives,
        )

    def _answer(self, job: Job, new: NewToken) -> list[Token | Exception]:
        """Return what the client gets for a new id, and drop the job if it has ended."""
        found: list[Token | Exception] = []
        try:
            if new.error is not None:
                raise new.error
            likely = tuple((i, self._decode(i), p) for i, p in new.alternatives)
            if new.id is not None:
                self.tokens += 1
                found += job.buffer.push(Token(new.id, "", new.logprob, likely))
            if new.finish is not None:
                assert new.finish != "error"
                *rest, last = job.buffer.end(new.finish)
                if new.end_id is not None:
                    last = Token(None, last.text, new.logprob, likely, last.finish, new.end_id)
                found += [*rest, last]
        except Exception as error:  # of this text only
            found.append(error)
        if new.finish is not None or (found and isinstance(found[-1], Exception)):
            self._seconds += 0.1 * (time.monotonic() - job.began - self._seconds)
            self._drop(new.key)
        return found

    def _decode(self, token: int) -> str:
        if token >= self._tokenizer.vocab_size:
            return ""
        return self._tokenizer.decode([token])

    def _drop(self, key: int) -> None:
        self._batch.leave(key)
        del self.jobs[key]

    def _fail(self, error: Exception) -> None:
        """Send the error to all clients, and begin with a new batch."""
        with contextlib.suppress(Exception):  # it may be what failed
            self._batch.close()
        with self._more:
            jobs = [*self.jobs.values(), *(self.line if self._over else ())]
            self.jobs, self._batch = {}, self._new_batch()
        for job in jobs:
            _deliver(job.loop, [(job, error)])

    def _new_batch(self) -> GenerationBatch:
        return GenerationBatch(self._model, chunk=chunk_size(self._model))

    def _seconds_to_wait(self, waiting: int) -> int:
        """Estimate when there will be room."""
        return min(60, max(1, math.ceil(self._seconds * (waiting + 1) / self.size)))


def _deliver(loop: asyncio.AbstractEventLoop, tokens: list[tuple[Job, Token | Exception]]) -> None:
    def put() -> None:
        for job, token in tokens:
            job.put(token)

    try:
        loop.call_soon_threadsafe(put)
    except RuntimeError:  # the loop has ended, and with it all clients
        for job, _ in tokens:
            job.gone = True


def model_and_tokenizer(served: ServedModel) -> tuple[GPT, Tokenizer]:
    """Return the parts of a model that writes; raise InputError if it does not."""
    if served.run is None or not isinstance(served.run.model, GPT):
        raise InputError(
            f"{served.entry.id} writes no text: it is of kind {served.entry.kind}",
            hint="choose a GPT",
        )
    return served.run.model, served.run.tokenizer


def _column_bytes(model: GPT) -> int:
    """Return how many bytes the keys and values of one id take."""
    c = model.config
    width = (c.n_kv_heads or c.n_heads) * (c.d_head or c.d_model // c.n_heads)
    return 2 * c.n_layers * width * model.embedding.weight.itemsize
