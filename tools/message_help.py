"""Find the texts of `--help`, and those that come from click, typer and the operating system."""

import errno
import inspect
import os
import re
from collections.abc import Iterator
from typing import Any

import typer

from glasshead.cli import app
from glasshead.cli.help import default_of, paragraphs

# What click and typer say, in the form in which `glasshead.cli` passes it on.
CLICK = """
Usage
Options
Arguments
Commands
Examples
Show this message and exit.
required
at least {0}
must be at least {0}
missing argument '{0}'
missing option '{0}'
option '{0}' requires an argument
option '{0}' does not take a value
invalid value for '{0}': {1}
'{0}' is not one of {1}
got unexpected extra argument ({0})
got unexpected extra arguments ({0})
{0} {1} is not a whole number
{0} {1} is not a number
{0} {1} must be at least {2}
"""
# What stands as a value in other messages: `str` of a model, the reason for which a run ended.
VALUES = """
GPT of {0} parameters, {1}
Transformer of {0} parameters, {1}
Reader of {0} parameters, {1}
finished
stopped early
interrupted
"""
ERRNOS = "ENOENT EACCES EEXIST EISDIR ENOTDIR ENOSPC EROFS EPERM EADDRINUSE ENAMETOOLONG EDQUOT EIO"


def templates_of_help() -> dict[str, str]:
    """Return each text with the command that shows it."""
    found: dict[str, str] = {}
    group: Any = typer.main.get_command(app)
    for command in [group, *group.commands.values()]:
        for text in texts_of(command):
            found.setdefault(text, f"{command.name} --help")
    for where, texts in {"click": CLICK, "tools/message_help.py": VALUES}.items():
        for text in texts.strip().splitlines():
            found.setdefault(text, where)
    for name in ERRNOS.split():
        found.setdefault(os.strerror(getattr(errno, name)), "the operating system")
    return found


def texts_of(command: Any) -> Iterator[str]:
    for paragraph in paragraphs(inspect.cleandoc(command.help)):
        if not paragraph.startswith("\b"):
            yield paragraph
    for param in command.params:
        if heading := getattr(param, "rich_help_panel", None):
            yield heading
        body, brackets = default_of(getattr(param, "help", None) or "")
        yield from [body] if re.search("[A-Za-z]{2}", body) else []
        for inner in brackets:
            default = inner.removeprefix("default: ")
            if " " in default:
                yield default
