"""`glasshead score`, as it is typed."""

import gzip
import json
import lzma
import math
import re
import sys

import numpy as np
import pytest

from glasshead.cli.score import JsonTokens, TokenJoiner, TokenLines, _FileParts
from glasshead.cli.terminal import console
from glasshead.generation.score import Surprises
from glasshead.text.tokenizer import BPETokenizer, ByteTokenizer, CharTokenizer
from tests.cli.test_cli import is_a_mistake
from tests.generation.runs import make_run

TEXT = "春江潮水连海平，\n海上明月共潮生。\n" * 5


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs") / "chars", CharTokenizer.train(TEXT))


@pytest.fixture(scope="module")
def bpe(tmp_path_factory):
    """Tokens that are parts of characters: 256 bytes and two merges."""
    tokenizer = BPETokenizer.train(TEXT, vocab_size=258)
    return make_run(tmp_path_factory.mktemp("runs") / "bpe", tokenizer)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_the_figures_belong_together(cli, run, file):
    code, out, err = cli("score", run, file, "--json")
    figures = json.loads(out)
    assert (code, err) == (0, "")
    assert figures["tokens"] == len(TEXT) - 1
    assert figures["bytes"] == len(TEXT[1:].encode())
    assert figures["perplexity"] == pytest.approx(math.exp(figures["loss"]))
    nats = figures["loss"] * figures["tokens"]
    assert figures["bits_per_byte"] == pytest.approx(nats / math.log(2) / figures["bytes"])


def test_the_table_has_the_same_figures(cli, run, file):
    figures = json.loads(cli("score", run, file, "--json").out)
    assert cli("score", run, file).out == (
        f"loss           {figures['loss']:.4f} nats/token\n"
        f"perplexity     {figures['perplexity']:.2f}\n"
        f"bits per byte  {figures['bits_per_byte']:.4f}\n"
        f"tokens         {figures['tokens']:,}\n"
        f"bytes          {figures['bytes']:,}\n"
    )


def test_the_surprises_of_all_tokens_come_to_the_figures(cli, run, file):
    figures = json.loads(cli("score", run, file, "--json", "--tokens").out)
    shown = figures["surprises"]
    assert "".join(one["token"] for one in shown) == TEXT
    assert shown[0]["bits"] is None
    bits = math.fsum(one["bits"] for one in shown[1:])
    assert bits == pytest.approx(figures["bits_per_byte"] * figures["bytes"])


def test_tokens_without_colour_carry_their_bits(cli, run, file):
    _, out, err = cli("score", run, file, "--tokens")
    tokens, figures = out.split("\n\n")
    tokens += "\n"
    assert "\x1b" not in out
    assert re.sub(r"⟨(\d+\.\d|–)⟩|↵", "", tokens) == TEXT
    assert tokens.startswith("春⟨–⟩江⟨")
    assert tokens.count("–") == 1
    assert tokens.count("⟨") == len(TEXT)
    assert err == "⟨–⟩ for the first token of a text, which has no context\n"
    assert re.search(r"，⟨\d+\.\d⟩↵⟨\d+\.\d⟩\n海", tokens)
    assert figures == cli("score", run, file).out


