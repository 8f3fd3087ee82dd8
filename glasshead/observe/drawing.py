"""Where everything on a sheet goes: one layout, which `picture_svg` and `picture_png` paint.

All measures are pixels, from the top left corner.
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len

from glasshead.observe.colours import Kind, Scale, full_bar, three
from glasshead.observe.picture import Sheet
from glasshead.observe.view import Map

__all__ = [
    "Arc", "CellGrid", "Drawing", "Item", "LabelledBar", "Outline", "Strip", "Tile", "Write",
    "layout", "short", "text_width",
]  # fmt: skip

MARGIN = 32
LABEL = 26  # cells: a longer name is cut
BARS = 24  # words at most
ROOM = 960  # for the longer side of a map


@dataclass(frozen=True)
class Write:
    """A line of text; (x, y) is the middle of its height."""

    x: float
    y: float
    text: str
    size: float = 12
    anchor: Literal["start", "middle", "end"] = "start"
    angle: float = 0  # counter-clockwise
    bold: bool = False
    tone: Literal["ink", "quiet", "paper"] = "ink"


@dataclass(frozen=True, eq=False)
class CellGrid:
    """A map of cells. `named`: each cell says what it is when pointed at."""

    x: float
    y: float
    width: float  # of a cell
    height: float
    map: Map
    shades: NDArray[np.uint8]  # (rows, cols)
    kind: Kind
    gap: float
    named: bool


@dataclass(frozen=True)
class LabelledBar:
    x: float
    y: float
    width: float
    height: float
    text: str


@dataclass(frozen=True)
class Outline:
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Strip:
    """The colours of a scale, from left to right."""

    x: float
    y: float
    width: float
    height: float
    kind: Kind


@dataclass(frozen=True)
class Tile:
    """A filled rectangle; `strength` is its opacity."""

    x: float
    y: float
    width: float
    height: float
    colour: str
    strength: float


@dataclass(frozen=True)
class Arc:
    """A bow over a line of text, from the middle of one token to that of another."""

    start: float
    end: float
    y: float  # of the line
    height: float
    weight: float


Item = Write | CellGrid | LabelledBar | Outline | Strip | Tile | Arc


@dataclass
class Drawing:
    title: str
    width: float = 0
    height: float = 0
    items: list[Item] = field(default_factory=list)

    def write(self, x: float, y: float, text: str, **how: object) -> None:
        line = Write(x, y, text, **how)  # type: ignore[arg-type]
        self.items.append(line)
        if line.anchor == "start" and not line.angle:
            self.fit(x + text_width(text, line.size), y + line.size)

    def outline(self, *place: float) -> None:
        self.items.append(Outline(*place))

    def fit(self, right: float, bottom: float) -> None:
        self.width = max(self.width, right + MARGIN)
        self.height = max(self.height, bottom + MARGIN)


def layout(sheet: Sheet) -> Drawing:
    drawing = Drawing(sheet.title, width=360)
    y = float(MARGIN)
    if sheet.title:
        drawing.write(MARGIN, y + 8, sheet.title, size=17, bold=True)
        y += 18
    for note in sheet.notes:
        y += 18
        drawing.write(MARGIN, y, note, size=12, tone="quiet")
    y += 26 if sheet.title else 0
    match sheet.kind:
        case "grid":
            _grid(drawing, sheet, y)
        case "bars":
            _bars(drawing, sheet, y)
        case "heat":
            _heat(drawing, sheet, y)
        case _:
            _map(drawing, sheet, y)
    return drawing


def text_width(text: str, size: float) -> float:
    return 0.54 * size * cell_len(text)


def short(text: str) -> str:
    """
    >>> short("a" * 30)
    'aaaaaaaaaaaaaaaaaaaaaaaaa…'
    """
    if cell_len(text) <= LABEL:
        return text
    while cell_len(text) > LABEL - 1:
        text = text[:-1]
    return f"{text}…"


def _map(drawing: Drawing, sheet: Sheet, top: float) -> None:
    [shown] = sheet.maps
    R, C = shown.values.shape
    cell = min(34.0, max(6.5, ROOM // max(R, C, 1))) if shown.rows else ROOM / max(R, C)
    size = min(13.0, max(6.0, 0.7 * cell))
    rows, cols = ([short(name) for name in side or []] for side in (shown.rows, shown.cols))
    left = MARGIN + max((text_width(name, size) for name in rows), default=0) + (8 if rows else 0)
    top = _top_labels(drawing, cols, left, top, cell, size)
    scale = Scale.of(shown.values, sheet.scale)
    gap = 1.0 if cell >= 12 else 0.0
    drawing.items.append(
        CellGrid(left, top, cell, cell, shown, scale.shades(shown.values), scale.kind, gap,
              named=shown.rows is not None)
    )  # fmt: skip
    for i, name in enumerate(rows):
        drawing.write(left - 8, top + (i + 0.5) * cell, name, size=size, anchor="end")
    _outline(drawing, sheet, left, top, cell, cell, gap)
    drawing.fit(left + C * cell, top + R * cell)
    if sheet.unit:
        _legend(drawing, sheet, scale, left, top + R * cell + 22)


def _top_labels(
    drawing: Drawing, names: list[str], left: float, top: float, cell: float, size: float
) -> float:
    """The names of the columns; returns where the cells begin."""
    if not names:
        return top
    longest = max(text_width(name, size) for name in names)
    if longest <= cell:
        for j, name in enumerate(names):
            drawing.write(left + (j + 0.5) * cell, top, name, size=size, anchor="middle")
        return top + size
    angle = 45.0 if cell >= 18 else 90.0
    high = longest * (0.71 if angle == 45 else 1) + 0.4 * size
    y = top + high - 6
    for j, name in enumerate(names):
        # Slanted names begin above the middle of their column.
        drawing.write(left + (j + 0.5) * cell, y, name, size=size, angle=angle)
        if angle == 45:
            drawing.fit(left + (j + 0.5) * cell + 0.71 * text_width(name, size), y)
    return y + 8


def _grid(drawing: Drawing, sheet: Sheet, top: float) -> None:
    columns = max(len(maps) for _, maps in sheet.layers)
    side, gap = min(168.0, max(52.0, ROOM / columns - 10)), 10
    size = 12.0
    left = MARGIN + max(text_width(name, size) for name, _ in sheet.layers) + 12
    for head in range(columns):
        drawing.write(left + head * (side + gap) + side / 2, top, str(head), size=size,
                      anchor="middle", tone="quiet")  # fmt: skip
    y = top + 14
    for name, maps in sheet.layers:
        drawing.write(left - 12, y + side / 2, name, size=size, anchor="end", tone="quiet")
        for column, number in enumerate(maps):
            shown = sheet.maps[number]
            R, C = shown.values.shape
            scale = Scale.of(shown.values, sheet.scale)
            drawing.items.append(
                CellGrid(left + column * (side + gap), y, side / C, side / R, shown,
                      scale.shades(shown.values), scale.kind, 0.0, named=False)
            )  # fmt: skip
        y += side + gap
    drawing.fit(left + columns * (side + gap) - gap, y - gap)


def _bars(drawing: Drawing, sheet: Sheet, top: float) -> None:
    [shown] = sheet.maps
    names, values = shown.cols or [], shown.values[0].nan_to_num(0)
    order = values.argsort(descending=True, stable=True)[:BARS].tolist()
    order = [j for place, j in enumerate(order) if values[j] > 0 or place == 0]
    left = MARGIN + max(text_width(short(names[j]), 13) for j in order) + 10
    full = full_bar(float(values.max()))
    for place, j in enumerate(order):
        y, value = top + place * 26, float(values[j])
        text = f"{names[j]}: {number(value)}"
        drawing.write(left - 10, y, short(names[j]), size=13, anchor="end")
        drawing.items.append(LabelledBar(left, y - 9, max(1.0, 420 * value / full), 18, text))
        drawing.write(left + 420 * value / full + 8, y, three(value), size=11, tone="quiet")
    drawing.fit(left + 480, top + len(order) * 26 - 16)
    drawing.write(left, top + len(order) * 26 + 4, sheet.unit, size=11, tone="quiet")


def _heat(drawing: Drawing, sheet: Sheet, top: float) -> None:
    [shown] = sheet.maps
    wide, high, size = 52.0, 28.0, 12.0
    rows, cols = shown.rows or [], shown.cols or []
    left = MARGIN + max(text_width(name, size) for name in rows) + 10
    for j, name in enumerate(cols):
        drawing.write(left + (j + 0.5) * wide, top, name, size=size, anchor="middle", tone="quiet")
    top += 16
    scale = Scale.of(shown.values, sheet.scale)
    shades = scale.shades(shown.values)
    drawing.items.append(
        CellGrid(left, top, wide, high, shown, shades, scale.kind, gap=1.5, named=True)
    )
    for i, name in enumerate(rows):
        y = top + (i + 0.5) * high
        drawing.write(left - 10, y, name, size=size, anchor="end", tone="quiet")
        for j in range(len(cols)):
            value = float(shown.values[i, j])
            if value == value:
                drawing.write(left + (j + 0.5) * wide, y, three(value), size=11, anchor="middle",
                              tone="paper" if shades[i, j] > 120 else "ink")  # fmt: skip
    _outline(drawing, sheet, left, top, wide, high, 1.5)
    drawing.fit(left + len(cols) * wide, top + len(rows) * high)


def _outline(
    drawing: Drawing, sheet: Sheet, left: float, top: float, wide: float, high: float, gap: float
) -> None:
    for row, col in sorted(sheet.marks):
        place = (left + col * wide, top + row * high, wide - gap, high - gap)
        drawing.items.append(Outline(*place))


def _legend(drawing: Drawing, sheet: Sheet, scale: Scale, x: float, y: float) -> None:
    low, high = scale.ends(sheet.maps[0].values)
    start = x + text_width(low, 11) + 8
    drawing.write(x, y, low, size=11, tone="quiet")
    drawing.items.append(Strip(start, y - 5, 120, 10, scale.kind))
    end = f"{high}  {sheet.unit}"
    drawing.write(start + 128, y, end, size=11, tone="quiet")


def number(value: float) -> str:
    """With all digits that float32 can be trusted for.

    >>> number(0.25), number(1 / 3)
    ('0.25', '0.333333')
    """
    return f"{value:.6g}"
