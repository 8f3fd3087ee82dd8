"""Flags from the fields of a config dataclass: name, type and the comment behind it as help.

The config's file is read, not imported: `--help` must not wait for torch.
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

__all__ = ["Flag", "Grouped", "flags_of", "spread", "with_flags"]

PACKAGE = Path(__file__).resolve().parents[1]
TYPES: dict[str, type] = {"int": int, "float": float, "str": str, "bool": bool}

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Flag:
    name: str
    type: type
    default: str  # as it is written; empty where there is none
    help: str

    @property
    def option(self) -> str:
        """
        >>> Flag("n_layers", int, "4", "").option, Flag("bias", bool, "True", "").option
        ('--n-layers', '--bias/--no-bias')
        """
        word = self.name.replace("_", "-")
        return f"--{word}/--no-{word}" if self.type is bool else f"--{word}"

    def says(self, default: bool) -> str:
        """
        >>> Flag("port", int, "8000", "0 takes any").says(default=True)
        '0 takes any [default: 8000]'
        """
        if not default or self.default in ("", "None"):
            return self.help or " "
        value = self.default.strip("'")
        return f"{self.help} [default: {value}]"


def flags_of(file: str, config: str) -> list[Flag]:
    """The fields of a dataclass in a file of the package.

    >>> flags_of("training/config.py", "TrainConfig")[2].name
    'seed'
    """
    source = (PACKAGE / file).read_text(encoding="utf-8")
    lines, flags = source.splitlines(), []
    [made] = [n for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and n.name == config]
    for node in made.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            kind = TYPES[ast.unparse(node.annotation).removesuffix(" | None")]
            default = ast.unparse(node.value) if node.value else ""
            line = lines[(node.end_lineno or node.lineno) - 1].encode()[node.end_col_offset or 0 :]
            comment = line.decode().partition("#")[2].strip()
            flags.append(Flag(node.target.id, kind, default, comment))
    return flags


def with_flags(
    *, without: Container[str] = (), defaults: bool = False, **panels: tuple[str, str]
) -> Callable[[Function], Function]:
    """Give a command one flag for each field of some configs, under a heading for each config.

    A field that several configs have is one flag, shown where it comes first. The command takes
    them as `**flags`; one that was not given is None. `defaults` shows what is then taken: not
    where a preset may say otherwise.
    """
    found: dict[str, tuple[str, Flag]] = {}
    for heading, place in panels.items():
        for flag in flags_of(*place):
            first = found.setdefault(flag.name, (heading, flag))[1]
            if first.type is not flag.type:
                raise TypeError(f"{flag.name} is {first.type} and {flag.type} in one command")

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        made = [
            inspect.Parameter(
                flag.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=Annotated[
                    flag.type | None,
                    typer.Option(
                        flag.option,
                        help=flag.says(defaults),
                        rich_help_panel=panel.replace("_", " "),
                        metavar=None if flag.type is bool else flag.type.__name__.upper(),
                        show_default=False,
                    ),
                ],
            )
            for panel, flag in found.values()
            if flag.name not in without
        ]
        function.__signature__ = signature.replace(parameters=[*own, *made])  # type: ignore[attr-defined]
        return function

    return decorate


class Grouped(TyperCommand):
    """Shows options that have a heading of their own under it, and arguments by their names alone.

    A repeatable option whose metavar is two words, such as SRC TGT, takes one word or two.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        wide = {
            name
            for param in self.params
            if getattr(param, "multiple", False) and " " in (param.metavar or "")
            for name in param.opts
        }
        return super().parse_args(ctx, spread(args, wide))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        words = [param for param in self.params if param.param_type_name == "argument"]
        return ["[OPTIONS]", *(_name(p) if p.required else f"[{_name(p)}]" for p in words)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record, heading = param.get_help_record(ctx), "Options"
            if param.param_type_name == "argument":
                record, heading = (_name(param), getattr(param, "help", None) or ""), "Arguments"
            if record is not None:
                record = record[0], re.sub(r"x>=(\d+)", r"at least \1", record[1])
                heading = getattr(param, "rich_help_panel", None) or heading
                sections.setdefault(heading, []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def _name(argument: Any) -> str:
    several = argument.nargs == -1 and "..." not in argument.metavar
    return f"{argument.metavar}..." if several else f"{argument.metavar}"


def spread(args: Sequence[str], wide: Container[str]) -> list[str]:
    """An option that is followed by two words is written once for each.

    >>> spread(["--pairs", "a.de", "a.en", "--steps", "9"], {"--pairs"})
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
