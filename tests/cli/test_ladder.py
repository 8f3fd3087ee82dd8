"""`glasshead ladder`, as it is typed."""

import json

import pytest

from glasshead.lab import ladder
from tests.cli.test_cli import is_a_mistake


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(ladder, "FINAL_BATCHES", 5)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "small.txt"
    path.write_text("".join(chr(0x4E00 + n**3 % 29) for n in range(2001)), encoding="utf-8")
    return path


def test_a_short_climb_gives_a_table_a_picture_and_json(cli, text, tmp_path):
    out = tmp_path / "new" / "folder"
    code, table, err = cli(
        "ladder", "--rungs", "1,10", "--steps", "7", "--seeds", "2", "--text", text, "--out", out
    )
    assert code == 0
    assert "29 distinct" in table
    assert table.count("±") == 4
    assert "dropout 0.2" in table
    assert [line.split(":")[0] for line in err.splitlines()[:4]] == [
        "rung 1, seed 0",
        "rung 1, seed 1",
        "rung 10, seed 0",
        "rung 10, seed 1",
    ]
    assert str(out / "ladder.png") in err
    assert (out / "ladder.png").read_bytes().startswith(b"\x89PNG")
    data = json.loads((out / "ladder.json").read_text())
    assert [rung["rung"] for rung in data["rungs"]] == [1, 10]
    assert f"{data['rungs'][0]['val']:.3f} ±" in table
    assert sorted(p.name for p in out.iterdir()) == ["ladder.json", "ladder.png"]


def test_chinese_is_asked_for(cli, text, tmp_path):
    code, table, _ = cli(
        "ladder", "--rungs", "1", "--steps", "1", "--text", text, "--out", tmp_path, "--lang", "zh"
    )
    assert code == 0
    assert "二元模型" in table


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (["--rungs", "13"], "there is no rung 13"),
        (["--rungs", "7-3"], "runs backwards"),
        (["--rungs", "all"], "'all' in --rungs 'all' is not a rung"),
        (["--steps", "0"], "--steps '"),
        (["--seeds", "0"], "--seeds '"),
        (["--steps", "many"], "--steps '"),
        (["--text", "no/such/file.txt"], "no/such/file.txt"),
    ],
)
def test_a_bad_command_line(cli, args, error, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, _ = is_a_mistake(cli("ladder", *args))
    assert error in first
    assert list(tmp_path.iterdir()) == []


def test_a_text_too_short_and_a_folder_that_cannot_be(cli, tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("abc")
    first, _ = is_a_mistake(cli("ladder", "--rungs", "1", "--text", short, "--out", tmp_path))
    assert "the last tenth of the text has 1 characters" in first
    first, _ = is_a_mistake(cli("ladder", "--rungs", "1", "--text", short, "--out", short))
    assert "cannot write to" in first
