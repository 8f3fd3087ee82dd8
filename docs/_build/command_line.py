"""The reference of the command line, from the command line itself."""

import re
from typing import Any

import typer

from docs._build.markdown import cell, fence, prose
from glasshead.cli import COMMANDS, app

WORDS = {
    "en": {
        "title": "Command line",
        "intro": "Written from the commands themselves; `glasshead COMMAND --help` says the same.",
        "option": "option",
        "argument": "argument",
        "does": "what it does",
    },
    "zh": {
        "title": "命令行",
        "intro": "由命令本身生成，与 `glasshead COMMAND --help` 所说一致；说明文字只有英文。",
        "option": "选项",
        "argument": "参数",
        "does": "作用",
    },
}


def commands() -> dict[str, Any]:
    """Each command by its word, as what parses it."""
    group: Any = typer.main.get_command(app)
    return {word: group.commands[word] for word in COMMANDS}


def page(language: str) -> str:
    words = WORDS[language]
    sections = [section(word, command, words) for word, command in commands().items()]
    return "\n\n".join([f"# {words['title']}", words["intro"], *sections]) + "\n"


def section(word: str, command: Any, words: dict[str, str]) -> str:
    context = typer.Context(command, info_name=f"glasshead {word}")
    usage = " ".join([f"glasshead {word}", *command.collect_usage_pieces(context)])
    out = [f"## {word}", *described(command.help), fence(usage, "text")]
    panels: dict[str, list[tuple[str, str]]] = {}
    for param in command.get_params(context):
        name, says = param.get_help_record(context) or ("", "")
        if param.param_type_name == "argument":
            panels.setdefault(words["argument"], []).append((name.split(" <")[0], says))
        elif name != "--help":
            heading = getattr(param, "rich_help_panel", None) or words["option"]
            panels.setdefault(heading, []).append((name, says))
    return "\n\n".join([*out, *(table(name, rows, words) for name, rows in panels.items())])


def described(text: str) -> list[str]:
    """A command's help: examples as code, the rest as it is."""
    out = []
    for block in re.split(r"\n\s*\n", text.replace("\b", "").strip()):
        heading, _, lines = block.strip("\n").partition("\n")
        if heading.strip() == "Examples:":
            out.append(fence("\n".join(line.strip() for line in lines.splitlines()), "bash"))
        else:
            out.append(prose(block.strip()))
    return out


def table(name: str, rows: list[tuple[str, str]], words: dict[str, str]) -> str:
    lines = [f"| {name} | {words['does']} |", "|---|---|"]
    return "\n".join([*lines, *(f"| `{left}` | {cell(right)} |" for left, right in rows)])
