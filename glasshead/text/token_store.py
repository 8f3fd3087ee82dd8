"""Tokenise a corpus of any size into a file of ids, and reuse the file while nothing changes.

    store = token_store(["books/"], tokenizer, "cache")
    store.ids        # memory-mapped, (n,) uint16 or uint32
    store.documents  # (n_documents + 1,): document i is ids[documents[i] : documents[i + 1]]

The file has a header of 64 bytes, the ids, the documents as int64, and a JSON object. It gets its
name only when it is complete and on the disk; a file of the wrong size is not used.
"""

import json
import os
import secrets
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glasshead.errors import InputError, UnknownCharacterError
from glasshead.files.writing import sync_file
from glasshead.text.bpe import Cutter
from glasshead.text.corpus import Report, Skipped, no_text_error, split_by_document
from glasshead.text.parallel_encoding import EncodedUnit, Part, Unit, encode_units
from glasshead.text.sources import BLOCK, Source, Unreadable, find_sources, read_parts
from glasshead.text.tokenizer import Tokenizer, place_after, unknown_character

__all__ = ["TokenStore", "keep_streams", "keep_text", "token_store"]

MAGIC = b"glassids"
VERSION = 1
HEADER = struct.Struct("<8sIIQQQ24x")  # magic, version, bytes an id, ids, documents, JSON bytes
SMALL = 1 << 20  # bytes; files up to this size are identified by content, larger ones by mtime
STALE = 3600.0  # seconds after which an unfinished file must be left over from a killed process


