"""A run is killed with SIGKILL again and again, and ends as if nothing had happened.

GLASSHEAD_KILLS says how often; `make torture` makes it 100.
"""

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path

from tests.train.cases import metrics, same_ending, trainer

KILLS = int(os.environ.get("GLASSHEAD_KILLS", "12"))
STEPS_A_LIFE = 9
SETTINGS = {
    "steps": KILLS * STEPS_A_LIFE + 20,
    "eval_every": 10,
    "save_every": 1,
    "log_every": 1,
    "patience": 0,
}


PRELOADED = ["glasshead.train.runs", "glasshead.generate.beam", "torch._dynamo", "sacrebleu"]


def forkserver() -> ForkServerContext:
    """The server has imported torch once; each life is a process of its own all the same."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def work(path: Path) -> None:
    trainer(path, **SETTINGS).train()


def written(path: Path) -> int:
    file = path / "metrics.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def saving(path: Path) -> bool:
    return any(path.glob("state/.*.new")) or any(path.glob(".*.new"))


def live(path: Path, process: multiprocessing.Process, chance: random.Random) -> None:
    """Let the run get on for a while: a moment, some steps, or some steps and half a save."""
    if chance.random() < 0.1:
        time.sleep(chance.uniform(0, 0.2))
        return
    goal = written(path) + chance.randrange(1, STEPS_A_LIFE)
    wait_for(lambda: written(path) >= goal, process)
    if chance.random() < 0.5:
        wait_for(lambda: saving(path), process)
        time.sleep(chance.uniform(0, 0.002))
    else:
        time.sleep(chance.uniform(0, 0.02))


def wait_for(true: Callable[[], bool], process: multiprocessing.Process) -> None:
    """Without a pause: some of what is waited for lasts a millisecond."""
    end = time.monotonic() + 60
    while not true() and process.is_alive():
        assert time.monotonic() < end, "the run does not get on"


def test_a_run_killed_many_times_ends_like_one_never_stopped(tmp_path):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    context, chance, in_a_save = forkserver(), random.Random(7), 0
    for _ in range(KILLS):
        process = context.Process(target=work, args=(killed,))
        process.start()
        live(killed, process, chance)
        in_a_save += saving(killed)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL, "it ended before it could be killed"
    work(killed)
    work(whole)
    same_ending(killed, whole)
    assert metrics(whole)[-1]["step"] == SETTINGS["steps"]
    assert in_a_save > 0
