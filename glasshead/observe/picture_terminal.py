"""A sheet in a terminal: coloured cells, or shades of block characters where there are no colours.

East Asian characters are two cells wide, and so is every cell of a map: columns stay straight.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from rich.cells import cell_len, set_cell_size
from rich.console import Console, RenderableType
from rich.style import Style
from rich.text import Text
from torch import Tensor

from glasshead.observe.colours import Kind, Scale, full_bar, palette, three
from glasshead.observe.picture import Sheet
from glasshead.observe.view import Map

__all__ = ["bar", "fit_to_width", "print_sheet"]

NAME = 18  # cells of a name at the side
HIGH = 12  # cells of a name at the top, which is written downwards
THUMB = 20  # cells a side of a small map
BLOCKS = " ░▒▓█"
ASCII = " .:+#"


def print_sheet(sheet: Sheet, console: Console) -> None:
    """Print a sheet with the colours and characters that this console has."""
    for part in render(sheet, console):
        console.print(part, soft_wrap=True)


def render(sheet: Sheet, console: Console) -> Iterator[RenderableType]:
    brush = Brush(console, sheet.scale)
    yield Text(sheet.title, style="bold")
    for note in sheet.notes:
        yield Text(note, style="dim")
    yield ""
    match sheet.kind:
        case "bars":
            yield from _bars(sheet, console)
        case "heat":
            yield from _heat(sheet.maps[0], brush)
        case "grid":
            yield from _grid(sheet, brush, console.width)
        case _:
            yield from _map(sheet.maps[0], brush, console.width)
            yield ""
            yield brush.legend(sheet.maps[0].values, sheet.unit)


class Brush:
    """Paints shades 0 to 255 in colours, or in block characters where there are none."""

    def __init__(self, console: Console, kind: Kind) -> None:
        self.coloured = console.color_system is not None
        self.kind = kind
        self.signs = ASCII if console.options.ascii_only else BLOCKS
        self._colours = palette(kind)

    def style(self, shade: int, background: bool = True) -> Style:
        red, green, blue = self._colours[shade]
        colour = f"rgb({red},{green},{blue})"
        return Style(bgcolor=colour) if background else Style(color=colour)

    def paint(self, text: Text, shade: int, width: int = 2) -> None:
        if self.coloured:
            text.append(" " * width, self.style(shade))
        else:
            text.append(self.sign(shade) * width)

    def sign(self, shade: int) -> str:
        """The character for a shade; of ratios, only those above 1 get one."""
        share = (shade - 128) / 127 if self.kind == "ratio" else shade / 255
        # A small weight gets at least the lightest character.
        step = int(np.ceil(share * (len(self.signs) - 1) - 0.1))
        return self.signs[min(max(step, 0), len(self.signs) - 1)]

    def number(self, text: Text, value: float, shade: int, width: int) -> None:
        """Write a number on its colour."""
        if value != value:
            text.append(" " * width)
            return
        written = f"{three(value):>{width - 1}} "
        if self.coloured:
            ink = "white" if shade > 120 else "black"
            text.append(written, Style(color=ink) + self.style(shade))
        else:
            text.append(written)

    def legend(self, values: Tensor, unit: str) -> Text:
        low, high = Scale.of(values, self.kind).ends(values)
        text = Text(f"{low} ")
        for shade in np.linspace(0, 255, 12).astype(int):
            self.paint(text, int(shade), width=1)
        return text.append(f" {high} {unit}")


def fit_to_width(text: str, width: int) -> str:
    """Cut or fill a text to exactly `width` cells.

    >>> fit_to_width("小猫", 5), fit_to_width("小猫在", 5)
    ('小猫 ', '小猫…')
    """
    if cell_len(text) <= width:
        return text + " " * (width - cell_len(text))
    return set_cell_size(set_cell_size(text, width - 1).rstrip() + "…", width)


def bar(share: float, width: int, ascii_only: bool) -> str:
    """Draw a bar that a share of 1 fills, in eighths of a cell where the terminal has them.

    >>> bar(0.5, 5, ascii_only=False), bar(0.5, 4, ascii_only=True)
    ('██▌', '##')
    """
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    if ascii_only:
        return "#" * round(eighths / 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _bars(sheet: Sheet, console: Console) -> Iterator[Text]:
    [shown] = sheet.maps
    names, values = shown.cols or [], shown.values[0].nan_to_num(0)
    order = values.argsort(descending=True, stable=True).tolist()
    order = [j for place, j in enumerate(order) if values[j] > 0 or place == 0][:24]
    wide = min(NAME, max(cell_len(names[j]) for j in order))
    full = full_bar(float(values.max()))
    room = min(40, max(8, console.width - wide - 10))
    for j in order:
        line = Text(f"{fit_to_width(names[j], wide)}  {three(float(values[j])):>7}  ")
        drawn = bar(float(values[j]) / full, room, console.options.ascii_only)
        yield line.append(drawn, style="blue")


def _map(shown: Map, brush: Brush, width: int) -> Iterator[Text]:
    """Words down the side and along the top; columns that do not fit go below the others."""
    values = shown.values if shown.rows else _shrink(shown.values, max(8, (width - 2) // 2))
    shades = Scale.of(values, brush.kind).shades(values)
    rows, cols = shown.rows or [""] * len(values), shown.cols or [""] * values.shape[1]
    side = min(NAME, max(map(cell_len, rows), default=0))
    step = max(1, (width - side - 2) // 2)
    for start in range(0, len(cols), step):
        part = slice(start, start + step)
        if start:
            yield Text("")
        if shown.cols:
            yield from _vertical_names(cols[part], side + 1)
        for name, row in zip(rows, shades[:, part], strict=True):
            text = Text(fit_to_width(name, side) + " " if side else "")
            for shade in row:
                brush.paint(text, int(shade))
            yield text


def _vertical_names(names: Sequence[str], indent: int) -> Iterator[Text]:
    """Names that are read from top to bottom, each two cells wide."""
    cut = [name if len(name) <= HIGH else name[: HIGH - 1] + "⋮" for name in names]
    high = max(map(len, cut))
    for line in range(high):
        text = " " * indent
        for name in cut:
            place = line - (high - len(name))  # they stand on the map
            text += fit_to_width(name[place] if place >= 0 else "", 2)
        yield Text(text.rstrip())


def _heat(shown: Map, brush: Brush) -> Iterator[Text]:
    shades = Scale.of(shown.values, brush.kind).shades(shown.values)
    rows, cols = shown.rows or [], shown.cols or []
    side, wide = max(map(cell_len, rows)), 8
    yield Text(" " * side + "".join(f"{name:>{wide - 1}} " for name in cols), style="dim")
    for i, name in enumerate(rows):
        text = Text(fit_to_width(name, side))
        for j in range(len(cols)):
            brush.number(text, float(shown.values[i, j]), int(shades[i, j]), wide)
        yield text


def _grid(sheet: Sheet, brush: Brush, width: int) -> Iterator[Text]:
    """Small maps side by side, as many as there is room for."""
    for _, numbers in sheet.layers:
        smalls = [_shrink(sheet.maps[n].values, THUMB) for n in numbers]
        shades = [Scale.of(small, brush.kind).shades(small) for small in smalls]
        each = max(small.shape[1] for small in shades)
        each = max(each * (1 if brush.coloured else 2), 6)
        fit = max(1, (width + 2) // (each + 2))
        for start in range(0, len(shades), fit):
            part = range(start, min(start + fit, len(shades)))
            names = (fit_to_width(sheet.maps[numbers[n]].name, each) for n in part)
            yield Text("  ".join(names).rstrip(), style="dim")
            yield from _side_by_side([shades[n] for n in part], brush, each)
            yield Text("")


def _side_by_side(maps: Sequence[NDArray[np.uint8]], brush: Brush, each: int) -> Iterator[Text]:
    """In colours two rows of cells are one line: the upper half and the lower half of it."""
    tall = 2 if brush.coloured else 1
    for line in range(0, max(len(one) for one in maps), tall):
        text = Text("")
        for shades in maps:
            done = 0
            for j in range(shades.shape[1] if line < len(shades) else 0):
                if brush.coloured:
                    lower = shades[line + 1, j] if line + 1 < len(shades) else None
                    style = brush.style(int(shades[line, j]), background=False)
                    if lower is not None:
                        style += brush.style(int(lower))
                    text.append("▀", style)
                else:
                    brush.paint(text, int(shades[line, j]))
                done += 1 if brush.coloured else 2
            text.append(" " * (each - done + 2))
        text.rstrip()
        yield text


def _shrink(values: Tensor, most: int) -> Tensor:
    """Pool to at most `most` cells a side, each the largest of those it stands for."""
    high, wide = (min(n, most) for n in values.shape)
    filled = values.nan_to_num(0)[None, None]
    return F.adaptive_max_pool2d(filled, (high, wide))[0, 0].to(torch.float32)
