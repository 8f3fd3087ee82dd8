"""`glasshead translate`, as it is typed."""

import io
import json
import re
import sys

import pytest
from rich.cells import cell_len

from glasshead.checkpoint import load
from glasshead.generation.alignment import align
from glasshead.generation.beam import SearchConfig
from glasshead.generation.translate import Translator
from glasshead.text.tokenizer import CharTokenizer
from tests.cli.test_cli import is_a_mistake
from tests.generation.runs import make_run
from tests.generation.translators import SPECIALS, make_translator, small_bpe

TEXT = "Ein Hund rennt durch den Schnee. Zwei Hunde rennen. 小猫在公园里追逐一只蝴蝶。"
SHORT = ("--max-tokens", "9")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_translator(tmp_path_factory.mktemp("runs") / "de-en", small_bpe(TEXT * 3))


@pytest.fixture(scope="module")
def chars(tmp_path_factory):
    """Writes narrow and wide words."""
    tokenizer = CharTokenizer.train("小猫ab ", SPECIALS)
    return make_translator(tmp_path_factory.mktemp("runs") / "chars", tokenizer, seed=9, max_len=17)


def said(run, texts, **search):
    loaded = load(run)
    config = SearchConfig(**({"max_tokens": 9} | search))
    found = Translator(loaded.model, loaded.tokenizer, config)(texts)
    return [" ".join(one.best.text.splitlines()) for one in found]


def ended(run, text):
    loaded = load(run)
    return Translator(loaded.model, loaded.tokenizer)([text])[0].best.ended


def test_a_text_becomes_one_line_on_stdout_and_nothing_else(cli, run):
    expected = said(run, ["Ein Hund"])[0]
    assert cli("translate", run, "Ein Hund", *SHORT) == (0, f"{expected}\n", "")


def test_the_search_is_as_asked(cli, run):
    for search in ({"beam": 1}, {"beam": 7, "alpha": 3.0}, {"max_tokens": 2}):
        flags = [str(f) for n, v in search.items() for f in (f"--{n.replace('_', '-')}", v)]
        args = flags if "max_tokens" in search else [*flags, *SHORT]
        assert cli("translate", run, TEXT, *args).out == said(run, [TEXT], **search)[0] + "\n"


def test_stdin_is_translated_line_by_line_and_empty_lines_stay(cli, run, stdin):
    lines = ["Ein Hund", "", "  ", "Zwei", "小猫🦋"]
    expected = "".join(f"{line}\n" for line in said(run, lines))
    for data in ("\n".join(lines), "\r\n".join(lines) + "\r\n", "\ufeff" + "\n".join(lines) + "\n"):
        stdin(data.encode())
        assert cli("translate", run, *SHORT) == (0, expected, "")
    stdin("\n".join(lines).encode())
    assert cli("translate", run, "-", *SHORT).out == expected
    assert cli("translate", run, "\n".join(lines), *SHORT).out == expected
    stdin(b"")
    assert cli("translate", run) == (0, "", "")


def test_an_empty_text_becomes_an_empty_line(cli, run):
    assert cli("translate", run, "") == (0, "\n", "")


def test_a_terminal_is_told_how_to_end(cli, run, stdin):
    stdin(b"Ein Hund\n", terminal=True)
    code, out, err = cli("translate", run, *SHORT)
    assert (code, out.count("\n")) == (0, 1)
    assert "Ctrl-D" in err


def test_n_best_prints_scores_and_divides_the_lines(cli, run, stdin):
    stdin(b"Ein Hund\n\nZwei\n")
    out = cli("translate", run, "--n-best", "3", *SHORT).out
    groups = [group.splitlines() for group in out.split("---\n")]
    assert [len(group) for group in groups] == [3, 1, 3]
    assert groups[1] == ["0.0000\t0.0000\t"]
    for group in (groups[0], groups[2]):
        rows = [line.split("\t") for line in group]
        assert [float(row[0]) > float(row[1]) for row in rows] == [True] * 3
        assert len({row[2] for row in rows}) == 3


