"""Checks of every request before any route runs: host, origin, API key and size.

The Host header is checked against DNS rebinding, the Origin header against requests that pages of
other sites send with the user's browser. The API key comes as `Authorization: Bearer KEY`;
a browser opens /?key=KEY once and gets a cookie for it. Who sends many wrong keys has to wait.
"""

import asyncio
import ipaddress
import re
import socket
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from glasshead.serve.config import ServeConfig, is_loopback
from glasshead.serve.error_replies import error_reply
from glasshead.serve.keys import GuessLimit, KeyCheck
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
PUBLIC = ("/", "/health", "/healthz")  # as is /web/: these need no key
SEND_KEY = "send it as 'Authorization: Bearer KEY'; in a browser, open /?key=KEY once"
BODY_SECONDS = 30.0  # the time a client has to send its request


class SecurityMiddleware:
    """ASGI middleware that refuses requests, and adds security headers to every reply."""

    def __init__(self, app: ASGIApp, config: ServeConfig) -> None:
        self.app, self.config = app, config
        self.names = {"localhost", config.host.lower(), *config.allowed_hosts}
        self.reachable = not is_loopback(config.host)  # from other machines
        if self.reachable:
            self.names.add(socket.gethostname().lower())
        self.key = None if config.api_key is None else KeyCheck(config.api_key, config.port)
        self.guesses = GuessLimit()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                web = scope["path"].startswith("/web/")
                headers.setdefault("cache-control", "no-cache" if web else "no-store")
            await send(message)

        path = scope["path"]
        refusal = self._refuse(scope)
        if refusal is None:
            try:
                body = await asyncio.wait_for(self._read_body(scope, receive), BODY_SECONDS)
            except TimeoutError:
                refusal = error_reply(
                    path, 408, f"the request took over {BODY_SECONDS:g} s to arrive"
                )
            except _TooLarge:
                refusal = error_reply(
                    path,
                    413,
                    f"the request has more than {self.config.max_body:,} bytes",
                    "send less at once, or start the server with a larger --max-body",
                )
        if refusal is not None:
            # The rest of the body is not read.
            refusal.headers["connection"] = "close"
            await refusal(scope, receive, send_with_headers)
            return

        async def receive_body() -> Message:
            nonlocal body
            if body is None:
                return await receive()
            message, body = {"type": "http.request", "body": body, "more_body": False}, None
            return message

        await self.app(scope, receive_body, send_with_headers)

    def _refuse(self, scope: Scope) -> Response | None:
        """Return the reply to a request that is not allowed, or that gets a cookie; else None."""
        headers, path = Headers(scope=scope), scope["path"]
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_own_host(hosts[0]):
            hint = "use the server's address, or start it with --allow-host NAME"
            return error_reply(path, 421, "the Host header does not name this server", hint)
        if not all(self._is_own_origin(origin, hosts[0]) for origin in headers.getlist("origin")):
            return error_reply(path, 403, "the request comes from a page of another site")
        if self.key is None:
            return None
        if path in PUBLIC or path.startswith("/web/"):
            return self._set_cookie(scope, self.key)
        return self._check_key(scope, self.key)

    def _is_own_host(self, host: str) -> bool:
        """Whether a Host header names this server. An IP address always does: DNS cannot
        redirect it."""
        found = HOST.fullmatch(host.lower())
        if found is None:
            return False
        name = found[1].strip("[]")
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return name in self.names
        return self.reachable or address.is_loopback or name in self.names

    def _is_own_origin(self, origin: str, host: str) -> bool:
        """Whether the request comes from a page of this server, by one of its allowed names."""
        try:
            url = urlsplit(origin)
        except ValueError:
            return False
        return url.netloc.lower() == host.lower() or url.hostname in self.config.allowed_hosts

    def _check_key(self, scope: Scope, key: KeyCheck) -> Response | None:
        headers, path = Headers(scope=scope), scope["path"]
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            refusal = self._refuse_key(scope, key, given.strip())
        elif key.is_cookie(cookie_parser(headers.get("cookie", "")).get(key.cookie_name, "")):
            return None
        else:
            refusal = error_reply(path, 401, "the API key is missing", SEND_KEY)
        if refusal is not None and refusal.status_code == 401:
            refusal.headers["www-authenticate"] = "Bearer"
        return refusal

    def _refuse_key(self, scope: Scope, key: KeyCheck, given: str) -> Response | None:
        """Return None if the key is right; slow down a client that sends wrong ones."""
        address = (scope.get("client") or [""])[0]
        if wait := self.guesses.wait(address):
            hint = f"try again in {wait} s with the right one"
            reply = error_reply(scope["path"], 429, "too many wrong API keys", hint)
            reply.headers["retry-after"] = str(wait)
            return reply
        if key.is_key(given):
            return None
        self.guesses.add_wrong(address)
        return error_reply(scope["path"], 401, "the API key is wrong", SEND_KEY)

    def _set_cookie(self, scope: Scope, key: KeyCheck) -> Response | None:
        """Turn /?key=KEY into a cookie and redirect to /, so that the address does not show it."""
        query = scope["query_string"]
        if scope["path"] != "/" or b"key=" not in query:
            return None
        given = parse_qs(query.decode("latin-1")).get("key", [""])[0]
        refusal = self._refuse_key(scope, key, given)
        if refusal is not None:
            return refusal
        reply = RedirectResponse("/", 303)
        reply.set_cookie(
            key.cookie_name, key.new_cookie(), httponly=True, samesite="strict", path="/"
        )
        return reply

    async def _read_body(self, scope: Scope, receive: Receive) -> bytes | None:
        """Read the whole body. Content-Length may be missing or wrong, so bytes are counted."""
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
