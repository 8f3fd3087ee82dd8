"""Computation on worker threads, away from the event loop, with limits on running and waiting.

    @router.post("/look")
    @in_worker
    def look(request: Request, ask: LookRequest, cancel: CancelToken) -> dict[str, Any]: ...

A function with a parameter `cancel` gets the token of its request: `cancel.check()` raises when the
client has disconnected, and so does calling it, which makes it a `progress` of `RecordConfig`.
"""

import asyncio
import inspect
import math
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from fastapi import Request

from glasshead.errors import BusyError

__all__ = ["CancelToken", "ClientGone", "Workers", "in_worker", "until_disconnect"]

Result = TypeVar("Result")


class ClientGone(Exception):
    """The client has disconnected."""


class CancelToken:
    """Tells a computation that its client has disconnected."""

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


def in_worker(fn: Callable[..., Result]) -> Callable[..., Awaitable[Result]]:
    """Make a route of a function that takes the request first and computes on a worker thread."""
    signature = inspect.signature(fn)
    parameters = [p for name, p in signature.parameters.items() if name != "cancel"]

    async def route(request: Request, **kwargs: Any) -> Result:
        workers: Workers = request.app.state.workers
        return await workers.run(request, fn, request, **kwargs)

    # Not functools.wraps: FastAPI would unwrap the route and take it for a synchronous one.
    route.__name__, route.__doc__, route.__module__ = fn.__name__, fn.__doc__, fn.__module__
    route.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return route


async def until_disconnect(request: Request) -> None:
    """Return when the client disconnects. The body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class Workers:
    """`running` threads, and a queue of at most `waiting` requests, first come first served.

    Each thread calls `after` when it has computed.
    """

    def __init__(
        self, running: int, waiting: int, after: Callable[[], None] = lambda: None
    ) -> None:
        self.limit, self.room, self._after = running, running + waiting, after
        self.inside = 0  # running or waiting
        self.n_running = 0
        self.n_done = 0
        self._turn = asyncio.Semaphore(running)
        self._pool = ThreadPoolExecutor(running, thread_name_prefix="work")
        self._seconds = 1.0  # moving average of a request

    @property
    def n_waiting(self) -> int:
        return self.inside - self.n_running

    async def run(
        self, request: Request, fn: Callable[..., Result], *args: Any, **kwargs: Any
    ) -> Result:
        """Call `fn` on a thread when it is the request's turn; raise BusyError if too many wait."""
        if self.inside >= self.room:
            raise BusyError(
                f"{self.n_running} requests are running and {self.n_waiting} are waiting",
                hint="try again in a moment",
                retry_after=self._expected_wait(),
            )
        cancel = CancelToken()
        if "cancel" in inspect.signature(fn).parameters:
            kwargs["cancel"] = cancel
        leaving = asyncio.ensure_future(until_disconnect(request))
        self.inside += 1
        try:
            await self._wait_for_turn(leaving)
        except BaseException:
            self.inside -= 1
            leaving.cancel()
            raise
        began = time.monotonic()
        loop = asyncio.get_running_loop()
        result = loop.run_in_executor(self._pool, self._compute, partial(fn, *args, **kwargs))
        self.n_running += 1
        # A thread counts as running until it ends, even if its client has disconnected.
        result.add_done_callback(partial(self._release, began))
        try:
            await _first(result, leaving)
            if result.done():
                return result.result()
            raise ClientGone
        finally:
            cancel.cancel()
            leaving.cancel()

    def _compute(self, work: Callable[[], Result]) -> Result:
        try:
            return work()
        finally:
            self._after()

    async def _wait_for_turn(self, leaving: "asyncio.Future[None]") -> None:
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

    def _release(self, began: float, result: "asyncio.Future[Any]") -> None:
        self.inside -= 1
        self.n_running -= 1
        self.n_done += 1
        self._turn.release()
        self._seconds += 0.2 * (time.monotonic() - began - self._seconds)
        if not result.cancelled():
            result.exception()  # else asyncio warns that it was never retrieved

    def _expected_wait(self) -> int:
        """Return in how many seconds there is likely room."""
        return min(60, max(1, math.ceil(self._seconds * (self.n_waiting + 1) / self.limit)))

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


async def _first(*some: "asyncio.Future[Any]") -> None:
    await asyncio.wait(some, return_when=asyncio.FIRST_COMPLETED)
