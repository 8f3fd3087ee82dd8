"""`glasshead export RUN -o FILE.html`: what is said, and what is refused before it is written."""

import re
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from glasshead.model.gpt import GPT, GPTConfig
from glasshead.page import living
from glasshead.text.piece_tokenizer import PieceTokenizer
from glasshead.text.tokenizer import CharTokenizer
from tests.cli.test_cli import is_a_mistake
from tests.page.test_engine import make_run

NAME = "我的 <b>模型 & 'x' #1%"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    tokenizer = CharTokenizer.train("abcdefg 小猫它在\n")
    config = GPTConfig(tokenizer.vocab_size, max_len=17, n_layers=1, n_heads=2, d_model=20)
    return make_run(tmp_path / NAME, "gpt", GPT(config), tokenizer).path


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_size_and_cost_are_said_and_the_path_printed(cli: Any, run: Path, tmp_path: Path) -> None:
    done = cli("export", run, "-o", tmp_path / "page.HTML", "--precision", "int8")
    assert (done.code, done.out) == (0, f"{tmp_path / 'page.HTML'}\n")
    size = (tmp_path / "page.HTML").stat().st_size
    assert f"{size / 1e6:,.1f} MB, parameters in int8\n" in done.err
    assert "rounding changes the predictions by" in done.err
    page = (tmp_path / "page.HTML").read_text(encoding="utf-8")
    assert not re.search(r"""(?:src|href)=["']?https?:""", page)
    assert NAME not in page.replace("\\u003c", "")  # its < would begin an element
    assert cli("export", run, "-o", tmp_path / "exact.html", "--precision", "float32").code == 0


def test_what_cannot_be_is_refused_before_anything_is_written(
    cli: Any, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there.html").write_text("mine")
    before = files(tmp_path)

    def refused(*words: str | Path) -> str:
        done = cli("export", *words)
        is_a_mistake(done)
        assert files(tmp_path) == before
        return str(done.err)

    assert "there.html exists already" in refused(run, "-o", tmp_path / "there.html")
    assert (tmp_path / "there.html").read_text() == "mine"
    assert "cannot write" in refused(run, "-o", tmp_path / "no" / "page.html")
    assert "is for an HTML file" in refused(run, "-o", tmp_path / "out", "--precision", "int8")
    monkeypatch.setattr(living, "LARGEST", 100_000)
    said = refused(run, "-o", tmp_path / "page.html")
    assert "more than 0 MB" in said
    assert "export a smaller model" in said


def test_a_model_that_only_int8_makes_small_enough_gets_that_hint(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(living, "AROUND", 0)
    whole = living.packed_size(living.load(run), "float32")
    monkeypatch.setattr(living, "LARGEST", whole)  # in base64 it has a third more
    with pytest.raises(living.InputError) as error:
        living.plan_living(run, "float32")
    assert error.value.hint == "add --precision int8"
    assert living.plan_living(run, "int8").packed.data


def test_a_tokenizer_that_the_page_lacks_is_refused(cli: Any, tmp_path: Path) -> None:
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "cat": 1}, "[UNK]"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = PieceTokenizer(inner)
    config = GPTConfig(tokenizer.vocab_size, max_len=17, n_layers=1, n_heads=2, d_model=20)
    run = make_run(tmp_path / "run", "gpt", GPT(config), tokenizer).path
    done = cli("export", run, "-o", tmp_path / "page.html")
    is_a_mistake(done)
    assert "the tokenizer of run (pieces) does not run in a page" in done.err
    assert not (tmp_path / "page.html").exists()
