"""Check a file in a process of its own, so that an endless loop or a crash is one clear line."""

import contextlib
import faulthandler
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from glasshead.lab.exercises.catalog import Exercise, find_exercise
from glasshead.lab.exercises.report import (
    ExerciseReport,
    check_file,
    child_trouble,
    from_json,
)

__all__ = ["LIMIT", "run_check"]

LIMIT = 60  # seconds; a check takes a few
_START = 60  # seconds more until the process is ended from outside: importing torch may be slow


def run_check(exercise: Exercise, path: Path, limit: int = LIMIT) -> ExerciseReport:
    """Check a file in a new process. What the file prints goes to stderr."""
    with TemporaryDirectory() as folder:
        answer, trace = Path(folder, "answer.json"), Path(folder, "trace.txt")
        words = [exercise.name, str(path.resolve()), str(answer), str(trace), str(limit)]
        with subprocess.Popen(
            [sys.executable, "-m", __name__, *words],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno() if _has_file(sys.stderr) else subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": _search_path()},
        ) as process:
            try:
                code = process.wait(limit + _START)
            except BaseException as error:
                with contextlib.suppress(ProcessLookupError):
                    if hasattr(os, "killpg"):
                        os.killpg(process.pid, signal.SIGKILL)
                    else:  # Windows
                        process.kill()
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                return child_trouble(exercise, path, "time-limit", limit=limit)
        if answer.is_file():
            return from_json(json.loads(answer.read_text(encoding="utf-8")))
        where = _last_line(trace, path)
        if code == 1 and where is not None:
            return child_trouble(exercise, path, "time-limit", limit=limit, line=where)
        reason = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return child_trouble(exercise, path, "process-ended", reason=reason)


def _has_file(stream: object) -> bool:
    try:
        stream.fileno()  # type: ignore[attr-defined]
    except (AttributeError, OSError):
        return False
    return True


def _search_path() -> str:
    """Return where this package was imported from, then what was searched before."""
    ours = str(Path(__file__).resolve().parents[3])
    return os.pathsep.join(filter(None, [ours, os.environ.get("PYTHONPATH", "")]))


def _last_line(trace: Path, path: Path) -> int | None:
    """Return the line of the learner's file in a trace: 0 if it has none, None for no trace."""
    try:
        text = trace.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    if "Timeout" not in text:
        return None
    name = str(path.resolve()).encode("ascii", "backslashreplace").decode()  # as it is written
    found = re.search(rf'File "{re.escape(name)}", line (\d+)', text)
    return int(found[1]) if found else 0


def _answer(name: str, path: str, answer: str, trace: str, limit: str) -> None:
    from glasshead.machine import settle_half_precision

    settle_half_precision()  # before torch computes anything
    exercise = find_exercise(name)
    assert exercise.module  # imports torch before the clock starts
    with open(trace, "w", encoding="utf-8") as file:
        faulthandler.dump_traceback_later(int(limit), exit=True, file=file)
        report = check_file(exercise, Path(path))
        faulthandler.cancel_dump_traceback_later()
    Path(answer).write_text(json.dumps(report.as_json()), encoding="utf-8")


if __name__ == "__main__":
    _answer(*sys.argv[1:])
