"""A run is killed with SIGKILL again and again, and ends as if nothing had happened.

GLASSHEAD_KILLS says how often; `make torture` makes it 100.
"""

import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest

from tests.training.cases import metrics, same_ending, trainer

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
KILLS = int(os.environ.get("GLASSHEAD_KILLS", "12"))
STEPS_A_LIFE = 9
SETTINGS = {
    "steps": KILLS * STEPS_A_LIFE + 20,
    "eval_every": 10,
    "save_every": 1,
    "log_every": 1,
    "patience": 0,
}
# Calls to the file system in a step, as Python's audit events name them.
CALLS = {"open", "os.rename", "os.truncate", "os.remove", "os.mkdir"}
CALLS_A_STEP, RENAMES_A_STEP = 7, 2
PRELOADED = ["glasshead.training.start", "glasshead.generation.beam", "torch._dynamo", "sacrebleu"]


def forkserver() -> ForkServerContext:
    """The server has imported torch once; each life is a process of its own all the same."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def die_at_call(folder: Path, number: int, calls: set[str]) -> None:
    """Kill this process right before the `number`-th of such calls on a file in the folder."""
    left = number

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal left
        if event in calls and str(args[0]).startswith(str(folder)):
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def work(path: Path, number: int = 0, calls: set[str] = CALLS) -> None:
    if number:
        die_at_call(path.parent, number, calls)
    trainer(path, **SETTINGS).train()


def written(path: Path) -> int:
    file = path / "metrics.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def saving(path: Path) -> bool:
    return any(path.glob("state/.*.new")) or any(path.glob(".*.new"))


def wait_for(true: Callable[[], bool], process: multiprocessing.Process) -> None:
    """Without a pause: some of what is waited for lasts a millisecond."""
    end = time.monotonic() + 120
    while not true() and process.is_alive():
        assert time.monotonic() < end, "the run hangs"


def test_a_run_killed_many_times_ends_like_one_never_stopped(tmp_path):
    """Some from outside at any moment, some amid a save; at the latest after so many calls."""
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    context, chance, in_a_save = forkserver(), random.Random(7), 0
    for life in range(KILLS):
        steps = chance.uniform(0, STEPS_A_LIFE)
        last = int(CALLS_A_STEP * steps) + 1, CALLS
        if life % 4 == 2:
            last = int(RENAMES_A_STEP * steps) + 1, {"os.rename"}
        process = context.Process(target=work, args=(killed, *last))
        process.start()
        if life % 2:
            goal = written(killed) + chance.randrange(1, STEPS_A_LIFE)
            wait_for(lambda goal=goal: written(killed) >= goal, process)
            if chance.random() < 0.5:
                wait_for(lambda: saving(killed), process)
            process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL, "it ended before it could be killed"
        in_a_save += saving(killed)
    work(killed)
    work(whole)
    same_ending(killed, whole)
    assert metrics(whole)[-1]["step"] == SETTINGS["steps"]
    assert in_a_save > 0
