"""What commands share: a console, a language, a way to report mistakes, options."""

import os
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

__all__ = [
    "Beyond", "Device", "FirstTokens", "Language", "console", "language", "progress_bar",
    "read_text", "report",
]  # fmt: skip

Device = Annotated[
    str, typer.Option("--device", metavar="DEVICE", help="auto, cpu, cuda, cuda:1, ...")
]
FirstTokens = Annotated[
    int | None, typer.Option("--max-tokens", metavar="N", help="Read the first N tokens only.")
]
Beyond = Annotated[
    bool, typer.Option("--beyond", help="Read more than the model was trained to, if it can.")
]


class Language(StrEnum):
    zh = "zh"
    en = "en"


def console() -> "Console":
    """A console on stdout. With NO_COLOR set it writes no escape codes at all."""
    from rich.console import Console

    plain = bool(os.environ.get("NO_COLOR"))
    return Console(color_system=None if plain else "auto", highlight=False, markup=False)


def progress_bar() -> "Progress":
    """A bar on stderr with the time left, which says what is being done; on a terminal only."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        expand=True,
        transient=True,
        disable=not sys.stderr.isatty(),
    )


def language() -> Literal["zh", "en"]:
    """Chinese where the locale says so, English otherwise."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if locale := os.environ.get(name):
            return "zh" if locale.startswith("zh") else "en"
    return "en"


def read_text(given: str | None) -> str:
    """The argument, or stdin for `-` and for no argument outside a terminal."""
    from glasshead.errors import InputError

    if given != "-" and (given is not None or sys.stdin.isatty()):
        return given or ""
    try:
        return sys.stdin.buffer.read().decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise InputError(
            f"standard input: invalid UTF-8 at byte {error.start}",
            hint="if it is text, convert it, for example with iconv -f GB18030 -t UTF-8",
        ) from None


def report(message: str, hint: str) -> None:
    """One line that says what is wrong, and one that helps, on stderr."""
    if os.environ.get("LOCAL_RANK", "0") != "0":
        return  # of the processes that torchrun starts on a machine, the first one speaks
    lines = f"error: {_one_line(message)}\n"
    if hint:
        lines += f"\nhint: {_one_line(hint)}\n"
    sys.stderr.write(lines)


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
