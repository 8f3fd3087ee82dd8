"""The socket that a server listens on, taken before anything else begins, and the server on it."""

import asyncio
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from glasshead.errors import InputError
from glasshead.serve.config import ServeConfig

__all__ = ["address", "listen", "new_server", "run"]

PATIENCE = 30.0  # seconds that a connection may be open without a whole request


@contextmanager
def listen(config: ServeConfig) -> Iterator[tuple[socket.socket, ServeConfig]]:
    """A listening socket, and the config with the port that it has. Connections wait in it."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    # asyncio sets TCP_NODELAY only where the protocol is named. Without it each answer on a
    # connection that is kept open waits some 40 ms for the client's delayed ACK.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    with sock:
        # A server that ended a moment ago leaves its port taken for a minute without this.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((config.host, config.port))
            sock.listen(1024)
        except (OSError, TypeError, ValueError) as error:  # the last two of what is no name
            raise InputError(
                f"cannot listen on {config.host}:{config.port}: "
                f"{getattr(error, 'strerror', None) or error}",
                hint="choose another --port, or 0 for any that is free; --host is an address of "
                "this machine",
            ) from None
        yield sock, replace(config, port=sock.getsockname()[1])


def address(config: ServeConfig) -> str:
    """What to open in a browser on this machine.

    >>> address(ServeConfig(port=8123)), address(ServeConfig(host="::1"))
    ('http://127.0.0.1:8123/', 'http://[::1]:8000/')
    """
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.host, config.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{config.port}/"


class Connection(H11Protocol):
    """One that asks for nothing is closed: uvicorn would wait for its first request, or for the
    rest of its headers, for ever, and so many silent ones would keep everybody else out."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._asked = self.cycle  # the request that was last seen here
        self._watch = self.loop.call_later(PATIENCE, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        silent = self.cycle is None or self.cycle.response_complete
        if silent and self.cycle is self._asked:
            self.transport.close()
            return
        self._asked = self.cycle
        self._watch = self.loop.call_later(PATIENCE, self._look)


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
    """Serve until SIGTERM or SIGINT; what runs then may finish. False if some still computes."""
    server = new_server(app, config)

    def end(*_: object) -> None:
        server.should_exit = True

    # uvicorn ends in order at these signals, and then raises them once more, for the old handlers.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    server.run(sockets=[sock])
    return not app.state.workers.running
