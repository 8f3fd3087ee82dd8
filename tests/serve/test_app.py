"""The server as a whole: what is served, what is told when something is wrong, what is counted."""

import json
import logging
import re
import sys
from pathlib import Path

import httpx
import pytest

import glasshead
from glasshead.errors import BusyError, ConfigError, NotFoundError
from glasshead.page.bundle import WEB, page_around_data
from glasshead.serve.logs import LogFormatter

from .conftest import until
from .test_library import new_run

SCRIPT = "<img src=x onerror=alert(1)>"


def test_the_models_of_a_folder_are_listed(served):
    found = httpx.get(f"{served.url}/api/models").json()
    assert [(model["id"], model["kind"]) for model in found["models"]] == [
        ("reader", "reader"),
        ("translator", "translator"),
        ("writer", "gpt"),
    ]
    assert found["models"][2] | {"vocab_size": 0} == {
        "id": "writer",
        "name": "writer",
        "kind": "gpt",
        "reason": "",
        "n_layers": 2,
        "n_heads": 4,
        "max_len": 64,
        "vocab_size": 0,
        "reads": None,
        "can": ["atlas", "look", "steps", "write"],
    }
    assert found["version"] == glasshead.__version__
    assert set(found["limits"]) == {"max_body", "max_text", "max_tokens"}


def test_a_broken_run_is_told_and_the_others_work(server, tmp_path):
    new_run(tmp_path / "good")
    (new_run(tmp_path / "bad") / "config.json").write_text("{")
    live = server(tmp_path)
    bad, good = httpx.get(f"{live.url}/api/models").json()["models"]
    assert (bad["kind"], good["kind"]) == ("broken", "gpt")
    assert "JSON" in bad["reason"]


@pytest.mark.skipif(sys.platform != "linux", reason="other file systems refuse such names")
def test_names_are_data(server, tmp_path):
    new_run(tmp_path / SCRIPT)
    (tmp_path / f"{SCRIPT}.glass").write_text("</script><script>alert(1)</script>")
    reply = httpx.get(f"{server(tmp_path).url}/api/models")
    assert reply.headers["content-type"] == "application/json"
    assert {m["name"] for m in reply.json()["models"]} == {SCRIPT, f"{SCRIPT}.glass"}


# The page


def test_the_page_is_served_from_the_package(served):
    page = httpx.get(served.url)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.content == (WEB / "index.html").read_bytes()
    assert WEB.parent == Path(glasshead.__file__).parent / "page"


def test_every_file_of_the_page_has_its_type_and_nothing_runs_inline(served):
    kinds = {".js": "text/javascript", ".css": "text/css", ".html": "text/html",
             ".svg": "image/svg+xml", ".txt": "text/plain"}  # fmt: skip
    files = [path for path in WEB.rglob("*") if path.is_file()]
    assert len(files) > 5
    client = httpx.Client(base_url=f"{served.url}/web/")
    for path in files:
        reply = client.get(path.relative_to(WEB).as_posix())
        assert reply.status_code == 200
        assert reply.headers["content-type"].split(";")[0] == kinds[path.suffix]
        text = path.read_text(encoding="utf-8")
        assert "innerHTML" not in text
        assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", text)
    client.close()
    page = (WEB / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<script(?![^>]*src=)|\son\w+=|style=", page)


def test_every_module_is_asked_for_at_once():
    """The page names all its modules, so that none waits for the one that imports it."""
    named = {line.split('"')[3] for line in (WEB / "index.html").read_text().splitlines()
             if "modulepreload" in line}  # fmt: skip
    there = [*WEB.glob("*.js"), *WEB.glob("views/*.js"), *WEB.glob("vendor/*.js")]
    assert named == {f"web/{file.relative_to(WEB).as_posix()}" for file in there} - {"web/main.js"}


@pytest.mark.parametrize(
    "path",
    ["/web/../app.py", "/web/..%2fapp.py", "/web/%2e%2e/app.py", "/web//etc/passwd", "/web/",
     "/web/..\\app.py", "/web/%00", "/web/views", "/web/nothing.js", "/web/" + "a" * 5000],
)  # fmt: skip
def test_nothing_but_the_page_is_served(served, path):
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", served.port)
    connection.request("GET", path)  # as it is: other clients tidy it up
    reply = connection.getresponse()
    assert reply.status == 404
    assert b"import" not in reply.read()
    connection.close()


# What is told when something is wrong


def test_what_does_not_exist_is_told_in_the_shape_that_each_client_knows(served):
    ours = httpx.get(f"{served.url}/api/nothing")
    assert (ours.status_code, set(ours.json()["error"])) == (404, {"message", "hint"})
    theirs = httpx.get(f"{served.url}/v1/nothing")
    assert theirs.status_code == 404
    assert set(theirs.json()["error"]) >= {"message", "type", "param", "code"}
    wrong = httpx.delete(f"{served.url}/api/models")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET")


@pytest.fixture
def failing(server, tmp_path):
    """A server whose /api/fail/NUMBER fails in one way or another."""
    live = server(tmp_path)
    errors = [
        ConfigError("n (3) must be even", hint="try 4"),
        NotFoundError("there is no such thing", hint="look elsewhere"),
        BusyError("too many", hint="wait", retry_after=7),
        RuntimeError(SCRIPT),
    ]

    def fail(number: int) -> None:
        raise errors[number]

    live.app.get("/api/fail/{number}")(fail)
    live.app.get("/v1/fail/{number}")(fail)
    return live


@pytest.mark.parametrize(("number", "status"), [(0, 400), (1, 404), (2, 429)])
def test_mistakes_have_a_status_a_message_and_a_hint(failing, number, status):
    ours = httpx.get(f"{failing.url}/api/fail/{number}")
    assert ours.status_code == status
    assert ours.json()["error"]["hint"]
    theirs = httpx.get(f"{failing.url}/v1/fail/{number}")
    assert theirs.status_code == status
    assert theirs.json()["error"]["hint"] in theirs.json()["error"]["message"]
    assert ours.headers.get("retry-after") == ("7" if status == 429 else None)


def test_a_request_of_the_wrong_form_is_told_what_is_wrong(failing):
    ours, theirs = (httpx.get(f"{failing.url}/{at}/fail/x") for at in ("api", "v1"))
    assert (ours.status_code, theirs.status_code) == (422, 400)
    assert "number" in ours.json()["error"]["message"]
    assert theirs.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"null", b"[" * 100_000, b'{"model": NaN}', b"\xff\xfe", b'{"model": "\\ud800"}',
     b'{"model": "x", "text": "\\ud800"}', b'{"\\ud800": 1, "model": 2}', b"1" * 10_000,
     b'{"model": "\\u0000", "text": "\\u0000"}', b'{"model": ' + b'{"a":' * 9_000],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/api/look", "/api/open", "/v1/completions", "/api/write"])