def test_tokens_with_colour_are_shaded_by_their_bits(cli, run, file, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("TERM", "xterm-256color")
    _, out, err = cli("score", run, file, "--tokens")
    assert "⟨" not in out
    plain = re.sub(r"\x1b\[[\d;]*m|↵", "", out)
    assert plain.startswith(TEXT)
    assert len(set(re.findall(r"48;2;\d+;\d+;\d+", out))) > 3
    assert err.startswith("no colour for the first token")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in cli("score", run, file, "--tokens").out


def test_parts_of_a_character_are_shown_together(cli, bpe, file):
    figures = json.loads(cli("score", bpe, file, "--json", "--tokens").out)
    shown = [one["token"] for one in figures["surprises"]]
    assert "".join(shown) == TEXT
    assert "�" not in "".join(shown)
    assert figures["tokens"] > len(shown)
    assert "�" not in cli("score", bpe, file, "--tokens").out


def test_stdin_and_compressed_files_score_the_same(cli, run, file, tmp_path, monkeypatch):
    packed = tmp_path / "text.txt.xz"
    packed.write_bytes(lzma.compress(TEXT.encode()))
    expected = cli("score", run, file).out
    assert cli("score", run, packed).out == expected
    with file.open(encoding="utf-8") as stream:
        monkeypatch.setattr("sys.stdin", stream)
        assert cli("score", run, "-").out == expected


def test_documents_are_scored_each_from_its_start(cli, run, tmp_path):
    lines = ["春江潮水", "海上明月共潮生。"]
    path = tmp_path / "two.jsonl"
    path.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    both = json.loads(cli("score", run, path, "--json").out)
    apart = []
    for number, line in enumerate(lines):
        one = tmp_path / f"{number}.txt"
        one.write_text(line, encoding="utf-8")
        apart.append(json.loads(cli("score", run, one, "--json").out))
    assert both["tokens"] == sum(one["tokens"] for one in apart) == 10
    nats = math.fsum(one["loss"] * one["tokens"] for one in apart)
    assert both["loss"] * both["tokens"] == pytest.approx(nats)


def test_a_smaller_stride_reads_more_context(cli, run, file):
    scores = {json.loads(cli("score", run, file, "--json", "--stride", n).out)["loss"]
              for n in ("1", "6", "13")}  # fmt: skip
    assert len(scores) == 3


@pytest.mark.parametrize(
    ("text", "args", "message"),
    [
        ("春江x", [], "character 'x' (U+0078) at line 1, column 3"),
        ("春", [], "has fewer than two tokens"),
        ("", [], "empty"),
        (TEXT, ["--stride", "0"], "stride (0) must lie between 1 and max_len (13)"),
    ],
)
def test_mistakes_are_one_line_and_a_hint(cli, run, tmp_path, text, args, message):
    path = tmp_path / "text.txt"
    path.write_text(text, encoding="utf-8")
    outcome = cli("score", run, path, *args)
    assert is_a_mistake(outcome)
    assert message in outcome.err


def test_a_file_that_is_not_there_is_a_mistake(cli, run, tmp_path):
    assert is_a_mistake(cli("score", run, tmp_path / "nothing.txt"))


def test_the_bits_of_a_characters_bytes_are_added_up():
    nats = np.array([2.0, 3.0, 5.0, 7.0]) * np.log(2)
    part = Surprises(np.frombuffer("春a".encode(), np.uint8).astype(np.int64), nats)
    found = list(TokenJoiner(ByteTokenizer()).add(part))
    assert [text for text, _ in found] == ["春", "a"]
    assert [bits for _, bits in found] == pytest.approx([10, 7])


def test_json_tokens_are_printed_as_they_come(capsys):
    show = JsonTokens()
    show.add("春", math.nan, any_predicted=False)
    assert capsys.readouterr().out == ""
    show.add("江", 3.5)
    first = capsys.readouterr().out
    assert first.startswith('{"surprises": [{"token": ')
    show.add("潮", 1.0)
    whole = first + capsys.readouterr().out + show.end('{"loss": 2.0}')
    found = json.loads(whole)
    assert [one["bits"] for one in found["surprises"]] == [None, 3.5, 1.0]
    assert found["loss"] == 2.0


def test_the_bar_knows_how_much_text_there_will_be(tmp_path):
    """By what was read of the file so far, compressed or not."""
    text = "".join(f"{n * n}\n" for n in range(400_000))
    packed = tmp_path / "text.txt.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    plain = tmp_path / "text.txt"
    plain.write_text(text)
    for file in (packed, plain):
        parts = _FileParts(str(file))
        assert parts.expected is None
        found = [parts.expected for pieces in parts for _ in pieces]
        assert len(found) > 1
        assert all(one == pytest.approx(len(text.encode()), rel=0.4) for one in found)
        assert found[-1] == pytest.approx(len(text.encode()), rel=0.01)


def test_tokens_on_a_terminal_are_shown_by_lines(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    show = TokenLines(console())
    for token, bits in (("one", math.nan), (" two", 3.25), ("\n", 1.0), ("three", 2.0)):
        show.add(token, bits)
    assert capsys.readouterr().out == "one⟨–⟩ two⟨3.2⟩↵⟨1.0⟩\n"
    show.end()
    assert capsys.readouterr().out == "three⟨2.0⟩\n\n"
