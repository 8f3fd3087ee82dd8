"""The command line as a whole: what it imports, how it fails, how it says so."""

import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from glasshead.cli import COMMANDS, app, main
from glasshead.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]


def shell(*args, **kwargs):
    command = [sys.executable, "-m", "glasshead", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, **kwargs)


def is_a_mistake(outcome):
    """Exit code 2, nothing on stdout, and on stderr one line, a blank line and a hint."""
    assert outcome.code == 2
    assert outcome.out == ""
    first, blank, hint = outcome.err.splitlines()
    assert first.startswith("error: ")
    assert blank == ""
    assert re.match("hint: .", hint)
    return first.removeprefix("error: "), hint.removeprefix("hint: ")


HEAVY = {
    *("torch", "numpy", "transformers", "tokenizers", "safetensors", "matplotlib", "sacrebleu"),
    *("rich", "fastapi", "starlette", "uvicorn", "tensorboard", "triton", "IPython"),
}


@pytest.mark.parametrize("command", [[], ["train"]], ids=str)
def test_help_imports_nothing_heavy(command):
    """So that it answers at once; `python -m bench start-up` measures how soon."""
    code = (
        f"import sys; from glasshead.cli import run; run([*{command}, '--help'])\n"
        "sys.stderr.write(' '.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert ("Examples:" if command else "Commands:") in done.stdout
    imported = set(done.stderr.split())
    assert imported & HEAVY == set()
    ours = {name for name in imported if name.startswith("glasshead.")}
    assert {name for name in ours if not name.startswith("glasshead.cli")} <= {
        *(
            "glasshead.errors",
            "glasshead.lazy",
            "glasshead.machine",  # before torch loads, threads are told how to wait
            "glasshead.messages",
            "glasshead.observe",
            "glasshead.observe.viewer",
        )
    }


def test_the_version_is_that_of_the_project_file(cli):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert cli("--version") == (0, f"glasshead {project['version']}\n", "")


def test_without_a_command_there_is_help(cli):
    assert cli().out == cli("--help").out
    assert cli().code == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_has_two_examples(cli, command):
    help_text = cli(command, "--help").out
    examples = re.findall(rf"^ +glasshead {command} .+$", help_text, re.MULTILINE)
    assert len(examples) >= 2
    assert "Examples:" in help_text


@pytest.mark.parametrize(
    ("args", "error", "hint"),
    [
        (["stpes"], "there is no command 'stpes'", "did you mean 'steps'?"),
        (["月亮"], "there is no command '月亮'", "choose one of: "),
        (["--versoin"], "glasshead has no option '--versoin'", "did you mean '--version'?"),
        (["steps", "a", "--qurey", "a"], "has no option '--qurey'", "did you mean '--query'?"),
        (["steps", "a", "--no-scael"], "has no option '--no-scael'", "did you mean '--no-scale'?"),
        (["steps", "-5 degrees"], "has no option '-5'", "after '--'"),
        (["look"], "missing argument", "'glasshead look --help'"),
        (["steps"], "needs a sentence or an example", "glasshead steps --example shiny"),
        (["steps", "a", "--query"], "option '--query' requires an argument", "'glasshead steps"),
        (["steps", "a", "--lang", "fr"], "'fr' is not one of 'zh', 'en'", "'glasshead steps"),
        (["steps", "a", "--causal=1"], "option '--causal' does not take a value", "'glasshead"),
        (["world", "--show", "x"], "--show 'x' is not a whole number", "'glasshead world --help'"),
        (["demo", "--seed=-1"], "--seed '-1' must be at least 0", "'glasshead demo --help'"),
        (["score", "a", "b", "c"], "unexpected extra argument", "in quotes"),
        (["train", "--zzz"], "has no option '--zzz'", "'glasshead train --help' lists the options"),
        (["generate", "a", "--temp", "1"], "no option '--temp'", "'--temperature'"),
        (["steps", "a", "--\x1b[1m"], r"no option '--\x1b[1m'", "--causal"),
    ],
)
def test_a_command_line_that_cannot_be_parsed(cli, args, error, hint):
    first, last = is_a_mistake(cli(*args))
    assert error in first
    assert hint in last


@pytest.fixture
def broken(monkeypatch):
    """A command that raises what it is given, for as long as the test runs."""
    monkeypatch.setattr(app, "registered_commands", list(app.registered_commands))

    def add(error):
        def explode():
            raise error

        app.command("explode")(explode)

    return add


def test_a_mistake_is_one_line_a_blank_line_and_a_hint(cli, broken):
    broken(ConfigError("8 dims, 3 heads\nand more", hint="choose 2 or 4 heads"))
    assert cli("explode") == (
        2,
        "",
        "error: 8 dims, 3 heads\\nand more\n\nhint: choose 2 or 4 heads\n",
    )


def test_an_interrupt_is_one_line(cli, broken):
    broken(KeyboardInterrupt())
    assert cli("explode") == (130, "", "stopped by Ctrl-C\n")


def test_an_interrupt_while_the_commands_are_made_is_one_line(cli, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("typer.main.get_command", interrupted)
    assert cli("--help") == (130, "", "stopped by Ctrl-C\n")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no SIGINT to one process")
@pytest.mark.parametrize(("lang", "line"), [("en", "stopped by Ctrl-C"), ("zh", "被 Ctrl-C 停止")])
def test_an_interrupt_in_the_first_moments_is_one_line(tmp_path, lang, line):
    """Amid the imports: here that of typer says that it began, and does not end."""
    (tmp_path / "typer.py").write_text("print(1, flush=True)\nimport time\ntime.sleep(600)\n")
    paths = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    running = subprocess.Popen(
        [sys.executable, "-m", "glasshead", "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths, "GLASSHEAD_LANG": lang},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    with running.stdout, running.stderr:
        assert running.stdout.read(1) == b"1"
        running.send_signal(signal.SIGINT)
        assert running.stderr.read().decode() == f"{line}\n"
    assert running.wait() == 130


def test_main_ends_with_the_exit_code(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["glasshead", "nonsense"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "there is no command 'nonsense'" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes of this kind")
@pytest.mark.parametrize("extra", [[], ["--json"], ["--query", "sun"], ["--help"]])
def test_a_reader_that_leaves_early_is_no_error(extra):
    command = [sys.executable, "-m", "glasshead", "steps", "sun " * 60, *extra]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    running.stdout.close()
    with running.stderr:
        assert running.stderr.read() == b""
    assert running.wait() in (0, 1)


def test_the_module_runs_as_a_program():
    done = shell("steps", "Hello", "--query", "Helo")
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == "error: 'Helo' is not a word of the sentence\n\nhint: did you mean 'Hello'?\n"
    )


def test_a_full_disk_at_the_end_of_a_pipe_is_one_line():
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "glasshead", "world", "--show", "3"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 2
    assert done.stderr.startswith(
        "error: cannot write the output: no space left on device\n\nhint: "
    )
