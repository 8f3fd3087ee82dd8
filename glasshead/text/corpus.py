"""Read documents from files, and split them into a training and a validation part.

report = Report()
for document in read_documents(["books/", "extra.jsonl.gz"], report=report):
    ...
print(*report.summary(), sep="\\n", file=sys.stderr)
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from glasshead.errors import ConfigError, InputError
from glasshead.text.bpe import Cutter
from glasshead.text.sources import (
    Report,
    Skipped,
    Source,
    Unreadable,
    find_sources,
    read_parts,
    total_bytes,
)

__all__ = [
    "Document",
    "Report",
    "Skipped",
    "no_text_error",
    "read_documents",
    "read_pieces",
    "read_sources",
    "split_by_document",
    "split_by_position",
]

WHOLE = 16 << 20  # bytes of a file, up to which it may be held in memory
T = TypeVar("T")
Text = TypeVar("Text", str, NDArray[Any])


@dataclass(frozen=True)
class Document:
    name: str
    text: str


def read_documents(
    sources: Sequence[str | Path], *, field: str = "text", report: Report | None = None
) -> Iterator[Document]:
    """Read the documents of files, folders, patterns and `-` (stdin), in a fixed order."""
    report = Report() if report is None else report
    return read_sources(find_sources(sources, report), field, report)


def read_sources(found: Sequence[Source], field: str, report: Report) -> Iterator[Document]:
    empty = True
    for source in found:
        parts: list[str] = []
        try:
            for part in read_parts(source, report, field=field):
                parts.append(part.text)
                if part.last:
                    yield Document(part.name, "".join(parts))
                    empty, parts = False, []
        except Unreadable as error:
            if source.named:
                raise
            report.skip(source.name, error.reason)
    if empty:
        raise no_text_error(found, report)


def read_pieces(
    sources: Sequence[str | Path],
    *,
    field: str = "text",
    report: Report | None = None,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> Iterator[tuple[str, bool]]:
    """Read the documents in pieces that can be encoded one by one; yield each, and if it ends one.

    Memory does not grow with the documents. A long file that was found in a folder is read twice:
    first to know that it is text to its end. `progress` is called with (bytes done, total bytes)
    of the files on disk.
    """
    report = Report() if report is None else report
    found, empty = find_sources(sources, report), True
    total, before = total_bytes(found), 0

    def at(position: int) -> None:
        progress(before + position, total)

    for source in found:
        try:
            if not source.named and source.path and source.path.stat().st_size > WHOLE:
                for _ in read_parts(source, Report(), field=field):
                    pass
            cutter, held = Cutter(), list[tuple[str, bool]]()
            for part in read_parts(source, report, field=field, at=at):
                held += [(piece, False) for piece in cutter.push(part.text)]
                if part.last:
                    held.append((cutter.flush(), True))
                    empty = False
                # Of a short file nothing is used before it is known to be text.
                if source.named or part.last or len(held) * cutter.size > WHOLE:
                    yield from held
                    held = []
        except OSError as error:
            report.skip(source.name, str(error.strerror))
        except Unreadable as error:
            if source.named:
                raise
            report.skip(source.name, error.reason)
        before += total_bytes([source])
    progress(total, total)
    if empty:
        raise no_text_error(found, report)


def no_text_error(found: Sequence[Source], report: Report) -> InputError:
    what = f"no text in {len(found)} files" if found else "no files found"
    return InputError(what, hint="; ".join(report.summary(2)) or "name a file that contains text")


def split_by_position(text: Text, fraction: float = 0.1) -> tuple[Text, Text]:
    """Split a text or ids into a training part and the last `fraction`, which validates.

    >>> split_by_position("abcdefghij", 0.3)
    ('abcdefg', 'hij')
    """
    _check_fraction(fraction)
    cut = int((1 - fraction) * len(text))
    return text[:cut], text[cut:]


def split_by_document(
    documents: Sequence[T], fraction: float = 0.1, seed: int = 0
) -> tuple[list[T], list[T]]:
    """Pick documents at random for validation; both parts keep the order of the documents."""
    _check_fraction(fraction)
    n = len(documents)
    if n < 2:
        raise InputError(
            f"a text of {n} document cannot be split by document",
            hint="split by position, or give several files",
        )
    held = min(max(round(fraction * n), 1), n - 1)
    # Raw numbers, not permutation(): they are the same for every release of NumPy.
    keys = np.random.Philox(key=seed % 2**64).random_raw(n)
    chosen = set(np.argsort(keys, kind="stable")[:held].tolist())
    train = [document for index, document in enumerate(documents) if index not in chosen]
    return train, [documents[index] for index in sorted(chosen)]


def _check_fraction(fraction: float) -> None:
    if not 0 < fraction < 1:
        raise ConfigError(
            f"fraction ({fraction}) must be between 0 and 1", hint="0.1 holds out a tenth"
        )
