"""Answer many requests at once: each model has a thread that continues all its texts together.

    async for token in engine.stream(served, Ask(ids, max_tokens=100)):
        print(token.text, end="")

A batch has a limited number of texts; others wait, first come, first served, and when too many
wait, `stream` raises BusyError. A text whose stream is closed or dropped leaves at the next step.
"""

import threading

from glasshead.errors import ClosingError
from glasshead.generation.batch import check_max_tokens, check_prompts
from glasshead.serve.library import ServedModel
from glasshead.serve.token_buffer import Token, TokenBuffer
from glasshead.serve.writer import Ask, Job, Writer, model_and_tokenizer

__all__ = ["Ask", "Engine", "Stream", "Token"]


class Stream:
    """The tokens of one answer as they are written; the last says how it ended.

    `close`, or dropping the last reference, takes the text out of the batch.
    """

    def __init__(self, job: Job) -> None:
        self._job, self._over = job, False

    def __aiter__(self) -> "Stream":
        return self

    async def __anext__(self) -> Token:
        if self._over:
            raise StopAsyncIteration
        try:
            found = await self._job.queue.get()
        except BaseException:
            self.close()
            raise
        self._over = isinstance(found, Exception) or found.finish is not None
        if isinstance(found, Exception):
            raise found
        return found

    def close(self) -> None:
        self._job.gone = self._over = True

    def __del__(self) -> None:
        self.close()


class Engine:
    """The threads of all models that write.

    Args:
        batch: how many texts a model continues together.
        waiting: how many may wait before each model.
    """

    def __init__(self, batch: int = 16, waiting: int = 64) -> None:
        self.batch, self.room = batch, waiting
        self._tokens = 0  # of threads that have ended
        self._writers: dict[ServedModel, Writer] = {}
        self._lock = threading.Lock()
        self._closed = False

    @property
    def n_running(self) -> int:
        """How many texts are being continued."""
        return sum(len(writer.jobs) for writer in list(self._writers.values()))

    @property
    def n_waiting(self) -> int:
        """How many texts wait for room in a batch."""
        return sum(len(writer.line) for writer in list(self._writers.values()))

    @property
    def n_threads(self) -> int:
        """How many models have a thread now."""
        return len(self._writers)

    @property
    def tokens(self) -> int:
        """How many tokens were written so far."""
        return self._tokens + sum(writer.tokens for writer in list(self._writers.values()))

    def stream(self, served: ServedModel, ask: Ask) -> Stream:
        """Return the tokens of an answer, which may be none. Raises at once for a wrong request."""
        model, tokenizer = model_and_tokenizer(served)
        check_prompts([list(ask.ids)], model.config.vocab_size)
        job = Job(ask, TokenBuffer(tokenizer, ask.stop))
        if ask.max_tokens == 0:
            job.put(Token(None, finish="length"))
            return Stream(job)
        check_max_tokens(ask.max_tokens)
        with self._lock:
            writer = self._writers.get(served)
            if writer is None or not writer.put(job):
                if self._closed:
                    raise ClosingError("the server is shutting down", hint="try again in a moment")
                writer = Writer(served, self.batch, self.room, self._forget)
                writer.put(job)
                writer.start()
                self._writers[served] = writer
        return Stream(job)

    def _forget(self, writer: Writer) -> None:
        with self._lock:
            self._tokens += writer.tokens
            if self._writers.get(writer.served) is writer:
                del self._writers[writer.served]

    def close(self) -> None:
        """End all threads; texts that are not done get an error."""
        with self._lock:
            self._closed = True
            writers = list(self._writers.values())
        for writer in writers:
            writer.close()
        for writer in writers:
            writer.join(5)
