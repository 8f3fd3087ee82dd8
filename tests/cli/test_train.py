"""`glasshead train`, as it is typed."""

import dataclasses
import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

import glasshead
from glasshead.cli.flags import flags_of, repeat_option
from glasshead.model.gpt import GPTConfig
from glasshead.model.transformer import TransformerConfig
from glasshead.training.config import TrainConfig
from glasshead.training.language import TextConfig
from glasshead.training.parallel_corpus import PairConfig
from glasshead.training.presets import PRESETS
from tests.training.cases import TEXT, metrics, same_ending

CONFIGS = {
    ("training/language.py", "TextConfig"): TextConfig,
    ("training/config.py", "TrainConfig"): TrainConfig,
    ("model/gpt.py", "GPTConfig"): GPTConfig,
    ("training/parallel_corpus.py", "PairConfig"): PairConfig,
    ("model/transformer.py", "TransformerConfig"): TransformerConfig,
}
SMALL = shlex.split(
    "--n-layers 1 --n-heads 2 --d-model 16 --max-len 16 --batch-size 3 --eval-batches 2 --steps 12"
    " --eval-every 4 --log-every 2 --no-tensorboard --threads 1 --device cpu --precision float32"
)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder to stand in, with a text."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "numbers.txt").write_text(TEXT)
    return tmp_path


def settings_of(path):
    return json.loads((path / "config.json").read_text())


def test_a_run_is_made_and_its_folder_printed(cli, here):
    done = cli("train", "numbers.txt", *SMALL)
    assert done.code == 0
    assert done.out == "runs/numbers-nano\n"
    run = here / "runs" / "numbers-nano"
    files = {"config.json", "model.safetensors", "tokenizer.json", "metrics.jsonl", "samples.txt"}
    assert {path.name for path in run.iterdir()} == {*files, "checksums.json", "loss.png", "state"}
    lines = done.err.splitlines()
    assert "GPT of" in lines[0]
    assert [line.split()[1] for line in lines[1:-1]] == ["0", "4", "8", "12"]
    assert lines[-1].startswith("finished at step 12 after 0:")
    assert [line["step"] for line in metrics(run) if "loss" in line] == [2, 4, 6, 8, 10, 12]
    loaded = glasshead.load(run)
    assert loaded.model.config.d_model == 16
    assert set((run / "samples.txt").read_text()) <= set(TEXT) | set("- step")


def test_a_second_run_gets_another_folder(cli, here):
    for _ in range(2):
        cli("train", "numbers.txt", *SMALL, "--steps", "1")
    assert sorted(p.name for p in (here / "runs").iterdir()) == ["numbers-nano", "numbers-nano-2"]


def test_the_same_seed_gives_the_same_run_and_another_does_not(cli, here):
    for name, seed in (("a", "5"), ("b", "5"), ("c", "6")):
        cli("train", "numbers.txt", *SMALL, "--out", name, "--seed", seed)
    same_ending(here / "a", here / "b")
    assert metrics(here / "a") != metrics(here / "c")


def test_a_resumed_run_can_be_made_longer(cli, here):
    constant = ("train", "numbers.txt", *SMALL, "--schedule", "constant")
    cli(*constant, "--out", "whole", "--steps", "20")
    cli(*constant, "--out", "run")
    done = cli("train", "--resume", "run", "--steps", "20")
    assert done.code == 0
    assert done.out == "run\n"
    assert settings_of(here / "run")["train"]["steps"] == 20
    losses = [[line.get("loss") for line in metrics(here / name)] for name in ("run", "whole")]
    assert [loss for loss in losses[0] if loss] == [loss for loss in losses[1] if loss]
    steps = [line["step"] for line in metrics(here / "run") if "val_loss" in line]
    assert steps == [0, 4, 8, 12, 16, 20]


def test_a_resumed_run_finds_its_text_where_it_was_moved(cli, here):
    cli("train", "numbers.txt", *SMALL, "--out", "run")
    (here / "numbers.txt").rename(here / "moved.txt")
    missing = cli("train", "--resume", "run")
    assert missing.code == 2
    assert "numbers.txt" in missing.err
    assert cli("train", "moved.txt", "--resume", "run").code == 0


def test_a_changed_text_is_not_trained_on_as_if_it_were_the_same(cli, here):
    cli("train", "numbers.txt", *SMALL, "--out", "run")
    (here / "numbers.txt").write_text(TEXT.replace("7", "8"))
    done = cli("train", "--resume", "run")
    assert done.code == 2
    assert "run was started with other text than this" in done.err
    assert "--from" in done.err


def test_a_new_run_begins_with_the_parameters_of_another(cli, here):
    cli("train", "numbers.txt", *SMALL, "--out", "old")
    done = cli("train", "numbers.txt", "--from", "old", "--out", "new", "--steps", "4")
    assert done.code == 0
    old = [line["val_loss"] for line in metrics(here / "old") if "val_loss" in line]
    new = [line["val_loss"] for line in metrics(here / "new") if "val_loss" in line]
    assert new[0] == pytest.approx(min(old))
    assert settings_of(here / "new")["data"]["from"] == "old"
    assert settings_of(here / "new")["model"] == settings_of(here / "old")["model"]
    assert settings_of(here / "old")["train"]["steps"] == 12


