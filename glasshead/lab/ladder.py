"""The ladder: from a bigram table to a GPT, one part at a time, all rungs on the same batches.

Each rung is a config of the one GPT and differs from the rung below by what `adds` says. Rungs 1
to 10 train in seconds on one core; 11 is the same model at a size that needs a GPU, and 12 that
model again in the real training loop, with its metrics and checkpoints.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from glasshead.checkpoint import RunConfig, RunFolder
from glasshead.errors import ConfigError, InputError
from glasshead.lab.ladder_samples import write_samples
from glasshead.lab.rungs import RUNGS, Rung
from glasshead.machine import pick_device
from glasshead.model.gpt import GPT
from glasshead.model.loss import next_token_loss
from glasshead.text.batches import Batch, TextBatches
from glasshead.text.corpus import Report, read_documents, split_by_position
from glasshead.text.tinyworld import corpus
from glasshead.text.tokenizer import CharTokenizer
from glasshead.training.auto_settings import pick_precision
from glasshead.training.config import TrainConfig
from glasshead.training.language import Corpus, LanguageTask, TextConfig
from glasshead.training.loop import Trainer
from glasshead.training.progress import ProgressListener, Status
from glasshead.training.start import unused_path

__all__ = ["Climb", "LadderText", "Point", "Summary", "climb", "read_text", "summaries"]

CI = Path(__file__).parents[1] / "text" / "ci.txt"  # where it is from: ci_notice.txt
STORIES = 10_000  # of the generated text: some 320,000 characters
POINTS = 20  # on a curve
CURVE_BATCHES = 20  # to a point of it, or fewer if they cover the text
FINAL_BATCHES = 200  # of each part of the text, for the table; or fewer likewise


@dataclass(frozen=True, eq=False)
class LadderText:
    """A text as characters: nine tenths for training, the last tenth for validation."""

    name: str
    tokenizer: CharTokenizer
    corpus: Corpus
    is_file: bool = True

    @property
    def about(self) -> dict[str, Any]:
        n = len(self.corpus.training) + len(self.corpus.validation)
        return {"name": self.name, "characters": n, "vocabulary": self.tokenizer.vocab_size}

    @property
    def start(self) -> str:
        """Return the first two characters of the part for validation."""
        return self.tokenizer.decode([int(i) for i in self.corpus.validation[:2]])

    def check(self, rung: Rung) -> None:
        n, block = len(self.corpus.validation), rung.model["max_len"]
        if n <= block:
            raise InputError(
                f"the last tenth of the text has {n} characters, but rung {rung.number} "
                f"validates on blocks of {block} and the character after",
                hint=f"give a text of {10 * block + 10} characters or more",
            )


def read_text(source: str | None, report: Report | None = None) -> LadderText:
    """Read a file, or whatever `glasshead train` reads; generate stories when None.

    "ci" is a selection of ci that is part of the package, unless there is a file of that name.
    """
    if source == "ci" and not Path(source).exists():
        source = str(CI)
    if source is None:
        name, text = "tinyworld", "\n".join(corpus(STORIES, "zh"))
    else:
        documents = read_documents([source], report=report)
        name, text = source, "\n".join(document.text for document in documents)
    tokenizer = CharTokenizer.train(text)
    parts = Corpus(*split_by_position(tokenizer.encode_ids(text)))
    return LadderText(name, tokenizer, parts, is_file=source is not None)


@dataclass(frozen=True)
class Point:
    """A point on a curve: losses in nats a token."""

    step: int
    train: float  # mean over the steps since the last point, as the model was then
    val: float


@dataclass(frozen=True)
class Climb:
    """One rung, trained with one seed."""

    rung: int
    seed: int
    steps: int
    parameters: int
    train: float
    val: float
    tokens_per_s: float  # evaluations left out
    curve: tuple[Point, ...]
    samples: tuple[str, ...] = ()  # what it writes, each after a prompt

    @property
    def best_val(self) -> float:
        return min(self.val, *(point.val for point in self.curve))


# (rung, seed, step, steps): called after each step.
Progress = Callable[[Rung, int, int, int], object]


def climb(
    numbers: Sequence[int],
    text: LadderText,
    *,
    seeds: int = 1,
    steps: int | None = None,
    folder: Path | None = None,
    progress: Progress = lambda rung, seed, step, steps: None,
) -> Iterator[Climb]:
    """Train the rungs, each with seeds 0, 1, ...; rung 12 writes its runs to `folder`.

    Batches depend only on the seed and the block length, so rungs can be compared.
    """
    rungs = [RUNGS[number] for number in numbers]
    for rung in rungs:
        text.check(rung)
        if rung.large and steps is None and pick_device("auto").type == "cpu":
            raise ConfigError(
                f"rung {rung.number} needs a GPU: {rung.steps} steps would take a CPU many hours",
                hint="leave it out, or give a number of steps: --steps N",
            )
    for rung in rungs:
        for seed in range(seeds):
            yield _train(rung, text, seed, steps or rung.steps, folder, progress)


def _train(
    rung: Rung,
    text: LadderText,
    seed: int,
    steps: int,
    folder: Path | None,
    progress: Progress,
) -> Climb:
    device = pick_device("auto") if rung.large else torch.device("cpu")
    block = rung.model["max_len"]
    fork = torch.random.fork_rng([device] if device.type == "cuda" else [])
    with fork, _one_thread_if_small(rung.large):
        torch.manual_seed(seed)
        model = GPT(rung.config(text.tokenizer.vocab_size)).to(device)
        parts = (text.corpus.training, text.corpus.validation)
        train, val = (
            TextBatches(ids, batch_size=rung.batch_size, block=block, seed=seed) for ids in parts
        )
        covering = [max(1, len(ids) // (rung.batch_size * block)) for ids in parts]
        if rung.uses_trainer:
            fit = _fit_by_trainer(rung, text, model, seed, steps, folder, progress)
        else:
            held = val.evenly_spaced(min(CURVE_BATCHES, covering[1]))
            fit = _fit(rung, model, train, held, seed, steps, progress)
        return Climb(
            rung=rung.number,
            seed=seed,
            steps=steps,
            parameters=sum(p.numel() for p in model.parameters()),
            train=_evaluate(model, train.evenly_spaced(min(FINAL_BATCHES, covering[0]))),
            val=_evaluate(model, val.evenly_spaced(min(FINAL_BATCHES, covering[1]))),
            tokens_per_s=fit[0],
            curve=fit[1],
            samples=write_samples(model, text.tokenizer, seed, text.start),
        )


@contextmanager
def _one_thread_if_small(large: bool) -> Iterator[None]:
    """Use one thread, which is faster for small models, and flush subnormal numbers to zero.

    The momentum of a rare token shrinks by a tenth at each step. After some 800 steps it is
    subnormal, and AdamW takes twice the time.
    """
    if large:
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(threads)


def _fit(
    rung: Rung,
    model: GPT,
    train: TextBatches,
    held: Sequence[Batch],
    seed: int,
    steps: int,
    progress: Progress,
) -> tuple[float, tuple[Point, ...]]:
    """Train; return tokens per second and the curve."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rung.lr, fused=True)
    device = model.embedding.weight.device
    half = rung.large and pick_precision("auto", device, model) == "bf16"
    every = max(1, steps // POINTS)
    curve: list[Point] = []
    seconds, last, total = 0.0, 0, torch.zeros((), device=device)
    started = time.perf_counter()
    for step in range(1, steps + 1):
        batch = train.at(step - 1)
        with torch.autocast(device.type, torch.bfloat16, enabled=half):
            loss = next_token_loss(model, batch.ids.to(device), batch.targets.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
        progress(rung, seed, step, steps)
        if step % every == 0 or step == steps:
            mean = total.item() / (step - last)
            seconds += time.perf_counter() - started
            curve.append(Point(step, mean, _evaluate(model, held)))
            last, total = step, torch.zeros_like(total)
            started = time.perf_counter()
    return steps * train.batch_size * train.block / seconds, tuple(curve)


@torch.no_grad()
def _evaluate(model: GPT, batches: Sequence[Batch]) -> float:
    device = model.embedding.weight.device
    was_training = model.training
    model.eval()
    losses = [next_token_loss(model, b.ids.to(device), b.targets.to(device)) for b in batches]
    model.train(was_training)
    return torch.stack(losses).mean().item()


class _Curve(ProgressListener):
    """Collects losses and speeds of a training loop."""

    def __init__(self, progress: Callable[[int], object]) -> None:
        self._progress = progress
        self.points: list[Point] = []
        self.speeds: list[float] = []

    def on_step(self, status: Status) -> None:
        self._progress(status.step)

    def on_log(self, step: int, values: dict[str, Any]) -> None:
        if "tokens_per_s" in values:
            self.speeds.append(values["tokens_per_s"])

    def on_evaluation(
        self, status: Status, values: dict[str, float], best: bool, sample: str | None
    ) -> None:
        if status.loss is not None:
            self.points.append(Point(status.step, status.loss, values["val_loss"]))


def _fit_by_trainer(
    rung: Rung,
    text: LadderText,
    model: GPT,
    seed: int,
    steps: int,
    folder: Path | None,
    progress: Progress,
) -> tuple[float, tuple[Point, ...]]:
    """Train by the real loop, which writes a run's folder with metrics and checkpoints."""
    config = TrainConfig(
        steps=steps, seed=seed, batch_size=rung.batch_size, optimizer="adamw", lr=rung.lr,
        weight_decay=0.01, beta2=0.999, clip=0.0, schedule="constant", warmup=0.0,
        eval_every=max(1, steps // POINTS), eval_batches=CURVE_BATCHES,
        log_every=max(1, min(10, steps // POINTS)),
    )  # fmt: skip
    task = LanguageTask(
        model,
        text.corpus,
        batch_size=config.batch_size,
        eval_batches=CURVE_BATCHES,
        seed=seed,
    )
    run = None
    if folder is not None:
        data = {"text": asdict(TextConfig("char")), "fingerprint": text.corpus.fingerprint}
        sources = [str(Path(text.name).absolute())] if text.is_file else []
        about = RunConfig("gpt", asdict(model.config), asdict(config), {"sources": sources, **data})
        path = unused_path(folder, f"rung-{rung.number}-seed-{seed}")
        run = RunFolder.create(path, about, text.tokenizer, model)
    listener = _Curve(lambda step: progress(rung, seed, step, steps))
    outcome = Trainer(task, config, run, listener).train()
    if outcome.reason == "interrupted":
        raise KeyboardInterrupt
    return statistics.fmean(listener.speeds or [0.0]), tuple(listener.points)


@dataclass(frozen=True)
class Summary:
    """A rung over its seeds: means, and standard deviations where there are several."""

    rung: int
    parameters: int
    train: float
    train_sd: float | None
    val: float
    val_sd: float | None
    best_val: float
    tokens_per_s: float
    climbs: tuple[Climb, ...]


def summaries(climbs: Sequence[Climb]) -> list[Summary]:
    rows = []
    for number in sorted({one.rung for one in climbs}):
        same = tuple(one for one in climbs if one.rung == number)

        def sd(values: list[float]) -> float | None:
            return statistics.stdev(values) if len(values) > 1 else None

        train, val = [one.train for one in same], [one.val for one in same]
        rows.append(
            Summary(
                rung=number,
                parameters=same[0].parameters,
                train=statistics.fmean(train),
                train_sd=sd(train),
                val=statistics.fmean(val),
                val_sd=sd(val),
                best_val=statistics.fmean(one.best_val for one in same),
                tokens_per_s=statistics.fmean(one.tokens_per_s for one in same),
                climbs=same,
            )
        )
    return rows
