"""`glasshead heads`: what every head of a model does, and whether the model needs it."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from glasshead.cli.terminal import (
    AsJson,
    Device,
    Lang,
    ProgressDisplay,
    argument,
    console,
    language,
    option,
    print_json,
    read_text,
    say,
)

if TYPE_CHECKING:
    from glasshead.observe.wording import Language as Words
    from glasshead.roles.naming import HeadRoles
    from glasshead.roles.proof import Head

__all__ = ["heads"]

TABLES = (".csv", ".parquet", ".json")
SUFFIXES = (*TABLES, ".png", ".svg", ".html")


def heads(
    model: Annotated[
        str, argument("MODEL", "A run, a folder with a transformers model, or a GGUF file.")
    ],
    texts: Annotated[
        list[str] | None,
        argument("[TEXT...]", "Files to read, or a text itself; - for stdin [default: stories]"),
    ] = None,
    role: Annotated[
        list[str] | None, option("--role", "NAME", "Prove this role only; may be repeated.")
    ] = None,
    head: Annotated[
        str | None, option("--head", "L:H", "Tell all of one head, such as 3:7.")
    ] = None,
    compare: Annotated[
        str | None, option("--compare", "MODEL", "Name what changed from this model to MODEL.")
    ] = None,
    draws: Annotated[
        int, option("--draws", "N", "How often other heads are removed; 0 proves nothing.")
    ] = 5,
    sequences: Annotated[int, option("--sequences", "N", "Sequences of each probe.")] = 6,
    tokens: Annotated[int, option("--tokens", "N", "Tokens of each sequence.")] = 96,
    seed: Annotated[int, option("--seed", "S", "Of random tokens and draws.")] = 0,
    out: Annotated[
        Path | None,
        option("--out", "FILE", "Write a .png, .svg, .html, .csv, .parquet or .json.", "-o"),
    ] = None,
    streaming: Annotated[
        Path | None,
        option("--streaming", "FOLDER", "Write which heads may have a short cache."),
    ] = None,
    lang: Lang = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Name what every head does, with scores, controls and proofs.

    \b
    Examples:
      glasshead heads runs/poems my.txt
      glasshead heads runs/poems my.txt -o heads.png
      glasshead heads runs/poems my.txt --role induction --json
      glasshead heads runs/poems my.txt --head 1:1
      glasshead heads runs/poems my.txt --compare runs/poems

    A head is named if its score lies above fixed thresholds and above controls. A name is proved if
    the model loses more without the named heads than without as many others of the same layers; a
    role that fails is shown as one that the heads only look like. --streaming writes what
    DuoAttention and kvpress read.
    """
    _check(out, head, draws, sequences, tokens)
    chosen = language(lang)

    def name(which: str) -> "HeadRoles":
        from glasshead.api.heads import open_subject
        from glasshead.machine import pick_device
        from glasshead.roles.naming import name_heads
        from glasshead.roles.probes import ProbeSizes
        from glasshead.roles.proof import Scope

        subject = open_subject(which, device=pick_device(device))
        with _HeadsProgress() as bar:
            return name_heads(
                subject, given, roles=role, probes=ProbeSizes(sequences, tokens, seed),
                scope=Scope(draws, seed), progress=bar.show,
            )  # fmt: skip

    given = [_read(text) for text in texts or ()]
    before = None if compare is None else name(compare)
    found = name(model)
    which = None if head is None else _parse_head(head, found)
    if streaming is not None:
        from glasshead.roles.files import write_streaming

        write_streaming(found, streaming)
        say(f"wrote {streaming}")
    if out is not None:
        _save_output(found, before, which, out, chosen)
        say(f"wrote {out}")
    if as_json:
        from glasshead.roles.compare import changes_as_json
        from glasshead.roles.files import as_json as everything

        print_json(everything(found) if before is None else changes_as_json(before, found))
    elif out is None:
        _print(found, before, which, chosen)


class _HeadsProgress(ProgressDisplay):
    """A bar with the role that is being proved."""

    def __init__(self) -> None:
        super().__init__()
        self._task = self._bar.add_task("", total=1.0)

    def show(self, done: float, what: str) -> None:
        self._bar.update(self._task, completed=done, description=what)


def _print(
    found: "HeadRoles", before: "HeadRoles | None", head: "Head | None", lang: "Words"
) -> None:
    from rich.table import Table

    from glasshead.roles import tables
    from glasshead.roles.compare import change_lines

    if before is not None:
        lines = change_lines(before, found, lang)
    elif head is not None:
        lines = tables.head_lines(found, head, lang)
    else:
        lines = tables.role_lines(found, lang)
    screen = console()
    for line in lines:
        screen.print(line, soft_wrap=not isinstance(line, Table))


def _save_output(
    found: "HeadRoles", before: "HeadRoles | None", head: "Head | None", out: Path, lang: "Words"
) -> None:
    from glasshead.observe.picture import write_file

    suffix = out.suffix.lower()
    if suffix == ".json":
        import json

        from glasshead.roles.files import as_json

        write_file(out, json.dumps(as_json(found), ensure_ascii=False, indent=1).encode())
    elif suffix in TABLES:
        from glasshead.roles.files import write_table

        write_table(found, out)
    elif suffix == ".html":
        from glasshead.lab.heads_page import heads_page

        write_file(out, heads_page(found, lang, head, before).encode())
    else:
        from glasshead.observe.picture_png import png_of
        from glasshead.observe.picture_svg import svg_of
        from glasshead.roles.pictures import card, sheet

        drawing = sheet(found, lang, before) if head is None else card(found, head, lang)
        write_file(out, svg_of(drawing) if suffix == ".svg" else png_of(drawing))


def _read(text: str) -> str:
    from glasshead.text.corpus import read_documents

    if text != "-" and os.path.exists(text):  # of os.path: a text too long for a name is no file
        return "\n".join(document.text for document in read_documents([text]))
    return read_text(text)


def _parse_head(text: str, found: "HeadRoles") -> "Head":
    from glasshead.errors import InputError

    layer, _, head = text.partition(":")
    layers, H = found.measured.layers, found.shape[1]
    if not (layer.isdecimal() and head.isdecimal()):
        raise InputError(f"--head {text} is no layer and head", hint="try --head 0:0")
    if int(layer) not in layers or int(head) >= H:
        raise InputError(
            f"there is no head {text}",
            hint=f"layers are {layers[0]} to {layers[-1]}, heads 0 to {H - 1}",
        )
    return int(layer), int(head)


def _check(out: Path | None, head: str | None, draws: int, sequences: int, tokens: int) -> None:
    from glasshead.errors import ConfigError, InputError, did_you_mean

    if out is not None and out.suffix.lower() not in SUFFIXES:
        raise InputError(
            f"{out} is no picture or table", hint=did_you_mean(out.suffix.lower(), SUFFIXES)
        )
    for name, value, least in (
        ("--draws", draws, 0), ("--sequences", sequences, 2), ("--tokens", tokens, 24),
    ):  # fmt: skip
        if value < least:
            raise ConfigError(
                f"{name} ({value}) must be at least {least}", hint=f"try {name} {least}"
            )