def test_a_body_that_is_no_request_is_told_so(served, path, body):
    reply = httpx.post(
        served.url + path, content=body, headers={"Content-Type": "application/json"}
    )
    assert 400 <= reply.status_code < 500
    assert reply.json()["error"]["message"]


def test_a_failure_of_our_own_is_logged_without_what_users_wrote(failing, server_errors):
    reply = httpx.get(f"{failing.url}/api/fail/3", params={"text": "secret"})
    assert reply.status_code == 500
    assert "x-request-id" in reply.headers
    assert SCRIPT not in reply.text
    until(lambda: server_errors)  # it is logged when all is sent
    [record] = server_errors
    server_errors.clear()
    line = LogFormatter().format(record)
    told = json.loads(line)
    assert (told["error"], told["status"]) == ("RuntimeError", 500)
    assert told["route"] == "/api/fail/{number}"
    assert told["id"] == reply.headers["x-request-id"]
    assert any(" fail" in place for place in told["where"])
    assert "secret" not in line
    assert "onerror" not in line
    assert httpx.get(f"{failing.url}/healthz").status_code == 200


# What is counted


def test_a_line_of_the_log_is_one_object_whatever_is_in_it():
    record = logging.makeLogRecord({"name": "uvicorn", "msg": "a\nb %s", "args": ("小猫\u2028",)})
    assert json.loads(LogFormatter().format(record))["message"] == "a"
    record = logging.makeLogRecord({"name": "uvicorn", "msg": "b %s", "args": ("小猫\u2028",)})
    assert json.loads(LogFormatter().format(record))["message"] == "b 小猫\u2028"
    assert "\n" not in LogFormatter().format(record)


def metrics(live):
    text = httpx.get(f"{live.url}/metrics").text
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_requests_are_counted_by_route_and_status(failing):
    for path in ("/api/fail/0", "/api/fail/1", "/api/fail/1", "/api/nothing", "/healthz"):
        httpx.get(failing.url + path, params={"text": "secret"})
    of = 'glasshead_requests_total{{route="{}",method="GET",status="{}"}}'.format
    until(lambda: of("/healthz", 200) in metrics(failing))  # they count when all is sent
    until(lambda: metrics(failing).get(of("unknown", 404)))
    found = metrics(failing)
    assert found[of("/api/fail/{number}", 400)] == 1
    assert found[of("/api/fail/{number}", 404)] == 2
    assert found[of("unknown", 404)] == 1
    assert found[of("/healthz", 200)] == 1
    buckets = [v for n, v in found.items() if "_bucket" in n and "fail" in n]
    assert buckets == sorted(buckets)
    assert buckets[-1] == found['glasshead_request_seconds_count{route="/api/fail/{number}"}'] == 3
    for name in ("running", "waiting", "seen", "seen_bytes", "models_loaded",
                 "tokens_generated_total"):  # fmt: skip
        assert found[f"glasshead_{name}"] == 0
    assert not any("secret" in name or "nothing" in name for name in found)


def test_no_request_can_make_the_counters_grow_without_end(failing):
    def size():
        return len(httpx.get(f"{failing.url}/metrics").text.splitlines())

    httpx.get(f"{failing.url}/x")
    httpx.request("BREW", f"{failing.url}/x")
    size()
    before = size()
    for n in range(20):
        httpx.get(f"{failing.url}/x{n}")
        httpx.request(f"BREW{n}", f"{failing.url}/x")
        httpx.get(f"{failing.url}/web/x{n}")
    assert size() - before <= 20  # one more route, /web


def test_the_metrics_are_what_prometheus_reads(served):
    reply = httpx.get(f"{served.url}/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    line = re.compile(r'[a-z_]+(\{([a-z]+="([^"\\\n]|\\.)*",?)+\})? [0-9.e+-]+')
    kinds = {}
    for each in reply.text.splitlines():
        if each.startswith("# TYPE "):
            _, _, name, kind = each.split()
            kinds[name] = kind
        elif not each.startswith("# HELP "):
            assert line.fullmatch(each), each
            name = re.sub(r"_(bucket|sum|count)$", "", re.split("[{ ]", each)[0])
            assert name in kinds
    assert kinds["glasshead_request_seconds"] == "histogram"


def test_the_server_gives_the_page_in_two_parts(served):
    told = httpx.get(f"{served.url}/api/page", timeout=30).json()
    assert (told["before"], told["after"]) == page_around_data()
