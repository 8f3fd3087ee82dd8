"""The socket that a server listens on, taken before anything else begins, and the server on it."""

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import uvicorn
from fastapi import FastAPI

from glasshead.errors import InputError
from glasshead.serve.config import ServeConfig

__all__ = ["address", "listen", "new_server", "run"]


@contextmanager
def listen(config: ServeConfig) -> Iterator[tuple[socket.socket, ServeConfig]]:
    """A listening socket, and the config with the port that it has. Connections wait in it."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    sock = socket.socket(family)
    with sock:
        # A server that ended a moment ago leaves its port taken for a minute without this.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((config.host, config.port))
            sock.listen(1024)
        except OSError as error:
            raise InputError(
                f"cannot listen on {config.host}:{config.port}: {error.strerror}",
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


def new_server(app: FastAPI, config: ServeConfig) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(
            app,
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
    return not app.state.work.running
