"""A sheet as one HTML file that needs nothing else: no network, no fonts, no server.

`page/` holds what it is made of. The numbers go into it as they are, four bytes each.
"""

import base64
import json
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np

from glasshead.errors import InputError
from glasshead.observe.colours import Kind, Scale, palette
from glasshead.observe.picture import Sheet
from glasshead.observe.view import Map
from glasshead.observe.wording import STATISTICS, TEXTS

__all__ = ["page"]

MAX_NUMBERS = 2**24  # of one page: 64 MiB before they are text


def page(sheet: Sheet) -> bytes:
    count = sum(one.values.numel() for one in sheet.maps)
    if count > MAX_NUMBERS:
        raise InputError(
            f"{len(sheet.maps)} maps have {count:,} numbers, too many for one page "
            f"({MAX_NUMBERS:,})",
            hint="choose a layer with --layer, or write a .png",
        )
    folder = files("glasshead.observe") / "page"
    html, css, js = ((folder / f"look.{end}").read_text("utf-8") for end in ("html", "css", "js"))
    # A text may hold anything; `</script>` in it must not end the script.
    data = json.dumps(_data(sheet), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    parts = {"lang": sheet.lang, "title": escape(sheet.title), "css": css, "data": data, "js": js}
    for name, part in parts.items():
        before, _, after = html.partition(f"{{{name}}}")
        html = before + part + after
    return html.encode()


def _data(sheet: Sheet) -> dict[str, Any]:
    labels: list[list[str]] = []

    def number(names: list[str] | None) -> int | None:
        """Where a list of names stands; maps of one text share it."""
        if names is None:
            return None
        if names not in labels:
            labels.append(names)
        return labels.index(names)

    def packed(one: Map, kind: Kind) -> dict[str, Any]:
        scale = Scale.of(one.values, kind)
        R, C = one.values.shape
        return {
            "name": one.name,
            "R": R,
            "C": C,
            "cell": one.cell,
            "rows": number(one.rows),
            "cols": number(one.cols),
            "values": _base64(np.asarray(one.values, dtype="<f4")),
            "shades": _base64(scale.shades(one.values)),
            "ends": scale.ends(one.values),
        }

    text = TEXTS[sheet.lang]
    return {
        "kind": sheet.kind,
        "title": sheet.title,
        "notes": sheet.notes + [text["hint"]] * (sheet.kind == "grid"),
        "scale": sheet.scale,
        "unit": sheet.unit,
        "text": {"keys": text["keys"], "queries": text["queries"]},
        "maps": [packed(one, sheet.scale) for one in sheet.maps],
        "layers": sheet.layers,
        "statistics": [
            packed(one, "linear") | {"label": f"{one.name}: {STATISTICS[sheet.lang][one.name]}"}
            for one in sheet.statistics
        ],
        "labels": labels,
        "palettes": {
            kind: {theme: _base64(palette(kind, theme)) for theme in ("light", "dark")}
            for kind in {"linear", sheet.scale}
        },
    }


def _base64(numbers: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(numbers).tobytes()).decode()
