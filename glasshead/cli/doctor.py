"""`glasshead doctor`: what this machine has, and what it lacks."""

from typing import Annotated

import typer

from glasshead.cli.terminal import Language, console, language

__all__ = ["doctor"]


def doctor(
    lang: Annotated[
        Language | None,
        typer.Option("--lang", help="Language of the tables [default: the locale's]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Show what this machine has for Glasshead, and what it lacks.

    That is Python, torch, devices, the kernels that attention gets, and how to install what is
    missing. The exit code is 1 if something needed is broken, 0 if only extras are missing.

    \b
    Examples:
      glasshead doctor
      glasshead doctor --lang zh
      glasshead doctor --json
    """
    from glasshead.lab.doctor import as_json as data
    from glasshead.lab.doctor import examine

    findings = examine()
    out = console()
    if as_json:
        import json

        print(json.dumps(data(findings), ensure_ascii=out.options.ascii_only, allow_nan=False))
    else:
        from glasshead.lab.doctor_tables import tables

        for part in tables(findings, lang.value if lang else language()):
            out.print(part)
    raise typer.Exit(int(findings.broken))
