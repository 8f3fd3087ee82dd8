"""What all tests share: one hypothesis profile, the shared data, and a command line to call."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from hypothesis import settings

from glasshead.machine import settle_half_precision

settle_half_precision()
torch.set_num_threads(1)  # models this small are quicker so, and tests beside each other do no harm

# A loaded machine is slow, not wrong. CI tries the same examples each time; elsewhere they vary.
settings.register_profile("glasshead", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("glasshead")

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def interpret(code: str) -> None:
    """Run Python code under Triton's interpreter, in a process of its own: it decides but once."""
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[1],
        env=os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def data() -> Path:
    """The folder of texts and sentence pairs, where there is one."""
    if not DATA.is_dir():
        pytest.skip("needs the texts in ../shared/data")
    return DATA


@pytest.fixture
def cli(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Outcome]:
    """`cli("steps", "Hello")` runs a command line in this process, in English, 80 cells wide."""
    from glasshead.cli import run

    for name in ("LC_ALL", "LC_MESSAGES", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", "en_US.UTF-8")
    monkeypatch.setenv("COLUMNS", "80")

    def call(*args: str | os.PathLike[str]) -> Outcome:
        code = run([os.fspath(arg) for arg in args])
        return Outcome(code, *capsys.readouterr())

    return call
