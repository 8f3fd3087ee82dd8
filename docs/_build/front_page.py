"""The page that runs a model in the browser, on the site's front page: a reader in each language.

The readers are trained when the site is built, and kept in build/front: the repository holds no
trained parameters, and what visitors see is what the present code trains.
"""

from collections.abc import Iterator
from pathlib import Path

from docs._build.imports import ROOT
from glasshead.lab.demo_training import TrainingJob, train_all
from glasshead.page.living import plan_living

__all__ = ["READERS", "living_pages"]

READERS = {"en": "reader-en", "zh": "reader"}
FOLDER = ROOT / "build/front"


def living_pages(folder: Path | None = None) -> Iterator[tuple[str, bytes]]:
    """Yield the place and the content of each language's page; train what is not there."""
    folder = folder or FOLDER
    jobs = [
        TrainingJob(name, "refer", "reader", folder / name, {"lang": lang, "seed": 1, "world": 1})
        for lang, name in READERS.items()
        if not (folder / name / "model.safetensors").exists()
    ]
    if jobs:
        folder.mkdir(parents=True, exist_ok=True)
        train_all(jobs, lambda *told: None)
    for lang, name in READERS.items():
        page = plan_living(folder / name, "float32")
        yield f"live/{name}.html", page.html({"lang": lang}).encode()