def test_json_has_a_line_for_each_text_with_everything(cli, run, stdin):
    stdin(b"Ein Hund\n\n")
    code, out, _ = cli("translate", run, "--json", "--n-best", "2", *SHORT)
    first, second = map(json.loads, out.splitlines())
    assert code == 0
    assert (first["source"], first["parts"], second["source"], second["parts"]) == (
        "Ein Hund", 1, "", 0,
    )  # fmt: skip
    assert set(first["translations"][0]) == {"text", "score", "log_prob", "tokens", "ended"}
    assert [len(one["translations"]) for one in (first, second)] == [2, 1]
    assert first["translations"][0]["score"] >= first["translations"][1]["score"]
    assert [one["ended"] for one in first["translations"]] == [False, False]  # cut off at 9 tokens
    assert "align" not in first


def test_align_shows_words_in_straight_columns_and_says_what_was_averaged(cli, chars):
    out = cli("translate", chars, "小猫 ab a", "--align", *SHORT).out
    text, title, *rows = out.splitlines()
    assert title == "layer 1 of 0 to 2, the mean of heads 0 to 3:"
    assert len({cell_len(row.split()[0]) for row in rows}) > 1
    columns = set()
    for row in rows:
        word, looked = re.fullmatch(r"  (\S+) +(\S+ \d\.\d\d.*)", row).groups()
        columns.add(cell_len(row[: row.index(looked, len(word) + 2)]))
        assert word in text
        sources = re.findall(r"(\S+) (\d\.\d\d)", looked)
        assert {source for source, _ in sources} <= {"小", "猫", "ab", "a"}
        weights = [float(weight) for _, weight in sources]
        assert weights == sorted(weights, reverse=True)
        assert 1 <= len(weights) <= 3
    assert len(columns) == 1


def test_align_takes_the_layer_and_the_head_that_are_named(cli, chars):
    args = ("translate", chars, "小猫 ab", "--align", *SHORT)
    loaded = load(chars)
    candidate = Translator(loaded.model, loaded.tokenizer, SearchConfig(max_tokens=9))(["小猫 ab"])
    expected = align(loaded.model, loaded.tokenizer, *candidate[0].best.parts[0], layer=2)
    out = cli(*args, "--layer", "2", "--head", "3").out.splitlines()
    assert out[1] == "layer 2 of 0 to 2, head 3 of 0 to 3:"
    top = expected.weights[3, 0].max().item()
    assert f"{expected.source[int(expected.weights[3, 0].argmax())]} {top:.2f}" in out[2]
    [whole] = json.loads(cli(*args, "--json", "--layer", "2").out)["align"]
    assert (whole["layer"], whole["heads"]) == (2, [0, 1, 2, 3])
    assert whole["weights"] == expected.weights.tolist()
    [one] = json.loads(cli(*args, "--json", "--layer", "2", "--head", "3").out)["align"]
    assert (one["heads"], one["weights"]) == ([3], [whole["weights"][3]])


def test_a_long_line_is_translated_in_parts_and_a_note_says_so(cli, chars, stdin):
    long = "小猫 ab小猫 ab小猫 ab小猫 aba"
    stdin(f"小猫\n{long}\n".encode())
    code, out, err = cli("translate", chars, *SHORT)
    assert (code, out.count("\n")) == (0, 2)
    assert err == ("line 2 is longer than max_len (17 tokens): translated in 2 parts\n")
    out = cli("translate", chars, long, "--align", *SHORT).out
    assert out.count("layer 1 of") == 2


