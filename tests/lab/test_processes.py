"""Work for several processes comes out as from one, and none of them is left behind."""

import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from glasshead.lab.processes import WorkerDiedError, map_processes, run_workers

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

PATIENCE = 60  # seconds after which a wait is given up as hung


def test_what_is_spread_comes_back_in_order():
    items = [(2.0, 3.0), (3.0, 2.0), (5.0, 1.0)]
    assert (
        list(map_processes(math.pow, items, 2))
        == list(map_processes(math.pow, items, 1))
        == [8, 9, 5]
    )


def stay(path):
    """Hold a lock as long as this process lives."""
    with Path(path).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("held")
        file.flush()
        time.sleep(10 * PATIENCE)  # it is killed long before


def is_free(path):
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def wait_until(done):
    hung = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < hung, "hung"
        time.sleep(0.02)


@pytest.mark.deep
@pytest.mark.skipif(fcntl is None, reason="needs fcntl")
def test_no_process_outlives_the_one_that_started_it(tmp_path):
    paths = [tmp_path / "one", tmp_path / "two"]
    for path in paths:
        path.touch()
    code = f"""
from glasshead.lab.processes import WorkerDiedError, map_processes, run_workers
from tests.lab.test_processes import stay
if __name__ == "__main__":
    list(map_processes(stay, {[(str(path),) for path in paths]}, 2))
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: all(path.read_text() for path in paths))
        assert not any(map(is_free, paths))
    finally:
        parent.kill()
        parent.wait()
    wait_until(lambda: all(map(is_free, paths)))


def count_down(send, name, n):
    for left in reversed(range(n)):
        send((name, left))


def end_at_once(send, name):
    send(name)
    time.sleep(0.2)  # so that it is sent
    os._exit(7)


def test_what_workers_send_comes_in_the_order_of_each():
    items = [("a", 3), ("b", 2), ("c", 1)]
    found = list(run_workers(count_down, items, 2))
    for name, n in items:
        assert [left for one, left in found if one == name] == list(reversed(range(n)))


def test_a_worker_that_dies_is_named_by_what_it_worked_on():
    with pytest.raises(WorkerDiedError, match="exit code 7") as error:
        list(run_workers(end_at_once, [("reader",)], 1))
    assert error.value.item == ("reader",)
