"""A folder in which the blocks of a page run one after the other, as a reader would run them."""

import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import matplotlib

from tests.documents.blocks import Block, without_comment

WARM = Path(__file__).with_name("warm.py")
FULL = os.environ.get("GLASSHEAD_PAGES") == "full"  # as they are written: minutes a page
PATIENCE = 300  # seconds after which a block is given up as hung


@contextmanager
def warmed() -> Iterator[str]:
    """The socket of a process that runs `glasshead` commands at once."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/warm"
        root = WARM.parents[2]
        process = subprocess.Popen(
            [sys.executable, WARM, "serve", path],
            stdin=subprocess.PIPE,
            start_new_session=True,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "CUDA_VISIBLE_DEVICES": "",
                "PYTHONPATH": str(root),
            },
        )
        try:
            until(lambda: Path(path).exists() or process.poll() is not None)
            assert process.poll() is None, "the warm process ended"
            yield path
        finally:
            assert process.stdin
            process.stdin.close()
            process.wait()


def until(there: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not there():
        assert time.monotonic() < deadline, f"hung for {PATIENCE} s"
        time.sleep(0.02)


class Workspace:
    """Runs blocks. `printed` is what the last one wrote, to stdout and stderr."""

    def __init__(self, folder: Path, socket: str, language: str, port: int) -> None:
        self.folder, self.port, self.printed = folder, port, ""
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.background: list[subprocess.Popen[str]] = []
        tools = folder / ".venv/bin"
        tools.mkdir(parents=True, exist_ok=True)
        command = shlex.join([sys.executable, "-I", "-S", str(WARM), "call"])
        (tools / "glasshead").write_text(f'#!/bin/bash\nexec {command} "$@"\n')
        (tools / "glasshead").chmod(0o755)
        torchrun = str(Path(sys.executable).parent)
        locale = {"en": "en_US.UTF-8", "zh": "zh_CN.UTF-8"}[language]
        self.environ = {
            "PATH": os.pathsep.join([str(tools), torchrun, os.environ["PATH"]]),
            "HOME": str(folder / ".home"),
            "LANG": locale,
            "COLUMNS": "100",
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "MPLCONFIGDIR": matplotlib.get_configdir(),  # else each process looks for fonts anew
            "GLASSHEAD_WARM": socket,
        }

    def with_port(self, text: str) -> str:
        return re.sub(r"\b(8000|8765)\b", str(self.port), text)

    def run(self, block: Block) -> None:
        """Run a block; AssertionError tells what it printed if it did not end as it should."""
        code = self.with_port(block.code)
        if block.language == "python":
            said = io.StringIO()
            with redirect_stdout(said):
                exec(compile(code, "block", "exec"), self.names)
            self.printed = said.getvalue()
        elif block.background:
            self._start(code)
        else:
            self._run(code, block)

    def _run(self, code: str, block: Block) -> None:
        lines = code.splitlines()
        if not FULL:
            lines = [smaller(line, block.more) for line in lines]
        script = "\n".join(["set -e", *lines])
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # in the order in which a terminal has them
            text=True,
            timeout=PATIENCE,
        )
        self.printed = done.stdout
        assert done.returncode == (2 if block.fails else 0), self.printed
        assert "Traceback" not in self.printed, self.printed

    def _start(self, code: str) -> None:
        if "--port" not in code:
            code = without_comment(code) + f" --port {self.port}"
        out = self.folder / f".background-{len(self.background)}"
        with out.open("w") as file:
            process = subprocess.Popen(
                ["bash", "-c", code], cwd=self.folder, env=self.environ, stdout=file, text=True
            )
        self.background.append(process)
        until(lambda: out.stat().st_size or process.poll() is not None)
        assert process.poll() is None, f"it ended with {process.returncode}: {code}"
        self.printed = out.read_text()

    def close(self) -> None:
        while self.background:
            process = self.background.pop()
            process.terminate()
            process.wait(PATIENCE)


def smaller(line: str, more: str) -> str:
    """A command line with a smaller setting: `more` for training, which then takes small batches
    and is evaluated at its end; and at most 400 stories of the embedded world, or 1000 Chinese
    ones, which are short and must have every character that others have.

    >>> smaller("glasshead train my.txt --steps 900   # a minute", "--steps 20")
    'glasshead train my.txt --steps 900 --steps 20 --eval-every 20 --batch-size 4 --eval-batches 2'
    >>> smaller("glasshead world --show 4000 --lang en > my.txt", "")
    'glasshead world --show 400 --lang en > my.txt'
    """
    if re.search(r"\bglasshead world\b", line):
        most = 1000 if "zh" in line else 400
        return re.sub(r"--show (\d+)", lambda found: f"--show {min(int(found[1]), most)}", line)
    if not more or not re.search(r"\bglasshead train\b", line):
        return line
    steps = re.search(r"--steps (\d+)", more)
    if steps and "--resume" not in line:  # which keeps the settings of its run
        more += f" --eval-every {steps[1]}"
        if "--pairs" in line:
            more += " --max-tokens 400 --eval-pairs 8"
        else:
            more += " --batch-size 4" + ("" if "--task" in line else " --eval-batches 2")
    return f"{without_comment(line)} {more}"


def shows(shown: str, printed: str) -> bool:
    """Whether each line that is shown was printed, in this order; … stands for anything.

    >>> shows("a …\\nd", "a b c\\nx\\nd"), shows("d\\na", "a\\nd")
    (True, False)
    """
    lines = iter(" ".join(line.split()) for line in printed.splitlines())
    wanted = [" ".join(line.split()) for line in shown.splitlines() if line.strip(" …")]
    patterns = [".*".join(map(re.escape, re.split(r" ?… ?", line))) for line in wanted]
    return all(any(re.fullmatch(pattern, line) for line in lines) for pattern in patterns)
