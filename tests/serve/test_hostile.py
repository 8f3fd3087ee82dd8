"""What hostile clients send, and what hostile files hold: refused, with the others served."""

import asyncio
import json
import os
import shutil
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import httpx
import pytest

from glasshead.errors import GlassheadError, InputError
from glasshead.serve import server as server_module
from glasshead.serve import writer
from glasshead.serve.config import ServeConfig
from glasshead.serve.engine import Ask, Engine
from glasshead.serve.library import Library
from glasshead.text.tinyworld import World

from .byte_gpt import byte_gpt
from .conftest import HUNG, awaited, live, until

KEY = "correct-horse:battery/staple"
PROMPT = World.seed_story().text("zh")[:9]
HALF = "\ud800"  # of a character: JSON can escape it, UTF-8 cannot hold it


def rewritten(file, change):
    (file.parent / "checksums.json").unlink(missing_ok=True)
    found = json.loads(file.read_text("utf-8"))
    change(found)
    file.write_text(json.dumps(found), "utf-8")


def post(mine, path, **ask):
    return httpx.post(f"{mine.url}{path}", json=ask, timeout=HUNG)


# Clients


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    with live(tmp_path_factory.mktemp("locked"), api_key=KEY) as found:
        yield found


def test_any_number_of_fields_is_read_in_search_of_the_key(locked):
    fields = "&".join(f"a{n}=1" for n in range(1000))
    assert httpx.get(f"{locked.url}/?key=no&{fields}").status_code == 401
    assert httpx.get(f"{locked.url}/?{fields}&key={KEY}").status_code == 303


@pytest.mark.parametrize("other", ['theme={"dark": 1}', "{}", "a b=1", "=", "x=\u00ff", ";;"])
def test_cookies_of_other_servers_do_not_hide_ours(locked, other):
    own = httpx.get(f"{locked.url}/", params={"key": KEY}).headers["set-cookie"].partition(";")[0]
    for cookie in (f"{other}; {own}", f"{own}; {other}"):
        headers = {"cookie": cookie.encode("latin-1")}
        assert httpx.get(f"{locked.url}/api/models", headers=headers).status_code == 200
    assert httpx.get(f"{locked.url}/api/models", headers={"cookie": own[:-1]}).status_code == 401


def connect(mine):
    return socket.create_connection(("127.0.0.1", mine.port), timeout=HUNG)


def test_answers_are_sent_without_waiting_for_an_acknowledgement(served):
    with connect(served):
        until(lambda: served.server.server_state.connections)
        for each in list(served.server.server_state.connections):
            sock = each.transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_silent_connection_is_closed_after_a_while(server, tmp_path, monkeypatch):
    monkeypatch.setattr(server_module, "IDLE_SECONDS", 0.01)
    with connect(server(tmp_path)) as silent:
        assert silent.recv(100) == b""


def test_silent_connections_do_not_keep_others_out(server, tmp_path):
    """Silent, with half a header, with half a body: none of them keeps its place."""
    n, half_body = 11, "POST /api/look HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"
    begins = [b"", b"GET /healthz HTTP/1.1\r\nHost: local", half_body.encode()]
    mine = server(tmp_path, connections=n)
    connections = mine.server.server_state.connections
    with ExitStack() as stack:
        for begin in begins:
            for _ in range(n + 5):
                stack.enter_context(connect(mine)).sendall(begin)
            for _ in range(3):
                assert httpx.get(f"{mine.url}/healthz", timeout=HUNG).status_code == 200
            assert len(connections) <= n


def test_the_oldest_silent_connection_makes_room(server, tmp_path):
    mine = server(tmp_path, connections=5)
    connections = mine.server.server_state.connections
    with ExitStack() as stack:
        silent = []
        for n in range(1, 5):
            silent.append(stack.enter_context(connect(mine)))
            until(lambda n=n: len(connections) == n)
        stack.enter_context(connect(mine))
        with suppress(ConnectionResetError):
            assert silent[0].recv(1) == b""
        silent[1].setblocking(False)
        with pytest.raises(BlockingIOError):
            silent[1].recv(1)


