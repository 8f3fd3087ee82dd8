"""`glasshead check`: is this attention right, and if not, which mistake is it?"""

import ast
from typing import Annotated, Any

import typer

from glasshead.cli.terminal import AsJson, Lang, argument, console, language, option, print_json
from glasshead.errors import GlassheadError, InputError

__all__ = ["check"]


def check(
    target: Annotated[
        str, argument("TARGET", "file.py:name, package.module:name, or a transformers folder.")
    ],
    causal: Annotated[
        bool | None,
        option(
            "--causal/--not-causal", None, "Whether it should hide the future [default: found out]"
        ),
    ] = None,
    values: Annotated[
        list[str] | None,
        option(
            "--with", "NAME=VALUE", "A value for a parameter that is not known; may be repeated."
        ),
    ] = None,
    strict: Annotated[
        bool, option("--strict", None, "Exit with 1 for warnings too: unstable or slow.")
    ] = False,
    lang: Lang = None,
    as_json: AsJson = False,
) -> None:
    """Check attention that you wrote: right, or which mistake it is.

    The file is executed, and what it names is called on small tensors: a function of q, k and v or
    of x, a module, a class. Layout, masks and what it returns are found out by calling.

    \b
    Examples:
      glasshead check torch.nn:MultiheadAttention
      glasshead check torch.nn.functional:scaled_dot_product_attention --json
      glasshead check my_model.py:Attention --causal --with n_heads=2

    Exit code 0: right, perhaps with warnings. 1: a mistake was found. 2: it cannot be checked, with
    the reason.
    """
    from glasshead.lab.check.report import cannot_check, check_named, show
    from glasshead.machine import settle_half_precision

    settle_half_precision()  # before torch computes anything
    try:
        report = check_named(target, causal=causal, given=_parse(values or []))
    except GlassheadError as error:
        if not as_json:
            raise
        print_json(cannot_check(error))
        raise typer.Exit(2) from None
    if as_json:
        print_json(report.as_json())
    else:
        out = console()
        for line in show(report, language(lang)):
            out.print(line)
    if not report.ok or (strict and report.warnings):
        raise typer.Exit(1)


def _parse(values: list[str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for each in values:
        name, equals, value = each.partition("=")
        if not equals:
            raise InputError(f"--with {each!r} has no '='", hint="write --with n_heads=4")
        try:
            out[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            out[name] = value
    return out
