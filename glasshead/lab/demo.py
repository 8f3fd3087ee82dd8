"""The demo: train three small models of the embedded world, and look into them.

    reader      names at every pronoun of a Chinese story the word that it stands for
    reader-en   does the same in English
    translator  translates the Chinese story into German

All are real runs. They train side by side, each in a process and on a thread of its own, and
replace an earlier demo only when everything is done. The reader of the user's language comes first.
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
from glasshead.files.locking import try_lock
from glasshead.lab.alignments import TranslatorFigures, measure_translator
from glasshead.lab.attention_maps import Head
from glasshead.lab.demo_sentence import Rendering, StoryReading, read_story, render_story
from glasshead.lab.demo_training import TrainingJob, train_all
from glasshead.lab.referents import HeadFigures, ReaderFigures, measure_reader
from glasshead.lab.texts import read_texts
from glasshead.model.transformer import Reader, Transformer
from glasshead.text.tinyworld import World
from glasshead.text.tokenizer import WordTokenizer

__all__ = [
    "MODELS",
    "TEXTS",
    "Demo",
    "Progress",
    "demo_json",
    "measure_models",
    "move_into_place",
    "open_workspace",
    "train_models",
]

TEXTS = read_texts(__file__)
SOURCE, TARGET = "zh", "de"
SEEN = 500  # training stories on which the best heads are chosen
MODELS = ("reader", "reader-en", "translator")
PARTS = (*MODELS, "report.html", "demo.json")
MARK = "demo.json"
LEARNED = 0.9  # of answers or translations right
EVALUATIONS = 10  # of a run that was given its number of steps

Progress = Callable[[str, float, float | None], object]  # run, the part done, its loss


@dataclass(frozen=True, eq=False)
class Demo:
    """All that was measured."""

    seed: int
    seconds: float  # of training
    reader: ReaderFigures
    reader_untrained: ReaderFigures
    reader_en: ReaderFigures
    translator: TranslatorFigures
    translator_untrained: TranslatorFigures
    # Of the document's sentence, and with its other ending.
    readings: tuple[StoryReading, StoryReading]
    renderings: tuple[Rendering, Rendering]
    parameters: dict[str, int]  # how many each model has
    steps: dict[str, int]

    @property
    def has_learned(self) -> bool:
        """Whether all models do what they were trained for."""
        right = (self.reader.accuracy, self.reader_en.accuracy, self.translator.exact)
        return min(right) >= LEARNED


@contextmanager
def open_workspace(out: Path) -> Iterator[Path]:
    """Yield a folder to work in, beside `out`, which is removed afterwards or by the next demo."""
    _check_out(out)
    work = out.with_name(f".{out.name}.new")
    try:
        work.mkdir(parents=True, exist_ok=True)
        lock = open(work / "lock", "wb")  # noqa: SIM115, it is held for long
    except OSError as error:
        raise InputError(
            f"cannot write to {out.parent}: {error.strerror}", hint="choose another --out"
        ) from None
    with lock:
        if not try_lock(lock):
            raise InputError(
                f"another demo is running that writes to {out}",
                hint="wait until it ends, or choose another --out",
            )
        try:
            for part in PARTS:  # left by a demo that was killed
                _remove(work / part)
                _remove(work / f"old-{part}")
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


def move_into_place(work: Path, out: Path) -> None:
    """Replace an earlier demo in `out` by the finished one; leave everything else there alone."""
    _check_out(out)
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


def _check_out(out: Path) -> None:
    try:
        taken = out.exists() and (not out.is_dir() or any(out.iterdir()))
        ours = taken and json.loads((out / MARK).read_bytes()).get("glasshead") == "demo"
    except (OSError, ValueError, AttributeError):
        ours = False
    if taken and not ours:
        raise InputError(
            f"{out} exists and is not an earlier demo", hint="choose another --out, or move it away"
        )


def train_models(
    work: Path,
    seed: int,
    steps: int | None,
    progress: Progress,
    finished: Callable[[str], object] = lambda name: None,
    lang: str = SOURCE,
) -> float:
    """Train all models into `work`, the reader of `lang` first; return the seconds it took."""
    started = time.monotonic()
    flags: dict[str, Any] = {"seed": seed, "world": seed, "val_stories": 256}
    if steps is not None:
        few = {"stories": min(20_000, 64 * steps), "eval_every": -(-steps // EVALUATIONS)}
        flags |= {"steps": steps, **few}
    jobs = [
        TrainingJob("reader", "refer", "reader", work / "reader", flags),
        TrainingJob("translator", "world", "translator", work / "translator", flags),
        TrainingJob("reader-en", "refer", "reader", work / "reader-en", flags | {"lang": "en"}),
    ]
    train_all(jobs if lang == SOURCE else jobs[::-1], progress, finished)
    return time.monotonic() - started


def measure_models(work: Path, seed: int, n_stories: int, seconds: float) -> Demo:
    """Measure all that the demo shows, on stories and combinations that were not trained on."""
    world, langs = World(seed), (SOURCE, TARGET)
    seen = [world.story("train", index) for index in range(SEEN)]
    unseen = [world.story("test", index) for index in range(n_stories)]
    runs = {name: load(work / name) for name in MODELS}
    words = {name: _word_tokenizer(run) for name, run in runs.items()}
    read_words, write_words = words["reader"], words["translator"]

    def reader_figures(model: nn.Module, name: str = "reader", lang: str = SOURCE) -> ReaderFigures:
        assert isinstance(model, Reader)
        return measure_reader(model, words[name], lang, seen, unseen)

    def translator_figures(model: nn.Module) -> TranslatorFigures:
        assert isinstance(model, Transformer)
        return measure_translator(model, write_words, langs, seen, unseen)

    reader_model, translator_model = runs["reader"].model, runs["translator"].model
    reader, translator = reader_figures(reader_model), translator_figures(translator_model)
    assert isinstance(reader_model, Reader)
    assert isinstance(translator_model, Transformer)
    story = World.seed_story()
    flipped = story.flip()
    return Demo(
        seed=seed,
        seconds=seconds,
        reader=reader,
        reader_untrained=reader_figures(_untrained_model(runs["reader"], seed)),
        reader_en=reader_figures(runs["reader-en"].model, "reader-en", "en"),
        translator=translator,
        translator_untrained=translator_figures(_untrained_model(runs["translator"], seed)),
        readings=(
            read_story(reader_model, read_words, story, reader.best),
            read_story(reader_model, read_words, flipped, reader.best),
        ),
        renderings=(
            render_story(translator_model, write_words, story, langs),
            render_story(translator_model, write_words, flipped, langs),
        ),
        parameters={
            name: sum(p.numel() for p in run.model.parameters()) for name, run in runs.items()
        },
        steps={name: int(run.config.train["steps"]) for name, run in runs.items()},
    )


def demo_json(demo: Demo) -> dict[str, Any]:
    """Return demo.json: the figures, and the mark by which a later demo recognizes this one."""

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
        "reader_en": of_reader(demo.reader_en),
        "translator": of_translator(demo.translator),
        "translator_untrained": of_translator(demo.translator_untrained),
    }


def _untrained_model(run: Run, seed: int) -> nn.Module:
    """Build the same model as it was before its first step."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return run.config.new_model().eval()


def _word_tokenizer(run: Run) -> WordTokenizer:
    assert isinstance(run.tokenizer, WordTokenizer)
    return run.tokenizer
