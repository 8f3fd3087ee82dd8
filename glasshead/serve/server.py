"""The listening socket, opened before models are loaded, and the uvicorn server on it."""

import asyncio
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from glasshead.errors import InputError
from glasshead.serve.config import ServeConfig

__all__ = ["listen", "new_server", "run", "url_of"]

IDLE_SECONDS = 30.0  # a connection without a complete request is closed after this time


@contextmanager
def listen(config: ServeConfig) -> Iterator[tuple[socket.socket, ServeConfig]]:
    """Yield a listening socket, and the config with its actual port. Connections wait in it."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is given. Without it each reply on a kept-alive
    # connection waits some 40 ms for the client's delayed ACK.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    with sock:
        # Without this, the port of a server that has just stopped is in use for a minute.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((config.host, config.port))
            sock.listen(1024)
        except (OSError, TypeError, ValueError) as error:  # the last two for malformed host names
            raise InputError(
                f"cannot listen on {config.host}:{config.port}: "
                f"{getattr(error, 'strerror', None) or error}",
                hint="try another --port, or --port 0 for any free one; --host must be an address "
                "of this machine",
            ) from None
        yield sock, replace(config, port=sock.getsockname()[1])


def url_of(config: ServeConfig) -> str:
    """Return the URL to open in a browser on this machine.

    >>> url_of(ServeConfig(port=8123)), url_of(ServeConfig(host="::1"))
    ('http://127.0.0.1:8123/', 'http://[::1]:8000/')
    """
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.host, config.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{config.port}/"


class Connection(H11Protocol):
    """Keeps clients that send nothing from using up all connections.

    uvicorn waits forever for the first request or the rest of its headers; here such a connection
    is closed after `IDLE_SECONDS`, and at once if all connections are in use when a new one comes.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._last_cycle = self.cycle
        self._idle_since = self.loop.time()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer = self.loop.call_later(IDLE_SECONDS, self._close_if_idle)
        assert self.limit_concurrency is not None
        if len(self.connections) >= self.limit_concurrency:
            self._close_one_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        others = set(self.tasks)
        super().handle_events()
        self._tasks = self.tasks - others or self._tasks

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        super().on_response_complete()

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _close_one_waiting(self) -> None:
        """Close a connection that we wait for: of the address with most of them, the oldest."""
        waiting = [
            each
            for each in self.connections
            if isinstance(each, Connection)
            and each is not self
            and (each._is_idle or each.cycle.more_body)
        ]
        if not waiting:
            return  # all are being answered: the new request gets 503
        counts = Counter(each._address for each in waiting)
        found = max(waiting, key=lambda each: (counts[each._address], -each._idle_since))
        self.connections.discard(found)
        self.tasks.difference_update(found._tasks)  # they end, but would still count for the 503
        found.transport.abort()

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def _close_if_idle(self) -> None:
        if self._is_idle and self.cycle is self._last_cycle:
            self.transport.close()
            return
        self._last_cycle = self.cycle
        self._timer = self.loop.call_later(IDLE_SECONDS, self._close_if_idle)


def new_server(app: FastAPI, config: ServeConfig) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=Connection,
            log_config=None,
            access_log=False,
            ws="none",
            lifespan="on",
            server_header=False,
            proxy_headers=False,
            limit_concurrency=config.connections,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=max(1, round(config.grace)),
        )
    )


def run(app: FastAPI, sock: socket.socket, config: ServeConfig) -> bool:
    """Serve until SIGTERM or SIGINT, then let requests finish; return False if one still runs."""
    server = new_server(app, config)

    def stop(*_: object) -> None:
        server.should_exit = True

    # uvicorn shuts down at these signals, then raises them again for the previous handlers.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    server.run(sockets=[sock])
    return not app.state.workers.n_running
