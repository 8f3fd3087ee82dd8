"""Training: tokens a second through the trainer that `glasshead train` uses, beside others' loops.

Ours trains for real: `Trainer` with a `LanguageTask`. Whenever it logs, which waits for the GPU,
the peers take as many steps on the same batches, from the same parameters, with the same optimizer:
all take turns, and the losses of the last turn must be alike. A step is forward, backward, clipping
and the optimizer, with the batch made and brought to the device.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bench.machine import matrix_peak
from bench.peers import missing_package, to_nanogpt, to_transformers
from bench.table import Row, Settings
from bench.timing import clock, release, synchronize
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.text.batches import TextBatches
from glasshead.training.config import TrainConfig
from glasshead.training.language import Corpus, LanguageTask
from glasshead.training.loop import Trainer
from glasshead.training.progress import ProgressListener

__all__ = ["Turns", "corpus", "rows", "trainer"]

SEED = 1
SHAPE: dict[str, Any] = {
    "feed_forward": "gelu-tanh", "tied": True, "head_bias": False, "init": "gpt2",
}  # fmt: skip
GPT2 = GPTConfig(
    vocab_size=50304, max_len=1024, n_layers=12, n_heads=12, d_model=768, bias=False, **SHAPE
)
MIDDLE = GPTConfig(
    vocab_size=512, max_len=256, n_layers=6, n_heads=6, d_model=384, qkv_bias=True, **SHAPE
)
SMALL = replace(MIDDLE, max_len=64, n_layers=4, n_heads=4, d_model=128)
EXACT = {"feed_forward": "gelu"}  # nanoGPT's, which on a CPU takes half the time of the tanh
TINY = replace(MIDDLE, max_len=32, n_layers=2, n_heads=2, d_model=32)

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Case:
    name: str
    model: GPTConfig
    batch: int
    steps: int  # in a turn
    peers: tuple[str, ...] = ("transformers",)
    optimizer: str = "adamw"
    precision: str = "float32"
    peer_precision: str = "float32"
    compile: str = "off"


def cases(settings: Settings) -> list[Case]:
    if settings.quick:
        return [Case("2 x 32, 2 x 32 tokens, float32", TINY, 2, 1, ("transformers", "nanoGPT"))]
    if settings.on_gpu:
        shaped: dict[str, Any] = {
            "precision": "bf16", "peer_precision": "bf16", "compile": "on", "steps": 10,
        }  # fmt: skip
        nanogpt = replace(GPT2, **EXACT)
        return [
            Case("124M, 64 x 1024 tokens, bf16", nanogpt, 64, peers=("nanoGPT",), **shaped),
            Case("124M, 12 x 1024 tokens, bf16", nanogpt, 12, peers=("nanoGPT",), **shaped),
            Case("124M, 12 x 1024 tokens, bf16", GPT2, 12, **shaped),
        ]
    middle, small = "6 x 384, 8 x 256 tokens", "4 x 128, 12 x 64 tokens"
    found = []
    for peer, changes in (("transformers", {}), ("nanoGPT", EXACT)):
        sizes = replace(MIDDLE, **changes), replace(SMALL, **changes)
        found += [
            Case(f"{middle}, float32", sizes[0], 8, 2, (peer,)),
            Case(f"{small}, float32", sizes[1], 12, 10, (peer,)),
            Case(f"{middle}, as it comes", sizes[0], 8, 2, (peer,), "muon", "auto"),
        ]
    return found


def corpus(vocab_size: int, block: int) -> Corpus:
    """Return ids of which a few are frequent and most are rare, like words."""
    drawn = np.random.default_rng(SEED).zipf(1.2, max(400_000, 4 * block)) % vocab_size
    ids = drawn.astype(np.uint16 if vocab_size <= 2**16 else np.int32)
    return Corpus(ids[block + 1 :], ids[: 2 * block + 2])


def trainer(
    model: GPT, batch: int, steps: int, watch: ProgressListener, **settings: Any
) -> Trainer:
    """Return the trainer of `glasshead train`, without a run folder and without evaluations."""
    block = model.config.max_len
    task = LanguageTask(
        model, corpus(model.config.vocab_size, block), batch_size=batch, eval_batches=1, seed=SEED
    )
    config = TrainConfig(
        steps=steps, seed=SEED, batch_size=batch, eval_every=steps, lr=3e-4, muon_lr=1e-3,
        schedule="constant", warmup=0.0, tensorboard=False, **settings,
    )  # fmt: skip
    return Trainer(task, config, listener=watch)


class Peer:
    """Another library's model in a plain loop, on the batches of ours."""

    def __init__(self, model: nn.Module, loss: Loss, case: Case, device: str) -> None:
        self.model, self.loss, self.case, self.device = model, loss, case, device
        ids = corpus(case.model.vocab_size, case.model.max_len).training
        self.batches = TextBatches(ids, batch_size=case.batch, block=case.model.max_len, seed=SEED)
        groups = [
            {"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
            {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=True)
        self.step, self.mean = 0, 0.0

    def turn(self) -> None:
        total = torch.zeros((), device=self.device)
        for _ in range(self.case.steps):
            batch = self.batches.at(self.step)
            ids, targets = (self._to_device(x) for x in (batch.ids, batch.targets))
            half = self.case.peer_precision == "bf16"
            with torch.autocast(self.device.partition(":")[0], torch.bfloat16, enabled=half):
                loss = self.loss(ids, targets)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            total += loss.detach()
            self.step += 1
        self.mean = total.item() / self.case.steps

    def _to_device(self, x: Tensor) -> Tensor:
        if self.device == "cpu":
            return x
        return x.pin_memory().to(self.device, non_blocking=True)


class Turns(ProgressListener):
    """Times our steps between two lines of the log, and runs the peers in turns."""

    def __init__(self, device: str, peers: dict[str, Peer] | None = None) -> None:
        self.device, self.peers = device, peers or {}
        self.threads = torch.get_num_threads()
        self.ours: list[float] = []
        self.theirs: dict[str, list[float]] = {name: [] for name in self.peers}
        self.loss, self.start = 0.0, 0.0

    def __enter__(self) -> "Turns":
        self._begin()
        return self

    def on_log(self, step: int, values: dict[str, Any]) -> None:
        if "loss" not in values:  # an evaluation
            self._begin()
            return
        synchronize(self.device)
        self.ours.append(time.perf_counter() - self.start)
        self.loss = values["loss"]
        threads = torch.get_num_threads()  # the trainer takes fewer for small models
        torch.set_num_threads(self.threads)
        for name, peer in self.peers.items():
            self.theirs[name].append(clock(peer.turn, self.device))
        torch.set_num_threads(threads)
        self._begin()

    def _begin(self) -> None:
        synchronize(self.device)
        self.start = time.perf_counter()


def rows(settings: Settings) -> list[Row]:
    found = []
    for case in cases(settings):
        found += measure_case(case, settings)
        torch.compiler.reset()  # or the next shape would be compiled for any shape
        release()
    return found


def measure_case(case: Case, settings: Settings) -> list[Row]:
    device, compiled = settings.device, case.compile == "on"
    torch.manual_seed(SEED)
    model = GPT(case.model).to(device)
    made = {name: new_peer(name, model, case, settings) for name in case.peers}
    peers = {name: peer for name, peer in made.items() if isinstance(peer, Peer)}
    left_out = {name: reason for name, reason in made.items() if isinstance(reason, str)}
    turns = settings.repeats + 2  # of which two warm up: the second may compile again
    watch = Turns(device, peers)
    trainer(
        model, case.batch, turns * case.steps, watch, device=device, log_every=case.steps,
        optimizer=case.optimizer, precision=case.precision, compile=case.compile,
    ).train()  # fmt: skip
    tokens = case.batch * case.model.max_len * case.steps
    dtype = "bfloat16" if case.precision == "bf16" else "float32"
    limit = matrix_peak(device, dtype, settings.quick) / operations(model)
    ours = tokens / statistics.median(watch.ours[2:])
    whole = f"{case.name}{', compiled' if compiled else ''}"
    found = []
    for name, peer in peers.items():
        theirs = tokens / statistics.median(watch.theirs[name][2:])
        at = f"loss of steps {peer.step - case.steps + 1} to {peer.step}: "
        note = f"{at}{watch.loss:.4f}, theirs {peer.mean:.4f}"
        found.append(Row(whole, title(name, compiled), "tokens/s", ours, theirs, limit, note))
    for name, reason in left_out.items():
        found.append(Row(whole, name, "tokens/s", ours, None, limit, reason))
    return found


def title(peer: str, compiled: bool) -> str:
    return {"transformers": "transformers GPT-2"}.get(peer, peer) + (
        ", not compiled" if compiled and peer == "transformers" else ""
    )


def new_peer(name: str, model: GPT, case: Case, settings: Settings) -> Peer | str:
    """Return the peer, or why it is left out."""
    if name == "nanoGPT":
        if settings.nanogpt is None:
            return "no --peer-nanogpt: left out"
        theirs = to_nanogpt(model, settings.nanogpt)
        run = torch.compile(theirs) if case.compile == "on" else theirs
        return Peer(theirs, lambda ids, targets: run(ids, targets)[1], case, settings.device)
    if reason := missing_package("transformers"):
        return reason
    other = to_transformers(model)
    other.train()

    def loss(ids: Tensor, targets: Tensor) -> Tensor:
        # shift_labels: the targets are shifted already, as ours are
        return other(input_ids=ids, labels=ids, shift_labels=targets).loss

    return Peer(other, loss, case, settings.device)


def operations(model: GPT) -> float:
    """Return the operations of a token in training, forward and backward."""
    c = model.config
    matrices = sum(m.weight.numel() for m in model.modules() if isinstance(m, nn.Linear))
    return 6 * matrices + 6 * c.n_layers * c.max_len * c.d_model  # a causal half of T x T


if __name__ == "__main__":
    from bench.__main__ import main

    main("train")
