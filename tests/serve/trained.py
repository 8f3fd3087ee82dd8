"""Small models of the embedded world, trained just long enough for what the tests ask of them."""

import os
import shutil
from pathlib import Path
from typing import Any

from glasshead.text.pairs import Pair
from glasshead.text.tinyworld import World, corpus
from glasshead.training.dataset import Dataset
from glasshead.training.parallel_corpus import ParallelCorpus
from glasshead.training.presets import find_preset
from glasshead.training.progress import ProgressListener
from glasshead.training.start import Context, find_dataset, start_run
from glasshead.training.world_pairs import WorldDataset

SEED = 1
READER_STEPS, TRANSLATOR_STEPS, WRITER_STEPS = 800, 200, 150
COPIES = 50  # of each ending of the seed story among the translator's 500 stories


class SeedStoryPairs(WorldDataset):
    """The world's stories and, many times, both endings of the seed story.

    The tests compare whole translations of these two. Learning them from other stories alone
    takes five times as long.
    """

    def read(self, *args: Any) -> None:
        super().read(*args)
        story = World.seed_story()
        both = [
            Pair(ending.text("zh"), ending.text("de"), line)
            for line, ending in enumerate((story, story.flip()), 1)
        ]
        training = [*self.parts.training, *both * COPIES]
        self.parts = ParallelCorpus(training, self.parts.validation)
        self.fingerprint = self.parts.fingerprint


def train(work: Path, place: Path) -> None:
    """Make a folder with `reader`, `translator` and `writer`. It appears complete or not at all."""
    text = work / "stories.txt"
    text.write_text("\n".join(corpus(2000, "zh", SEED)) + "\n", encoding="utf-8")
    world = {"world": SEED, "val_stories": 64}
    _train(work / "reader", find_dataset("refer"), "reader", READER_STEPS,
           batch_size=32, stories=4000, **world)  # fmt: skip
    _train(work / "translator", SeedStoryPairs, "translator", TRANSLATOR_STEPS,
           max_tokens=512, stories=500, **world)  # fmt: skip
    _train(work / "writer", find_dataset("text"), "nano", WRITER_STEPS,
           sources=[text], n_layers=2, d_model=64, eval_batches=5)  # fmt: skip
    made = place.with_name(f"{place.name}.{os.getpid()}")
    made.mkdir()
    for name in ("reader", "translator", "writer"):
        shutil.move(work / name, made / name)
    try:
        made.rename(place)
    except OSError:
        if not place.exists():
            raise
        shutil.rmtree(made)  # without file locks, another process may have been faster


def _train(
    out: Path,
    dataset: type[Dataset],
    preset: str,
    steps: int,
    sources: list[Path] | None = None,
    **flags: Any,
) -> None:
    here = {"seed": SEED, "device": "cpu", "threads": 1, "tensorboard": False, "compile": "off"}
    start_run(
        dataset,
        {} if sources is None else {"sources": sources},
        find_preset(preset, dataset.name),
        {**here, "steps": steps, "eval_every": steps // 2, **flags},
        out,
        Context(out.parent / "cache", ProgressListener()),
    ).train()
