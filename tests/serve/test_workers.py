"""Computing away from the event loop: so many at once, so many waiting, and none for nobody."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import torch
from fastapi import Request

from glasshead.errors import InputError
from glasshead.observe.inspectable import RecordConfig
from glasshead.serve.library import Library
from glasshead.serve.workers import CancelToken, ClientGone, in_worker
from glasshead.text.tinyworld import World

from .conftest import HUNG, until

STORY = World.seed_story().text("zh")


class Slow:
    """A route whose computations last until they are let go, and tell what becomes of them."""

    def __init__(self, app) -> None:
        self.go = threading.Event()
        self.began: list[int] = []
        self.ended: list[int] = []
        self.stopped: list[int] = []

        app.get("/api/slow")(in_worker(self.compute))

    def compute(self, request: Request, n: int, cancel: CancelToken) -> int:
        self.began.append(n)
        while not self.go.wait(0.005):
            if cancel.cancelled:
                self.stopped.append(n)
            cancel.check()
        self.ended.append(n)
        return n


@pytest.fixture
def start(server, tmp_path):
    """`start(running=1)`: a server with the slow route; what still runs at the end is let go."""
    made = []

    def begin(**settings):
        live = server(tmp_path, **settings)
        made.append(Slow(live.app))
        return live, made[-1]

    yield begin
    for slow in made:
        slow.go.set()


def ask(live, n):
    return httpx.get(f"{live.url}/api/slow", params={"n": n}, timeout=HUNG)


def leave(live, n):
    """Ask, and hang up when told to."""
    sock = socket.create_connection(("127.0.0.1", live.port))
    sock.sendall(f"GET /api/slow?n={n} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    return sock


def counts(live):
    return live.app.state.workers.n_running, live.app.state.workers.n_waiting


def test_the_server_answers_others_while_it_computes(start):
    live, slow = start(running=1)
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(ask, live, 3)
        until(lambda: slow.began)
        assert httpx.get(f"{live.url}/healthz").json()["status"] == "ok"
        slow.go.set()
        assert asked.result().json() == 3


def test_more_than_run_and_wait_are_sent_away_and_told_when_to_come_back(start):
    live, slow = start(running=2, waiting=3)
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, live, n) for n in range(5)]
        until(lambda: counts(live) == (2, 3))
        assert len(slow.began) == 2
        refused = ask(live, 99)
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert refused.json()["error"]["hint"]
        slow.go.set()
        assert sorted(each.result().json() for each in asked) == [0, 1, 2, 3, 4]
    until(lambda: counts(live) == (0, 0))
    assert ask(live, 7).json() == 7


def test_who_came_first_is_served_first(start):
    live, slow = start(running=1, waiting=20)
    with ThreadPoolExecutor(8) as pool:
        asked = []
        for n in range(6):
            asked.append(pool.submit(ask, live, n))
            until(lambda n=n: sum(counts(live)) == n + 1)
        slow.go.set()
        for each in asked:
            assert each.result().status_code == 200
    assert slow.began == [0, 1, 2, 3, 4, 5]


def test_a_computation_whose_client_has_gone_stops(start):
    live, slow = start(running=1)
    sock = leave(live, 3)
    until(lambda: slow.began)
    sock.close()
    until(lambda: slow.stopped)
    until(lambda: counts(live) == (0, 0))
    assert slow.ended == []


def test_who_leaves_the_line_is_never_computed_for(start):
    live, slow = start(running=1, waiting=1)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(ask, live, 1)
        until(lambda: slow.began)
        sock = leave(live, 2)
        until(lambda: counts(live) == (1, 1))
        sock.close()
        until(lambda: counts(live) == (1, 0))
        third = pool.submit(ask, live, 3)  # there is room in the line again
        until(lambda: counts(live) == (1, 1))
        slow.go.set()
        assert (first.result().json(), third.result().json()) == (1, 3)
    assert slow.began == [1, 3]


def test_many_who_leave_at_any_time_leave_nothing_behind(start):
    live, slow = start(running=2, waiting=50)
    socks = [leave(live, n) for n in range(20)]
    until(lambda: counts(live) == (2, 18))
    for sock in socks[::2]:
        sock.close()
    slow.go.set()
    for sock in socks[1::2]:
        sock.close()
    until(lambda: counts(live) == (0, 0))
    assert ask(live, 5).json() == 5


def test_a_computation_that_cannot_be_stopped_keeps_its_place_until_it_ends(start):
    live, _ = start(running=1, waiting=0)
    go, began = threading.Event(), threading.Event()

    @live.app.get("/api/deaf")
    @in_worker
    def deaf(request: Request) -> int:
        began.set()
        go.wait(HUNG)
        return 1

    sock = socket.create_connection(("127.0.0.1", live.port))
    sock.sendall(b"GET /api/deaf HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert began.wait(HUNG)
    sock.close()
    left = 'route="/api/deaf",method="GET",status="499"} 1'
    until(lambda: left in live.app.state.metrics.text())
    assert httpx.get(f"{live.url}/api/deaf").status_code == 429
    go.set()
    until(lambda: counts(live) == (0, 0))
    assert httpx.get(f"{live.url}/api/deaf").json() == 1


def test_a_computation_that_the_end_of_the_server_cuts_off_is_told(start):
    live, slow = start(running=1, waiting=1)
    live.server.config.timeout_graceful_shutdown = 0.01  # seconds; by command line at least one
    with ThreadPoolExecutor() as pool:
        asked = [pool.submit(ask, live, 1)]
        until(lambda: slow.began)
        asked.append(pool.submit(ask, live, 2))  # waits for its turn
        until(lambda: counts(live) == (1, 1))
        live.server.should_exit = True
        for each in asked:
            reply = each.result()
            assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
            assert reply.json() == {
                "error": {"message": "the server is shutting down", "hint": "try again in a moment"}
            }
    until(lambda: slow.stopped)
    assert slow.began == [1]
    counted = 'route="/api/slow",method="GET",status="503"} 2'
    until(lambda: counted in live.app.state.metrics.text())  # after the answer is out


def test_a_mistake_found_while_computing_is_told(start):
    live, _ = start(running=1)

    @live.app.get("/api/wrong")
    @in_worker
    def wrong(request: Request) -> None:
        raise InputError("the text is empty", hint="write something")

    for _ in range(3):
        reply = httpx.get(f"{live.url}/api/wrong")
        assert reply.status_code == 400
        assert reply.json() == {
            "error": {"message": "the text is empty", "hint": "write something"}
        }


def test_a_recording_stops_after_a_layer_and_the_model_is_as_before(world_runs):
    served = Library(world_runs).open("reader")
    before = served.inspectable.record(STORY)
    cancel, layers = CancelToken(), []

    def progress(done: int, total: int) -> None:
        layers.append(done)
        if done == 1:
            cancel.cancel()
        cancel(done, total)

    with pytest.raises(ClientGone):
        served.inspectable.record(STORY, RecordConfig(progress=progress))
    assert layers == [0, 1]
    after = served.inspectable.record(STORY)
    for layer in before.layers:
        assert torch.equal(before.weights(layer.index), after.weights(layer.index))
