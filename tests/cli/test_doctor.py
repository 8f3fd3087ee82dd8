"""`glasshead doctor`, as it is typed."""

import json
import os
import subprocess
import sys

import pytest

from glasshead.lab import doctor


@pytest.fixture(scope="module")
def found():
    return doctor.examine()


@pytest.fixture
def examined(monkeypatch, found):
    """The machine is examined once for all tests."""
    monkeypatch.setattr(doctor, "examine", lambda: found)


def test_it_shows_the_machine_the_kernels_and_the_packages(cli, examined):
    code, out, err = cli("doctor")
    assert (code, err) == (0, "")
    for words in ("Python", "torch", "float32", "one query, decoding", "sdpa:flash", "numpy"):
        assert words in out
    assert out.rstrip().endswith("Everything required is installed.")


@pytest.mark.parametrize(
    ("env", "args", "title"),
    [("zh_CN.UTF-8", [], "机器"), ("zh_CN.UTF-8", ["--lang", "en"], "Machine")],
)
def test_the_language_is_asked_for_or_the_locale_s(cli, monkeypatch, examined, env, args, title):
    monkeypatch.setenv("LANG", env)
    assert title in cli("doctor", *args).out


def test_json_is_one_object_and_nothing_else(cli, examined):
    code, out, err = cli("doctor", "--json")
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert data["ok"]
    assert data["devices"][0]["device"] == "cpu"
    assert {"device", "dtype", "call", "backend", "kernel", "error"} == set(data["kernels"][0])
    assert all(not problem["needed"] for problem in data["problems"])


def program(*args, **env):
    command = [sys.executable, "-m", "glasshead", "doctor", *args]
    environment = {**os.environ, "COLUMNS": "80", "LANG": "en_US.UTF-8", **env}
    return subprocess.run(command, capture_output=True, check=False, env=environment)


@pytest.mark.deep  # what it prints and in which encoding: the tests above and the next
def test_as_a_program_it_says_nothing_but_what_it_found():
    forced = {"FORCE_COLOR": "1", "TERM": "xterm", "PYTHONIOENCODING": "ascii"}
    done = program("--lang", "zh", NO_COLOR="1", **forced)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\x1b[" not in done.stdout
    assert b"\\u" in done.stdout
    done = program("--json")
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["ok"]


@pytest.mark.parametrize("args", [["--lang", "zh"], ["--json"]])
def test_a_torch_that_cannot_be_imported_is_told_and_gives_exit_code_1(tmp_path, args):
    """In ASCII, without colour, though colour is forced, and without a warning on stderr."""
    (tmp_path / "torch.py").write_text("raise ImportError('libfirst.so: not found')")
    done = program(
        *args,
        PYTHONPATH=str(tmp_path),
        ONEDNN_MAX_CPU_ISA="AVX2",
        PYTHONIOENCODING="ascii",
        TERM="xterm",
        FORCE_COLOR="1",
        NO_COLOR="1",
    )
    assert (done.returncode, done.stderr) == (1, b"")
    assert b"libfirst.so: not found" in done.stdout
    assert b"--force-reinstall" in done.stdout
    assert b"\x1b[" not in done.stdout
    assert done.stdout.isascii()
    assert b"\\u" in done.stdout or args == ["--json"]
