"""Small models of the embedded world, trained for as long as makes them good."""

import shutil
import threading
from pathlib import Path
from typing import Any

from glasshead.lab.demo_training import Job, train_all
from glasshead.text.tinyworld import corpus
from glasshead.train import runs
from glasshead.train.presets import find_preset
from glasshead.train.progress import Watch

SEED = 1
READER_STEPS = 750


def train(work: Path, place: Path) -> None:
    """A folder with `reader`, `translator` and `writer`; it appears whole, or not at all."""
    flags: dict[str, Any] = {"seed": SEED, "world": SEED, "val_stories": 64, "stories": 20_000}
    writer = threading.Thread(target=_train_writer, args=(work,))
    writer.start()
    train_all(
        [
            Job("reader", "refer", work / "reader",
                {**flags, "steps": READER_STEPS, "eval_every": 375}),
            Job("translator", "world", work / "translator",
                {**flags, "steps": 300, "eval_every": 150}),
        ],
        lambda *_: None,
    )  # fmt: skip
    writer.join()
    made = place.with_name(f"{place.name}.new")
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    for name in ("reader", "translator", "writer"):
        shutil.move(work / name, made / name)
    made.rename(place)


def _train_writer(work: Path) -> None:
    """A small GPT of the world's stories."""
    text = work / "stories.txt"
    text.write_text("\n".join(corpus(4000, "zh", SEED)) + "\n", encoding="utf-8")
    flags = {"steps": 300, "eval_every": 100, "n_layers": 2, "d_model": 64, "seed": SEED,
             "device": "cpu", "threads": 1, "tensorboard": False, "compile": "off"}  # fmt: skip
    place = runs.Place(work / "cache", Watch())
    preset, subject = find_preset("nano", "text"), runs.find_subject("text")
    runs.begin(subject, {"sources": [text]}, preset, flags, work / "writer", place).train()
