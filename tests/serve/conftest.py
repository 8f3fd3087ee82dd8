"""What tests of the server share: trained models, a live server, a browser.

def test_it(served):            # the server on `world_runs`, for the whole session
    httpx.get(f"{served.url}/api/models")

def test_it(server):            # one of your own: a folder, and settings
    mine = server(folder, max_body=1000)

def test_it(page, served):      # a browser, which fails the test on any error in the console
    page.goto(served.url)
"""

import asyncio
import functools
import hashlib
import logging
import os
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn
from fastapi import FastAPI
from httpx._config import DEFAULT_TIMEOUT_CONFIG

from glasshead.serve.app import create_app
from glasshead.serve.config import ServeConfig
from glasshead.serve.library import Library
from glasshead.serve.server import listen, new_server

from . import trained

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

HUNG = 120.0  # seconds after which a wait ends as failed: far more than anything takes
# httpx gives up after five seconds by itself, which a busy machine may need for an answer.
for _name in ("connect", "read", "write", "pool"):
    setattr(DEFAULT_TIMEOUT_CONFIG, _name, HUNG)
PACKAGE = Path(trained.__file__).resolve().parents[2] / "glasshead"


@pytest.fixture(scope="session")
def world_runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `reader`, `translator` and `writer`, models of the embedded world.

    They are trained once for each state of what trains them; pytest's cache keeps them. Tests
    that write into a run make a copy of it.
    """
    cache = getattr(request.config, "cache", None)
    kept = cache.mkdir("world-runs") if cache else tmp_path_factory.mktemp("world-runs")
    place = kept / _trained_by()
    with open(kept / "lock", "wb") as lock:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)  # tests beside these wait for them
        if not place.exists():
            trained.train(tmp_path_factory.mktemp("training"), place)
    return place


def _trained_by() -> str:
    """Another word whenever the code that trains has changed."""
    digest = hashlib.sha256(Path(trained.__file__).read_bytes())
    for part in ("text", "attention", "model", "training"):
        for file in sorted((PACKAGE / part).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Live:
    """A server that runs in a thread."""

    url: str
    app: FastAPI
    server: uvicorn.Server

    @property
    def port(self) -> int:
        port = urlsplit(self.url).port
        assert port
        return port


@contextmanager
def live(root: Path, **settings: Any) -> Iterator[Live]:
    config = ServeConfig(**{"port": 0, "grace": 5.0, **settings})
    with listen(config) as (sock, config):
        app = create_app(Library(root, keep=config.models_loaded), config)
        server = new_server(app, config)
        thread = threading.Thread(target=server.run, args=([sock],), daemon=True)
        thread.start()
        until(lambda: server.started or not thread.is_alive())
        try:
            yield Live(f"http://127.0.0.1:{config.port}", app, server)
        finally:
            server.should_exit = True
            thread.join(HUNG)
            assert not thread.is_alive(), "the server hung and did not end"


def until(holds: Callable[[], Any]) -> None:
    """Return as soon as `holds()` is true. The limit only ends a test that hangs."""
    end = time.monotonic() + HUNG
    while not holds():
        assert time.monotonic() < end, "hung: the condition did not come true"
        time.sleep(0.01)


def meanwhile(page: Any, holds: Callable[[], Any]) -> None:
    """Like `until`, but let Playwright run its event handlers between two checks."""
    until(lambda: (page.wait_for_timeout(20), holds())[1])


def awaited(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What it gives, in a thread of its own: the browser's driver keeps a loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


@pytest.fixture(scope="session")
def served(world_runs: Path) -> Iterator[Live]:
    """The server on the world's models. Another folder or other limits: `server`."""
    with live(world_runs) as found:
        yield found


@pytest.fixture
def server() -> Iterator[Callable[..., Live]]:
    """`server(folder, waiting=1)` starts one of your own, which ends with the test."""
    with ExitStack() as stack:
        yield lambda root, **settings: stack.enter_context(live(root, **settings))


@pytest.fixture(scope="session", autouse=True)
def one_ssl_context() -> Iterator[None]:
    """Read the root certificates once: each httpx client does, though no test uses TLS."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", functools.cache(ssl.create_default_context))
        yield


@pytest.fixture(autouse=True)
def server_errors() -> Iterator[list[logging.LogRecord]]:
    """What servers logged as an error: nothing, unless the test clears the list."""
    found: list[logging.LogRecord] = []
    handler, logger = logging.Handler(logging.ERROR), logging.getLogger("glasshead.serve")
    handler.emit = found.append  # type: ignore[method-assign]
    logger.addHandler(handler)
    yield found
    logger.removeHandler(handler)
    if found:
        error = found[0].exc_info
        raise AssertionError(f"the server failed: {found[0].__dict__['about']}") from (
            error[1] if error else None
        )


@pytest.fixture
def page(browser: Any, server: Callable[..., Live]) -> Iterator[Any]:
    """A page of its own. Errors and warnings in its console, and requests to anywhere but this
    machine, fail the test; a test that provokes one clears `page.troubles`. It closes before the
    test's server does, which it may still be asking."""
    context = browser.new_context(locale="en-US", viewport={"width": 1280, "height": 900})
    page = context.new_page()
    troubles: list[str] = []
    page.troubles = troubles

    def said(message: Any) -> None:
        if message.type in ("error", "warning"):
            troubles.append(f"console {message.type}: {message.text}")

    def asked(request: Any) -> None:
        url = urlsplit(request.url)
        if url.scheme not in ("data", "blob") and url.hostname != "127.0.0.1":
            troubles.append(f"request to {request.url[:200]}")

    page.on("console", said)
    page.on("pageerror", lambda error: troubles.append(f"page error: {error}"))
    page.on("request", asked)
    page.set_default_timeout(1000 * HUNG)
    yield page
    context.close()
    assert troubles == []


@pytest.fixture
def shot() -> Callable[[Any, str], None]:
    """`shot(page, "look")` keeps a picture where $GLASSHEAD_SHOTS says, if it says anything."""
    folder = os.environ.get("GLASSHEAD_SHOTS")

    def take(page: Any, name: str) -> None:
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            page.screenshot(path=str(Path(folder) / f"{name}.png"))

    return take
