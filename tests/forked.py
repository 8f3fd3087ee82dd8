"""Run command lines in processes of their own that have imported everything already.

Each has a limit of memory and of time, and tells how much memory it needed.
"""

import multiprocessing
import os
import resource
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

PRELOADED = [
    "tests.forked", "glasshead.cli", "glasshead.training.start", "glasshead.generation.opening",
    "glasshead.observe.view", "glasshead.generation.stream", "glasshead.api.train",
    "torch._dynamo", "matplotlib.figure", "transformers", "gguf", "sacrebleu",
]  # fmt: skip
ADDRESS_SPACE = 12 << 30  # bytes; more than torch maps, less than would take the machine


@dataclass(frozen=True)
class Ended:
    code: int | None  # None: it was killed after its time
    out: str
    err: str
    megabytes: float  # the most memory it had
    seconds: float
    processor: float  # seconds of it


def run_forked(args: list[str], folder: Path, seconds: float = 60, saves: int = 0) -> Ended:
    """Run `glasshead ARGS` in `folder`, where what it prints lies in hidden files for a moment.

    With `saves`, training is stopped by SIGTERM after so many checkpoints.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    files = [folder / name for name in (".out", ".err", ".peak")]
    started = perf_counter()
    process = context.Process(target=_work, args=(args, folder, saves, *files))
    process.start()
    process.join(seconds)
    code = process.exitcode
    if code is None:
        process.kill()
        process.join()
    out, err, peak = (file.read_text(errors="replace") if file.exists() else "" for file in files)
    for file in files:
        file.unlink(missing_ok=True)
    megabytes, processor = map(float, (peak or "0 0").split())
    return Ended(code, out, err, megabytes, perf_counter() - started, processor)


def _terminate_after(saves: int) -> None:
    left = saves

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal left
        if event == "os.rename" and str(args[1]).endswith("last.safetensors"):
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGTERM)

    sys.addaudithook(hook)


def _work(args: list[str], folder: Path, saves: int, out: Path, err: Path, peak: Path) -> None:
    import torch

    from glasshead.cli import run

    torch.set_num_threads(1)
    os.chdir(folder)
    os.environ["XDG_CACHE_HOME"], os.environ["GLASSHEAD_LANG"] = str(folder / ".cache"), "en"
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    for file, stream in ((out, 1), (err, 2)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    if saves:
        _terminate_after(saves)
    code = run(args)
    sys.stdout.flush()
    sys.stderr.flush()
    used = resource.getrusage(resource.RUSAGE_SELF)
    peak.write_text(f"{used.ru_maxrss / 1024} {used.ru_utime + used.ru_stime}")
    os._exit(code)