def test_text_from_a_pipe_can_be_resumed(cli, here, stdin):
    stdin(TEXT.encode())
    done = cli("train", "-", *SMALL)
    assert (done.code, done.out) == (0, "runs/stdin-nano\n")
    stdin(b"")
    assert cli("train", "--resume", "runs/stdin-nano").code == 0


CONFLICTS = {
    "both": (["--resume", "run", "--from", "run"], "--from run and --resume run"),
    "out": (["--resume", "run", "--out", "x"], "--out x and --resume run"),
    "preset": (["--resume", "run", "--preset", "tiny"], "--preset tiny and --resume run"),
    "width": (["--resume", "run", "--d-model", "32"], "--d-model 32 differs from the run's 16"),
    "rate": (["--resume", "run", "--lr", "0.5"], "--lr 0.5 differs from the run's"),
    "exists": (["numbers.txt", "--out", "run"], "run exists already"),
    "new width": (["numbers.txt", "--from", "run", "--d-model", "32"], "--d-model cannot change"),
    "new ids": (["numbers.txt", "--from", "run", "--tokenizer", "byte"], "--tokenizer cannot"),
    "no text": ([], "no text to train on"),
    "no run": (["--resume", "rum"], "rum does not exist"),
    "a run for a text": (["run"], "run is the folder of a model"),
    "not a run": (["--resume", "cache"], "cache is not a run"),
    "steps and minutes": (["numbers.txt", "--steps", "3", "--minutes", "1"], "--steps 3 and"),
    "preset unknown": (["numbers.txt", "--preset", "nanno"], "unknown preset 'nanno'"),
    "heads": (["numbers.txt", "--n-heads", "7"], "d_model (128) must be divisible by n_heads (7)"),
    "device": (["numbers.txt", "--device", "cuda:99"], "cuda:99"),
    "vocabulary": (["numbers.txt", "--tokenizer", "char", "--vocab-size", "999"], "999"),
    "flag": (["numbers.txt", "--n-layer", "3"], "no option '--n-layer'"),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run to misuse; the tests leave it as it is."""
    from glasshead.cli import run

    folder = tmp_path_factory.mktemp("trained")
    (folder / "numbers.txt").write_text(TEXT)
    text, out, cache = (str(folder / name) for name in ("numbers.txt", "run", "cache"))
    assert run(["train", text, "--out", out, "--cache", cache, *SMALL]) == 0
    return folder


@pytest.mark.parametrize("case", CONFLICTS)
def test_what_cannot_be_meant_is_one_line_and_a_hint(cli, trained, monkeypatch, case):
    monkeypatch.chdir(trained)
    before = {path: path.stat().st_mtime_ns for path in (trained / "run").rglob("*")}
    args, message = CONFLICTS[case]
    done = cli("train", *args, "--cache", "cache")
    assert done.code == 2
    assert done.out == ""
    error, _, hint = done.err.rstrip("\n").splitlines()
    assert message in error
    assert hint.startswith("hint: ")
    assert before == {path: path.stat().st_mtime_ns for path in (trained / "run").rglob("*")}
    assert sorted(p.name for p in trained.iterdir()) == ["cache", "numbers.txt", "run"]


def random_bytes(n):
    import numpy as np

    return np.random.default_rng(0).bytes(n)


BAD_TEXTS = {
    "random bytes": {"x.txt": random_bytes(5_000_000)},
    "empty": {"x.txt": b""},
    "one line": {"x.txt": b"just one line, no more\n"},
    "shorter than a block": {"x.txt": b"0123456789 " * 10},
    "invalid UTF-8": {"x.txt": TEXT.encode() + b"\xff\xfe" + TEXT.encode()},
    "one character": {"x.txt": b"a" * 10},
    "missing": {},
}


@pytest.mark.parametrize("case", BAD_TEXTS)
def test_a_bad_text_is_one_line_and_a_hint(cli, here, case):
    for name, content in BAD_TEXTS[case].items():
        (here / name).write_bytes(content)
    done = cli("train", "x.txt", *SMALL)
    assert done.code == 2
    error, _, hint = done.err.rstrip("\n").splitlines()
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")
    assert not (here / "runs").exists()


def test_the_bytes_of_any_file_with_text_in_it_can_be_trained_on(cli, here):
    (here / "noise.txt").write_text("".join(chr(0x100 + b) for b in random_bytes(3000)))
    assert cli("train", "noise.txt", *SMALL, "--tokenizer", "byte").code == 0


def test_binary_files_in_a_folder_are_skipped_and_named(cli, here):
    (here / "folder").mkdir()
    (here / "folder" / "good.txt").write_text(TEXT)
    (here / "folder" / "more.txt").write_text(TEXT[:2000])
    (here / "folder" / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(5000))
    done = cli("train", "folder", *SMALL)
    assert done.code == 0
    assert done.out == "runs/folder-nano\n"
    assert "picture.png" in done.err


@pytest.mark.parametrize("place", CONFIGS)
def test_every_field_of_every_config_is_a_flag(cli, place):
    flags, config = flags_of(*place), CONFIGS[place]
    fields = dataclasses.fields(config)
    assert [flag.name for flag in flags] == [field.name for field in fields]
    for flag, field in zip(flags, fields, strict=True):
        default = "" if field.default is dataclasses.MISSING else field.default
        assert (eval(flag.default) if flag.default else "") == default
    shown = cli("train", "--help").out
    for flag in flags:
        assert flag.option.split("/")[0] in shown or flag.name == "pad"


def test_help_has_a_heading_for_each_group(cli):
    shown = cli("train", "--help").out
    headings = ("Options", "Text", "Training", "Model")
    places = [shown.index(f"\n{heading}:\n") for heading in headings]
    assert places == sorted(places)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_print_themselves_with_what_the_flags_change(cli, name):
    shown = json.loads(cli("train", "--preset", name, "--show", "--n-layers", "3").out)
    wanted = {"vocab_size": None, **PRESETS[name].model, "n_layers": 3}
    assert wanted.items() <= shown["model"].items()
    made_of = GPTConfig if PRESETS[name].task == "text" else TransformerConfig
    assert shown["model"].keys() == {field.name for field in dataclasses.fields(made_of)}
    assert PRESETS[name].data.items() <= shown[PRESETS[name].task].items()
    assert shown["train"] == dataclasses.asdict(TrainConfig(**PRESETS[name].train))
    assert shown["says"] == PRESETS[name].says


def test_presets_for_other_programs_are_trained_as_those_they_are_made_from():
    for name, of in (("llama", "nano"), ("marian", "pairs-tiny")):
        assert PRESETS[name].train == PRESETS[of].train
        assert PRESETS[of].data.items() <= PRESETS[name].data.items()
        assert PRESETS[name].data.items() - PRESETS[of].data.items() <= {("portable", True)}


def test_an_option_without_a_value_is_not_filled_from_the_next():
    assert repeat_option(["--pairs", "--pairs", "a"], {"--pairs"}) == ["--pairs", "--pairs", "a"]


def test_the_gpt2_preset_has_gpt2s_size():
    from glasshead.model.gpt import GPT

    with torch.device("meta"):
        model = GPT(GPTConfig(**PRESETS["gpt2"].model))
    assert sum(p.numel() for p in model.parameters()) == 124_439_808


def started(here: Path, *args: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "glasshead", "train", *args]
    return subprocess.Popen(
        command, cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for(path: Path, count: int) -> None:
    end = time.monotonic() + 120
    while not path.exists() or path.read_bytes().count(b"\n") < count:
        assert time.monotonic() < end, "the run hangs"
        time.sleep(0.01)


def test_a_signal_saves_says_how_to_go_on_and_exits_with_its_code(here):
    long = [*SMALL, "--steps", "1000000", "--eval-every", "1000000"]
    process = started(here, "numbers.txt", *long, "--out", "run")
    wait_for(here / "run" / "metrics.jsonl", 20)
    process.terminate()
    out, err = process.communicate(timeout=120)  # or it hangs
    assert process.returncode == 128 + signal.SIGTERM
    assert out == "run\n"
    last = err.splitlines()[-1]
    assert "stopped by SIGTERM at step" in last
    assert "glasshead train --resume run" in last
    step = int(last.split("at step ")[1].split()[0].replace(",", ""))
    state = (here / "run" / "state" / "last.safetensors").read_bytes()
    assert f'"step": "{step}"'.encode() in state


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Writing a larger file fails, as on a full disk."""
    resource = pytest.importorskip("resource", reason="needs Unix's limits")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_ends_with_a_clear_line_and_the_last_checkpoint_intact(cli, here):
    for name in ("run", "whole"):
        cli("train", "numbers.txt", *SMALL, "--save-every", "1", "--out", name)
    last = here / "run" / "state" / "last.safetensors"
    before = last.read_bytes()
    with files_of_at_most(len(before) - 1000):  # the next checkpoint does not fit
        done = cli("train", "--resume", "run", "--steps", "20")
    assert done.code == 2
    error, _, hint = done.err.rstrip("\n").splitlines()[-3:]
    assert error.startswith("error: cannot write")
    assert "File too large" in error
    assert "step 12" in hint
    assert "glasshead train --resume run" in hint
    assert last.read_bytes() == before
    assert not list((here / "run").rglob(".*"))
    for name in ("run", "whole"):
        assert cli("train", "--resume", name, "--steps", "20").code == 0
    same_ending(here / "run", here / "whole")


def test_a_full_disk_at_the_start_leaves_nothing(cli, here):
    with files_of_at_most(3000):  # less than the parameters
        done = cli("train", "numbers.txt", *SMALL, "--out", "run")
    assert done.code == 2
    assert "File too large" in done.err
    assert not (here / "run").exists()
    assert not list(here.glob(".run*"))
