"""Find files and read them as text, a part at a time, without trusting their contents.

A file that the user named must be readable text; anything else is an error. A file that was found
in a folder or by a pattern is skipped instead, and the report says why.
"""

import codecs
import glob
import gzip
import json
import lzma
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import IO, Any

from glasshead.errors import ConfigError, InputError, near_file

__all__ = [
    "DocumentPart",
    "Report",
    "Skipped",
    "Source",
    "Unreadable",
    "allow_decompressed",
    "check_growth",
    "encoding_hint",
    "find_sources",
    "read_parts",
    "read_text",
    "total_bytes",
]

BLOCK = 1 << 20  # bytes read at a time
LINE = 1 << 26  # characters of a line of JSON at most
# Decompressed text: so many bytes at most, and beyond a beginning so many times the file's size.
DECOMPRESSED, RATIO, BEGINNING = 100 * 10**9, 200, 1 << 26
_most_decompressed: ContextVar[int | None] = ContextVar("most_decompressed", default=None)
SNIFF = 1 << 13  # a NUL among so many first bytes means a binary file


@dataclass(frozen=True)
class Skipped:
    name: str
    reason: str
    line: int | None = None


@dataclass
class Report:
    """What reading skipped, kept although it looks wrong (`suspects`) and assumed (`notes`)."""

    skipped: list[Skipped] = field(default_factory=list)
    suspects: list[Skipped] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def skip(self, name: str, reason: str, line: int | None = None) -> None:
        self.skipped.append(Skipped(name, reason, line))

    def summary(self, most: int = 5) -> list[str]:
        """Return a line for each reason, naming at most `most` places.

        >>> Report([Skipped("a.tsv", "empty target", 3), Skipped("a.tsv", "empty target", 7)]).summary()
        ['skipped 2, empty target: a.tsv:3, a.tsv:7']
        """  # noqa: E501
        lines = list(self.notes)
        for word, places in (("skipped", self.skipped), ("kept but doubtful", self.suspects)):
            by_reason: dict[str, list[str]] = {}
            for place in places:
                name = place.name if place.line is None else f"{place.name}:{place.line}"
                by_reason.setdefault(place.reason, []).append(name)
            for reason, names in by_reason.items():
                more = f" and {len(names) - most} more" if len(names) > most else ""
                lines.append(f"{word} {len(names)}, {reason}: {', '.join(names[:most])}{more}")
        return lines


class Unreadable(InputError):
    """A file that is not text or cannot be read; `reason` is the message without the name."""

    def __init__(self, name: str, reason: str, hint: str) -> None:
        super().__init__(f"{name}: {reason}", hint)
        self.reason = reason


@dataclass(frozen=True)
class Source:
    name: str
    path: Path | None  # None: standard input
    named: bool  # by the user; otherwise found in a folder or by a pattern


@dataclass(frozen=True)
class DocumentPart:
    """A part of a document; `last` ends it."""

    name: str
    text: str
    last: bool


def allow_decompressed(gigabytes: float) -> None:
    """Let files decompress to so many GB, whatever their size; in this thread, from now on."""
    if not gigabytes > 0:
        raise ConfigError(
            f"--decompressed ({gigabytes:g}) must be above 0", hint="in GB, such as 5"
        )
    _most_decompressed.set(int(gigabytes * 10**9))


def find_sources(
    sources: Sequence[str | Path],
    report: Report,
    count: Callable[[int], object] = lambda n: None,
) -> list[Source]:
    """Return the files that names, folders, patterns and `-` mean, each once, in a fixed order.

    While a folder is walked, `count` is called with the number of files found in it so far.
    """
    found: list[Source] = []
    for entry in sources:
        name = str(entry)
        if name == "-":
            found.append(Source("standard input", None, named=True))
        elif os.path.isdir(name):
            found += _in_folder(name, report, count)
        elif os.path.exists(name):
            found.append(Source(name, Path(name), named=True))
        elif glob.has_magic(name):
            matches = sorted(glob.glob(name, recursive=True))
            if not matches:
                raise InputError(f"no file matches {name}", hint="quote the pattern; ** crosses /")
            for match in matches:
                if os.path.isdir(match):
                    found += _in_folder(match, report, count)
                elif not os.path.isfile(match):
                    report.skip(match, "not a regular file")
                else:
                    found.append(Source(match, Path(match), named=False))
        else:
            raise InputError(
                f"no file or folder {name or repr(name)}",
                hint=near_file(name, "check the name and the folder"),
            )
    once: dict[str, Source] = {}
    for source in found:
        real = source.name if source.path is None else os.path.realpath(source.path)
        if real in once and source.named:
            report.skip(source.name, "already read")
        if real not in once or source.named:
            once[real] = source
    return list(once.values())


