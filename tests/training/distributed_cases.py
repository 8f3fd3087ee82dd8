"""What two processes do for test_distributed.py.

The little that each `make test` runs is `work_briefly`, in forks of a process that has imported
torch already. The rest is `work`, all of it in one launch, which takes longest:

torchrun --standalone --nproc-per-node 2 -m tests.training.distributed_cases FOLDER
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glasshead.checkpoint import RunFolder
from glasshead.checkpoint.processes import ALONE, Processes, join_processes
from glasshead.model.gpt import GPT
from glasshead.training.loop import MOST_BAD, Trainer
from glasshead.training.presets import find_preset
from glasshead.training.progress import ProgressListener, Status
from glasshead.training.start import Context, find_dataset, join_run, resume_run, start_run
from tests.training.cases import TEXT, Numbers, new_model, new_run, settings
from tests.training.pair_cases import pair_trainer

WAYS = ("ddp", "fsdp")
STEPS = 50
FLAGS: dict[str, Any] = {
    "n_layers": 2,
    "n_heads": 2,
    "d_model": 22,
    "max_len": 13,
    "positions": "learned",
    "feed_forward": "gelu",  # smooth: a kink makes much of the last bit of a sum
    "batch_size": 5,  # which two processes cannot halve
    "accumulate": 2,
    "ema": 0.9,
    "steps": STEPS,
    "eval_every": 17,
    "eval_batches": 3,
    "save_every": 11,
    "log_every": 1,
    "tensorboard": False,
    "threads": 1,
    "device": "cpu",
    "precision": "float32",
}
BRIEF: dict[str, Any] = {**FLAGS, "steps": 7, "eval_every": 4, "save_every": 3}
PAIRS = {"steps": 7, "eval_every": 7, "log_every": 1, "dropout": 0.0, "rdrop": 0.5}
STOPS = 23  # steps after which some runs are interrupted


class Stops(ProgressListener):
    """Asks for an end after `STOPS` steps."""

    def on_step(self, status: Status) -> None:
        if status.step == STOPS:
            os.kill(os.getpid(), signal.SIGTERM)


class Spoilt(Numbers):
    """Some losses are NaN: of a batch by its number, or of `MOST_BAD` calls in a row once."""

    def __init__(self, model: GPT, spoils: bool = True) -> None:
        self.calls, self.spoils = -1, spoils
        super().__init__(model, self._spoilt)

    def _spoilt(self, number: int, loss: Tensor) -> Tensor:
        self.calls += 1
        bad = self.spoils and (number == 4 or 18 <= self.calls < 18 + MOST_BAD)
        return loss * float("nan") if bad else loss


def text_trainer(
    folder: Path,
    name: str,
    processes: Processes = ALONE,
    listener: ProgressListener | None = None,
    **more: Any,
) -> Trainer:
    """Of the run `name`, which is made if it is not there."""
    context = Context(folder / "cache", listener or ProgressListener(), processes=processes)
    if not processes.first:
        return join_run(context)
    file, path = folder / "text.txt", folder / name
    if path.exists():
        return resume_run(path, {}, more, context)
    file.write_text(TEXT, encoding="utf-8")
    preset, flags = find_preset("nano", "text"), {**FLAGS, **more}
    return start_run(find_dataset("text"), {"sources": [file]}, preset, flags, path, context)


def spoilt_trainer(path: Path, processes: Processes = ALONE, **more: Any) -> Trainer:
    config = settings(**more)
    if processes.first:
        new_run(path, new_model(dropout=0.0), config)
    processes.broadcast()
    run = RunFolder.open(path)
    model = run.config.new_model()
    assert isinstance(model, GPT)
    # One process has nothing bad: it must hear of it.
    task = Spoilt(model, spoils=processes.size == 1 or not processes.first)
    return Trainer(task, config, run, None, processes)


def work_briefly(folder: Path, port: int, rank: int) -> None:
    """As one of two processes that find each other by a store at the port."""
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store is not in a process of the two
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    torch.set_num_threads(1)
    with join_processes() as processes:
        for way in WAYS:
            text_trainer(folder, f"brief-{way}", processes, **BRIEF, parallel=way).train()


def work(folder: Path, processes: Processes) -> None:
    found: dict[str, Any] = {}
    for way in WAYS:
        text_trainer(folder, way, processes, parallel=way).train()
        pair_trainer(folder, f"pairs-{way}", processes=processes, parallel=way, **PAIRS).train()
        text_trainer(folder, f"one-{way}", processes, parallel=way).train()  # on with it
        stop = (
            Stops() if processes.first == (way == "ddp") else ProgressListener()
        )  # one of them is enough
        outcome = text_trainer(folder, f"{way}-one", processes, stop, parallel=way).train()
        found[f"{way}-one"] = [outcome.reason, outcome.progress.step]
        spoilt = spoilt_trainer(folder / f"spoilt-{way}", processes, parallel=way)
        outcome = spoilt.train()
        found[f"spoilt-{way}"] = [outcome.progress.skipped, outcome.progress.returns]
    found["seed"] = torch.initial_seed()
    half = text_trainer(folder, "half", processes, parallel="fsdp", precision="bf16", steps=5)
    found["half"] = str(half.strategy.task.model.blocks[0].attention.qkv.weight.dtype)
    half.train()
    (folder / f"found-{processes.rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    with join_processes() as processes:
        work(Path(sys.argv[1]), processes)
