"""The demo: two small models of the embedded world are trained, asked, and looked into.

    reader      names at every pronoun the word that it stands for
    translator  says the story in German

Both are real runs. They train side by side, each in a process and on a thread of its own, and take
the place of an earlier demo only when all is done.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from glasshead.checkpoint import Run, load
from glasshead.errors import InputError
from glasshead.lab.alignments import TranslatorFigures, measure_translator
from glasshead.lab.attention_maps import Head
from glasshead.lab.demo_sentence import Rendering, StoryReading, read, render
from glasshead.lab.demo_training import TrainingJob, train_all
from glasshead.lab.referents import HeadFigures, ReaderFigures, measure_reader
from glasshead.model.transformer import Reader, Transformer
from glasshead.text.tinyworld import World
from glasshead.text.tokenizer import WordTokenizer

try:
    import fcntl
except ImportError:  # Windows: there two demos can begin at once, and should not
    fcntl = None  # type: ignore[assignment]

__all__ = ["Demo", "Progress", "begin", "figures", "measure", "place", "train"]

SOURCE, TARGET = "zh", "de"
SEEN = 500  # training stories on which the best heads are chosen
PARTS = ("reader", "translator", "report.html", "demo.json")
MARK = "demo.json"
LEARNED = 0.9  # of answers or translations right
EVALUATIONS = 10  # of a run that was given its number of steps

Progress = Callable[[str, float, float | None], object]  # run, how much of it is done, its loss


@dataclass(frozen=True, eq=False)
class Demo:
    """All that was found."""

    seed: int
    seconds: float  # of training
    reader: ReaderFigures
    reader_untrained: ReaderFigures
    translator: TranslatorFigures
    translator_untrained: TranslatorFigures
    readings: tuple[
        StoryReading, StoryReading
    ]  # of the document's sentence, and with its other ending
    renderings: tuple[Rendering, Rendering]
    parameters: dict[str, int]  # how many each model has
    steps: dict[str, int]

    @property
    def learned(self) -> bool:
        """Whether both models do what they were trained for."""
        return min(self.reader.accuracy, self.translator.exact) >= LEARNED


@contextmanager
def begin(out: Path) -> Iterator[Path]:
    """A folder to work in, beside `out`; it is gone afterwards, or when the next demo begins."""
    _check(out)
    work = out.with_name(f".{out.name}.new")
    try:
        work.mkdir(parents=True, exist_ok=True)
        lock = open(work / "lock", "wb")  # noqa: SIM115, it is held for long
    except OSError as error:
        raise InputError(
            f"cannot write to {out.parent}: {error.strerror}", hint="choose another --out"
        ) from None
    with lock:
        try:
            if fcntl is not None:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(
                f"another demo is on its way to {out}",
                hint="wait until it ends, or choose another --out",
            ) from None
        try:
            for part in PARTS:  # of one that was killed
                _remove(work / part)
                _remove(work / f"old-{part}")
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


def place(work: Path, out: Path) -> None:
    """Put the finished demo where an earlier one may be; whatever else lies there stays."""
    _check(out)
    out.mkdir(exist_ok=True)
    for part in PARTS:
        old, new = out / part, work / part
        if old.exists():
            old.rename(work / f"old-{part}")
        new.rename(old)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _check(out: Path) -> None:
    try:
        taken = out.exists() and (not out.is_dir() or any(out.iterdir()))
        ours = taken and json.loads((out / MARK).read_bytes()).get("glasshead") == "demo"
    except (OSError, ValueError, AttributeError):
        ours = False
    if taken and not ours:
        raise InputError(
            f"{out} exists and is no earlier demo", hint="choose another --out, or move it away"
        )


def train(work: Path, seed: int, steps: int | None, progress: Progress) -> float:
    """Train both models into `work`, and say how long it took."""
    started = time.monotonic()
    flags: dict[str, Any] = {"seed": seed, "world": seed, "val_stories": 256}
    if steps is not None:
        few = {"stories": min(20_000, 64 * steps), "eval_every": -(-steps // EVALUATIONS)}
        flags |= {"steps": steps, **few}
    train_all(
        [
            TrainingJob("reader", "refer", work / "reader", flags),
            TrainingJob("translator", "world", work / "translator", flags),
        ],
        progress,
    )
    return time.monotonic() - started


def measure(work: Path, seed: int, stories: int, seconds: float) -> Demo:
    """Everything that the demo shows, on stories and combinations that were not trained on."""
    world = World(seed)
    seen = [world.story("train", index) for index in range(SEEN)]
    unseen = [world.story("test", index) for index in range(stories)]
    read_run, write_run = load(work / "reader"), load(work / "translator")
    read_words, write_words = _words(read_run), _words(write_run)

    def of_reader(model: nn.Module) -> ReaderFigures:
        assert isinstance(model, Reader)
        return measure_reader(model, read_words, SOURCE, seen, unseen)

    def of_translator(model: nn.Module) -> TranslatorFigures:
        assert isinstance(model, Transformer)
        return measure_translator(model, write_words, (SOURCE, TARGET), seen, unseen)

    reader, translator = of_reader(read_run.model), of_translator(write_run.model)
    assert isinstance(read_run.model, Reader)
    assert isinstance(write_run.model, Transformer)
    story = World.seed_story()
    flipped = story.flip()
    runs = {"reader": read_run, "translator": write_run}
    return Demo(
        seed=seed,
        seconds=seconds,
        reader=reader,
        reader_untrained=of_reader(_untrained(read_run, seed)),
        translator=translator,
        translator_untrained=of_translator(_untrained(write_run, seed)),
        readings=(
            read(read_run.model, read_words, story, reader.best),
            read(read_run.model, read_words, flipped, reader.best),
        ),
        renderings=(
            render(write_run.model, write_words, story, (SOURCE, TARGET)),
            render(write_run.model, write_words, flipped, (SOURCE, TARGET)),
        ),
        parameters={
            name: sum(p.numel() for p in run.model.parameters()) for name, run in runs.items()
        },
        steps={name: int(run.config.train["steps"]) for name, run in runs.items()},
    )


def figures(demo: Demo) -> dict[str, Any]:
    """demo.json: the figures as JSON, and the mark by which a later demo knows this one."""

    def of_reader(one: ReaderFigures) -> dict[str, Any]:
        names = ("accuracy", "flips", "share", "weight", "cut_best", "cut_all", "cut_other")
        return {"head": list(one.best), **{name: getattr(one, name) for name in names}}

    def of_translator(one: TranslatorFigures) -> dict[str, Any]:
        return {
            "exact": one.exact,
            "pronouns": one.pronouns,
            "head": list(one.best),
            "error": one.error,
            "errors": one.errors.tolist(),
            "reading": of_head(one.reading, one.reading_best),
            "writing": of_head(one.writing, one.writing_best),
        }

    def of_head(heads: HeadFigures, best: Head) -> dict[str, Any]:
        share, weight = heads.share[best].item(), heads.weight[best].item()
        return {"head": list(best), "share": share, "weight": weight}

    return {
        "glasshead": "demo",
        "seed": demo.seed,
        "stories": demo.reader.stories,
        "seconds": round(demo.seconds, 1),
        "chance": demo.reader.chance,
        "least_error": demo.translator.least,
        "reader": of_reader(demo.reader),
        "reader_untrained": of_reader(demo.reader_untrained),
        "translator": of_translator(demo.translator),
        "translator_untrained": of_translator(demo.translator_untrained),
    }


def _untrained(run: Run, seed: int) -> nn.Module:
    """The same model as it was before its first step."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return run.config.new_model().eval()


def _words(run: Run) -> WordTokenizer:
    assert isinstance(run.tokenizer, WordTokenizer)
    return run.tokenizer
