"""What `--help` shows can be copied: every example is parsed, and those that are quick are run."""

import lzma
import re
import shlex
import unicodedata
from pathlib import Path

import pytest
import typer

from glasshead.cli import COMMANDS, app, run
from glasshead.text.tokenizer import CharTokenizer
from tests.cli.test_cli import is_a_mistake
from tests.generation.runs import make_run
from tests.generation.translators import make_translator, small_bpe

GROUP = typer.main.get_command(app)
POEM = "春江潮水连海平，海上明月共潮生。\n" * 90
LLAMA = {"positions": "rotary", "norm": "rms", "feed_forward": "swiglu", "bias": False,
         "head_bias": False, "n_heads": 2, "d_model": 16, "max_len": 64}  # fmt: skip
SMALL = ["--steps", "1", "--n-layers", "1", "--n-heads", "2", "--d-model", "8", "--max-len", "32"]
# These run for minutes, or for ever, or have tests of their own, or need what is not there, as a
# model of the hub.
LONG = re.compile(
    "glasshead (demo|ask|ladder|serve|doctor|lesson|plan|claims .|exercise (check|look))"
    "|train .*--(minutes|pairs|task|resume|from)|Qwen|SmolLM2|gguf|my_model.py"
)


def help_of(word):
    """On a terminal of 80 columns, of which two stay free."""
    context = GROUP.make_context("glasshead", [], resilient_parsing=True, terminal_width=78)
    if word:
        command = GROUP.commands[word]
        context = command.make_context(word, [], context, resilient_parsing=True)
    return context.get_help()


def examples_of(word):
    [block] = re.findall(r"^ *Examples:\n((?: +\S.*\n)+)", help_of(word), re.MULTILINE)
    return [line.strip() for line in block.splitlines()]


def words_of(example):
    """What the shell gives to glasshead."""
    words = shlex.split(example)
    words = words[words.index("glasshead") + 1 :]
    return words[: min((words.index(sign) for sign in "<>" if sign in words), default=None)]


def sent_by(example):
    """What the shell sends it."""
    words = shlex.split(example)
    if "<" in words:
        return Path(words[words.index("<") + 1]).read_bytes()
    return f"{words[1]}\n".encode() if words[0] == "echo" else b""


EXAMPLES = {word: examples_of(word) for word in ["", *COMMANDS]}
QUICK = [
    example
    for example in dict.fromkeys(one for examples in EXAMPLES.values() for one in examples)
    if not LONG.search(example)
]


@pytest.mark.parametrize("word", EXAMPLES)
def test_the_help_of_a_command_can_be_read_and_copied(word):
    for line in help_of(word).splitlines():
        cells = sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in line)
        assert cells <= 80 or line.strip() in EXAMPLES[word]  # which no line end may break
    mine = [one for one in EXAMPLES[word] if f"glasshead {word}".strip() in one]
    assert len(mine) >= 2
    for example in EXAMPLES[word]:
        words = words_of(example)
        with GROUP.make_context("glasshead", words) as outer:
            name, command, rest = GROUP.resolve_command(outer, words)
            if "--help" not in rest:
                command.make_context(name, rest, outer)  # raises where an option is unknown


def test_the_list_of_commands_fits_and_cuts_no_summary_off():
    commands = help_of("").partition("Commands:")[2]
    assert [line.split()[0] for line in commands.splitlines() if line] == list(COMMANDS)
    assert "..." not in commands


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A folder in which everything lies that the examples name."""
    path = tmp_path_factory.mktemp("house")
    for name in ("my.txt", "mine.txt", "held-out.txt", "book.txt"):
        (path / name).write_text(POEM, encoding="utf-8")
    (path / "book.xz").write_bytes(lzma.compress(POEM.encode()))
    german, english = "Ein Hund rennt.\n", "A dog runs.\n"
    for name in ("german.txt", "test.de"):
        (path / name).write_text(german)
    (path / "test.en").write_text(english)
    tokenizer = CharTokenizer.train(POEM)
    make_run(path / "runs/poems", tokenizer, **LLAMA)
    make_translator(path / "runs/de-en", small_bpe(german + english))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        run(["atlas", "runs/poems", "book.txt", "-o", "book.glass", "--beyond"])
    return path


@pytest.mark.parametrize("example", QUICK)
def test_an_example_runs(cli, stdin, house, monkeypatch, example):
    monkeypatch.chdir(house)
    words = words_of(example)
    if "models/gpt2" in words:
        folders = pytest.importorskip("tests.observe.folders", reason="needs transformers")
        if not (house / "models/gpt2").exists():
            folders.gpt2(house / "models/gpt2")
    stdin(sent_by(example))
    if words[0] == "train" and "--show" not in words:
        words += SMALL
    code, out, err = cli(*words)
    assert code == 0, err
    assert out or (house / words[words.index("-o") + 1]).exists()


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("trian my.txt", "'train'"),
        ("train my.tx", "'my.txt'"),
        ("train my", "'my.txt'"),
        ("train my.txt --preset NANNO", "'nano'"),
        ("train my.txt --optimizer moun", "'muon'"),
        ("train --task reefer", "'refer'"),
        ("train --resume runs/peoms", "'runs/poems'"),
        ("generate poems 春", "'runs/poems'"),
        ("generate runs/poem 春", "'runs/poems'"),
        ("generate runs 春", "choose one of: runs/de-en, "),
        ("translate run/de-en a", "'runs/de-en'"),
        ("score runs/poems held-ot.txt", "'held-out.txt'"),
        ("look runs/poems 春江 --statistic entropi", "'entropy'"),
        ("look runs/poems 春江 --layer 7", "choose one of: 0, 1"),
        ("look runs/de-en Ein --layer cros.1", "'cross.1'"),
        ("look runs/poems 春江 -o heads.pgn", "'.png'"),
        ("look bok.glass", "'book.glass'"),
        ("atlas runs/poems bok.txt -o b.glass", "'book.txt'"),
        ("serve run", "'runs'"),
        ("claims reprot", "'report'"),
        ("claims 99", "from 1 to "),
        ("world --lang eng", "'en'"),
        ("steps a --vectors x/a.json", "there is no folder x either"),
        ("import run/poems -o a", "'runs'"),
        ("export runs/poms -o a", "'runs/poems'"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(cli, house, monkeypatch, line, hint):
    monkeypatch.chdir(house)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert hint in is_a_mistake(cli(*line.split()))[1]