def total_bytes(found: Sequence[Source]) -> int:
    """Return the size of the files on the disk; a stream counts as nothing."""
    total = 0
    for source in found:
        with suppress(OSError):
            total += 0 if source.path is None else os.path.getsize(source.path)
    return total


_SYSTEM = ("/dev", "/proc", "/sys")  # folders whose files are no files, and may never end
_ENDLESS = ("/proc", "/sys")  # so are those of the folders in them; /dev/shm has real ones


def _in_folder(folder: str, report: Report, count: Callable[[int], object]) -> list[Source]:
    def skip_folder(error: OSError) -> None:
        report.skip(str(error.filename), str(error.strerror))

    paths: list[Path] = []
    real = os.path.realpath(folder)
    if real in _SYSTEM or real.startswith(tuple(f"{name}/" for name in _ENDLESS)):
        report.skip(folder, "of the system, not of files")
        return []
    for parent, folders, files in os.walk(folder, onerror=skip_folder):
        for name in [*sorted(folders), *sorted(files)]:
            path = Path(parent, name)
            if str(path) in _SYSTEM:
                report.skip(str(path), "of the system, not of files")
            elif name.startswith("."):
                report.skip(str(path), "hidden")
            elif name in folders:
                if path.is_symlink():
                    report.skip(str(path), "a link to a folder")
            elif not os.path.isfile(path):  # False where it is forbidden to know
                report.skip(str(path), "not a regular file")
            else:
                paths.append(path)
                if len(paths) % 1000 == 0:
                    count(len(paths))
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and os.path.join(parent, name) not in _SYSTEM
        ]
    return [Source(str(path), path, named=False) for path in sorted(paths)]


def read_parts(
    source: Source,
    report: Report,
    *,
    field: str = "text",
    at: Callable[[int], object] = lambda position: None,
) -> Iterator[DocumentPart]:
    """Read the documents of one source; call `at` with the bytes of the file read so far.

    Raises Unreadable where it stops being text; the document begun there must be dropped.
    """
    texts = read_text(source, at)
    name = source.name.lower().removesuffix(".gz").removesuffix(".xz")
    if name.endswith(".jsonl"):
        yield from _json_lines(source, texts, field, report)
    else:
        for text in texts:
            yield DocumentPart(source.name, text, last=False)
        yield DocumentPart(source.name, "", last=True)


