"""A text and a task small enough to train in a moment."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from glasshead.checkpoint import RunConfig, RunFolder
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.text.batches import Batch, TextBatches
from glasshead.text.tokenizer import CharTokenizer
from glasshead.training.config import TrainConfig
from glasshead.training.loop import Trainer
from glasshead.training.progress import ProgressListener
from glasshead.training.task import Task

TEXT = "".join(f"{n} and {n * n} and {n % 7} are numbers.\n" for n in range(300))
CLOCK = {"seconds", "tokens_per_s"}


class Heard(ProgressListener):
    """Remembers what a run said."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.lines: list[dict[str, Any]] = []

    def say(self, line: str) -> None:
        self.said.append(line)

    def on_log(self, step: int, values: dict[str, Any]) -> None:
        self.lines.append({"step": step, **values})


class StepClock:
    """A clock that stands still, except that each step of a run takes `seconds`.

    trainer(path, spoil=clock.tick, clock=clock)
    """

    def __init__(self, seconds: float) -> None:
        self.now, self.seconds = 1000.0, seconds

    def __call__(self) -> float:
        return self.now

    def tick(self, number: int, loss: Tensor) -> Tensor:
        self.now += self.seconds
        return loss


class Numbers(Task):
    """Predict the characters of TEXT. `spoil` may change the loss of a batch."""

    same_shapes = True

    def __init__(
        self, model: GPT, spoil: Callable[[int, Tensor], Tensor] = lambda n, loss: loss
    ) -> None:
        self.model, self.spoil, self.number = model, spoil, -1
        ids = CharTokenizer.train(TEXT).encode_ids(TEXT)
        self.batches = TextBatches(ids, batch_size=5, block=model.config.max_len, seed=3)
        self.held = self.batches.evenly_spaced(2)

    def batch(self, number: int) -> Batch:
        self.number = number
        return self.batches.at(number)

    def tokens(self, batch: Batch) -> int:
        return batch.ids.numel()

    def share(self, batch: Batch, rank: int, size: int) -> tuple[Batch, float]:
        rows = slice(rank, None, size)
        part = Batch(batch.ids[rows], batch.targets[rows])
        return (part, len(part.ids) / len(batch.ids)) if len(part.ids) else (batch, 0.0)

    def loss(self, batch: Batch) -> Tensor:
        loss = F.cross_entropy(self.model(batch.ids).flatten(0, 1), batch.targets.flatten())
        return self.spoil(self.number, loss) if self.model.training else loss

    def evaluate(self) -> dict[str, float]:
        return {"val_loss": sum(self.loss(batch).item() for batch in self.held) / len(self.held)}

    def sample(self) -> str | None:
        return "a\nsample"

    def watched_ids(self) -> Tensor:
        return self.held[0].ids


def new_model(**changes: Any) -> GPT:
    torch.manual_seed(11)
    size = CharTokenizer.train(TEXT).vocab_size
    settings = {"max_len": 13, "n_layers": 2, "n_heads": 2, "d_model": 14, "dropout": 0.1}
    return GPT(GPTConfig(vocab_size=size, **{**settings, **changes}))


def settings(**changes: Any) -> TrainConfig:
    usual = {"steps": 23, "eval_every": 7, "log_every": 3, "tensorboard": False, "threads": 1}
    return TrainConfig(**{**usual, "device": "cpu", "precision": "float32", **changes})


def new_run(path: Path, model: GPT | None = None, config: TrainConfig | None = None) -> RunFolder:
    model, config = model or new_model(), config or settings()
    about = RunConfig("gpt", asdict(model.config), asdict(config), {})
    return RunFolder.create(path, about, CharTokenizer.train(TEXT), model)


def trainer(
    path: Path,
    listener: ProgressListener | None = None,
    spoil: Any = None,
    clock: Callable[[], float] = time.perf_counter,
    **changes: Any,
) -> Trainer:
    """Of the run in `path`, which is made if it is not there."""
    config = settings(**changes)
    run = RunFolder.open(path) if path.exists() else new_run(path, config=config)
    model = run.config.new_model()
    assert isinstance(model, GPT)
    task = Numbers(model, spoil) if spoil else Numbers(model)
    return Trainer(task, config, run, listener, clock=clock)


def metrics(path: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without what the clock decides."""
    text = (path / "metrics.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    return [{key: value for key, value in line.items() if key not in CLOCK} for line in lines]


def same_ending(one: Path, other: Path) -> None:
    """Both runs came to the same parameters, state, metrics and samples, bit for bit."""
    from glasshead.files.tensors import read_tensors

    assert metrics(one) == metrics(other)
    for name in ("model.safetensors", "samples.txt"):
        assert (one / name).read_bytes() == (other / name).read_bytes()
    last, about = read_tensors(one / "state" / "last.safetensors")
    other_last, other_about = read_tensors(other / "state" / "last.safetensors")
    assert about["step"] == other_about["step"]
    assert last.keys() == other_last.keys()
    for name, tensor in last.items():
        assert torch.equal(tensor, other_last[name]), name
