"""Whether what a page tells to type exists: commands, their flags, targets of make, extras."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from glasshead.cli import COMMANDS, UsageError, app

ROOT = Path(__file__).resolve().parents[2]
PARSERS: Any = typer.main.get_command(app)
BETWEEN = {"|", "||", "&&", ";", "&", ">", ">>", "<"}  # what ends a command


def wrongs(line: str) -> list[str]:
    """What is wrong with a command line.

    >>> wrongs("head -n 3 my.txt | glasshead scroe runs/mine -")
    ["there is no command 'scroe'"]
    """
    try:
        return [wrong for words in commands(line) for wrong in _wrongs(words)]
    except ValueError as error:  # a quotation that does not end
        return [f"{line}: {error}"]


def commands(line: str) -> Iterator[list[str]]:
    words: list[str] = []
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    for word in [*lexer, ";"]:
        if word in BETWEEN:
            yield words
            words = []
        else:
            words.append(word)


def _wrongs(words: list[str]) -> Iterator[str]:
    names = [Path(word).name for word in words]
    if names[:1] == ["docker"]:  # there it is the name of an image
        return
    if "glasshead" in names:  # it may stand behind torchrun and its flags, or behind a variable
        yield from _wrong_glasshead(words[names.index("glasshead") + 1 :])
    elif names[:1] == ["make"]:
        targets = make_targets((ROOT / "Makefile").read_text(encoding="utf-8"))
        named = [word for word in words[1:] if "=" not in word and not word.startswith("-")]
        yield from (f"make has no target {name}" for name in named if name not in targets)
    elif names[:2] == ["pip", "install"]:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        for extra in re.findall(r"(?:glasshead|\.)\[([\w,]+)\]", " ".join(words)):
            for name in {*extra.split(",")} - {*project["optional-dependencies"]}:
                yield f"glasshead has no extra '{name}'"


def make_targets(makefile: str) -> set[str]:
    """
    >>> sorted(make_targets(".PHONY: a\\nBIN := x\\na: b\\n\\tb\\ntest-all fuzz:\\n.venv/x: y"))
    ['a', 'fuzz', 'test-all']
    """
    rules = re.findall(r"^(\w[\w -]*):(?!=)", makefile, re.MULTILINE)
    return {name for names in rules for name in names.split()}


def _wrong_glasshead(args: list[str]) -> Iterator[str]:
    if not args or args[0] in {"--help", "--version"}:
        return
    word, *rest = args
    if word not in COMMANDS:
        yield f"there is no command '{word}'"
        return
    try:
        PARSERS.commands[word].make_context(f"glasshead {word}", rest)
    except typer.Exit:  # --help
        pass
    except UsageError as error:
        yield f"glasshead {word}: {error.format_message()}"


def inline(page: str) -> list[str]:
    """Command lines in the running text: `glasshead ...` with a command and its words."""
    return re.findall(r"`(glasshead [^`\n]+|make [^`\n]+)`", page)


def inline_wrongs(line: str) -> list[str]:
    """The same for a line that may leave things out, such as `glasshead train ... --resume`."""
    words = [word for word in line.split() if not word.startswith("…")]
    wrong = wrongs(line) if words[0] == "make" else []
    if words[0] == "glasshead" and re.fullmatch("[a-z]+", words[1] if words[1:] else ""):
        if words[1] not in COMMANDS:
            return [f"there is no command '{words[1]}'"]
        command = PARSERS.commands[words[1]]
        known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)} | {"--help"}
        flags = {re.split("[=,;:)]", word)[0] for word in words[2:] if word.startswith("--")}
        wrong = [f"glasshead {words[1]} has no option {flag}" for flag in sorted(flags - known)]
    return wrong