@dataclass(frozen=True, eq=False)
class TokenStore:
    path: Path
    ids: NDArray[Any]  # (n,) uint16 or uint32, on disk
    documents: NDArray[np.int64]  # (n_documents + 1,) where each starts, and the end
    report: Report
    key: str

    @classmethod
    def open(cls, path: str | Path) -> "TokenStore":
        path = Path(path)
        try:
            with path.open("rb") as file:
                head = file.read(HEADER.size)
                magic, version, width, n_ids, n_documents, n_json = HEADER.unpack(head)
                if magic != MAGIC or version != VERSION or width not in (2, 4):
                    raise ValueError("another format")
                where = HEADER.size + _round_up(width * n_ids)
                end = where + 8 * (n_documents + 1)
                if path.stat().st_size != end + n_json:
                    raise ValueError("truncated")
                file.seek(end)
                extra = json.loads(file.read(n_json))
            documents = np.memmap(path, "<i8", "r", where, (n_documents + 1,))
            if documents[0] != 0 or documents[-1] != n_ids:
                raise ValueError("its documents do not cover its ids")
            ids = np.memmap(path, f"<u{width}", "r", HEADER.size, (n_ids,))
            skipped = [Skipped(**entry) for entry in extra["skipped"]]
            key = str(extra["key"])
        except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
            raise InputError(
                f"{path} is not a complete store of ids: {error}", hint="tokenise the text again"
            ) from None
        return cls(path, ids, documents, Report(skipped), key)

    def split_by_document(
        self, fraction: float = 0.1, seed: int = 0
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return training and validation ids, with documents in order; both are on disk."""
        train, held = split_by_document(range(len(self.documents) - 1), fraction, seed)
        with tempfile.TemporaryFile(dir=self.path.parent) as file:
            for index in chain(train, held):
                file.write(self.ids[self.documents[index] : self.documents[index + 1]].data)
            file.flush()
            ids = np.memmap(file, self.ids.dtype, "r", 0, self.ids.shape)
        lengths = np.diff(self.documents)
        cut = len(ids) - int(lengths[held].sum())
        return ids[:cut], ids[cut:]


def token_store(
    sources: Sequence[str | Path],
    tokenizer: Tokenizer,
    folder: str | Path,
    *,
    field: str = "text",
    separator: int | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], object] = lambda done, total: None,
    report: Report | None = None,
) -> TokenStore:
    """Return the store of these sources in `folder`; tokenise them unless it exists.

    Args:
        separator: an id to put after every document.
        progress: called with (bytes done, total bytes) of the files on disk.
    """
    report = Report() if report is None else report
    folder, here = Path(folder), Report()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        found = _outside(folder, find_sources(keep_streams(sources, folder), here))
        names = [os.path.realpath(str(source.path)) for source in found]
        what = [VERSION, tokenizer.fingerprint, field, separator, names]
        path = folder / f"{_digest(what)[:20]}.tokens"
        key = _digest([what, [_state(name) for name in names]])
        store = _reusable(path, key)
        if store is None:
            _remove_stale(path)
            units = _units(found, field, here)
            workers = _cpus() if workers is None else workers
            with closing(encode_units(units, tokenizer, separator, workers)) as encoded:
                total = sum(os.path.getsize(name) for name in names)
                width = 2 if tokenizer.vocab_size <= 1 << 16 else 4
                try:
                    _write(path, encoded, width, key, here, lambda done: progress(done, total))
                except PermissionError:  # Windows: another process has made it, and reads it
                    if _reusable(path, key) is None:
                        raise
            store = TokenStore.open(path)
    except UnknownCharacterError:
        raise _unknown_character(found, tokenizer, field) from None
    except OSError as error:
        raise InputError(
            f"cannot write the ids to {folder}: {error.strerror}",
            hint="free some space there, or choose another folder",
        ) from None
    report.skipped += store.report.skipped
    return store


def keep_streams(sources: Sequence[str | Path], folder: str | Path) -> list[str | Path]:
    """Copy sources that can be read only once (`-` and pipes) into files; return all sources.

    For callers that read a corpus twice: once to train a tokenizer, once to encode.
    """
    return [
        _keep_stream(str(entry), Path(folder))
        if str(entry) == "-" or Path(entry).is_fifo()
        else entry
        for entry in sources
    ]


def _keep_stream(name: str, folder: Path) -> Path:
    kept = Path("stream" + "".join(Path(name).suffixes[-2:]))
    with nullcontext(sys.stdin.buffer) if name == "-" else open(name, "rb") as stream:
        path = _keep(iter(lambda: stream.read(BLOCK), b""), folder, kept)
    if path is None:
        what = "standard input" if name == "-" else name
        raise Unreadable(what, "empty", "send some text, or name a file")
    return path


def keep_text(text: str, folder: str | Path, name: str = "text.txt") -> Path:
    """Write a text into `folder`, with a digest of it in the file's name; return the path."""
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"character {error.start} of the text is half of a surrogate pair",
            hint="decode the text with errors='replace'",
        ) from None
    path = _keep([data], Path(folder), Path(name))
    if path is None:
        raise InputError("the text is empty", hint="give some text, or the path of a file")
    return path


def _keep(blocks: Iterable[bytes], folder: Path, name: Path) -> Path | None:
    """Write blocks to STEM-DIGEST.SUFFIX; return None, and write nothing, if there are no bytes."""
    digest, temporary = sha256(), folder / f"{name.name}.{secrets.token_hex(4)}.tmp"
    try:
        with temporary.open("wb") as file:
            for block in blocks:
                digest.update(block)
                file.write(block)
        if not temporary.stat().st_size:
            return None
        suffix = "".join(name.suffixes[-2:]) or ".txt"
        path = folder / f"{name.name.partition('.')[0]}-{digest.hexdigest()[:20]}{suffix}"
        os.replace(temporary, path)
        return path
    finally:
        temporary.unlink(missing_ok=True)


def _outside(folder: Path, found: Sequence[Source]) -> list[Source]:
    """Leave out the store's own files, if it is in a folder of texts."""
    own = os.path.realpath(folder) + os.sep
    return [s for s in found if s.named or not os.path.realpath(str(s.path)).startswith(own)]


def _digest(value: object) -> str:
    return sha256(json.dumps(value).encode()).hexdigest()


def _state(path: str) -> list[object]:
    stat = os.stat(path)
    if stat.st_size > SMALL:
        return [stat.st_size, stat.st_mtime_ns]
    try:
        return [sha256(Path(path).read_bytes()).hexdigest()]
    except OSError as error:  # reading the text will skip it, or explain more
        return [str(error)]