def test_a_connection_with_an_answer_under_way_keeps_its_place(server, tmp_path):
    byte_gpt(tmp_path / "gpt", max_len=64)
    mine = server(tmp_path, connections=5)
    ask = {"model": "gpt", "prompt": "a", "max_tokens": 500, "stream": True, "temperature": 0}
    with (
        ExitStack() as stack,
        httpx.stream("POST", f"{mine.url}/v1/completions", json=ask, timeout=HUNG) as reply,
    ):
        lines = reply.iter_lines()
        first = next(lines)
        for _ in range(13):
            stack.enter_context(connect(mine))
        assert httpx.get(f"{mine.url}/healthz", timeout=HUNG).status_code == 200
        assert [first, *lines][-2:] == ["data: [DONE]", ""]


@pytest.mark.deep
def test_520_silent_connections_do_not_keep_others_out(server, tmp_path):
    mine = server(tmp_path)
    with ExitStack() as stack:
        for _ in range(520):
            stack.enter_context(connect(mine))
        for _ in range(20):
            assert httpx.get(f"{mine.url}/healthz", timeout=HUNG).status_code == 200


def test_when_patience_ends_unfinished_requests_are_closed_and_answers_are_not(server, tmp_path):
    """The test ends the patience itself, by calling what the timer would call."""
    byte_gpt(tmp_path / "gpt", max_len=64)
    mine = server(tmp_path)
    ask = {"model": "gpt", "prompt": "a", "max_tokens": 500, "stream": True, "temperature": 0}
    connections = mine.server.server_state.connections

    def end_patience():
        for connection in list(connections):
            connection.loop.call_soon_threadsafe(connection._close_if_idle)

    url = f"{mine.url}/v1/completions"
    with connect(mine) as slow, httpx.stream("POST", url, json=ask, timeout=HUNG) as reply:
        lines = reply.iter_lines()
        first = next(lines)
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: local")
        until(lambda: any(b"local" in each.conn.trailing_data[0] for each in connections))
        end_patience()
        assert slow.recv(100) == b""
        end_patience()  # once more, for the one that is left
        assert [first, *lines][-2:] == ["data: [DONE]", ""]


def test_who_does_not_read_is_not_written_for(server, tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "UNREAD", 50)
    byte_gpt(tmp_path / "gpt", max_len=64)
    mine = server(tmp_path)
    for sock in mine.server.servers[0].sockets:  # its connections have as little room
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    ask = {"model": "gpt", "prompt": "a", "max_tokens": 8000, "logprobs": 20, "stream": True}
    body = json.dumps(ask).encode()
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", mine.port))
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
        sock.sendall(f"{head}\r\nContent-Type: application/json\r\n\r\n".encode() + body)
        until(lambda: mine.app.state.engine.n_running)
        until(lambda: not mine.app.state.engine.n_running)
        assert mine.app.state.engine.tokens < 8000


def test_who_reads_too_late_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "UNREAD", 50)
    byte_gpt(tmp_path / "gpt", max_len=64)
    model, engine = Library(tmp_path).open("gpt"), Engine()

    async def late():
        stream = engine.stream(model, Ask([1], max_tokens=8000))
        await anext(stream)
        while engine.n_running:
            await asyncio.sleep(0.01)
        with pytest.raises(GlassheadError, match="were not read"):
            await anext(stream)
        assert [token async for token in stream] == []

    awaited(late())
    engine.close()
    assert engine.tokens < 8000


def test_more_answers_than_ever_have_room_are_refused_for_good(server, tmp_path):
    byte_gpt(tmp_path / "gpt", max_len=64)
    mine = server(tmp_path, batch=3, waiting=2)
    assert post(mine, "/v1/completions", model="gpt", n=5).status_code == 200
    reply = post(mine, "/v1/completions", model="gpt", n=6)
    assert (reply.status_code, "5 answers" in reply.text) == (400, True)


def test_all_answers_to_a_request_share_its_tokens(server, tmp_path):
    byte_gpt(tmp_path / "gpt", max_len=64)
    mine = server(tmp_path, max_tokens=30)
    ask = {"model": "gpt", "prompt": ["a", "b"], "n": 3}
    assert post(mine, "/v1/completions", **ask, max_tokens=5).status_code == 200
    reply = post(mine, "/v1/completions", **ask, max_tokens=6)
    assert (reply.status_code, "6 answers of 6 tokens" in reply.text) == (400, True)


