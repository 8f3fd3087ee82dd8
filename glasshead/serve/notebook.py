"""The page in a notebook: `trace.show()`.

A widget holds the page in a frame that may only run its own script. The page sends its requests to
the widget, which passes them to this kernel; the server's own routes answer them from the trace:
tiles, rows and words are computed when they are looked at.
"""

import asyncio
import threading
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import anywidget
import traitlets
from starlette.types import ASGIApp, Message

from glasshead.errors import NotFoundError
from glasshead.observe.trace import Trace
from glasshead.page.bundle import standalone_page
from glasshead.page.entries import Entry, entry_of_trace
from glasshead.page.look_answers import MAX_WORDS
from glasshead.serve.app import create_app
from glasshead.serve.config import ServeConfig
from glasshead.serve.library import Library, ServedModel

__all__ = ["PageWidget", "show"]

Answer = tuple[int, dict[str, str], bytes]


def show(trace: Trace, *, height: int = 760, **state: Any) -> "PageWidget":
    """Return the page on a trace as a widget of the notebook, `height` pixels high.

    `state` is where the page begins, as in its address: view, layer, head, query, lang, theme, ...
    """
    return PageWidget(trace, height, {name: str(value) for name, value in state.items()})


class PageWidget(anywidget.AnyWidget):
    _esm = resources.files("glasshead.serve").joinpath("notebook.js").read_text("utf-8")
    html = traitlets.Unicode().tag(sync=True)
    height = traitlets.Int().tag(sync=True)

    def __init__(self, trace: Trace, height: int, state: dict[str, str]) -> None:
        library = OneTraceLibrary(trace)
        can = library.entry.can
        short = (library.entry.max_len or 0) <= MAX_WORDS
        begin = {"view": "look" if short and "look" in can else "atlas", **state}
        data = {"kind": "notebook", "views": list(can), "state": begin}
        super().__init__(html=standalone_page(data), height=height)
        self._client = InProcessClient(create_app(library, ServeConfig()))
        self.on_msg(self._answer)

    def _answer(self, _: Any, message: dict[str, Any], buffers: list[bytes]) -> None:
        request = (message["method"], message["path"], message["body"])
        status, headers, body = self._client.ask(*request)
        sender = {name: message[name] for name in ("frame", "glasshead")}
        self.send({**sender, "status": status, "headers": headers}, [body])


class OneTraceLibrary(Library):
    """A library of one trace in memory."""

    def __init__(self, trace: Trace) -> None:
        self.entry = replace(entry_of_trace(trace), id="atlas")
        self._served = ServedModel(self.entry, "", trace=trace)

    def list(self) -> "list[Entry]":
        return [self.entry]

    def find(self, name: str) -> Entry:
        return self.open(name).entry

    def open(self, name: str) -> ServedModel:
        if name != self.entry.id:
            raise NotFoundError(
                f"there is no '{name[:200]}' here", hint=f"there is only '{self.entry.id}'"
            )
        return self._served

    def path(self, name: str) -> Path:
        raise NotFoundError("a trace in memory lies in no folder", hint="save it first")

    @property
    def n_open(self) -> int:
        return 1


class InProcessClient:
    """Sends requests to an app without a network.

    Its event loop has a thread of its own, because a notebook's cells run inside of another loop.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app, self.loop = app, asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="glasshead page", daemon=True).start()

    def ask(self, method: str, path: str, body: str | None) -> Answer:
        return asyncio.run_coroutine_threadsafe(self._ask(method, path, body), self.loop).result()

    async def _ask(self, method: str, path: str, body: str | None) -> Answer:
        before, _, query = path.partition("?")
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http",
            "method": method, "path": before, "raw_path": before.encode(),
            "query_string": query.encode(), "root_path": "",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
            "client": None, "server": ("localhost", 0),
        }  # fmt: skip
        messages = [{"type": "http.request", "body": (body or "").encode(), "more_body": False}]
        status, headers, parts = 500, {}, []
        done = asyncio.Event()

        async def receive() -> Message:
            if messages:
                return messages.pop()
            await done.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            nonlocal status, headers
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                parts.append(message.get("body", b""))

        await self.app(scope, receive, send)
        done.set()
        wanted = ("content-type", "x-shape", "x-shapes", "retry-after")
        return status, {n: headers[n] for n in wanted if n in headers}, b"".join(parts)
