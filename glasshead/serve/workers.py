"""Computing away from the event loop: so many at once, so many waiting, and none for nobody.

    found = await run_in_worker(request, record, served, text)  # record(served, text, cancel)

A function that takes `cancel` is told when its client has gone: `cancel.check()` raises, and so
does calling it, which makes it a `progress` of `RecordConfig`.
"""

import asyncio
import inspect
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from fastapi import Request

from glasshead.errors import BusyError

__all__ = ["CancelToken", "ClientGone", "Workers", "disconnected", "run_in_worker"]

Result = TypeVar("Result")


class ClientGone(Exception):
    """The client has left; there is nobody to answer."""


class CancelToken:
    """Whether a computation is still wanted."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def cancel(self) -> None:
        self._event.set()

    @property
    def cancelled(self) -> bool:
        return self._event.is_set()

    def check(self) -> None:
        if self.cancelled:
            raise ClientGone

    def __call__(self, *_: object) -> None:
        self.check()


async def run_in_worker(
    request: Request, fn: Callable[..., Result], *args: Any, **kwargs: Any
) -> Result:
    """What `fn` gives, computed on a thread within the server's limits."""
    workers: Workers = request.app.state.workers
    return await workers.run(request, fn, *args, **kwargs)


async def disconnected(request: Request) -> None:
    """Returns when the client has gone. The body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class Workers:
    """`running` threads, and a line of at most `waiting` before them, first come first served."""

    def __init__(self, running: int, waiting: int) -> None:
        self.limit, self.room = running, running + waiting
        self.inside = 0  # running or waiting
        self.started = 0
        self._turn = asyncio.Semaphore(running)
        self._pool = ThreadPoolExecutor(running, thread_name_prefix="work")
        self._seconds = 1.0  # that one takes, about

    @property
    def running(self) -> int:
        return self.started

    @property
    def waiting(self) -> int:
        return self.inside - self.started

    async def run(
        self, request: Request, fn: Callable[..., Result], *args: Any, **kwargs: Any
    ) -> Result:
        if self.inside >= self.room:
            raise BusyError(
                f"{self.running} requests are running and {self.waiting} are waiting",
                hint="try again in a moment",
                retry_after=self._patience(),
            )
        cancel = CancelToken()
        if "cancel" in inspect.signature(fn).parameters:
            kwargs["cancel"] = cancel
        leaving = asyncio.ensure_future(disconnected(request))
        self.inside += 1
        try:
            await self._own_turn(leaving)
        except BaseException:
            self.inside -= 1
            leaving.cancel()
            raise
        began = time.monotonic()
        loop = asyncio.get_running_loop()
        result = loop.run_in_executor(self._pool, partial(fn, *args, **kwargs))
        self.started += 1
        # The thread holds its place until it ends, also when nobody waits for it any more.
        result.add_done_callback(partial(self._ended, began))
        try:
            await _first(result, leaving)
            if result.done():
                return result.result()
            raise ClientGone
        finally:
            cancel.cancel()
            leaving.cancel()

    async def _own_turn(self, leaving: "asyncio.Future[None]") -> None:
        turn = asyncio.ensure_future(self._turn.acquire())
        try:
            await _first(turn, leaving)
            if leaving.done():
                raise ClientGone
        except BaseException:
            if turn.done():
                self._turn.release()
            turn.cancel()
            raise

    def _ended(self, began: float, result: "asyncio.Future[Any]") -> None:
        self.inside -= 1
        self.started -= 1
        self._turn.release()
        self._seconds += 0.2 * (time.monotonic() - began - self._seconds)
        if not result.cancelled():
            result.exception()  # one that nobody waits for is no news

    def _patience(self) -> int:
        """Seconds until there is likely room."""
        return min(60, max(1, math.ceil(self._seconds * (self.waiting + 1) / self.limit)))

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


async def _first(*some: "asyncio.Future[Any]") -> None:
    await asyncio.wait(some, return_when=asyncio.FIRST_COMPLETED)
