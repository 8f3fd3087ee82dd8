"""A sheet as PNG, painted by matplotlib at twice the pixels of the layout."""

import io
import unicodedata
import warnings
from typing import Any

import numpy as np

from glasshead.errors import InputError
from glasshead.observe.colours import COLOURS, cell_colours, palette
from glasshead.observe.drawing import (
    Arc,
    CellGrid,
    Drawing,
    LabelledBar,
    Outline,
    Strip,
    Tile,
    Write,
    layout,
)
from glasshead.observe.picture import Sheet
from glasshead.observe.picture_svg import BAR, tones

__all__ = ["png", "png_of"]

DPI = 100  # at which a pixel of the layout is a pixel
SHARP = 2
MAX_SIDE = 2**15  # pixels of the picture: what can be painted
PAPER = COLOURS["light"]["paper"]


def png(sheet: Sheet) -> bytes:
    return png_of(layout(sheet))


def png_of(drawing: Drawing) -> bytes:
    import matplotlib
    from matplotlib.figure import Figure  # the figure alone: no window, no global state

    sharp = min(SHARP, MAX_SIDE / max(drawing.width, drawing.height))
    with matplotlib.rc_context({"font.family": _families(drawing), "axes.unicode_minus": False}):
        figure = Figure((drawing.width / DPI, drawing.height / DPI), facecolor=PAPER)
        axes: Any = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set(xlim=(0, drawing.width), ylim=(drawing.height, 0), autoscale_on=False)
        for item in drawing.items:
            match item:
                case Write():
                    _write(axes, item)
                case CellGrid():
                    _block(axes, item)
                case LabelledBar():
                    axes.barh(item.y + item.height / 2, item.width, item.height, left=item.x,
                              color=BAR)  # fmt: skip
                case Outline():
                    axes.plot(
                        np.array([0, 1, 1, 0, 0]) * item.width + item.x,
                        np.array([0, 0, 1, 1, 0]) * item.height + item.y,
                        color=COLOURS["light"]["accent"], linewidth=2 * 72 / DPI,
                    )  # fmt: skip
                case Strip():
                    _paint(axes, palette(item.kind)[None], item.x, item.y, item.width, item.height)
                case Tile():
                    axes.barh(item.y + item.height / 2, item.width, item.height, left=item.x,
                              color=item.colour, alpha=item.strength)  # fmt: skip
                case Arc():
                    _arc(axes, item)
        picture = io.BytesIO()
        with warnings.catch_warnings():
            # A character that no font has is drawn as a box.
            warnings.filterwarnings("ignore", message=".*[Gg]lyph.*")
            figure.savefig(picture, format="png", dpi=DPI * sharp)
        return picture.getvalue()


def _families(drawing: Drawing) -> list[str]:
    """Fonts in the order in which each character is looked for."""
    from glasshead.observe.fonts import chinese_font

    text = "".join(item.text for item in drawing.items if isinstance(item, Write))
    chinese = "".join(sorted({c for c in text if unicodedata.east_asian_width(c) in "WF"}))
    font = chinese_font(chinese) or chinese_font()
    if font is None and not chinese:
        return ["DejaVu Sans"]
    if font is None:
        raise InputError(
            f"no installed font has '{chinese[0]}', so it cannot be painted",
            hint="install Noto Sans CJK, or write .svg or .html, which use the fonts of the reader",
        )
    return [font, "DejaVu Sans"]


def _write(axes: Any, item: Write) -> None:
    anchors = {"start": "left", "middle": "center", "end": "right"}
    axes.text(
        item.x, item.y, item.text, fontsize=item.size * 72 / DPI, color=tones("light")[item.tone],
        ha=anchors[item.anchor], va="center" if not item.angle else "bottom",
        rotation=item.angle, rotation_mode="anchor" if item.angle != 90 else "default",
        parse_math=False,
    )  # fmt: skip


def _arc(axes: Any, item: Arc) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    spread = 9.0 if item.start == item.end else 0.0
    start, end, top = item.start - spread, item.end + spread, item.y - item.height * 4 / 3
    path = Path(
        [(start, item.y), (start, top), (end, top), (end, item.y)],
        [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4],
    )
    axes.add_patch(
        PathPatch(path, facecolor="none", edgecolor=BAR, alpha=0.25 + 0.75 * min(1, item.weight),
                  linewidth=(1 + 3 * item.weight) * 72 / DPI)
    )  # fmt: skip


def _block(axes: Any, block: CellGrid) -> None:
    R, C = block.shades.shape
    wide, high = C * block.width, R * block.height
    rgb = cell_colours(block.map.values, block.shades, block.kind)
    _paint(axes, rgb, block.x, block.y, wide, high)
    if block.gap:
        lines = {"color": PAPER, "linewidth": block.gap * 72 / DPI}
        across = block.x + np.arange(C + 1) * block.width
        axes.vlines(across, block.y, block.y + high, **lines)
        axes.hlines(block.y + np.arange(R + 1) * block.height, block.x, block.x + wide, **lines)


def _paint(axes: Any, rgb: Any, x: float, y: float, width: float, height: float) -> None:
    axes.imshow(rgb, extent=(x, x + width, y + height, y), aspect="auto",
                interpolation="nearest")  # fmt: skip
