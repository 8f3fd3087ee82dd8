"""`glasshead doctor`: what this machine has, and what it lacks; whether a run is whole."""

from pathlib import Path
from typing import Annotated

import typer

from glasshead.cli.terminal import AsJson, Lang, argument, console, language, print_json, report

__all__ = ["doctor"]


def doctor(
    run: Annotated[
        Path | None, argument("RUN", "A run, an export or a .glass file to check.")
    ] = None,
    lang: Lang = None,
    as_json: AsJson = False,
) -> None:
    """Show what this machine has for Glasshead, and what it lacks.

    That is Python, torch, devices, the kernels that attention gets, and how to install what is
    missing. The exit code is 1 if something needed is broken, 0 if only extras are missing.

    With RUN, check each of its files against the digests that were written with it, and change
    nothing. The exit code is 1 if a file is damaged.

    \b
    Examples:
      glasshead doctor
      glasshead doctor --lang zh
      glasshead doctor --json
      glasshead doctor runs/poems
    """
    if run is not None:
        raise typer.Exit(_check_files(run, as_json))
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


def _check_files(run: Path, as_json: bool) -> int:
    from glasshead.checkpoint.verifying import check_files

    found = list(check_files(run))
    damaged = [one for one in found if one.verdict == "damaged"]
    if as_json:
        files = [{"file": str(f.file), "verdict": f.verdict, "reason": f.reason} for f in found]
        print_json({"ok": not damaged, "files": files})
        return int(bool(damaged))
    width = max(len(one.verdict) for one in found)
    for one in found:
        print(f"{one.verdict:<{width}}  {one.file}{': ' if one.reason else ''}{one.reason}")
    if damaged:
        report(
            f"{run}: {len(damaged)} of {len(found)} files damaged",
            "restore them from a backup; a damaged last checkpoint gives way to the previous one",
        )
    return int(bool(damaged))
