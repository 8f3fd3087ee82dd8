"""The API key: who has it, who guesses it, where it comes from."""

import httpx
import pytest

from glasshead.errors import ConfigError, InputError
from glasshead.serve import keys

from .conftest import live
from .test_security import KEY, raw, status


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    with live(tmp_path_factory.mktemp("locked"), api_key=KEY) as found:
        yield found


@pytest.mark.parametrize("path", ["/api/models", "/metrics", "/openapi.json", "/v1/models", "/no"])
def test_without_the_key_nothing_is_told(server, tmp_path, path):
    locked = server(tmp_path, api_key=KEY)
    wrong = [f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", KEY, f"Basic {KEY}", "Bearer", "Bearer ;"]
    stolen = [f"glasshead-{locked.port}={each}" for each in (KEY, f".{KEY}", f"ab.{KEY}", ".")]
    tried = [{"Authorization": each} for each in wrong] + [{"Cookie": each} for each in stolen]
    for headers in [{}, *tried]:
        reply = httpx.get(f"{locked.url}{path}", headers=headers)
        assert reply.status_code == 401
        assert reply.headers["www-authenticate"] == "Bearer"
        assert set(reply.json()) == {"error"}


def test_with_the_key_it_is(locked):
    for scheme in ("Bearer", "bearer"):
        reply = httpx.get(f"{locked.url}/api/models", headers={"Authorization": f"{scheme} {KEY}"})
        assert reply.json()["models"] == []


def test_health_and_the_page_itself_need_no_key(locked):
    for path in ("/health", "/healthz", "/", "/web/main.js"):
        assert httpx.get(f"{locked.url}{path}").status_code == 200
    for path in ("/web/../api/models", "/web/%2e%2e/api/models", "//api/models"):
        assert status(raw(locked.port, f"GET {path} HTTP/1.1\nHost: 127.0.0.1\n\n")) in (401, 404)


def test_a_browser_brings_the_key_once(locked):
    with httpx.Client(base_url=locked.url) as browser:
        assert browser.get("/", params={"key": "wrong"}).status_code == 401
        assert browser.get("/api/models").status_code == 401
        reply = browser.get("/", params={"key": KEY})
        assert (reply.status_code, reply.headers["location"]) == (303, "/")
        cookie = reply.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert KEY not in cookie
        assert browser.get("/api/models").status_code == 200


def cookie_of(mine):
    reply = httpx.get(f"{mine.url}/", params={"key": KEY})
    return reply.headers["set-cookie"].partition(";")[0].partition("=")


def test_a_cookie_is_salted_and_fits_one_port(locked, server, tmp_path):
    other = server(tmp_path, api_key=KEY)
    (name, _, first), (_, _, second) = cookie_of(locked), cookie_of(locked)
    assert name == f"glasshead-{locked.port}"
    assert first != second
    for value in (first, second):
        for mine, expected in ((locked, 200), (other, 401)):
            headers = {"Cookie": f"glasshead-{mine.port}={value}"}
            reply = httpx.get(f"{mine.url}/api/models", headers=headers)
            assert reply.status_code == expected


def test_a_cookie_outlives_the_server_but_not_its_key():
    first, again, changed = (keys.KeyCheck(key, 8011) for key in (KEY, KEY, f"{KEY}2"))
    cookie = first.new_cookie()
    assert first.is_cookie(cookie)
    assert again.is_cookie(cookie)
    assert not changed.is_cookie(cookie)


def test_keys_are_compared_in_constant_time(locked, monkeypatch):
    compared = []

    def compare(a, b):
        compared.append((a, b))
        return compare.real(a, b)

    compare.real = keys.hmac.compare_digest
    monkeypatch.setattr(keys.hmac, "compare_digest", compare)
    for key in ("x", KEY):
        httpx.get(f"{locked.url}/api/models", headers={"Authorization": f"Bearer {key}"})
    assert compared == [(b"x", KEY.encode()), (KEY.encode(), KEY.encode())]


# Wrong keys


def test_after_some_wrong_keys_a_client_has_to_wait(server, tmp_path):
    mine = server(tmp_path, api_key=KEY)
    cookie = "=".join(cookie_of(mine)[::2])

    def ask(key):
        return httpx.get(f"{mine.url}/api/models", headers={"Authorization": f"Bearer {key}"})

    replies = [ask(f"guess{n}") for n in range(keys.GUESSES + 3)]
    assert [reply.status_code for reply in replies[: keys.GUESSES]] == [401] * keys.GUESSES
    assert {reply.status_code for reply in replies[-2:]} == {429}
    assert int(replies[-1].headers["retry-after"]) >= 1
    assert ask(KEY).status_code == 429  # else a fast answer would tell the right key
    assert httpx.get(f"{mine.url}/", params={"key": KEY}).status_code == 429
    assert httpx.get(f"{mine.url}/api/models", headers={"Cookie": cookie}).status_code == 200
    assert httpx.get(f"{mine.url}/api/models").status_code == 401
    assert mine.app.state.workers.inside == 0


def test_guesses_are_refilled_one_by_one_and_for_each_network():
    now = 100.0
    limit = keys.GuessLimit(lambda: now)
    for _ in range(keys.GUESSES):
        assert limit.wait("10.0.0.7") == 0
        limit.add_wrong("10.0.0.7")
    assert limit.wait("10.0.0.7") == keys.REFILL
    assert limit.wait("10.0.0.8") == 0
    now += keys.REFILL
    assert limit.wait("10.0.0.7") == 0
    limit.add_wrong("10.0.0.7")
    assert limit.wait("10.0.0.7") == keys.REFILL
    for n in range(keys.GUESSES):  # one host has all addresses of its /64
        limit.add_wrong(f"2001:db8::{n:x}")
    assert limit.wait("2001:db8::ffff") > 0
    assert limit.wait("2001:db8:0:1::1") == 0
    for n in range(2 * keys.ADDRESSES):
        limit.add_wrong(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}")
    assert len(limit._paid) == keys.ADDRESSES


def test_of_too_many_addresses_the_one_that_guessed_longest_ago_is_forgotten(monkeypatch):
    monkeypatch.setattr(keys, "ADDRESSES", 5)
    limit = keys.GuessLimit(lambda: 100.0)

    def guess(address):
        for _ in range(keys.GUESSES):
            limit.add_wrong(address)

    for n in range(5):
        guess(f"10.0.0.{n}")
    guess("10.0.0.0")  # the first goes on
    guess("10.0.0.5")
    assert [n for n in range(6) if limit.wait(f"10.0.0.{n}")] == [0, 2, 3, 4, 5]


# Where the key comes from


def test_a_key_comes_from_the_option_a_file_or_the_environment(tmp_path):
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    environment = {"GLASSHEAD_API_KEY": "from-outside"}
    assert keys.read_key(None, None, {}) is None
    assert keys.read_key(None, None, {"GLASSHEAD_API_KEY": ""}) is None
    assert keys.read_key(None, None, environment) == "from-outside"
    assert keys.read_key("given", None, environment) == "given"
    assert keys.read_key(None, str(file), environment) == KEY
    with pytest.raises(ConfigError, match="both"):
        keys.read_key("given", str(file), {})


@pytest.mark.parametrize(
    ("content", "message"), [(None, "No such file"), (b"\xff", "not text"), (b"k" * 5000, "4,096")]
)
def test_a_key_file_that_holds_no_key_is_told_in_a_line(tmp_path, content, message):
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        keys.read_key(None, str(file), {})
    assert caught.value.hint
