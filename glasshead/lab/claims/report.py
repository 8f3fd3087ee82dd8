"""Everything that was found, together: as one page of HTML, or as docs/claims.md."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from glasshead.checkpoint.files import atomic_write
from glasshead.errors import InputError
from glasshead.lab.claims import claim_modules, load_claim
from glasshead.lab.claims.drawing import render
from glasshead.lab.claims.report_docs import markdown
from glasshead.lab.claims.report_page import html
from glasshead.lab.claims.store import Stored, from_json, read, to_json
from glasshead.lab.ladder import Climb, Point, Summary

__all__ = ["Found", "gather", "read_docs", "write_docs", "write_page"]


@dataclass(frozen=True)
class Ladder:
    """What `glasshead ladder` wrote."""

    text: Mapping[str, Any]  # name, characters, vocabulary
    rows: tuple[Summary, ...]


@dataclass(frozen=True)
class Found:
    """The results that there are, by number, and the ladder if it was climbed."""

    claims: Mapping[int, Stored]
    ladder: Ladder | None


def gather(folder: Path, ladder: Path) -> Found:
    """What lies in runs/claims and runs/ladder."""
    stored = {number: read(folder, number) for number in claim_modules()}
    found = {number: one for number, one in stored.items() if one is not None}
    if not found:
        raise InputError(
            f"no claim has been measured: {folder} has no results",
            hint="run 'glasshead claims --quick' first",
        )
    path = ladder / "ladder.json"
    if not path.exists():
        return Found(found, None)
    try:
        return Found(found, _ladder(json.loads(path.read_text(encoding="utf-8"))))
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is no result of the ladder: {type(error).__name__}: {error}",
            hint="run 'glasshead ladder' again, or give another --ladder",
        ) from None


def _ladder(data: Mapping[str, Any]) -> Ladder:
    rows = []
    for rung in data["rungs"]:
        climbs = tuple(
            Climb(**{**climb, "curve": tuple(Point(**point) for point in climb["curve"])})
            for climb in rung["climbs"]
        )
        fields = {name: rung[name] for name in Summary.__dataclass_fields__}
        rows.append(Summary(**{**fields, "climbs": climbs}))
    return Ladder(data["text"], tuple(rows))


def write_page(found: Found, path: Path, lang: str) -> None:
    """One file with all its pictures, in both languages; `lang` is the one it opens in."""
    page = html(found.claims, found.ladder, _figures(found), lang)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(page.encode())


def write_docs(found: Found, folder: Path) -> list[Path]:
    """claims.md, img/claims/*.png, and claims.json, the numbers that both came from."""
    pictures = folder / "img" / "claims"
    pictures.mkdir(parents=True, exist_ok=True)
    files = {
        pictures / f"{name}.{lang}.png": picture
        for (name, lang), picture in _figures(found).items()
    }
    files[folder / "claims.md"] = markdown(found.claims, found.ladder).encode()
    files[folder / "claims.json"] = _as_json(found).encode()
    for path, content in files.items():
        with atomic_write(path) as file:
            file.write(content)
    return list(files)


def read_docs(folder: Path) -> Found:
    """The results that docs/claims.md was made from."""
    data = json.loads((folder / "claims.json").read_text(encoding="utf-8"))
    claims = {int(number): from_json(one) for number, one in data["claims"].items()}
    return Found(claims, _ladder(data["ladder"]) if data["ladder"] else None)


def _as_json(found: Found) -> str:
    ladder = found.ladder
    rungs = None if ladder is None else [asdict(row) for row in ladder.rows]
    plain = {
        "claims": {number: to_json(one) for number, one in found.claims.items()},
        "ladder": None if ladder is None else {"text": ladder.text, "rungs": rungs},
    }
    return json.dumps(plain, ensure_ascii=False) + "\n"


def _figures(found: Found) -> dict[tuple[str, str], bytes]:
    """PNGs by (name, language), drawn anew from the evidence."""
    from glasshead.lab.ladder_figure import draw

    pictures = {
        (f"{number:02}", lang): _figure(number, stored, lang)
        for number, stored in found.claims.items()
        for lang in ("en", "zh")
    }
    if found.ladder is not None:
        pictures["ladder", "en"] = draw(found.ladder.rows, "en")
        pictures["ladder", "zh"] = draw(found.ladder.rows, "zh")
    return pictures


def _figure(number: int, stored: Stored, lang: str) -> bytes:
    try:
        return render(load_claim(number), stored.evidence, lang)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        if stored.is_current:
            raise
        raise InputError(
            f"the result of claim {number} was measured by other code than this: "
            f"{type(error).__name__}: {error}",
            hint=f"measure it anew: 'glasshead claims {number} --again'",
        ) from None
