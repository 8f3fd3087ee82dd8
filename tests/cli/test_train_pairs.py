"""`glasshead train --pairs`, as it is typed."""

import json
import shlex

import pytest

import glasshead
from glasshead.cli.flags import with_flags
from glasshead.model.transformer import Transformer
from tests.training.cases import TEXT, metrics, same_ending
from tests.training.pair_cases import toy_pairs, write_pairs

SMALL = shlex.split(
    "--n-layers 1 --n-heads 2 --d-model 22 --max-len 47 --max-tokens 211 --vocab-size 283 --steps 6"
    " --eval-every 3 --eval-pairs 5 --log-every 2 --no-tensorboard --threads 1 --device cpu"
    " --precision float32"
)
ONE = ("--steps", "1")  # where what is told matters, and not what is learned


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder to stand in, with pairs as two files and as a table, and a text."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    pairs = toy_pairs(97)
    write_pairs(tmp_path, pairs)
    write_pairs(tmp_path, toy_pairs(7, seed=3), "val")
    (tmp_path / "toy.tsv").write_text("".join(f"{p.source}\t{p.target}\n" for p in pairs))
    (tmp_path / "numbers.txt").write_text(TEXT)
    return tmp_path


def settings_of(path):
    return json.loads((path / "config.json").read_text())


def test_a_run_is_made_and_its_folder_printed(cli, here):
    done = cli("train", "--pairs", "toy.src", "toy.tgt", *SMALL)
    assert done.code == 0
    assert done.out == "runs/toy-pairs\n"
    run = here / "runs" / "toy-pairs"
    lines = done.err.splitlines()
    assert lines[0] == (
        "5 of 97 pairs are held out for validation; they share no sentence with the training pairs"
    )
    assert "Transformer of" in lines[1]
    assert [line.split()[1] for line in lines[2:-1]] == ["0", "3", "6"]
    found = [line for line in metrics(run) if "val_loss" in line]
    assert all(0 <= line["bleu"] <= 100 for line in found)
    assert [line["step"] for line in metrics(run) if "loss" in line] == [2, 4, 6]
    held = {pair.source: pair.target for pair in toy_pairs(97)}
    source, target, said = (run / "samples.txt").read_text().splitlines()[1:4]
    assert target == f"= {held[source]}"
    assert said.startswith("> ")
    loaded = glasshead.load(run)
    assert isinstance(loaded.model, Transformer)
    assert loaded.tokenizer.vocab_size == 283
    assert loaded.model.config.pad == loaded.tokenizer.specials["<pad>"]


def test_a_table_makes_the_same_run_as_two_files(cli, here):
    assert cli("train", "--pairs", "toy.tsv", *SMALL, "--out", "one").code == 0
    assert cli("train", *SMALL, "--out", "two", "--pairs", "toy.src", "toy.tgt").code == 0
    same_ending(here / "one", here / "two")


def test_pairs_to_validate_on_can_be_named_and_letters_made_small(cli, here):
    files = ["--pairs", "toy.tsv", "--val", "val.src", "val.tgt", "--lowercase"]
    done = cli("train", *files, *SMALL, "--out", "run", "--eval-pairs", "9")
    assert done.code == 0
    data = settings_of(here / "run")["data"]
    assert data["pairs"]["lowercase"]
    assert [path.rpartition("/")[2] for path in data["val"]] == ["val.src", "val.tgt"]
    shown = (here / "run" / "samples.txt").read_text().splitlines()
    wanted = toy_pairs(7, seed=3)[0]
    assert shown[1:3] == [wanted.source, f"= {wanted.target.lower()}"]
    assert cli("train", "--resume", "run", "--steps", "7").code == 0


def test_a_resumed_run_finds_its_pairs_where_they_were_moved(cli, here):
    cli("train", "--pairs", "toy.tsv", *SMALL, "--out", "run")
    (here / "toy.tsv").rename(here / "moved.tsv")
    missing = cli("train", "--resume", "run")
    assert missing.code == 2
    assert "toy.tsv" in missing.err
    assert cli("train", "--resume", "run", "--pairs", "moved.tsv").code == 0
    other = cli("train", "--resume", "run", "--pairs", "val.src", "val.tgt", "--val", "moved.tsv")
    assert other.code == 2
    assert "run was started with other pairs than this" in other.err