def read_text(source: Source, at: Callable[[int], object] = lambda position: None) -> Iterator[str]:
    """Read UTF-8 text in parts: without a byte order mark, line ends unchanged."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    seen, any_text, start = 0, False, b""
    for block in _blocks(source, at):
        if seen == 0:
            start = block[:6]
            nul = block.find(b"\0", 0, SNIFF)
            if nul >= 0:
                reason = f"binary, not text (a NUL at byte {nul})"
                raise Unreadable(source.name, reason, encoding_hint(start))
        held = len(decoder.getstate()[0])
        skip = 3 if seen == 0 and block.startswith(codecs.BOM_UTF8) else 0
        try:
            text = decoder.decode(block[skip:])
        except UnicodeDecodeError as error:
            # The text before it must not depend on where blocks begin.
            yield error.object[: error.start].decode()
            offset = seen + skip - held + error.start
            raise _invalid(source, offset, start, error.object[error.start :][:SNIFF]) from None
        seen += len(block)
        if text:
            any_text = True
            yield text
    held = len(decoder.getstate()[0])
    if held:
        raise _invalid(source, seen - held, start)
    if not any_text:
        raise Unreadable(source.name, "empty", "give a file with some text in it")


def _blocks(source: Source, at: Callable[[int], object]) -> Iterator[bytes]:
    damaged = "decompress it by hand to see where it breaks, or download it again"
    try:
        with _open(source) as raw, _decompress(source, raw) as stream:
            total = 0
            while block := stream.read(BLOCK):
                total += len(block)
                if stream is not raw:
                    _check_decompressed(source, total, raw.tell())
                at(total if stream is raw else raw.tell())
                yield block
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise Unreadable(source.name, f"damaged: {error}", damaged) from None
    except OSError as error:
        raise Unreadable(source.name, str(error.strerror), "check its permissions") from None


def check_growth(source: Source) -> None:
    """Raise Unreadable now if the beginning of a compressed file would be refused later.

    Decompressing takes a fraction of a second, what is done with the text may take minutes.
    """
    if source.path is not None and Path(source.name.lower()).suffix in _OPENERS:
        total = 0
        for block in _blocks(source, lambda position: None):
            total += len(block)
            if total > BEGINNING:
                return


def _check_decompressed(source: Source, total: int, read: int) -> None:
    """Raise Unreadable if so many bytes came from `read` bytes of a file, and are too many."""
    most = _most_decompressed.get()
    if total > (most or DECOMPRESSED):
        reason = f"its text has more than {(most or DECOMPRESSED) / 1e9:,g} GB"
    elif most is None and total > max(BEGINNING, RATIO * read):
        reason = (
            f"its first {read:,} bytes decompress to {total:,}, more than {RATIO} times as many"
        )
    else:
        return
    raise Unreadable(source.name, reason, "to read it all the same: --decompressed GB")


def _open(source: Source) -> AbstractContextManager[IO[bytes]]:
    return nullcontext(sys.stdin.buffer) if source.path is None else open(source.path, "rb")


_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}


def _decompress(source: Source, raw: IO[bytes]) -> AbstractContextManager[IO[bytes]]:
    return _OPENERS.get(Path(source.name.lower()).suffix, nullcontext)(raw)


def _invalid(source: Source, offset: int, start: bytes, rest: bytes = b"") -> Unreadable:
    hint = encoding_hint(start, rest)
    return Unreadable(source.name, f"invalid UTF-8 at byte {offset}", hint)


def encoding_hint(start: bytes, rest: bytes = b"") -> str:
    """Guess how a text is encoded by its start, and by what follows the first invalid byte."""
    if start.startswith(b"\x1f\x8b"):
        return "it is compressed with gzip: name it .gz"
    if start.startswith(b"\xfd7zXZ"):
        return "it is compressed with xz: name it .xz"
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "it is UTF-16: convert it with iconv -f UTF-16 -t UTF-8"
    if _is_western(rest):
        return "if it is text, convert it, for example with iconv -f WINDOWS-1252 -t UTF-8"
    return "if it is text, convert it, for example with iconv -f GB18030 -t UTF-8"


def _is_western(data: bytes) -> bool:
    """Return whether most letters with accents stand alone; Chinese ones are pairs of bytes.

    >>> _is_western("déjà vu, à côté".encode("latin-1")), _is_western("黄河远上".encode("gbk"))
    (True, False)
    """
    runs = re.findall(rb"[\x80-\xff]+", data)
    return sum(len(run) == 1 for run in runs) > len(runs) / 2


def _json_lines(
    source: Source, texts: Iterator[str], key: str, report: Report
) -> Iterator[DocumentPart]:
    for number, line in enumerate(_lines(source.name, texts), 1):
        if not line.strip():
            continue
        reason, text = _json_text(line, key)
        if not reason and text:
            yield DocumentPart(f"{source.name}:{number}", text, last=True)
        elif source.named and reason:
            hint = f"write one object on each line, with the text in '{key}'"
            raise InputError(f"{source.name}:{number}: {reason}", hint)
        else:
            report.skip(source.name, reason or f"empty '{key}'", number)


def _json_text(line: str, key: str) -> tuple[str, str]:
    """Return (what is wrong, the text), one of them empty."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"not JSON ({error})", ""
    if not isinstance(value, dict):
        return "not a JSON object", ""
    if key not in value:
        near = get_close_matches(key, value, n=1) or list(value)[:5]
        return f"no field '{key}' (it has: {', '.join(near)})", ""
    if not isinstance(value[key], str):
        return f"field '{key}' is not text", ""
    if any("\ud800" <= character <= "\udfff" for character in value[key]):
        return f"field '{key}' has half of a surrogate pair", ""
    return "", value[key]


def _lines(name: str, texts: Iterator[str]) -> Iterator[str]:
    """Split at line feeds only, unlike str.splitlines."""
    rest: list[str] = []
    for text in texts:
        first, *more = text.split("\n")
        rest.append(first)
        for line in more:
            yield "".join(rest)
            rest = [line]
        if sum(map(len, rest)) > LINE:
            raise InputError(
                f"{name}: a line has more than {LINE:,} characters",
                hint="write one object on each line; a file of plain text should not end in .jsonl",
            )
    yield "".join(rest)
