"""Who may ask, and how much at once."""

import json
import socket

import httpx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from starlette.responses import Response

from glasshead.errors import ConfigError
from glasshead.serve import security
from glasshead.serve.config import ServeConfig, is_loopback
from glasshead.serve.security import CSP, SecurityMiddleware

from .conftest import HUNG, awaited, live

JSON = {"Content-Type": "application/json"}
KEY = "correct-horse:battery/staple"


def raw(port, request, more=b""):
    """The whole answer to a request as it is written here."""
    with socket.create_connection(("127.0.0.1", port), timeout=HUNG) as sock:
        sock.sendall(request.replace("\n", "\r\n").encode() + more)
        answer = b""
        while part := sock.recv(65536):
            answer += part
            if b"\r\n\r\n" in answer and b"connection: close" not in answer.lower():
                break
        return answer.decode()


def status(answer):
    return int(answer.split()[1])


# Where it listens


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.8.7", "::1", "localhost"])
def test_this_machine_needs_no_key(host):
    assert ServeConfig(host=host).api_key is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "box.lan", "8.8.8.8", ""])
def test_beyond_this_machine_there_is_always_a_key(host):
    made = [ServeConfig(host=host).api_key for _ in range(2)]
    assert made[0] != made[1]
    assert all(len(key) >= 32 and key.isascii() for key in made)
    assert ServeConfig(host=host, api_key="k").api_key == "k"
    assert not is_loopback(host)


@pytest.mark.parametrize("key", ["", " ", "a b", "schlüssel", "k\r\nX: y", "\x7f"])
def test_a_key_that_no_header_can_carry_is_refused(key):
    with pytest.raises(ConfigError, match="API key"):
        ServeConfig(api_key=key)


@pytest.mark.parametrize(
    ("name", "value"),
    [("port", -1), ("port", 65536), ("max_body", 0), ("running", 0), ("waiting", -1),
     ("grace", float("inf")), ("grace", float("nan")), ("grace", -1.0)],
)  # fmt: skip
def test_limits_that_cannot_work_are_refused(name, value):
    with pytest.raises(ConfigError, match=name) as caught:
        ServeConfig(**{name: value})
    assert caught.value.hint


# By which name it is called


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8000", "localhost:1", "LOCALHOST", "[::1]:8000"]
)
def test_names_of_this_machine_are_let_in(served, host):
    assert httpx.get(f"{served.url}/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "evil.example:8000",
     "evil.example@127.0.0.1:80/", "10.0.0.7", "", "[::1", "127.0.0.1, evil.example", "0.0.0.0"],
)  # fmt: skip
def test_other_names_are_not(served, host):
    answer = raw(served.port, f"GET /api/models HTTP/1.1\nHost: {host}\n\n")
    assert status(answer) in (400, 421)
    assert "models" not in answer.partition("\r\n\r\n")[2]


def test_a_request_names_the_server_exactly_once(served):
    two = "GET /healthz HTTP/1.1\nHost: 127.0.0.1\nHost: 127.0.0.1\n\n"
    assert status(raw(served.port, two)) in (400, 421)
    assert status(raw(served.port, "GET /healthz HTTP/1.0\n\n")) in (400, 421)


def test_a_name_can_be_allowed(server, tmp_path):
    live = server(tmp_path, allow_host="box.lan, Other.example")
    for host, expected in [("box.lan:99", 200), ("other.example", 200), ("third.example", 421)]:
        assert httpx.get(f"{live.url}/healthz", headers={"Host": host}).status_code == expected


def test_beyond_this_machine_addresses_are_let_in_and_names_are_not(server, tmp_path):
    live = server(tmp_path, host="0.0.0.0", api_key=KEY)
    for host, expected in [("10.0.0.7", 200), (socket.gethostname(), 200), ("evil.example", 421)]:
        assert httpx.get(f"{live.url}/healthz", headers={"Host": host}).status_code == expected


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:1", "http://["]
)
def test_pages_of_other_sites_cannot_ask(served, origin):
    reply = httpx.post(f"{served.url}/api/look", headers={"Origin": origin}, json={})
    assert reply.status_code == 403


def test_its_own_page_can(served):
    reply = httpx.get(f"{served.url}/api/models", headers={"Origin": served.url})
    assert reply.status_code == 200


def test_so_can_a_page_under_an_allowed_name(server, tmp_path):
    live = server(tmp_path, allow_host="box.lan")
    for origin, expected in [("https://box.lan", 200), ("https://other.lan", 403)]:
        reply = httpx.get(f"{live.url}/api/models", headers={"Origin": origin})
        assert reply.status_code == expected


