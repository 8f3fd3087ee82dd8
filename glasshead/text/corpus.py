"""Files become documents; documents become a training and a validation part.

report = Report()
for document in read_documents(["books/", "extra.jsonl.gz"], report=report):
    ...
print(*report.summary(), sep="\\n", file=sys.stderr)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from glasshead.errors import ConfigError, InputError
from glasshead.text.bpe import Cutter
from glasshead.text.pairs import Pair, read_pairs
from glasshead.text.sources import Report, Skipped, Source, Unreadable, find_sources, read_parts

__all__ = [
    "Document",
    "Pair",
    "Report",
    "Skipped",
    "read_documents",
    "read_pairs",
    "read_texts",
    "split_by_document",
    "split_by_position",
]

T = TypeVar("T")


@dataclass(frozen=True)
class Document:
    name: str
    text: str

    @cached_property
    def n_bytes(self) -> int:
        return len(self.text.encode())


def read_documents(
    sources: Sequence[str | Path], *, field: str = "text", report: Report | None = None
) -> Iterator[Document]:
    """The documents of files, folders, patterns, `-`, .gz, .xz and .jsonl, in a fixed order."""
    report = Report() if report is None else report
    return read_sources(find_sources(sources, report), field, report)


def read_texts(
    sources: Sequence[str | Path], *, field: str = "text", limit: int | None = None
) -> Iterator[str]:
    """The same texts in parts, to train a tokenizer on: no document needs to fit in memory.

    Ends after about `limit` characters. Nothing is reported, and the readable start of a file that
    `read_documents` skips takes part.
    """
    left = float("inf") if limit is None else limit
    for source in find_sources(sources, Report()):
        cutter = Cutter()
        try:
            for piece in read_parts(source, Report(), field=field):
                for text in (*cutter.push(piece.text), cutter.flush() if piece.last else ""):
                    if left <= 0:
                        return
                    if text:
                        left -= len(text)
                        yield text
        except Unreadable:
            if source.named:
                raise


def read_sources(found: Sequence[Source], field: str, report: Report) -> Iterator[Document]:
    empty = True
    for source in found:
        parts: list[str] = []
        try:
            for piece in read_parts(source, report, field=field):
                parts.append(piece.text)
                if piece.last:
                    yield Document(piece.name, "".join(parts))
                    empty, parts = False, []
        except Unreadable as error:
            if source.named:
                raise
            report.skipped.append(Skipped(source.name, error.reason))
    if empty:
        raise no_text_error(found, report)


def no_text_error(found: Sequence[Source], report: Report) -> InputError:
    what = f"{len(found)} files found, none of them with text" if found else "no files found"
    return InputError(what, hint="; ".join(report.summary(2)) or "name a file with some text in it")


@overload
def split_by_position(text: str, fraction: float = 0.1) -> tuple[str, str]: ...
@overload
def split_by_position(
    text: NDArray[Any], fraction: float = 0.1
) -> tuple[NDArray[Any], NDArray[Any]]: ...
def split_by_position(text: Any, fraction: float = 0.1) -> tuple[Any, Any]:
    """The first part trains and the rest, a `fraction` of text or ids, validates.

    >>> split_by_position("abcdefghij", 0.3)
    ('abcdefg', 'hij')
    """
    _check_fraction(fraction)
    cut = int((1 - fraction) * len(text))
    return text[:cut], text[cut:]


def split_by_document(
    documents: Sequence[T], fraction: float = 0.1, seed: int = 0
) -> tuple[list[T], list[T]]:
    """Whole documents, drawn by seed, validate; both parts keep the order of the documents."""
    _check_fraction(fraction)
    n = len(documents)
    if n < 2:
        raise InputError(
            f"{n} document cannot be split by document",
            hint="split by position, or give several files",
        )
    held = min(max(round(fraction * n), 1), n - 1)
    # Raw draws, not permutation(): their values are the same for every release of NumPy.
    keys = np.random.Philox(key=seed % 2**64).random_raw(n)
    chosen = set(np.argsort(keys, kind="stable")[:held].tolist())
    train = [document for index, document in enumerate(documents) if index not in chosen]
    return train, [documents[index] for index in sorted(chosen)]


def _check_fraction(fraction: float) -> None:
    if not 0 < fraction < 1:
        raise ConfigError(
            f"fraction ({fraction}) must lie between 0 and 1", hint="0.1 holds out a tenth"
        )
