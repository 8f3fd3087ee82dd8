"""Report all results together: as one page of HTML, or as the pages of docs/claims.md."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from glasshead.errors import InputError
from glasshead.files.writing import atomic_write
from glasshead.lab.claims import claim_modules, load_claim
from glasshead.lab.claims.drawing import render
from glasshead.lab.claims.report_docs import pages
from glasshead.lab.claims.report_page import html
from glasshead.lab.claims.report_words import Ladder
from glasshead.lab.claims.store import StoredResult, from_json, read_result, to_json
from glasshead.lab.ladder import Climb, Point, Summary
from glasshead.lab.texts import LANGUAGES

__all__ = ["Results", "read_docs", "read_results", "write_docs", "write_page"]


@dataclass(frozen=True)
class Results:
    """The results that exist, by number, and those of the ladder if it was run."""

    claims: Mapping[int, StoredResult]
    ladder: Ladder | None


def read_results(folder: Path, ladder: Path) -> Results:
    """Read the results in runs/claims and runs/ladder."""
    stored = {number: read_result(folder, number) for number in claim_modules()}
    found = {number: one for number, one in stored.items() if one is not None}
    if not found:
        raise InputError(
            f"no claim has been measured: {folder} contains no results",
            hint="run 'glasshead claims --quick' first",
        )
    path = ladder / "ladder.json"
    if not path.exists():
        return Results(found, None)
    try:
        return Results(found, _read_ladder(json.loads(path.read_text(encoding="utf-8"))))
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is not a result of the ladder: {type(error).__name__}: {error}",
            hint="run 'glasshead ladder' again, or give another --ladder",
        ) from None


def _read_ladder(data: Mapping[str, Any]) -> Ladder:
    rows = []
    for rung in data["rungs"]:
        climbs = tuple(
            Climb(
                **{
                    **climb,
                    "curve": tuple(Point(**point) for point in climb["curve"]),
                    "samples": tuple(climb.get("samples", ())),
                }
            )
            for climb in rung["climbs"]
        )
        fields = {name: rung[name] for name in Summary.__dataclass_fields__}
        rows.append(Summary(**{**fields, "climbs": climbs}))
    return Ladder(data["text"], tuple(rows))


def write_page(found: Results, path: Path, lang: str) -> None:
    """Write one file with all pictures, in both languages; it opens in `lang`."""
    page = html(found.claims, found.ladder, _draw_figures(found), lang)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(page.encode())


def write_docs(found: Results, folder: Path) -> list[Path]:
    """Write claims.md, claims/*.md, img/claims/*.png, and claims.json, the numbers behind them."""
    pictures = folder / "img" / "claims"
    for made in (pictures, folder / "claims"):
        made.mkdir(parents=True, exist_ok=True)
    files = {
        pictures / f"{name}.{lang}.png": picture
        for (name, lang), picture in _draw_figures(found).items()
    }
    for name, text in pages(found.claims, found.ladder).items():
        files[folder / name] = text.encode()
    files[folder / "claims.json"] = _as_json(found).encode()
    for path, content in files.items():
        with atomic_write(path) as file:
            file.write(content)
    return list(files)


def read_docs(folder: Path) -> Results:
    """Read the results that docs/claims.md was made from."""
    data = json.loads((folder / "claims.json").read_text(encoding="utf-8"))
    claims = {int(number): from_json(one) for number, one in data["claims"].items()}
    return Results(claims, _read_ladder(data["ladder"]) if data["ladder"] else None)


def _as_json(found: Results) -> str:
    ladder = found.ladder
    rungs = None if ladder is None else [asdict(row) for row in ladder.rows]
    plain = {
        "claims": {number: to_json(one) for number, one in found.claims.items()},
        "ladder": None if ladder is None else {"text": ladder.text, "rungs": rungs},
    }
    return json.dumps(plain, ensure_ascii=False) + "\n"


def _draw_figures(found: Results) -> dict[tuple[str, str], bytes]:
    """Return PNGs by (name, language), drawn anew from the evidence."""
    from glasshead.lab.ladder_figure import draw

    pictures: dict[tuple[str, str], bytes] = {
        (f"{number:02}", lang): _draw_figure(number, result, lang)
        for number, result in found.claims.items()
        for lang in LANGUAGES
    }
    if found.ladder is not None:
        pictures |= {("ladder", lang): draw(found.ladder.rows, lang) for lang in LANGUAGES}
    return pictures


def _draw_figure(number: int, result: StoredResult, lang: str) -> bytes:
    try:
        return render(load_claim(number), result.evidence, lang)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        if result.is_current:
            raise
        raise InputError(
            f"the result of claim {number} was measured by another version of the code and cannot "
            f"be drawn: {type(error).__name__}: {error}",
            hint=f"measure it again: 'glasshead claims {number} --again'",
        ) from None
