"""`glasshead atlas`, as it is typed, and what `look` finds in its file."""

import json
import lzma
import re

import pytest

from glasshead.generation.opening import open_inspectable
from glasshead.observe.inspectable import RecordConfig
from glasshead.observe.trace import open_glass
from glasshead.text.tokenizer import CharTokenizer
from tests.cli.test_cli import is_a_mistake
from tests.generation.runs import make_run

TEXT = "春江潮水连海平，海上明月共潮生。\n滟滟随波千万里，何处春江无月明！\n" * 11


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    tokenizer = CharTokenizer.train(TEXT)
    path = tmp_path_factory.mktemp("runs") / "moon"
    return make_run(path, tokenizer, max_len=31, n_layers=3, n_heads=2, positions="rotary")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_a_book_is_recorded_and_any_row_of_it_can_be_seen(cli, run, file, tmp_path):
    book = tmp_path / "book.glass"
    code, out, err = cli("atlas", run, file, "-o", book, "--beyond")
    assert (code, out) == (0, "")
    assert re.match(rf"{re.escape(str(book))}: 374 tokens, 3 layers, 6 heads, [\d.]+ MB\n", err)
    assert re.search(
        r"read in [\d.]+ s, measured in [\d.]+ s, written in [\d.]+ s; peak memory [\d,]+ MB", err
    )
    seen = open_glass(book)
    assert "".join(seen.tokens[0]) == TEXT
    assert all(record.statistics is not None for record in seen.layer_traces.values())
    alone = open_inspectable(run).record(TEXT, RecordConfig(beyond=True))
    # A processor rounds products by where in memory their factors lie.
    assert (seen.row(2, 1, 300) - alone.row(2, 1, 300)).abs().max() < 1e-6

    looks = json.loads(cli("look", book, "--query", "300", "--json").out)["looks"]
    assert len(looks) == 6
    for one in looks:
        row = alone.row(int(one["layer"]), one["head"], 300)
        assert one["weight"] == pytest.approx(float(row.max()))
        assert one["place"] == int(row.argmax())
    shown = cli("look", book, "--query", "300", "--layer", "0", "--head", "1", "--top", "4").out
    assert len(shown.splitlines()) == 7  # the last tells what a full bar is
    assert f"[{TEXT[300]}]" in shown.splitlines()[0]
    assert "374 tokens" in cli("look", book).out


def test_compressed_text_chosen_layers_and_the_beginning_only(cli, run, tmp_path):
    (tmp_path / "book.txt.xz").write_bytes(lzma.compress(TEXT.encode()))
    book = tmp_path / "book.glass"
    arguments = ("--layers", "0,2", "--max-tokens", "29", "--no-statistics")
    code, _, err = cli("atlas", run, tmp_path / "book.txt.xz", "-o", book, *arguments)
    assert code == 0
    assert "29 tokens, 2 layers, 4 heads" in err
    assert "measured" not in err
    seen = open_glass(book)
    assert [layer.index for layer in seen.layers] == [0, 2]
    assert all(record.statistics is None for record in seen.layer_traces.values())
    assert cli("look", book, "--layer", "2", "--head", "0").code == 0
    assert "there is no layer '1'" in is_a_mistake(cli("look", book, "--layer", "1"))[0]


def test_progress_is_for_terminals_only(cli, run, file, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    code, out, err = cli("atlas", run, file, "-o", tmp_path / "b.glass", "--max-tokens", "31")
    assert (code, out) == (0, "")
    assert "31 tokens" in err


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        ((), "the text has 374 tokens, but moon was made for 31", "--beyond reads all"),
        (("--layers", "1-"), "--layers '1-' is not a list of numbers", "try --layers 0,3-5"),
        (("--layers", "9", "--beyond"), "layer 9 does not exist", "0 to 2"),
        (("--max-tokens", "0"), "max_tokens (0) must be at least 1", "leave it out"),
        (("-o", "book.txt"), "the name of book.txt does not end in .glass", "try -o book.glass"),
        (("-o", "no/such/b.glass"), "there is no folder no/such", "mkdir -p no/such"),
    ],
)
def test_mistakes(cli, run, file, tmp_path, arguments, message, hint):
    outcome = cli("atlas", run, file, "-o", tmp_path / "b.glass", *arguments)
    told, helped = is_a_mistake(outcome)
    assert message in told
    assert hint in helped
    assert not (tmp_path / "b.glass").exists()


def test_learned_positions_end_where_they_end(cli, file, tmp_path):
    run = make_run(tmp_path / "learned", CharTokenizer.train(TEXT), max_len=31)
    outcome = cli("atlas", run, file, "-o", tmp_path / "b.glass", "--beyond")
    assert "the text has 374 tokens, but learned was made for 31" in is_a_mistake(outcome)[0]
    assert "--beyond" not in outcome.err


def test_a_file_without_text(cli, run, tmp_path):
    (tmp_path / "empty.txt").write_text(" \n")
    outcome = cli("atlas", run, tmp_path / "empty.txt", "-o", tmp_path / "b.glass")
    assert "contains no text" in is_a_mistake(outcome)[0]