def test_a_run_of_small_letters_reads_small_letters(cli, tmp_path):
    run = make_translator(tmp_path / "low", small_bpe(TEXT), {"pairs": {"lowercase": True}})
    assert cli("translate", run, "EIN HUND", *SHORT).out == said(run, ["ein hund"])[0] + "\n"
    assert cli("translate", run, "EIN HUND", *SHORT).out != said(run, ["EIN HUND"])[0] + "\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["a", "--beam", "0"], "beam (0) must be at least 1"),
        (["a", "--beam", "1000000"], "beam (1000000)"),
        (["a", "--alpha", "-1"], "alpha (-1.0)"),
        (["a", "--alpha", "1000"], "alpha (1000.0)"),
        (["a", "--n-best", "5"], "n_best (5) must lie between 1 and beam (4)"),
        (["a", "--max-tokens", "0"], "max_tokens (0)"),
        (["a", "--layer", "1"], "--layer 1 works only with --align"),
        (["a", "--head", "0"], "--head 0 works only with --align"),
        (["a", "--align", "--layer", "3"], "--layer (3) must be between 0 and 2"),
        (["a", "--align", "--head", "-1"], "--head (-1) must be between 0 and 3"),
        (["a", "--device", "abacus"], "unknown device 'abacus'"),
        (["a", "--aling"], "no option '--aling'"),
        (["a 狗"], "character '狗' (U+72D7) at line 1, column 3"),
    ],
)
def test_mistakes_are_one_line_and_a_hint(cli, chars, args, message):
    outcome = cli("translate", chars, *args)
    assert is_a_mistake(outcome)
    assert message in outcome.err


def test_a_language_model_does_not_translate(cli, tmp_path):
    run = make_run(tmp_path / "poems", CharTokenizer.train("ab"))
    first, hint = is_a_mistake(cli("translate", run, "a"))
    assert "poems is a gpt, which does not translate" in first
    assert "glasshead generate" in hint


def test_stdin_that_is_not_utf8_names_the_line(cli, run, stdin):
    stdin(b"\xb4\xba\n")
    first, _ = is_a_mistake(cli("translate", run))
    assert first == "standard input, line 1: invalid UTF-8 at byte 0"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"Ein Hund\n\nZwei\n\xb4\xba\nDrei\n", "standard input, line 4: invalid UTF-8"),
        ("a\n\nab\n狗\na\n".encode(), "line 4 of the text: character '狗'"),
    ],
)
def test_what_stands_before_a_line_that_cannot_be_read_is_translated(
    cli, run, chars, stdin, data, message
):
    which = chars if "狗" in message else run
    stdin(data)
    code, out, err = cli("translate", which, *SHORT)
    assert code == 2
    assert message in err
    assert out.splitlines() == said(which, data.decode(errors="replace").split("\n")[:3])


def test_a_line_longer_than_what_is_read_at_once_stays_one(cli, run, stdin, monkeypatch):
    monkeypatch.setattr("glasshead.cli.translate.CHUNK", 7)
    lines = ["Ein Hund rennt durch den Schnee.", "", "小猫在公园里", "Zwei"]
    stdin("\n".join(lines).encode())
    assert cli("translate", run, *SHORT).out.splitlines() == said(run, lines)


def test_a_translation_that_found_no_end_is_told(cli, run, stdin):
    stdin("Ein Hund\n\n小猫\n".encode())
    expected = [
        f"the translation of line {number} was cut at the maximum length"
        for number, line in enumerate(["Ein Hund", "", "小猫"], 1)
        if not ended(run, line)
    ]
    assert expected
    assert cli("translate", run).err.splitlines() == expected


def test_no_stdin_is_an_empty_one(cli, run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    assert cli("translate", run) == (0, "", "")


class OpenPipe(io.RawIOBase):
    """Sends a line whenever it is read from, and first calls `asked`."""

    def __init__(self, lines, asked):
        self.lines, self.asked = iter(lines), asked

    def readable(self):
        return True

    def readinto(self, buffer):
        self.asked()
        line = next(self.lines, "").encode()
        buffer[: len(line)] = line
        return len(line)


def test_each_line_is_translated_while_the_pipe_stays_open(cli, chars, monkeypatch):
    flushed, seen, out = [0], [], sys.stdout
    monkeypatch.setattr(out, "flush", lambda: flushed.append(out.getvalue().count("\n")))
    pipe = OpenPipe(["小猫\n", "\n", "ab"], asked=lambda: seen.append(flushed[-1]))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(pipe)))
    code, text, _ = cli("translate", chars, "--max-tokens", "5")
    assert (code, text.count("\n")) == (0, 3)
    assert seen[:3] == [0, 1, 2]  # each line is out before the next is asked for
