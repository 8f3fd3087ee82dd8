"""A language of ten words, and a task small enough to translate it in a moment."""

import random
from pathlib import Path
from typing import Any

from glasshead.checkpoint.processes import ALONE, Processes
from glasshead.generation.beam import greedy_decoder
from glasshead.text.pairs import Pair
from glasshead.training.loop import Trainer
from glasshead.training.presets import Preset
from glasshead.training.progress import ProgressListener
from glasshead.training.start import Context, find_dataset, join_run, resume_run, start_run

WORDS = ["ka", "lo", "mi", "nu", "po", "ra", "si", "tu", "ve", "xo"]
SETTINGS = {
    "n_layers": 1,
    "n_heads": 2,
    "d_model": 22,
    "max_len": 47,
    "steps": 23,
    "eval_every": 7,
    "log_every": 3,
    "max_tokens": 211,
    "eval_pairs": 13,
    "vocab_size": 283,
    "tensorboard": False,
    "threads": 1,
    "device": "cpu",
    "precision": "float32",
}


def translated(source: str) -> str:
    """Every word backwards in capitals, the last word first."""
    return source[::-1].upper()


def toy_pairs(n: int, seed: int = 1) -> list[Pair]:
    chance, found = random.Random(seed), dict[str, None]()
    while len(found) < n:
        found[" ".join(chance.choices(WORDS, k=chance.randint(2, 5)))] = None
    return [Pair(source, translated(source), line) for line, source in enumerate(found, 1)]


def write_pairs(folder: Path, pairs: list[Pair], name: str = "toy") -> list[str]:
    """The two files."""
    paths = [folder / f"{name}.{side}" for side in ("src", "tgt")]
    for path, side in zip(paths, ("source", "target"), strict=True):
        path.write_text("".join(f"{getattr(pair, side)}\n" for pair in pairs), encoding="utf-8")
    return [str(path) for path in paths]


def pair_trainer(
    folder: Path,
    name: str,
    listener: ProgressListener | None = None,
    n_pairs: int = 131,
    processes: Processes = ALONE,
    **changes: Any,
) -> Trainer:
    """Of the run `name` in the folder, which is made if it is not there."""
    context = Context(
        folder / "cache",
        listener or ProgressListener(),
        translator=greedy_decoder,
        processes=processes,
    )
    if not processes.first:
        return join_run(context)
    if (folder / name).exists():
        return resume_run(folder / name, {}, {}, context)
    files = write_pairs(folder, toy_pairs(n_pairs))
    dataset, preset = find_dataset("pairs"), Preset("toy", task="pairs")
    flags = {**SETTINGS, **changes}
    return start_run(dataset, {"sources": files}, preset, flags, folder / name, context)