def _reusable(path: Path, key: str) -> TokenStore | None:
    try:
        store = TokenStore.open(path)
    except InputError:
        return None
    return store if store.key == key else None


def _units(found: Sequence[Source], field: str, report: Report) -> Iterator[Unit]:
    """Group parts into units of similar size, whether documents are long or short."""
    parts: list[Part] = []
    size, before, empty, position = 0, 0, True, [0]
    for source in found:
        for part in _parts(source, field, report, partial(position.__setitem__, 0)):
            parts.append(part)
            size += len(part.text)
            empty = empty and not part.ends
            if size >= Cutter().size or part.drops:
                yield Unit(parts, before + position[0])
                parts, size = [], 0
        before += os.path.getsize(str(source.path))
        position[0] = 0
    if empty:
        raise no_text_error(found, report)
    if parts:
        yield Unit(parts, before)


def _parts(
    source: Source, field: str, report: Report, at: Callable[[int], object]
) -> Iterator[Part]:
    cutter = Cutter()
    try:
        for part in read_parts(source, report, field=field, at=at):
            for text in cutter.push(part.text):
                yield Part(text)
            if part.last:
                yield Part(cutter.flush(), ends=True)
    except Unreadable as error:
        if source.named:
            raise
        report.skip(source.name, error.reason)
        yield Part("", drops=True)


def _write(
    path: Path,
    encoded: Iterable[tuple[Unit, EncodedUnit]],
    width: int,
    key: str,
    report: Report,
    progress: Callable[[int], object],
) -> None:
    last, n_documents, n_ids = 0, 0, 0  # `last` is where the last document ended
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        # The documents' ends come after the ids; until then they are in a file, not in memory.
        with temporary.open("wb") as file, tempfile.TemporaryFile(dir=path.parent) as ends:
            ends.write(struct.pack("<q", 0))
            file.write(bytes(HEADER.size))
            for unit, result in encoded:
                file.write(result.ids.astype(f"<u{width}").data)
                for part, count in zip(unit.parts, result.counts, strict=True):
                    n_ids += count
                    if part.ends:
                        last, n_documents = n_ids, n_documents + 1
                        ends.write(struct.pack("<q", n_ids))
                    if part.drops:  # always the last of its unit
                        n_ids = last
                        file.seek(HEADER.size + width * n_ids)
                        file.truncate()
                progress(unit.position)
            file.write(bytes(_round_up(width * n_ids) - width * n_ids))
            ends.seek(0)
            shutil.copyfileobj(ends, file)
            extra = {"key": key, "skipped": [asdict(s) for s in report.skipped]}
            tail = json.dumps(extra).encode()
            file.write(tail)
            file.seek(0)
            file.write(HEADER.pack(MAGIC, VERSION, width, n_ids, n_documents, len(tail)))
            sync_file(file)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _round_up(size: int) -> int:
    """Round up to a multiple of 8."""
    return -(-size // 8) * 8


def _remove_stale(path: Path) -> None:
    for left in path.parent.glob(f"{path.name}.*.tmp"):
        if time.time() - left.stat().st_mtime > STALE:
            left.unlink(missing_ok=True)


def _unknown_character(
    found: Sequence[Source], tokenizer: Tokenizer, field: str
) -> UnknownCharacterError:
    """Return the error with the place in the document, which may be larger than memory."""
    start = place = place_after("")
    for source in found:
        with suppress(Unreadable):
            for part in read_parts(source, Report(), field=field):
                if unknown := [c for c in set(part.text) if not _is_known(c, tokenizer)]:
                    index = min(map(part.text.index, unknown))
                    place = place_after(part.text[:index], *place)
                    error = unknown_character(part.text[index], *place)
                    return UnknownCharacterError(f"{part.name}: {error}", error.hint)
                place = start if part.last else place_after(part.text, *place)
    return UnknownCharacterError(
        "a file changed while it was read", hint="try again when no program writes to it"
    )


def _is_known(character: str, tokenizer: Tokenizer) -> bool:
    try:
        tokenizer.encode_ids(character)
    except UnknownCharacterError:
        return False
    return True


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
