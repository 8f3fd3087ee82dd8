"""`glasshead heads`: mistakes first, then what it prints and writes."""

import json

import pytest

from glasshead.checkpoint.run import RunConfig
from glasshead.checkpoint.run_folder import RunFolder
from tests.roles.circuits import TOKENIZER, induction_model
from tests.roles.test_naming import text

FEW = ("--sequences", "4", "--tokens", "53", "--draws", "3")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose heads are planted."""
    from dataclasses import asdict

    model, path = induction_model(), tmp_path_factory.mktemp("runs") / "planted"
    config = RunConfig("gpt", asdict(model.config), {}, {"task": "text"})
    RunFolder.create_with(path, config, TOKENIZER, lambda folder: folder.save_model(model, 0))
    return path


@pytest.mark.parametrize(
    ("args", "message", "hint"),
    [
        (["-o", "heads.pgn"], "no picture or table", "png"),
        (["--draws", "-1"], "--draws (-1) must be at least 0", "--draws 0"),
        (["--head", "x"], "--head x is no layer and head", "--head 0:0"),
        (["--head", "9:0"], "there is no head 9:0", "layers are 0 to 1"),
        (["--role", "inductoin"], "unknown role 'inductoin'", "induction"),
        (["too short"], "tokens, too few", "stories"),
    ],
)
def test_mistakes_are_one_line_and_a_hint(cli, run, args, message, hint):
    given = ["0123"] if args[-1] == "too short" else [text()]
    flags = [] if args[-1] == "too short" else args
    code, out, err = cli("heads", run, *given, *FEW, *flags)
    assert code == 2
    assert out == ""
    assert message in err


def test_the_tables_name_the_planted_heads(cli, run):
    code, out, _ = cli("heads", run, text(), *FEW)
    assert code == 0
    [role] = [line for line in out.splitlines() if line.startswith("induction  ")][:1]
    assert "1:3" in role
    proofs = out[out.index("Proofs") :]
    assert [line for line in proofs.splitlines() if "induction" in line and "needed" in line]
    assert max(map(len, out.splitlines())) <= 80


def test_chinese(cli, run):
    _, out, _ = cli("heads", run, text(), *FEW, "--lang", "zh")
    assert "归纳" in out
    assert "需要" in out


def test_one_head_is_told_in_a_sentence(cli, run):
    _, out, _ = cli("heads", run, text(), *FEW, "--head", "1:3")
    assert "Looks at what followed the token last time: 9" in out
    assert "rises by" in out
    _, out, _ = cli("heads", run, text(), *FEW, "--head", "1:0")
    assert "No role stands out." in out


def test_json_and_files(cli, run, tmp_path):
    (tmp_path / "my.txt").write_text(text())
    args = ("heads", run, tmp_path / "my.txt", *FEW, "--role", "induction")
    _, out, err = cli(*args, "--json", "-o", tmp_path / "h.csv", "--streaming", tmp_path / "duo")
    data = json.loads(out)
    assert list(data["proofs"]) == ["induction"]
    assert data["roles"]["previous"]["heads"] == [[0, 2]]
    assert "wrote" in err
    assert (tmp_path / "duo/full_attention_heads.tsv").is_file()
    assert len((tmp_path / "h.csv").read_text().splitlines()) == 11
    cli(*args, "-o", tmp_path / "h.json")
    assert json.loads((tmp_path / "h.json").read_text())["proofs"] == data["proofs"]


def test_a_model_compared_with_itself_has_not_changed(cli, run):
    _, out, _ = cli("heads", run, text(), *FEW, "--compare", run)
    assert "No head changed its role." in out
