"""The server as a process: how it begins, how it ends, and how it begins again."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx
import pytest

from glasshead.text.tinyworld import World

from .conftest import HUNG
from .test_library import new_run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")

PROMPT = World.seed_story().text("zh")[:9]


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Process:
    """`glasshead serve` on a folder; its stderr goes to a file."""

    def __init__(self, root, log, *flags: str) -> None:
        command = [sys.executable, "-m", "glasshead", "serve", str(root), "--no-open", *flags]
        self.log = log
        with open(log, "wb") as file:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=file, text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        assert self.process.stdout
        self.url = self.process.stdout.readline().strip()  # printed once it listens

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(HUNG)

    def lines(self) -> list[dict]:
        """The log; every line of it is JSON."""
        return [json.loads(line) for line in self.log.read_text("utf-8").splitlines()]


@pytest.fixture
def start(world_runs, tmp_path):
    """`start("--port", "0")`; what still runs at the end is killed."""
    made: list[Process] = []

    def begin(*flags: str, root=world_runs) -> Process:
        made.append(Process(root, tmp_path / f"{len(made)}.log", *flags))
        return made[-1]

    yield begin
    for each in made:
        if each.process.poll() is None:
            each.process.kill()
        each.process.wait(HUNG)
        each.process.stdout.close()


@contextmanager
def writing(url: str, tokens: int) -> Iterator[Iterator[str]]:
    """The lines of a text that is being generated."""
    body = {"model": "writer", "prompt": PROMPT, "max_tokens": tokens, "stream": True, "seed": 1}
    with httpx.stream("POST", f"{url}v1/completions", json=body, timeout=HUNG) as reply:
        assert reply.status_code == 200, reply.read()
        yield (line for line in reply.iter_lines() if line)


def until_cut(lines: Iterator[str]) -> list[str]:
    found = []
    with suppress(httpx.HTTPError):
        found.extend(lines)
    return found


@pytest.mark.deep
def test_sigterm_lets_a_request_finish_and_the_log_holds_no_text(start):
    server = start("--port", "0", "--grace", "60")
    with writing(server.url, 600) as lines:
        first = [next(lines) for _ in range(3)]
        server.process.send_signal(signal.SIGTERM)
        rest = list(lines)
    assert rest[-1] == "data: [DONE]"
    assert json.loads(rest[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"
    assert len(first) + len(rest) > 300
    assert server.process.wait(HUNG) == 0
    log = server.lines()
    [request] = [line for line in log if line["event"] == "request"]
    assert (request["route"], request["status"]) == ("/v1/completions", 200)
    assert all({"time", "level", "event"} <= line.keys() for line in log)
    text = server.log.read_text("utf-8")
    assert not set(PROMPT) & set(text)


@pytest.mark.deep
def test_a_request_that_does_not_finish_is_not_waited_for_for_ever(start):
    server = start("--port", "0", "--grace", "1", "--max-tokens", "1000000")
    with writing(server.url, 60_000) as lines:
        next(lines)
        server.process.send_signal(signal.SIGTERM)
        assert "data: [DONE]" not in until_cut(lines)
    assert server.process.wait(HUNG) == 0


def test_killed_while_it_writes_it_serves_at_once_when_started_again(start):
    port = str(free_port())
    first = start("--port", port)
    with writing(first.url, 5000) as lines:
        assert next(lines)
        assert first.end(signal.SIGKILL) == -signal.SIGKILL
        assert "data: [DONE]" not in until_cut(lines)
    again = start("--port", port)
    assert again.url == first.url
    with writing(again.url, 5) as lines:
        assert list(lines)[-1] == "data: [DONE]"
    assert again.end(signal.SIGINT) == 0


# The command line, before anything is served


def test_beyond_this_machine_it_makes_a_key_and_prints_it_in_the_address(start, monkeypatch):
    monkeypatch.delenv("GLASSHEAD_API_KEY", raising=False)
    server = start("--host", "0.0.0.0", "--port", "0")
    port, key = re.fullmatch(r"http://[^/]+:(\d+)/\?key=([\w-]{32})", server.url).groups()
    models = f"http://127.0.0.1:{port}/api/models"
    assert httpx.get(models).status_code == 401
    assert httpx.get(models, headers={"Authorization": f"Bearer {key}"}).status_code == 200
    assert server.end(signal.SIGTERM) == 0
    assert key not in server.log.read_text()


def test_a_port_that_is_taken_is_told(cli, tmp_path):
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = str(sock.getsockname()[1])
        done = cli("serve", tmp_path, "--port", port)
    assert done.code == 2
    assert f"cannot listen on 127.0.0.1:{port}" in done.err


@pytest.mark.parametrize("what", ["nothing", "notes.txt"])
def test_what_cannot_be_served_is_told(cli, tmp_path, what):
    (tmp_path / "notes.txt").write_text("x")
    done = cli("serve", tmp_path / what)
    assert (done.code, done.out) == (2, "")
    assert what in done.err


def test_a_gguf_file_is_led_to_import(cli, tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    done = cli("serve", tmp_path / "model.gguf")
    assert done.code == 2
    assert f"run glasshead import {tmp_path / 'model.gguf'} -o RUN, then serve RUN" in done.err


@pytest.mark.deep
def test_the_key_may_come_from_the_environment(start, tmp_path, monkeypatch):
    monkeypatch.setenv("GLASSHEAD_API_KEY", "sesame")
    run = new_run(tmp_path / "run")
    server = start("--port", "0", root=run)
    assert httpx.get(f"{server.url}api/models").status_code == 401
    found = httpx.get(f"{server.url}api/models", headers={"Authorization": "Bearer sesame"})
    assert [model["id"] for model in found.json()["models"]] == ["run"]
    assert server.end(signal.SIGTERM) == 0
    assert "sesame" not in server.log.read_text()
