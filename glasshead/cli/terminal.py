"""What commands share: option declarations, the console, progress bars, and error messages."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import typer

from glasshead import messages

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import ProgressColumn

    from glasshead.observe.trace import Trace

__all__ = [
    "AsJson", "Beyond", "Decompressed", "Device", "FirstTokens", "Lang", "Language",
    "ProgressDisplay", "RunArgument", "argument",
    "console", "drop_none", "language", "option", "print_json", "read_text", "report", "say",
    "say_unseen", "set_decompressed", "write_errors",
]  # fmt: skip


def option(name: str, metavar: str | None, help: str, *names: str, **settings: Any) -> Any:
    """Declare an option; one without a value has no metavar."""
    return typer.Option(name, *names, metavar=metavar, help=help, **settings)


def argument(metavar: str, help: str) -> Any:
    """Declare an argument."""
    return typer.Argument(metavar=metavar, help=help)


class Language(StrEnum):
    zh = "zh"
    en = "en"


RunArgument = Annotated[Path, argument("RUN", "The folder of a trained run.")]
Device = Annotated[str, option("--device", "DEVICE", "auto, cpu, cuda, cuda:1, ...")]
FirstTokens = Annotated[int | None, option("--max-tokens", "N", "Read the first N tokens only.")]
Beyond = Annotated[bool, option("--beyond", None, "Read more than max_len tokens, if possible.")]
Decompressed = Annotated[
    float | None,
    option("--decompressed", "GB", "Most text of a .gz or .xz file [default: 200 x its size]"),
]
AsJson = Annotated[bool, option("--json", None, "Print one JSON object instead.")]
Lang = Annotated[
    Language | None, option("--lang", None, "Language of the output [default: the locale's]")
]


def set_decompressed(gigabytes: float | None) -> None:
    """Let compressed files hold more text, if the flag was given."""
    if gigabytes is not None:
        from glasshead.text.sources import allow_decompressed

        allow_decompressed(gigabytes)


def drop_none(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags that were given on the command line."""
    return {name: value for name, value in flags.items() if value is not None}


def console() -> "Console":
    """Return a console on stdout; with NO_COLOR set it writes no escape codes."""
    from rich.console import Console

    from glasshead.cli.screen import protect_console, unprotected

    plain = bool(os.environ.get("NO_COLOR"))
    return protect_console(
        Console(
            file=unprotected(sys.stdout),
            color_system=None if plain else "auto",
            highlight=False,
            markup=False,
        )
    )


def print_json(data: Any) -> None:
    """Print one JSON object, in ASCII if the terminal shows nothing else."""
    import json

    print(json.dumps(data, ensure_ascii=console().options.ascii_only, allow_nan=False))


def say(*lines: str) -> None:
    """Print lines to stderr, in the language of the user."""
    for line in lines:
        shown = messages.translate(line)
        if sys.stderr.isatty():
            shown = messages.escape_controls(shown)
        print(shown, file=sys.stderr, flush=True)


class ProgressDisplay:
    """A context manager with a progress bar on a terminal: stderr's, or that of a console."""

    def __init__(self, *columns: "ProgressColumn", console: "Console | None" = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._on_terminal = console.is_terminal if console else sys.stderr.isatty()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            *columns,
            TimeRemainingColumn(),
            console=console or Console(stderr=True),
            expand=True,
            transient=True,
            disable=not self._on_terminal,
        )

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()


def say_unseen(trace: "Trace") -> None:
    """Say which attention of the model is not in the recording."""
    if trace.unseen:
        names, n = ", ".join(trace.unseen[:3]), len(trace.unseen)
        say(f"not recorded: {n} attention layers that hooks cannot see, such as {names}")


def language(lang: Language | None = None) -> Literal["zh", "en"]:
    """Return the language given with --lang, else that of GLASSHEAD_LANG or the locale."""
    return messages.language() if lang is None else lang.value


def read_text(given: str | None) -> str:
    """Return the argument, or stdin for `-`, and without an argument if stdin is no terminal."""
    from glasshead.errors import InputError

    if given != "-" and (given is not None or sys.stdin.isatty()):
        return given or ""
    data = sys.stdin.buffer.read()
    try:
        return data.decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        from glasshead.text.sources import encoding_hint

        raise InputError(
            f"standard input: invalid UTF-8 at byte {error.start}",
            hint=encoding_hint(data[:6], data[error.start :]),
        ) from None


@contextmanager
def write_errors(out: Path) -> Iterator[None]:
    """Report an OSError as a mistake of the user's: --out cannot be written."""
    from glasshead.errors import InputError

    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot write to {error.filename or out}: {error.strerror}",
            hint="choose another --out",
        ) from None


def report(message: str, hint: str) -> None:
    """Print an error and its hint to stderr, in the language of the user."""
    if os.environ.get("LOCAL_RANK", "0") != "0":
        return  # only the first of the processes that torchrun starts on a machine prints
    error, tip = ("错误：", "提示：") if language() == "zh" else ("error: ", "hint: ")
    lines = f"{error}{_one_line(messages.translate(message))}\n"
    if hint:
        lines += f"\n{tip}{_one_line(messages.translate(hint))}\n"
    sys.stderr.write(lines)


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
