"""`glasshead import` and `glasshead export`, as they are typed."""

import json

import pytest

from glasshead.text.tokenizer import CharTokenizer
from tests.cli.test_cli import is_a_mistake
from tests.generation.runs import make_run

hf = pytest.importorskip("transformers", reason="needs transformers")

from tests.model import foreign  # noqa: E402


def test_a_folder_becomes_a_run_and_a_folder_again(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    foreign.folder(tmp_path / "theirs", "gpt2")
    done = cli("import", "theirs", "-o", "runs/mine")
    assert (done.code, done.out) == (0, "runs/mine\n")
    assert done.err.endswith("gpt of the family gpt2\n")
    said = cli("generate", "runs/mine", "The cat", "--max-tokens", "5", "--temperature", "0")
    assert said.code == 0
    assert said.out.startswith("The cat")
    done = cli("export", "runs/mine", "--out", "out")
    assert (done.code, done.out) == (0, "out\n")
    assert done.err.startswith("GPT2LMHeadModel, ")
    assert foreign.same_bytes("theirs/model.safetensors", "out/model.safetensors")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "`theirs`" in card
    assert "library_name: transformers" in card


def test_a_folder_is_used_without_being_imported(cli, tmp_path):
    path = foreign.folder(tmp_path / "theirs")
    said = cli("generate", path, "The cat", "--max-tokens", "3", "--temperature", "0")
    assert said.code == 0
    assert said.out.startswith("The cat")


def test_an_imported_run_is_trained_further_and_exported(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    foreign.folder(tmp_path / "theirs", "qwen3")
    assert cli("import", "theirs", "-o", "base").code == 0
    (tmp_path / "text.txt").write_text(foreign.TEXT * 60)
    flags = "--steps 3 --max-len 13 --batch-size 2 --out tuned"
    done = cli("train", "text.txt", "--from", "base", *flags.split())
    assert done.code == 0, done.err
    assert cli("export", "tuned", "-o", "out").code == 0
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["architectures"] == ["Qwen3ForCausalLM"]
    assert config["max_position_embeddings"] == 13


def test_mistakes_are_one_line_and_a_hint(cli, tmp_path):
    path = foreign.folder(tmp_path / "theirs")
    assert cli("import", path, "-o", tmp_path / "run").code == 0
    run = make_run(tmp_path / "poems", CharTokenizer.train("abc"))
    for args in (
        ("import", path, "-o", tmp_path / "run"),  # it is there already
        ("import", tmp_path / "run", "-o", tmp_path / "other"),  # a run already
        ("import", tmp_path / "none", "-o", tmp_path / "other"),
        ("import", path),
        ("export", path, "-o", tmp_path / "other"),  # no run
        ("export", tmp_path / "none", "-o", tmp_path / "other"),
        ("export", run, "-o", tmp_path / "other"),  # which no family can hold
    ):
        done = cli(*args)
        is_a_mistake(done)
    assert not (tmp_path / "other").exists()
