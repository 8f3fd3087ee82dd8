"""What `glasshead.train` can be given to train on, and the files that it means."""

import glob
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from glasshead.errors import ConfigError, InputError, near_file
from glasshead.text.token_store import keep_text
from glasshead.training.presets import PRESETS

__all__ = ["TextOrPairs", "find_sources"]

# A text, the path of a file or folder, several of these, or pairs of (source, target).
TextOrPairs: TypeAlias = str | Path | Sequence[str | Path] | Sequence[tuple[str, str]]


def find_sources(
    data: TextOrPairs | None, task: str | None, preset: str | None, cache: Path
) -> tuple[str | None, list[str | Path]]:
    """Return the task and the files of `data`; a text or pairs in memory are written to files."""
    if data is None:
        return task, []
    if not isinstance(data, str | Path | Iterable):
        raise InputError(f"cannot train on a {type(data).__name__}", hint="give a text or a path")
    entries: list[Any] = [data] if isinstance(data, str | Path) else list(data)
    if not entries or "" in entries:
        raise InputError("the text is empty", hint="give a text, the path of one, or pairs")
    if not all(isinstance(entry, str | Path) for entry in entries):
        if task not in (None, "pairs"):
            raise ConfigError(f"task '{task}' has no pairs", hint="leave the task out")
        return "pairs", [_keep(_as_table(entries), cache, "pairs.tsv")]
    if task is None and preset in PRESETS:
        task = PRESETS[preset].task
    if task is None:
        is_table = all(re.search(r"\.tsv(\.gz|\.xz)?$", str(entry)) for entry in entries)
        task = "pairs" if is_table else "text"
    return task, [
        _keep(entry, cache, "text.txt")
        if isinstance(entry, str) and "\n" in entry
        else _check_path(entry)
        for entry in entries
    ]


def _check_path(entry: str | Path) -> str | Path:
    name = str(entry)
    if name != "-" and not os.path.exists(name) and not glob.has_magic(name):
        raise InputError(
            f"no file or folder {name[:60]!r}",
            hint=near_file(name, "a text itself needs a line break: add '\\n'"),
        )
    return entry


def _as_table(pairs: Iterable[Any]) -> str:
    lines = []
    for number, pair in enumerate(pairs):
        match pair:
            case [str(source), str(target)]:
                if re.search(r"[\t\r\n]", source + target):
                    raise InputError(
                        f"pair {number} has a tab or a line break: {source!r}, {target!r}",
                        hint="replace them by spaces",
                    )
                lines.append(f"{source}\t{target}\n")
            case _:
                raise InputError(
                    f"pair {number} is {pair!r}", hint="a pair is two texts: (source, target)"
                )
    return "".join(lines)


def _keep(text: str, cache: Path, name: str) -> Path:
    try:
        cache.mkdir(parents=True, exist_ok=True)
        return keep_text(text, cache, name)
    except OSError as error:
        raise InputError(
            f"cannot write to {cache}: {error.strerror}", hint="choose another cache"
        ) from None
