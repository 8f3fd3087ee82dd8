"""The log: one JSON object a line on stderr, without any text of users.

Requests are logged by their route ("/api/seen/{seen}/cells"), errors by their type and traceback:
paths, queries and messages can contain a user's text.
"""

import asyncio
import json
import logging
import secrets
import sys
import threading
import time
import traceback
from datetime import UTC, datetime
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from glasshead.errors import ClosingError
from glasshead.serve.error_replies import error_body, error_reply
from glasshead.serve.metrics import Metrics
from glasshead.serve.workers import ClientGone

__all__ = ["LOG", "LoggingMiddleware", "configure"]

LOG = logging.getLogger("glasshead.serve")


def configure(level: int = logging.INFO) -> None:
    """Write all log records and warnings of this process to stderr, as lines of JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogFormatter())
    logging.captureWarnings(True)
    threading.excepthook = _log_thread_error
    for name in ("glasshead", "uvicorn", "asyncio", "py.warnings"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)


class LogFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"time": time, "level": record.levelname.lower()}
        if record.name == LOG.name:
            line["event"] = record.msg
        else:
            # Only the first line: asyncio adds a description of the task, which may quote text.
            message = record.getMessage().partition("\n")[0]
            line |= {"event": record.name, "message": message}
        line |= getattr(record, "about", {})
        if record.exc_info and record.exc_info[1] is not None:
            line |= _describe_error(record.exc_info[1])
        return json.dumps(line, ensure_ascii=False)


def _log_thread_error(args: threading.ExceptHookArgs) -> None:
    LOG.error("thread", exc_info=args.exc_value)


def _describe_error(error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)
    where = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    return {"error": type(error).__name__, "where": where[-12:]}


class LoggingMiddleware:
    """ASGI middleware that counts and logs every request; answers 500 after an unexpected error,
    and 503 when the server shuts down first."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        method = scope["method"]
        if method == "HEAD":  # routes answer it as GET; uvicorn leaves the body out
            scope = {**scope, "method": "GET"}
        began, number, sent, size = time.monotonic(), secrets.token_hex(6), 0, 0

        async def send_and_count(message: Message) -> None:
            nonlocal sent, size
            if message["type"] == "http.response.start":
                sent = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = number
            size += len(message.get("body", b""))
            await send(message)

        error: Exception | None = None
        try:
            await self.app(scope, receive, send_and_count)
        except (ClientGone, ClientDisconnect):
            sent = sent or 499
        except asyncio.CancelledError:
            # The server shuts down, and the grace period is over.
            if sent:
                raise
            closing = ClosingError("the server is shutting down", hint="try again in a moment")
            reply = error_reply(scope["path"], 503, str(closing), closing.hint)
            reply.headers["retry-after"] = str(closing.retry_after)
            await reply(scope, receive, send_and_count)
        except Exception as unexpected:
            error = unexpected
            if not sent:
                await JSONResponse(_internal_error(number), 500)(scope, receive, send_and_count)
        finally:
            self._log(scope, method, number, sent or 499, size, time.monotonic() - began, error)

    def _log(
        self,
        scope: Scope,
        method: str,
        number: str,
        status: int,
        size: int,
        seconds: float,
        error: Exception | None,
    ) -> None:
        route = getattr(scope.get("route"), "path", "unknown")
        method = method if method in METHODS else "OTHER"
        self.metrics.requests.add(route=route, method=method, status=str(status))
        self.metrics.seconds.add(seconds, route)
        about = {"id": number, "method": method, "route": route, "status": status}
        about |= {"ms": round(1000 * seconds, 1), "bytes": size}
        level = logging.ERROR if error is not None else logging.INFO
        LOG.log(level, "request", exc_info=error, extra={"about": about})


METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}


def _internal_error(number: str) -> dict[str, Any]:
    """Return a body that OpenAI's clients understand too, whatever the path."""
    body = error_body("/v1", 500, "an unexpected error occurred in the server")
    body["error"]["hint"] = f"the server's log has the traceback of request {number}"
    return body
