"""Folders are counted before they are read, and large ones are asked about on a terminal."""

import sys

import pytest
import typer

from glasshead.cli import folders
from glasshead.cli.folders import confirm_folders


@pytest.fixture
def texts(tmp_path):
    for number in range(5):
        (tmp_path / f"{number}.txt").write_text("春江\n" * 100)
    return tmp_path


def on_terminal(monkeypatch, answer):
    asked = []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(typer, "confirm", lambda text, **more: asked.append(text) or answer)
    return asked


def test_a_folder_says_what_it_holds(texts, capsys):
    confirm_folders([texts, texts / "1.txt"])
    assert f"{texts}: 5 files, 0.0 MB" in capsys.readouterr().err
    confirm_folders([texts / "1.txt", "-"])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("limit", [("MOST_FILES", 4), ("MOST_BYTES", 3499)])
def test_a_large_folder_is_asked_about_on_a_terminal_alone(texts, capsys, monkeypatch, limit):
    monkeypatch.setattr(folders, *limit)
    confirm_folders([texts])
    asked = on_terminal(monkeypatch, True)
    confirm_folders([texts])
    assert asked == ["Read them all?"]
    on_terminal(monkeypatch, False)
    with pytest.raises(typer.Exit) as ended:
        confirm_folders([texts])
    assert ended.value.exit_code == 1
    assert "nothing was read" in capsys.readouterr().err


def test_a_small_folder_is_not_asked_about(texts, monkeypatch):
    asked = on_terminal(monkeypatch, False)
    confirm_folders([texts])
    assert asked == []
