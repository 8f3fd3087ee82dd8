"""Read the files of a run that may still be training.

A growing file is read from a cursor: an offset, and a checksum of the bytes before it. Resuming a
run truncates its files (`training/run_log.py`); then the checksum differs, and the
file is read from the start again. An incomplete last line is left for the next call.
"""

import json
import math
import os
import re
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "Growth", "HeadFilm", "Sample", "read_heads", "read_json", "read_metrics", "read_samples",
    "read_tail",
]  # fmt: skip

CHUNK = 1 << 19  # the most bytes to read for one answer
SUMMED = 256  # bytes before a cursor that its checksum covers
TAIL = 1 << 16  # bytes at the end of a file that show the state of a run
FRAMES = 200  # steps of a film of heads
SAMPLES = 50  # the last samples to show

Line = dict[str, int | float | bool]


@dataclass(frozen=True)
class HeadFilm:
    """What every head did at some steps: of each number a frame a step, layers of heads."""

    steps: list[int]
    numbers: dict[str, list[Any]]


@dataclass(frozen=True)
class Growth:
    """The new lines of a file since a cursor."""

    cursor: str
    anew: bool  # read from the start: discard earlier lines
    more: bool  # there is more to read now
    lines: list[Line]
    damaged: int  # lines that are not metrics


@dataclass(frozen=True)
class Sample:
    step: int
    text: str


def read_metrics(file: Path, cursor: str = "", most: int = CHUNK) -> Growth:
    """Read metrics.jsonl from a cursor on; "" is the start. A missing file counts as empty."""
    try:
        with open(file, "rb") as opened:
            size = os.fstat(opened.fileno()).st_size
            start = _offset(cursor, size)
            if start and _cursor(opened, start) != cursor:
                start = 0
            opened.seek(start)
            block = opened.read(most)
            whole = block.rfind(b"\n") + 1
            if not whole and len(block) == most:
                whole = most  # no line of metrics is this long
            stop = start + whole
            lines = [_parse_line(line) for line in block[:whole].splitlines() if line.strip()]
            found = [line for line in lines if line is not None]
            damaged = len(lines) - len(found)
            more = start + len(block) < size
            return Growth(_cursor(opened, stop), start == 0, more, found, damaged)
    except (FileNotFoundError, NotADirectoryError):
        return Growth("", True, False, [], 0)


def read_tail(file: Path) -> tuple[list[Line], float | None]:
    """Return the last lines and their age in seconds, which is None if there is no file."""
    try:
        with open(file, "rb") as opened:
            about = os.fstat(opened.fileno())
            opened.seek(max(0, about.st_size - TAIL))
            lines = [_parse_line(line) for line in opened.read(TAIL).splitlines()]
    except OSError:
        return [], None
    return [line for line in lines if line is not None], max(0.0, time.time() - about.st_mtime)


def read_samples(file: Path, last: int = SAMPLES, most: int = CHUNK) -> list[Sample]:
    """Return the last samples of samples.txt, in their order."""
    try:
        with open(file, "rb") as opened:
            size = os.fstat(opened.fileno()).st_size
            opened.seek(max(0, size - most))
            text = opened.read(most).decode(errors="replace")
    except OSError:
        return []
    parts = re.split(r"^--- step (\d{1,15})\n", text, flags=re.MULTILINE)
    found = zip(parts[1::2], parts[2::2], strict=True)
    return [Sample(int(step), text.removesuffix("\n\n")) for step, text in found][-last:]


def read_heads(file: Path, most: int = 1 << 25) -> HeadFilm:
    """Return evenly spaced lines of heads.jsonl, the last one included; none if it is missing."""
    try:
        with open(file, "rb") as opened:
            lines = opened.read(most).splitlines(keepends=True)
    except OSError:
        return HeadFilm([], {})
    whole = [line for line in lines if line.endswith(b"\n")]
    n = min(len(whole), FRAMES)
    chosen = sorted({round(i * (len(whole) - 1) / max(1, n - 1)) for i in range(n)})
    steps, numbers = list[int](), dict[str, list[Any]]()
    for line in (whole[i] for i in chosen):
        try:
            found = json.loads(line, parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            continue
        if not isinstance(found, dict) or type(found.get("step")) is not int:
            continue
        frames = {name: x for name, x in found.items() if _is_table(x)}
        if steps and frames.keys() != numbers.keys():
            continue
        steps.append(found["step"])
        for name, x in frames.items():
            numbers.setdefault(name, []).append(x)
    return HeadFilm(steps, numbers)


def _is_table(x: Any) -> bool:
    """Whether it is a list of layers, each a list of numbers or None."""
    return (
        isinstance(x, list)
        and all(isinstance(row, list) for row in x)
        and all(v is None or type(v) in (int, float) for row in x for v in row)
    )


def read_json(file: Path, most: int = 1 << 24) -> Any:
    """Read JSON so that it can be sent: NaN and infinity become None, lone surrogates "?".

    Raises ValueError if it is not JSON or has more than `most` bytes, and OSError.
    """
    with open(file, "rb") as opened:
        data = opened.read(most + 1)
    if len(data) > most:
        raise ValueError(f"the file has more than {most:,} bytes")
    try:
        found = json.loads(data, parse_constant=lambda _: None, parse_float=_finite)
        return json.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def _finite(digits: str) -> float | None:
    value = float(digits)
    return value if math.isfinite(value) else None


def _parse_line(data: bytes) -> Line | None:
    """Parse the numbers of one metrics line; return None if it is not valid."""
    try:
        line = json.loads(data, parse_constant=lambda _: None, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict) or type(line.get("step")) is not int:
        return None
    return {
        name.encode("utf-8", "replace").decode(): value
        for name, value in line.items()
        if isinstance(value, int | float)
    }


def _offset(cursor: str, size: int) -> int:
    digits = cursor.partition("-")[0]
    place = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else 0
    return place if place <= size else 0


def _cursor(opened: Any, place: int) -> str:
    start = max(0, place - SUMMED)
    opened.seek(start)
    return f"{place}-{zlib.crc32(opened.read(place - start)):08x}"