def test_a_new_run_begins_with_the_parameters_and_letters_of_another(cli, here):
    cli("train", "--pairs", "toy.tsv", "--lowercase", *SMALL, "--out", "old")
    done = cli("train", "--pairs", "toy.tsv", "--from", "old", "--out", "new", "--steps", "3")
    assert done.code == 0
    assert settings_of(here / "new")["data"]["pairs"]["lowercase"]
    old = [line["val_loss"] for line in metrics(here / "old") if "val_loss" in line]
    new = [line["val_loss"] for line in metrics(here / "new") if "val_loss" in line]
    assert new[0] == pytest.approx(min(old))


def test_what_looks_wrong_is_told_with_its_line(cli, here):
    rows = [["the cat is on the mat", f"猫在垫子上 {n}"] for n in range(60)]
    rows[6] = ["the dog", " "]
    rows[11] = ["word " * 300, "词"]
    rows[16] = ["狗在公园里跑", "the dog runs in the park"]
    (here / "odd.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rows) + "no tab\n")
    files = ["--pairs", "odd.tsv", "--val", "toy.tsv"]
    done = cli("train", *files, "--languages", "en,zh", *SMALL, *ONE)
    assert done.code == 0
    assert "skipped 1, empty target: odd.tsv:7" in done.err
    assert "skipped 1, longer than 1000 characters: odd.tsv:12" in done.err
    assert "skipped 1, not 1 tabs: odd.tsv:61" in done.err
    assert "kept but doubtful 1, sides look swapped: odd.tsv:17" in done.err


def test_swapped_columns_are_told(cli, here):
    rows = "".join(f"the cat is on the mat {n}\t猫在垫子上 {n}\n" for n in range(60))
    (here / "swapped.tsv").write_text(rows)
    files = ["--pairs", "swapped.tsv", "--val", "toy.tsv"]
    args = ["train", *files, "--languages", "zh,en", *SMALL, *ONE]
    assert "the two sides look swapped, 60 of 60 pairs" in cli(*args).err
    assert "look swapped, 60" not in cli(*args, "--columns", "2,1").err


BAD = {
    "lengths": (["--pairs", "toy.src", "val.tgt"], "toy.src has 97 lines but val.tgt has 7"),
    "missing": (["--pairs", "toy.scr", "toy.tgt"], "no file or folder toy.scr"),
    "no tabs": (["--pairs", "toy.src"], "toy.src has 1 columns, so there is no column 2"),
    "empty": (["--pairs", "void.tsv"], "void.tsv: empty"),
    "few": (["--pairs", "few.tsv"], "2 pairs are too few to hold out"),
    "binary": (["--pairs", "noise.src", "toy.tgt"], "noise.src: binary"),
    "text too": (["numbers.txt", "--pairs", "toy.tsv"], "TEXT numbers.txt and --pairs toy.tsv"),
    "val alone": (["numbers.txt", "--val", "toy.tsv"], "--val toy.tsv is for --pairs"),
    "task": (["--task", "pears"], "unknown task 'pears'"),
    "other task": (
        ["numbers.txt", "--task", "pairs"],
        "--task pairs cannot be trained on text numbers.txt",
    ),
    "no pairs": (["--task", "pairs"], "no pairs to train on"),
    "preset": (["--pairs", "toy.tsv", "--preset", "nano"], "preset 'nano' is for text, not"),
    "preset of pairs": (["numbers.txt", "--preset", "pairs"], "preset 'pairs' is for pairs, not"),
    "flag of a GPT": (["--pairs", "toy.tsv", "--window", "5"], "--window 5 has no effect on pa"),
    "batches": (["--pairs", "toy.tsv", "--batch-size", "5"], "--batch-size 5 has no effect on"),
    "flag of pairs": (["numbers.txt", "--rdrop", "5"], "--rdrop 5.0 has no effect on text"),
    "bleu": (["numbers.txt", "--stop-on", "bleu"], "stop_on (bleu) is not measured on text"),
    "measure": (["--pairs", "toy.tsv", "--stop-on", "blue"], "unknown stop_on 'blue'"),
    "heads": (["--pairs", "toy.tsv", "--n-heads", "7"], "d_model (256) must be divisible by n_h"),
    "tokens": (["--pairs", "toy.tsv", "--max-len", "2"], "training pairs fits into 2 tokens"),
    "vocabulary": (["--pairs", "toy.tsv", "--vocab-size", "99"], "vocab_size (99) must be at"),
    "no vocabulary": (["--pairs", "toy.tsv", "--vocab-size", "0"], "vocab_size (0) must be at"),
    "huge vocabulary": (["--pairs", "toy.tsv", "--vocab-size", "99999999999"], "and at most 1000"),
    "backend": (["--pairs", "toy.tsv", "--backend", "spda"], "unknown backend 'spda'"),
    "width": (["--pairs", "toy.tsv", "--d-head", "-4"], "d_head (-4) must be at least 1"),
    "all held out": (["--pairs", "few.tsv", "--val-share", "0.9"], "2 pairs are too few to hold"),
    "folder": (["--pairs", "hollow", "toy.tgt"], "hollow is not a file"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_meant_is_one_line_and_a_hint(cli, here, case):
    (here / "void.tsv").write_text("")
    (here / "hollow").mkdir()
    (here / "few.tsv").write_text("a\tb\nc\td\n")
    (here / "noise.src").write_bytes(bytes(range(256)) * 9)
    args, message = BAD[case]
    done = cli("train", *args)
    assert done.code == 2
    assert done.out == ""
    error, _, hint = done.err.rstrip("\n").splitlines()[-3:]
    assert error.startswith("error: ")
    assert message in error
    assert hint.startswith("hint: ")
    assert not (here / "runs").exists()


def test_a_run_of_another_kind_cannot_be_gone_on_from(cli, here):
    size = shlex.split("--n-layers 1 --d-model 8 --max-len 16 --steps 1 --no-tensorboard")
    assert cli("train", "numbers.txt", *size, "--out", "gpt").code == 0
    done = cli("train", "--pairs", "toy.tsv", "--from", "gpt")
    assert done.code == 2
    assert "gpt is a gpt, but --task pairs trains a transformer" in done.err


def test_a_run_of_text_does_not_go_on_with_pairs_nor_one_of_stories(cli, here):
    size = shlex.split("--n-layers 1 --d-model 8 --max-len 16 --steps 1 --no-tensorboard")
    assert cli("train", "numbers.txt", *size, "--out", "gpt").code == 0
    assert cli("train", "--task", "refer", *size, "--max-len", "64", "--out", "reader").code == 0
    for name, kind in (("gpt", "text"), ("reader", "refer")):
        done = cli("train", "--resume", name, "--pairs", "toy.tsv")
        assert done.code == 2
        assert f"{name} was trained on {kind}, not on pairs" in done.err
    assert cli("train", "--resume", "gpt", "numbers.txt").code == 0


def test_letters_cannot_change_under_trained_parameters(cli, here):
    cli("train", "--pairs", "toy.tsv", *SMALL, *ONE, "--out", "old")
    done = cli("train", "--pairs", "toy.tsv", "--from", "old", "--lowercase")
    assert done.code == 2
    assert "--lowercase cannot change" in done.err


def test_a_field_of_two_configs_is_one_flag_and_must_be_of_one_type(tmp_path):
    @with_flags(A=("model/gpt.py", "GPTConfig"), B=("model/transformer.py", "TransformerConfig"))
    def command(**flags): ...

    names = list(command.__signature__.parameters)
    assert names.count("n_layers") == 1
    assert {"window", "n_decoder_layers"} <= set(names)
    other = tmp_path / "other.py"
    other.write_text("class OtherConfig:\n    n_layers: str\n")
    with pytest.raises(TypeError, match="n_layers"):
        with_flags(A=("model/gpt.py", "GPTConfig"), B=(str(other), "OtherConfig"))