@settings(max_examples=200)
@given(st.binary(max_size=40), st.binary(max_size=40))
def test_no_header_makes_the_guard_fail(authorization, host):
    assume(KEY.encode() not in authorization)
    own = SecurityMiddleware(None, ServeConfig(api_key=KEY))
    scope = {"type": "http", "path": "/api/models", "query_string": b"",
             "headers": [(b"host", host), (b"authorization", authorization), (b"cookie", host),
                         (b"origin", authorization)]}  # fmt: skip
    assert own._refuse(scope).status_code in (401, 403, 421)
    cookies = {"headers": [(b"host", b"localhost"), (b"cookie", authorization)]}
    assert own._refuse({**scope, **cookies}).status_code == 401
    query = {"path": "/", "query_string": b"key=" + authorization, "headers": [(b"host", b"[::1]")]}
    assert own._refuse({**scope, **query}).status_code == 401


# How much


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    with live(tmp_path_factory.mktemp("small"), max_body=1000) as found:

        @found.app.post("/api/echo")
        async def echo(body: dict) -> dict:
            return body

        yield found


@pytest.mark.parametrize(("size", "expected"), [(1000, 200), (1001, 413), (10**6, 413)])
def test_a_body_may_have_so_many_bytes(small, size, expected):
    body = json.dumps({"x": "y" * (size - 9)}).encode()
    assert len(body) == size
    assert httpx.post(f"{small.url}/api/echo", content=body, headers=JSON).status_code == expected


@pytest.mark.parametrize(("size", "expected"), [(1000, 200), (1001, 413), (10**5, 413)])
def test_also_where_its_length_is_not_announced(small, size, expected):
    body = json.dumps({"x": "y" * (size - 9)}).encode()

    def pieces():
        for start in range(0, len(body), 97):
            yield body[start : start + 97]

    try:
        reply = httpx.post(f"{small.url}/api/echo", content=pieces(), headers=JSON)
    except httpx.HTTPError:  # it hung up while we were still sending
        assert expected == 413
    else:
        assert reply.status_code == expected
        assert "content-length" not in reply.request.headers


@pytest.mark.parametrize(("pieces", "expected"), [(5, 200), (6, 413), (60, 413)])
def test_the_pieces_of_a_body_are_counted_together(pieces, expected):
    """Straight to the guard: a server may join what comes in quick succession."""
    messages = iter({"type": "http.request", "body": b"x" * 200, "more_body": n < pieces}
                    for n in range(1, pieces + 1))  # fmt: skip
    read, said = [], []

    async def app(scope, receive, send):
        read.append(await receive())
        await Response()(scope, receive, send)

    async def receive():
        return next(messages)

    async def send(message):
        said.append(message)

    guard = SecurityMiddleware(app, ServeConfig(max_body=1000))
    scope = {"type": "http", "method": "POST", "path": "/api/look", "query_string": b"",
             "headers": [(b"host", b"localhost")]}  # fmt: skip
    awaited(guard(scope, receive, send))
    assert said[0]["status"] == expected
    assert [one["body"] for one in read] == ([b"x" * 1000] if expected == 200 else [])
    assert len(list(messages)) == max(0, pieces - 6)  # no more is read than is refused


def test_a_chunked_body_is_answered_before_it_ends(small):
    head = "POST /api/echo HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n"
    answer = raw(small.port, head, b"7D0\r\n" + b"x" * 2000 + b"\r\n")  # and never the end
    assert status(answer) == 413
    assert "more than 1,000 bytes" in answer


@pytest.mark.parametrize("length", ["99999999999999999999999", "-5", "x", "1e3", "٣"])
def test_a_length_that_is_a_lie_is_refused(small, length):
    request = f"POST /api/echo HTTP/1.1\nHost: localhost\nContent-Length: {length}\n\n"
    assert status(raw(small.port, request)) in (400, 413)


def test_a_body_that_does_not_come_is_not_waited_for_for_ever(small, monkeypatch):
    monkeypatch.setattr(security, "BODY_SECONDS", 0.01)
    head = "POST /api/echo HTTP/1.1\nHost: localhost\nContent-Length: 100\n\n{"
    assert status(raw(small.port, head)) == 408


# What every answer carries


@pytest.mark.parametrize("path", ["/", "/api/models", "/health", "/web/main.js", "/nothing"])
def test_head_is_get_without_a_body(served, path):
    get, head = (httpx.request(method, f"{served.url}{path}") for method in ("GET", "HEAD"))
    assert head.content == b""
    assert head.status_code == get.status_code
    for name in ("content-type", "content-length", "content-security-policy"):
        assert head.headers[name] == get.headers[name]


@pytest.mark.parametrize("path", ["/", "/api/models", "/healthz", "/web/main.js", "/nothing"])
def test_every_answer_has_the_headers_that_keep_a_page_in(served, path):
    headers = httpx.get(f"{served.url}{path}").headers
    assert headers["content-security-policy"] == CSP
    assert "unsafe" not in CSP
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "server" not in headers


def test_refusals_have_them_too(served):
    headers = httpx.get(f"{served.url}/", headers={"Host": "evil.example"}).headers
    assert headers["content-security-policy"] == CSP
    assert headers["connection"] == "close"


def test_what_is_told_of_models_is_not_kept_by_caches(served):
    assert httpx.get(f"{served.url}/api/models").headers["cache-control"] == "no-store"
