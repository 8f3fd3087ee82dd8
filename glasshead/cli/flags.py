"""Command-line flags made of the fields of a config dataclass, whose comments are their help.

The file of the config is parsed, not imported, so that `--help` does not wait for torch.
"""

import ast
import inspect
import re
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from glasshead.cli.help import LocalizedHelp

__all__ = ["Flag", "GroupedCommand", "flags_of", "repeat_option", "with_flags"]

PACKAGE = Path(__file__).resolve().parents[1]
TYPES: dict[str, type] = {"int": int, "float": float, "str": str, "bool": bool}

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Flag:
    name: str
    type: type
    default: str  # its source text; empty if there is none
    help: str

    @property
    def option(self) -> str:
        """
        >>> Flag("n_layers", int, "4", "").option, Flag("bias", bool, "True", "").option
        ('--n-layers', '--bias/--no-bias')
        """
        word = self.name.replace("_", "-")
        return f"--{word}/--no-{word}" if self.type is bool else f"--{word}"

    def help_text(self, show_default: bool) -> str:
        """
        >>> Flag("port", int, "8000", "0 takes any").help_text(show_default=True)
        '0 takes any [default: 8000]'
        """
        if not show_default or self.default in ("", "None"):
            return self.help or " "
        value = self.default.strip("'")
        return f"{self.help} [default: {value}]"


def flags_of(file: str, config: str) -> list[Flag]:
    """Return a flag for each field of a dataclass in a file of the package.

    >>> flags_of("training/config.py", "TrainConfig")[2].name
    'seed'
    """
    source = (PACKAGE / file).read_text(encoding="utf-8")
    lines, flags = source.splitlines(), []
    [node] = [n for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and n.name == config]
    for field in node.body:
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            kind = TYPES[ast.unparse(field.annotation).removesuffix(" | None")]
            default = ast.unparse(field.value) if field.value else ""
            line = lines[(field.end_lineno or field.lineno) - 1].encode()
            comment = line[field.end_col_offset or 0 :].decode().partition("#")[2].strip()
            flags.append(Flag(field.target.id, kind, default, comment))
    return flags


def with_flags(
    *, without: Container[str] = (), defaults: bool = False, **panels: tuple[str, str]
) -> Callable[[Function], Function]:
    """Give a command a flag for each field of some configs, under a heading for each config.

    A field of several configs is one flag, under the first heading. The command takes the flags as
    `**flags`; those that are not given are None.

    Args:
        without: names of fields that are no flags.
        defaults: show the defaults of the fields, unless a preset may override them.
        panels: the file and name of each config, by its heading.
    """
    found: dict[str, tuple[str, Flag]] = {}
    for heading, config in panels.items():
        for flag in flags_of(*config):
            first = found.setdefault(flag.name, (heading, flag))[1]
            if first.type is not flag.type:
                raise TypeError(f"{flag.name} is {first.type} and {flag.type} in one command")

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        new = [
            inspect.Parameter(
                flag.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=Annotated[
                    flag.type | None,
                    typer.Option(
                        flag.option,
                        help=flag.help_text(defaults),
                        rich_help_panel=panel.replace("_", " "),
                        metavar=None if flag.type is bool else flag.type.__name__.upper(),
                        show_default=False,
                    ),
                ],
            )
            for panel, flag in found.values()
            if flag.name not in without
        ]
        function.__signature__ = signature.replace(parameters=[*own, *new])  # type: ignore[attr-defined]
        return function

    return decorate


class GroupedCommand(LocalizedHelp, TyperCommand):
    """A command whose help has options under headings, and arguments by their metavar.

    A repeatable option whose metavar is two words, such as SRC TGT, takes one value or two.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        wide = {
            name
            for param in self.params
            if getattr(param, "multiple", False) and " " in (param.metavar or "")
            for name in param.opts
        }
        return super().parse_args(ctx, repeat_option(args, wide))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        words = [param for param in self.params if param.param_type_name == "argument"]
        return ["[OPTIONS]", *(_metavar(p) if p.required else f"[{_metavar(p)}]" for p in words)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record, heading = param.get_help_record(ctx), "Options"
            if param.param_type_name == "argument":
                record, heading = (_metavar(param), getattr(param, "help", None) or ""), "Arguments"
            if record is not None:
                record = record[0], re.sub(r"x>=(\d+)", r"at least \1", record[1])
                heading = getattr(param, "rich_help_panel", None) or heading
                sections.setdefault(heading, []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def _metavar(argument: Any) -> str:
    several = argument.nargs == -1 and "..." not in argument.metavar
    return f"{argument.metavar}..." if several else f"{argument.metavar}"


def repeat_option(args: Sequence[str], wide: Container[str]) -> list[str]:
    """Write an option that is followed by two values once for each of them.

    >>> repeat_option(["--pairs", "a.de", "a.en", "--steps", "9"], {"--pairs"})
    ['--pairs', 'a.de', '--pairs', 'a.en', '--steps', '9']
    """
    out: list[str] = []
    for index, word in enumerate(args):
        if word == "--":
            return [*out, *args[index:]]
        second = index >= 2 and args[index - 2] in wide
        if second and args[index - 1] not in wide and (word == "-" or word[:1] != "-"):
            out.append(args[index - 2])
        out.append(word)
    return out
