"""`glasshead doctor`: what this machine has, and what it lacks."""

import typer

from glasshead.cli.terminal import AsJson, Lang, console, language, print_json

__all__ = ["doctor"]


def doctor(lang: Lang = None, as_json: AsJson = False) -> None:
    """Show what this machine has for Glasshead, and what it lacks.

    That is Python, torch, devices, the kernels that attention gets, and how to install what is
    missing. The exit code is 1 if something needed is broken, 0 if only extras are missing.

    \b
    Examples:
      glasshead doctor
      glasshead doctor --lang zh
      glasshead doctor --json
    """
    from glasshead.lab import doctor as lab

    findings = lab.examine()
    if as_json:
        print_json(lab.as_json(findings))
    else:
        from glasshead.lab.doctor_tables import tables

        out = console()
        for part in tables(findings, language(lang)):
            out.print(part)
    raise typer.Exit(int(findings.broken))
