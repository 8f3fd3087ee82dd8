"""How much longer nano and the demo take beside two busy processes: at most 2.5 times is asked for.

    python -m bench.beside [STEPS]     on a machine with nothing else to do; a quarter of an hour

Each command runs alone and then beside two processes that compute without a pause; it is timed from
its start to its end. On a machine that does other work the times mean nothing.
"""

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

LIMIT = 2.5
BUSY = 2  # processes


def _spin() -> None:
    while True:
        pass


@contextmanager
def busy(count: int) -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(count):
            process = multiprocessing.get_context("spawn").Process(target=_spin, daemon=True)
            process.start()
            stack.callback(process.join)
            stack.callback(process.kill)
        yield


def seconds(words: list[str], folder: Path) -> float:
    """Run `glasshead WORDS` in a new folder and return how long that took."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        env = {**os.environ, "XDG_CACHE_HOME": f"{own}/cache"}
        paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        env["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        started = time.perf_counter()
        command = [sys.executable, "-m", "glasshead", *words]
        done = subprocess.run(command, cwd=own, env=env, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(words)}: {done.stderr[-2000:]}")
        return time.perf_counter() - started


def main() -> None:
    steps = sys.argv[1] if len(sys.argv) > 1 else "150"
    found = {"cores": os.cpu_count(), "load before": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = folder / "ci.txt"
        source = Path(__file__).parents[1] / "glasshead" / "text" / "ci.txt"
        text.write_bytes(source.read_bytes())
        nano = ["train", str(text), "--preset", "nano", "--steps", steps, "--device", "cpu"]
        for title, words in (("nano", nano), ("demo", ["demo"])):
            quiet = seconds(words, folder)
            with busy(BUSY):
                beside = seconds(words, folder)
            ratio = beside / quiet
            row = {"quiet": quiet, "beside": beside, "ratio": ratio, "holds": ratio <= LIMIT}
            found[title] = row
            print(title, row, file=sys.stderr, flush=True)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
