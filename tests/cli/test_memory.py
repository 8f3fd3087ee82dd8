"""What does not fit into memory is refused before it is allocated, with its bytes."""

import pytest

from glasshead import machine
from tests.cli.test_cli import is_a_mistake

TRAIN = "--steps 2 --d-model 16 --n-layers 1 --n-heads 1 --max-len 8 --batch-size 2 --device cpu"


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    from glasshead.cli import run

    folder = tmp_path_factory.mktemp("memory")
    text = folder / "text.txt"
    text.write_text("".join(f"{n} and {n * n}\n" for n in range(300)))
    line = f"train {text} {TRAIN} --preset llama --tokenizer char --out {folder / 'run'}"
    assert run([*line.split(), "--portable", "--cache", str(folder / "cache")]) == 0
    assert run(["export", str(folder / "run"), "-o", str(folder / "exported")]) == 0
    return folder


@pytest.mark.parametrize(
    "line",
    [
        "generate run 12",
        "score run text.txt",
        "look run 12",
        "generate exported 12",
        "look exported 12",
        "atlas exported text.txt -o seen.glass --max-tokens 4",
        "train --resume run --steps 4",
        "train --from run text.txt --out more",
    ],
)
def test_a_model_larger_than_the_memory_is_refused(cli, here, monkeypatch, line):
    monkeypatch.chdir(here)
    monkeypatch.setattr(machine, "free_memory", lambda device="cpu": 1000.0)
    error, hint = is_a_mistake(cli(*line.split()))
    assert "GB of memory, and 0.0 GB are free" in error
    assert hint
    assert not (here / "more").exists()
