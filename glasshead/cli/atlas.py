"""`glasshead atlas`: record the attention of a long text in one file."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from glasshead.cli.terminal import (
    Beyond,
    Decompressed,
    Device,
    FirstTokens,
    argument,
    option,
    say,
    say_unseen,
    set_decompressed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["atlas"]

MOST = 1 << 24  # characters of a text; its queries and keys take a thousand times as much


def atlas(
    model: Annotated[Path, argument("MODEL", "A run, or a folder of a transformers model.")],
    file: Annotated[str, argument("FILE", "Text, also .gz, .xz or .jsonl; - for stdin.")],
    out: Annotated[Path, option("--out", "BOOK.glass", "The file to write.", "-o")],
    layers: Annotated[
        str | None, option("--layers", "L,...", "Such as 0,3-5 [default: all]")
    ] = None,
    max_tokens: FirstTokens = None,
    beyond: Beyond = False,
    statistics: Annotated[
        bool, option("--statistics/--no-statistics", None, "Measure every head, or do not.")
    ] = True,
    device: Device = "auto",
    decompressed: Decompressed = None,
) -> None:
    """Record what every head attends to in a long text, in one file.

    `look` and `serve` open the file and compute any weight of any head from it, exactly.

    \b
    Examples:
      glasshead atlas runs/poems book.txt -o book.glass --beyond
      glasshead atlas runs/poems book.xz -o book.glass --beyond --max-tokens 50000
      glasshead look book.glass --query 1234
      glasshead serve book.glass

    The whole text is read at once. The file holds queries, keys and the rows' log-sum-exp: it
    grows with the text, not with its square. Measuring compares every token with every token
    before it and takes the most time; with --no-statistics it is done when first needed.
    """
    from glasshead.errors import InputError
    from glasshead.generation.opening import open_inspectable
    from glasshead.machine import pick_device
    from glasshead.observe.inspectable import RecordConfig

    if out.suffix != ".glass":
        raise InputError(
            f"the name of {out} does not end in .glass", hint=f"try -o {out.with_suffix('.glass')}"
        )
    if not out.parent.is_dir():
        raise InputError(f"there is no folder {out.parent}", hint=f"mkdir -p {out.parent}")
    set_decompressed(decompressed)
    start = time.perf_counter()
    chosen = None if layers is None else tuple(_parse_numbers(layers))
    subject = open_inspectable(model, pick_device(device), say)
    text = _read_text(file, max_tokens)
    with _progress_bars() as bar:
        config = RecordConfig(chosen, max_tokens, beyond, bar("reading"), out.parent)
        seen = subject.record(text, config)
        read = time.perf_counter()
        show = bar("measuring") if statistics else None
        for done, layer in enumerate(seen.layers if show else [], 1):
            seen.statistics(layer.index)
            assert show is not None
            show(done, len(seen.layers))
    measured = time.perf_counter()
    say_unseen(seen)
    seen.about["text"] = text[:200]
    seen.save(out)
    assert seen.tokens is not None
    heads = sum(seen.shape(layer.index)[1] for layer in seen.layers)
    if max_tokens and len(seen.tokens[0]) < max_tokens and len(text) >= _characters(max_tokens):
        say(f"the first {len(text):,} characters have no more than {len(seen.tokens[0]):,} tokens")
    took = f"read in {read - start:.1f} s"
    if statistics:
        took += f", measured in {measured - read:.1f} s"
    say(
        f"{out}: {len(seen.tokens[0]):,} tokens, {len(seen.layers)} layers, {heads} heads, "
        f"{out.stat().st_size / 1e6:,.1f} MB",
        f"{took}, written in {time.perf_counter() - measured:.1f} s{_peak_memory()}",
    )


def _parse_numbers(text: str) -> Iterator[int]:
    """
    >>> list(_parse_numbers("0,3-5"))
    [0, 3, 4, 5]
    """
    from glasshead.errors import InputError

    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        is_range = first.isdecimal() and (last.isdecimal() if dash else not last)
        if not is_range or not 0 <= int(last or first) - int(first) < 10_000:
            raise InputError(
                f"--layers '{text}' is not a list of numbers", hint="try --layers 0,3-5"
            )
        yield from range(int(first), int(last or first) + 1)


def _read_text(file: str, max_tokens: int | None) -> str:
    """Read no more of a text than so many tokens need."""
    from glasshead.errors import InputError
    from glasshead.text.sources import Report, find_sources, read_parts

    report, parts, size = Report(), list[str](), 0
    for source in find_sources([file], report):
        for piece in read_parts(source, report):
            parts.append(piece.text)
            size += len(piece.text)
            if size > _characters(max_tokens):
                break
    if max_tokens is None and size > MOST:
        raise InputError(
            f"{file} has more than {MOST:,} characters, too many for one recording",
            hint="--max-tokens 100000 reads the beginning",
        )
    say(*report.summary())
    text = "".join(parts)[: _characters(max_tokens)]
    if not text.strip():
        raise InputError(f"{file} contains no text", hint="name a file with text in it")
    return text


def _characters(max_tokens: int | None) -> int:
    """Return how many characters are enough for so many tokens, by a wide margin."""
    return MOST if max_tokens is None else min(MOST, max(1 << 16, 64 * max_tokens))


@contextmanager
def _progress_bars() -> "Iterator[Callable[[str], Callable[[int, int], object]]]":
    """Yield a function that adds a bar for a stage; bars are shown on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda name: lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns: list[Any] = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
                          TextColumn("layers"), TimeElapsedColumn()]  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:

        def bar(name: str) -> "Callable[[int, int], object]":
            task = progress.add_task(name, total=None)
            return lambda done, total: progress.update(task, completed=done, total=total)

        yield bar


def _peak_memory() -> str:
    """Describe the peak memory of the process, if the system reports it."""
    try:
        import resource
    except ImportError:  # Windows
        return ""
    unit = 1 if sys.platform == "darwin" else 1024
    return (
        f"; peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6:,.0f} MB"
    )
