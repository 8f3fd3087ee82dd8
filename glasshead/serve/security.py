"""Who may ask, and how much at once: before anything else looks at a request.

The Host header is checked so that no page of another site can reach this server by a name that
it makes point here; the Origin header, so that none can send it requests with the user's browser.
An API key comes as `Authorization: Bearer KEY`; a browser brings it once, as /?key=KEY, and gets
a cookie for it.
"""

import asyncio
import hashlib
import hmac
import ipaddress
import re
import socket
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from glasshead.serve.config import ServeConfig, is_loopback
from glasshead.serve.error_replies import failure
from glasshead.serve.workers import ClientGone

__all__ = ["CSP", "SecurityMiddleware"]

CSP = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "font-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
HEADERS = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[0-9a-z._-]+)(?::[0-9]{1,5})?", re.ASCII)
OPEN = ("/", "/healthz")  # and what lies in /web/: nothing there is anybody's
BODY_SECONDS = 30.0  # that a client may take to send its request


class SecurityMiddleware:
    """ASGI."""

    def __init__(self, app: ASGIApp, config: ServeConfig) -> None:
        self.app, self.config = app, config
        self.names = {"localhost", config.host.lower(), *config.allowed}
        self.wide = not is_loopback(config.host)
        if self.wide:
            self.names.add(socket.gethostname().lower())
        self.key = None if config.api_key is None else config.api_key.encode()
        self.cookie = f"glasshead-{config.port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                web = scope["path"].startswith("/web/")
                headers.setdefault("cache-control", "no-cache" if web else "no-store")
            await send(message)

        refused = self._refused(scope)
        if refused is None:
            try:
                body = await asyncio.wait_for(self._body(scope, receive), BODY_SECONDS)
            except TimeoutError:
                refused = failure(scope["path"], 408, "the request took too long to arrive")
            except _TooLarge:
                refused = failure(
                    scope["path"],
                    413,
                    f"the request has more than {self.config.max_body:,} bytes",
                    "send less at once, or start the server with a larger --max-body",
                )
        if refused is not None:
            # What is left of its body is not read.
            refused.headers["connection"] = "close"
            await refused(scope, receive, guarded)
            return

        async def replayed() -> Message:
            nonlocal body
            if body is None:
                return await receive()
            message, body = {"type": "http.request", "body": body, "more_body": False}, None
            return message

        await self.app(scope, replayed, guarded)

    def _refused(self, scope: Scope) -> Response | None:
        headers, path = Headers(scope=scope), scope["path"]
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return failure(
                path,
                421,
                "the Host header does not name this server",
                "use its address, or start it with --allow-host NAME",
            )
        if not all(self._is_own(origin, hosts[0]) for origin in headers.getlist("origin")):
            return failure(path, 403, "the request comes from a page of another site")
        if self.key is None or path in OPEN or path.startswith("/web/"):
            return self._with_cookie(scope)
        if self._has_key(headers):
            return None
        reply = failure(
            path,
            401,
            "the API key is missing or wrong",
            "send it as 'Authorization: Bearer KEY'; in a browser, open /?key=KEY once",
        )
        reply.headers["www-authenticate"] = "Bearer"
        return reply

    def _is_ours(self, host: str) -> bool:
        """Whether a Host header names this server. An address cannot be made to point elsewhere,
        so one that reaches us is ours."""
        found = HOST.fullmatch(host.lower())
        if found is None:
            return False
        name = found[1].strip("[]")
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return name in self.names
        return self.wide or address.is_loopback or name in self.names

    def _is_own(self, origin: str, host: str) -> bool:
        """Whether a page of this server asks; behind a proxy that has one of the allowed names."""
        try:
            url = urlsplit(origin)
        except ValueError:
            return False
        return url.netloc.lower() == host.lower() or url.hostname in self.config.allowed

    def _has_key(self, headers: Headers) -> bool:
        assert self.key is not None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return hmac.compare_digest(given.strip().encode(), self.key)
        # Beside those of every other server on this machine, whatever they wrote into theirs.
        kept = cookie_parser(headers.get("cookie", "")).get(self.cookie, "")
        return hmac.compare_digest(kept.encode(), _cookie(self.key))

    def _with_cookie(self, scope: Scope) -> Response | None:
        """/?key=KEY becomes a cookie, and is no longer in the address."""
        query = scope["query_string"]
        if self.key is None or scope["path"] != "/" or b"key=" not in query:
            return None
        given = parse_qs(query.decode("latin-1")).get("key", [""])[0]
        if not hmac.compare_digest(given.encode(), self.key):
            return failure("/", 401, "the API key is wrong", "open /?key=KEY with the right one")
        reply = RedirectResponse("/", 303)
        reply.set_cookie(
            self.cookie, _cookie(self.key).decode(), httponly=True, samesite="strict", path="/"
        )
        return reply

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """All of it: a length that is announced is not trusted, and may not be announced."""
        announced = Headers(scope=scope).get("content-length", "0")
        if not announced.isdecimal() or int(announced) > self.config.max_body:
            raise _TooLarge
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self.config.max_body:
                raise _TooLarge
            more = message.get("more_body", False)
        return b"".join(parts)


class _TooLarge(Exception):
    pass


def _cookie(key: bytes) -> bytes:
    """What stands for the key, without being it."""
    return hashlib.sha256(b"glasshead " + key).hexdigest().encode()