def test_a_model_that_loads_is_work_that_the_end_does_not_wait_for(server, tmp_path, monkeypatch):
    byte_gpt(tmp_path / "gpt", max_len=64)
    mine = server(tmp_path, running=1, waiting=0)
    loads, may = threading.Event(), threading.Event()
    load = mine.app.state.library.open

    def slowly(name):
        loads.set()
        assert may.wait(HUNG)
        return load(name)

    monkeypatch.setattr(mine.app.state.library, "open", slowly)
    with ThreadPoolExecutor() as pool:
        reply = pool.submit(post, mine, "/v1/completions", model="gpt")
        assert loads.wait(HUNG)
        try:  # the thread may be quicker than the loop that counts it
            until(lambda: mine.app.state.workers.n_running == 1)
        finally:
            may.set()
        assert reply.result().status_code == 200


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-45, 1e-38])
def test_a_tiny_temperature_is_that_of_the_most_probable(served, temperature):
    def said(**ask):
        return post(served, "/v1/completions", model="writer", prompt=PROMPT, **ask).json()

    assert said(temperature=temperature)["choices"] == said(temperature=0)["choices"]


@pytest.mark.parametrize("host", ["a\udcff", "a" * 300, "é" * 80, "a\0b"])
def test_a_host_that_is_no_name_is_told_in_a_line(host):
    config = ServeConfig(host=host, api_key="k", port=0)
    with pytest.raises(InputError, match="cannot listen"), server_module.listen(config):
        pass


# Files


def test_half_characters_in_a_config_are_shown_as_a_question(server, world_runs, tmp_path):
    for name in ("kind", "model", "train"):
        shutil.copytree(world_runs / "reader", tmp_path / name)
    rewritten(tmp_path / "kind/config.json", lambda found: found.update(kind=HALF))
    rewritten(tmp_path / "model/config.json", lambda found: found["model"].update({HALF: 1}))
    rewritten(tmp_path / "train/config.json", lambda found: found["train"].update({HALF: HALF}))
    with open(tmp_path / "train/metrics.jsonl", "a") as file:
        file.write(json.dumps({"step": 901, HALF: 3}) + "\n")
    mine = server(tmp_path)
    entries = httpx.get(f"{mine.url}/api/models").json()["models"]
    assert {entry["id"]: entry["kind"] for entry in entries} == {
        "kind": "broken", "model": "broken", "train": "reader",
    }  # fmt: skip
    assert httpx.get(f"{mine.url}/api/runs/train/config").json()["train"]["?"] == "?"
    assert httpx.get(f"{mine.url}/api/runs/train/metrics").json()["lines"][-1]["?"] == 3


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_no_pipe_is_waited_for(server, world_runs, tmp_path):
    os.mkfifo(tmp_path / "pipe.glass")
    for name in ("config.json", "metrics.jsonl", "samples.txt"):
        run = shutil.copytree(world_runs / "reader", tmp_path / name.partition(".")[0])
        (run / name).unlink()
        os.mkfifo(run / name)
    mine = server(tmp_path)
    with httpx.Client(base_url=mine.url, timeout=HUNG) as client:
        entries = client.get("/api/models").json()["models"]
        kinds = {entry["id"]: entry["kind"] for entry in entries}
        assert kinds["pipe.glass"] == kinds["config"] == "broken"
        assert client.get("/api/runs").status_code == 200
        for name in ("config", "metrics", "samples"):
            assert client.get(f"/api/runs/{name}/{name}").status_code == 404


@pytest.mark.parametrize("setting", ["n_layers", "d_model", "vocab_size"])
def test_a_model_that_is_larger_than_its_file_is_not_built(world_runs, tmp_path, setting):
    run = shutil.copytree(world_runs / "writer", tmp_path / "writer")
    rewritten(run / "config.json", lambda found: found["model"].update({setting: 10**6}))
    [entry] = Library(tmp_path).list()
    assert (entry.kind, "larger model than" in entry.reason) == ("broken", True)


def test_a_strange_world_has_no_examples(server, world_runs, tmp_path):
    worlds = [{"langs": "zh"}, {"langs": "xx,yy"}, {"langs": 7}, {}, "zh", None]
    for number, world in enumerate(worlds):
        run = shutil.copytree(world_runs / "translator", tmp_path / f"translator-{number}")
        rewritten(run / "config.json", lambda found, world=world: found["data"].update(world=world))
    mine = server(tmp_path)
    for number, world in enumerate(worlds):
        for part in ("translate", "look"):
            params = {"model": f"translator-{number}"}
            reply = httpx.get(f"{mine.url}/api/{part}/examples", params=params)
            assert reply.status_code == 200, world
            assert not reply.json().get("pairs"), world
