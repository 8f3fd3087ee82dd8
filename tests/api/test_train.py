"""`glasshead.train`: the same run as the command makes, from data in memory or in files."""

import json
import os
import re
import signal
from pathlib import Path

import pytest
from safetensors.torch import load_file

import glasshead
from glasshead.errors import GlassheadError
from glasshead.training.progress import ProgressListener, Status
from tests.training.cases import TEXT, same_ending

TINY = {
    "n_layers": 1,
    "n_heads": 2,
    "d_model": 16,
    "max_len": 16,
    "eval_batches": 2,
    "steps": 4,
    "eval_every": 2,
    "log_every": 2,
    "tensorboard": False,
    "threads": 1,
    "device": "cpu",
    "precision": "float32",
}
FLAGS = [
    word
    for name, value in TINY.items()
    for word in (
        ["--no-tensorboard"]
        if name == "tensorboard"
        else [f"--{name.replace('_', '-')}", str(value)]
    )
]
PAIRS = [(f"{i} plus {j}", f"makes {i + j}") for i in range(11) for j in range(13)]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "numbers.txt").write_text(TEXT)
    (tmp_path / "sums.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS))
    return tmp_path


def sources(run: glasshead.Run) -> list[Path]:
    return [Path(source) for source in run.config.data["sources"]]


def test_a_file_gives_the_run_that_the_command_makes(cli, here, capsys):
    assert cli("train", "numbers.txt", "--out", "typed", *FLAGS).code == 0
    run = glasshead.train("numbers.txt", out="called", **TINY)
    assert "finished at step 4" in capsys.readouterr().err
    same_ending(here / "typed", here / "called")
    names = [sorted(p.name for p in (here / name).iterdir()) for name in ("typed", "called")]
    assert names[0] == names[1]
    configs = [
        json.loads((here / name / "config.json").read_text()) for name in ("typed", "called")
    ]
    assert configs[0] == configs[1]
    assert run.path == Path("called")
    assert not run.model.training
    assert [line["step"] for line in run.metrics if "val_loss" in line] == [0, 2, 4]


def test_a_text_in_memory_is_the_same_as_its_file(here):
    path = glasshead.train(Path("numbers.txt"), out="file", quiet=True, **TINY).path
    run = glasshead.train(TEXT, quiet=True, **TINY)
    assert run.path == Path("runs/text-nano")
    same_ending(path, run.path)
    assert sources(run)[0].read_text() == TEXT
    again = glasshead.train(resume=run, steps=6, quiet=True)
    assert (again.path, again.metrics[-1]["step"]) == (run.path, 6)


def test_several_texts_are_several_documents(here):
    (here / "books").mkdir()
    (here / "books/one.txt").write_text(TEXT)
    run = glasshead.train(["numbers.txt", "books", TEXT + "\n"], quiet=True, **TINY)
    assert len(sources(run)) == 3
    assert "<eos>" in run.tokenizer.specials


def test_pairs_in_memory_are_the_same_as_a_table_and_as_two_files(here):
    for column, name in enumerate(("sums.a", "sums.b")):
        (here / name).write_text("".join(f"{pair[column]}\n" for pair in PAIRS))
    options = {**TINY, "preset": "pairs-tiny", "quiet": True}
    del options["eval_batches"]
    runs = [
        glasshead.train(data, **options)
        for data in (PAIRS, "sums.tsv", ["sums.a", "sums.b"], (list(pair) for pair in PAIRS))
    ]
    assert [run.path.name for run in runs] == [
        *("pairs-pairs-tiny", "sums-pairs-tiny", "sums-pairs-tiny-2", "pairs-pairs-tiny-2")
    ]
    first, *others = (load_file(run.path / "model.safetensors") for run in runs)
    for other in others:
        assert all(first[name].equal(other[name]) for name in first)
    assert glasshead.train("sums.tsv", val=PAIRS[:7], **options).config.data["val"]


def test_a_table_is_a_text_where_the_preset_is_for_text(here):
    assert glasshead.train("sums.tsv", preset="nano", quiet=True, **TINY).config.kind == "gpt"


def test_a_task_without_data(here):
    unused = {"max_len", "eval_batches"}
    options = {name: value for name, value in TINY.items() if name not in unused}
    run = glasshead.train(preset="reader", quiet=True, **options)
    assert (run.config.kind, run.path.name) == ("reader", "refer-reader")


def test_a_run_starts_with_the_parameters_of_another(here):
    old = glasshead.train(TEXT, out="old", quiet=True, **TINY)
    new = glasshead.train(TEXT, out="new", from_=old, steps=0, quiet=True)
    before, after = (load_file(run.path / "model.safetensors") for run in (old, new))
    assert all(before[name].equal(after[name]) for name in before)


MISTAKES = {
    "empty text": (("",), {}, "the text is empty", "give a text"),
    "no texts": (([],), {}, "the text is empty", "give a text"),
    "number": ((3,), {}, "cannot train on a int", "a text or a path"),
    "no such file": (("number.txt",), {}, "no file or folder 'number.txt'", "'numbers.txt'"),
    "one line": (("To be, or not to be",), {}, "no file or folder", "needs a line break"),
    "no match": (("*.text",), {}, r"no file matches \*.text", "pattern"),
    "half a character": (("\ud800\n",), {}, "half of a surrogate pair", "errors='replace'"),
    "short text": (("ab\n",), {}, "the validation part of the text has", "give more text"),
    "preset": ((TEXT,), {"preset": "nanno"}, "preset 'nanno'", "'nano'"),
    "preset of pairs": ((PAIRS,), {"preset": "nano"}, "'nano' is for text", "pairs-tiny"),
    "task": ((TEXT,), {"task": "txt"}, "task 'txt'", "'text'"),
    "task of pairs": ((PAIRS,), {"task": "text"}, "task 'text' has no pairs", "leave"),
    "setting": ((TEXT,), {"stpes": 3}, "no setting 'stpes'", "'steps'"),
    "type": ((TEXT,), {"steps": "3"}, r"steps \('3'\) is of type str", "must be int"),
    "value": ((TEXT,), {"dropout": 2}, r"dropout \(2\)", ""),
    "three": (([("a", "b"), ("a", "b", "c")],), {}, r"pair 1 is \('a', 'b', 'c'\)", "two texts"),
    "mixed": (([("a", "b"), "c"],), {}, "pair 1 is 'c'", r"\(source, target\)"),
    "tab": (([("a\tb", "c")],), {}, "pair 0 has a tab", "spaces"),
    "lines": ((["numbers.txt", "one"],), {"task": "pairs"}, "lines but one has 3", "line N"),
    "a run as text": (("old",), {}, "old is the folder of a model", "--from old"),
    "two runs": ((), {"resume": "old", "from_": "old"}, "cannot go together", "--resume RUN"),
    "taken": ((TEXT,), {"out": "old"}, "old exists already", "--resume old"),
    "val": ((TEXT,), {"val": PAIRS}, "is for --pairs", "neither"),
}


@pytest.fixture(scope="module")
def mistaken(tmp_path_factory):
    """A folder with a run, a text and pairs, where nothing may change."""
    path = tmp_path_factory.mktemp("mistaken")
    (path / "numbers.txt").write_text(TEXT)
    (path / "one").write_text("1\n1\n1\n")
    (path / "sums.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS))
    options = {**TINY, "steps": 0, "cache": path / "cache", "quiet": True}
    glasshead.train(path / "numbers.txt", out=path / "old", **options)
    return path


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_line_and_a_hint(mistaken, monkeypatch, case):
    monkeypatch.chdir(mistaken)
    args, options, message, hint = MISTAKES[case]
    with pytest.raises(GlassheadError, match=message) as found:
        glasshead.train(*args, cache="cache", quiet=True, **options)
    assert "\n" not in str(found.value)
    assert found.value.hint
    assert not hint or re.search(hint, found.value.hint), found.value.hint
    assert not (mistaken / "runs").exists()


def test_ctrl_c_saves_the_run_and_is_raised(here, monkeypatch):
    def interrupt(listener: ProgressListener, now: Status) -> None:
        if now.step == 5:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(ProgressListener, "on_step", interrupt)
        with pytest.raises(KeyboardInterrupt, match="resume='run'"):
            glasshead.train(TEXT, out="run", quiet=True, **{**TINY, "steps": 11})
    glasshead.train(resume="run", quiet=True)
    glasshead.train(TEXT, out="whole", quiet=True, **{**TINY, "steps": 11})
    same_ending(here / "whole", here / "run")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_script_that_is_stopped_ends_with_the_code_of_its_signal(here, monkeypatch, name):
    number = getattr(signal, name)

    def stop(listener: ProgressListener, now: Status) -> None:
        if now.step == 3:
            os.kill(os.getpid(), number)

    with monkeypatch.context() as patch:
        patch.setattr(ProgressListener, "on_step", stop)
        with pytest.raises(SystemExit) as found:
            glasshead.train(TEXT, out="run", quiet=True, **{**TINY, "steps": 7})
    assert found.value.code == 128 + number  # as a shell says it
    assert glasshead.train(resume="run", quiet=True).step == 7


def test_quiet_shows_nothing(here, capfd):
    glasshead.train(TEXT, quiet=True, **TINY)
    assert capfd.readouterr() == ("", "")
