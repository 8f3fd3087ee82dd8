"""What all tests share: one hypothesis profile, the shared data, and a command line to call."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import settings

from glasshead.machine import settle_half_precision
from tests.browser import browser as browser

settle_half_precision()
torch.set_num_threads(1)  # models this small are quicker so, and tests beside each other do no harm
os.environ.setdefault("OMP_NUM_THREADS", "1")  # nor do the threads and processes that they start
for name in ("GLASSHEAD_LANG", "LC_ALL", "LC_MESSAGES"):
    os.environ.pop(name, None)
os.environ["LANG"] = "en_US.UTF-8"  # messages are English, also in the processes that tests start
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each process would compile glasshead anew

# Property tests try the same examples on every machine. `make fuzz` draws new ones from a seed that
# it prints; without hypothesis's database the seed alone decides, so the run can be repeated.
settings.register_profile("glasshead", deadline=None, derandomize=True)
settings.register_profile(
    "fuzz", deadline=None, derandomize=False, database=None, max_examples=200, print_blob=True
)
settings.load_profile("glasshead")

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

# What takes longest begins first, lest a process has much left when the others are done. The first
# trains what all of tests/serve needs; meanwhile the other processes have something else to do.
LONG = (
    "serve/test_hostile.py",
    "training/test_distributed.py",
    "lab/claims/test_running.py",
    "training/test_kill.py",
    "serve/test_restart.py",
    "cli/test_demo.py",
    "serve/test_page_views.py",
    # Deep tests only:
    "test_documents.py",
    "test_site.py",
    "test_notebooks.py",
    "lab/claims/test_c05_referent.py",
    "lab/claims/test_c09_interpretable.py",
    "lab/claims/test_c12_heads.py",
    "serve/test_page_save.py",
    "serve/test_page_atlas.py",
    "serve/test_page_mishaps.py",
    "serve/test_page_shell.py",
    "serve/test_page_look.py",
    "observe/test_triton_engine.py",
    "attention/test_backends.py",
    "test_lessons.py",
)
# These need the same trained readers, which a process keeps.
READERS = {f"tests/{name}" for name in LONG if name.startswith("lab/claims/test_c")}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    torch.manual_seed(0)  # a test that does not seed gets the same numbers in any order of tests


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path, len(LONG)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`--dist loadfile` in the order above, and with the readers' files as one."""
    if config.option.dist != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "readers" if file in READERS else file

    config.option.loadscopereorder = False  # it would be by the number of tests
    return Scheduling(config, log)


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

    for name in ("GLASSHEAD_LANG", "LC_ALL", "LC_MESSAGES", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", "en_US.UTF-8")
    monkeypatch.setenv("COLUMNS", "80")

    def call(*args: str | os.PathLike[str]) -> Outcome:
        code = run([os.fspath(arg) for arg in args])
        return Outcome(code, *capsys.readouterr())

    return call
