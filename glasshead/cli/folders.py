"""Before the files of folders are read: say how many there are, and ask if that is a lot."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from glasshead import messages
from glasshead.cli.terminal import say

__all__ = ["confirm_folders"]

MOST_FILES, MOST_BYTES = 10_000, 10**9  # up to which nobody is asked


def confirm_folders(sources: Sequence[str | Path]) -> None:
    """Walk the folders among these; say how many files they have, and of what size.

    Above MOST_FILES or MOST_BYTES ask on a terminal whether to read them.

    Raises:
        typer.Exit: the answer is no.
    """
    from glasshead.text.sources import Report, find_sources, total_bytes

    folders = [source for source in sources if os.path.isdir(source)]
    if not folders:
        return
    on_terminal = sys.stdin.isatty() and sys.stderr.isatty()
    found = find_sources(folders, Report(), _show_count if on_terminal else lambda n: None)
    size = total_bytes(found)
    names = " ".join(map(str, folders))
    say(f"{names}: {len(found):,} files, {size / 1e6:,.1f} MB; what is not text is skipped")
    if on_terminal and (len(found) > MOST_FILES or size > MOST_BYTES):
        question = messages.translate("Read them all?")
        if not typer.confirm(question, err=True):
            say("nothing was read")
            raise typer.Exit(1)


def _show_count(n: int) -> None:
    line = messages.translate(f"{n:,} files so far")
    print(f"\x1b[2K{line}\r", end="", file=sys.stderr, flush=True)
