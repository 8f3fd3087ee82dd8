"""What a run wrote down, read while it may still be writing.

A file that grows is read on from a cursor: how far it was read, and a sum of the bytes before that
place. Resuming a run cuts its files back (`training/run_log.py`); then the sum no longer fits and
it is read anew from the start. A last line without its end is left for the next time.
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

__all__ = ["Growth", "Sample", "parsed", "read_metrics", "read_samples", "tail"]

CHUNK = 1 << 19  # bytes that one answer is made of
SUMMED = 256  # bytes before a cursor that its sum is of
TAIL = 1 << 16  # bytes at a file's end that tell where a run is
SAMPLES = 50  # the last ones, that are shown

Line = dict[str, int | float | bool]


@dataclass(frozen=True)
class Growth:
    """What a file has more than at the last cursor."""

    cursor: str
    anew: bool  # read from the start: what was known of it before no longer holds
    more: bool  # there is more already: ask again at once
    lines: list[Line]
    damaged: int  # lines that are no metrics


@dataclass(frozen=True)
class Sample:
    step: int
    text: str


def read_metrics(file: Path, cursor: str = "", most: int = CHUNK) -> Growth:
    """The lines of metrics.jsonl behind a cursor; "" is the start. No file is an empty one."""
    try:
        with open(file, "rb") as opened:
            size = os.fstat(opened.fileno()).st_size
            start = _place(cursor, size)
            if start and _sum(opened, start) != cursor:
                start = 0
            opened.seek(start)
            block = opened.read(most)
            whole = block.rfind(b"\n") + 1
            if not whole and len(block) == most:
                whole = most  # a line as long as this is none of metrics
            stop = start + whole
            lines = [_line(line) for line in block[:whole].splitlines() if line.strip()]
            found = [line for line in lines if line is not None]
            damaged = len(lines) - len(found)
            more = start + len(block) < size
            return Growth(_sum(opened, stop), start == 0, more, found, damaged)
    except (FileNotFoundError, NotADirectoryError):
        return Growth("", True, False, [], 0)


def tail(file: Path) -> tuple[list[Line], float | None]:
    """The last lines, and how many seconds ago they were written; None if there is no file."""
    try:
        with open(file, "rb") as opened:
            about = os.fstat(opened.fileno())
            opened.seek(max(0, about.st_size - TAIL))
            lines = [_line(line) for line in opened.read(TAIL).splitlines()]
    except OSError:
        return [], None
    return [line for line in lines if line is not None], max(0.0, time.time() - about.st_mtime)


def read_samples(file: Path, last: int = SAMPLES, most: int = CHUNK) -> list[Sample]:
    """The last samples of samples.txt, first to last."""
    try:
        with open(file, "rb") as opened:
            size = os.fstat(opened.fileno()).st_size
            opened.seek(max(0, size - most))
            text = opened.read(most).decode(errors="replace")
    except OSError:
        return []
    parts = re.split(r"^--- step (\d{1,15})\n", text, flags=re.MULTILINE)
    found = zip(parts[1::2], parts[2::2], strict=True)
    return [Sample(int(step), said.removesuffix("\n\n")) for step, said in found][-last:]


def parsed(file: Path, most: int = 1 << 24) -> Any:
    """JSON, NaN and infinity as None, halves of characters as "?", which no answer can hold.

    Raises ValueError for anything else, and OSError.
    """
    with open(file, "rb") as opened:
        data = opened.read(most + 1)
    if len(data) > most:
        raise ValueError(f"it has more than {most:,} bytes")
    try:
        found = json.loads(data, parse_constant=lambda _: None, parse_float=_finite)
        return json.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _finite(digits: str) -> float | None:
    value = float(digits)
    return value if math.isfinite(value) else None


def _line(data: bytes) -> Line | None:
    """A line of metrics, its numbers alone; None if it is none."""
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


def _place(cursor: str, size: int) -> int:
    digits = cursor.partition("-")[0]
    place = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else 0
    return place if place <= size else 0


def _sum(opened: Any, place: int) -> str:
    start = max(0, place - SUMMED)
    opened.seek(start)
    return f"{place}-{zlib.crc32(opened.read(place - start)):08x}"
