"""A sheet as SVG: each cell is a rectangle that says what it is, with its number in full."""

import base64
import io
from collections.abc import Iterator
from html import escape

import numpy as np

from glasshead.observe.colours import COLOURS, SEQUENTIAL, Theme, cell_colours, hex_of, palette
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
    number,
)
from glasshead.observe.picture import Sheet

__all__ = ["BAR", "FONTS", "svg", "svg_of", "tones"]

FONTS = (
    "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', 'PingFang SC', 'Hiragino Sans GB', "
    "'Microsoft YaHei', 'Noto Sans CJK SC', 'Source Han Sans SC', sans-serif"
)
BAR = SEQUENTIAL["light"][3]


def svg(sheet: Sheet, theme: Theme = "light") -> bytes:
    return svg_of(layout(sheet), theme)


def svg_of(drawing: Drawing, theme: Theme = "light") -> bytes:
    return "\n".join(_lines(drawing, theme)).encode()


def tones(theme: Theme) -> dict[str, str]:
    colours = COLOURS[theme]
    return {"ink": colours["ink"], "quiet": colours["label"], "paper": colours["paper"]}


def _lines(drawing: Drawing, theme: Theme) -> Iterator[str]:
    width, height = round(drawing.width), round(drawing.height)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="{FONTS}">'
    )
    yield f"<title>{escape(drawing.title)}</title>"
    yield f'<rect width="100%" height="100%" fill="{COLOURS[theme]["paper"]}"/>'
    for item in drawing.items:
        match item:
            case Write():
                yield _text(item, theme)
            case CellGrid(named=True):
                yield from _cells(item, theme)
            case CellGrid():
                yield _image(item, theme)
            case LabelledBar():
                yield (
                    f'<rect x="{item.x:g}" y="{item.y:g}" width="{item.width:.2f}" '
                    f'height="{item.height:g}" rx="2" fill="{BAR}">'
                    f"<title>{escape(item.text)}</title></rect>"
                )
            case Outline():
                yield (
                    f'<rect x="{item.x:g}" y="{item.y:g}" width="{item.width:g}" '
                    f'height="{item.height:g}" rx="2" fill="none" '
                    f'stroke="{COLOURS[theme]["accent"]}" stroke-width="2"/>'
                )
            case Strip():
                yield from _strip(item, theme)
            case Tile():
                yield (
                    f'<rect x="{item.x:g}" y="{item.y:g}" width="{item.width:g}" '
                    f'height="{item.height:g}" rx="2" fill="{item.colour}" '
                    f'fill-opacity="{item.strength:g}"/>'
                )
            case Arc():
                yield _arc(item)
    yield "</svg>\n"


def _text(item: Write, theme: Theme) -> str:
    turned = f' transform="rotate({-item.angle:g} {item.x:.2f} {item.y:.2f})"' * bool(item.angle)
    bold = ' font-weight="600"' * item.bold
    return (
        f'<text x="{item.x:.2f}" y="{item.y:.2f}" font-size="{item.size:g}" dy="0.35em" '
        f'text-anchor="{item.anchor}" fill="{tones(theme)[item.tone]}"{bold}{turned}>'
        f"{escape(item.text)}</text>"
    )


def _cells(block: CellGrid, theme: Theme) -> Iterator[str]:
    """Rectangles for what is not zero, on one for all that is; of ratios, for all there are."""
    R, C = block.shades.shape
    colours, gap = palette(block.kind, theme), block.gap
    rows = block.map.rows or [str(i) for i in range(R)]
    cols = block.map.cols or [str(j) for j in range(C)]
    base = COLOURS[theme]["paper"] if block.kind == "ratio" else hex_of(colours[0])
    yield (
        f'<rect x="{block.x:g}" y="{block.y:g}" width="{C * block.width:g}" '
        f'height="{R * block.height:g}" fill="{base}"/>'
    )
    yield f'<g class="cells" shape-rendering="{"auto" if gap else "crispEdges"}">'
    for i, row in enumerate(block.map.values.tolist()):
        for j, value in enumerate(row):
            if value != value or (value == 0 and block.kind != "ratio"):
                continue
            yield (
                f'<rect x="{block.x + j * block.width:g}" y="{block.y + i * block.height:g}" '
                f'width="{block.width - gap:g}" height="{block.height - gap:g}" '
                f'fill="{hex_of(colours[block.shades[i, j]])}">'
                f"<title>{escape(rows[i])} → {escape(cols[j])}: {number(value)}</title></rect>"
            )
    yield "</g>"


def _image(block: CellGrid, theme: Theme) -> str:
    from matplotlib.image import imsave

    R, C = block.shades.shape
    data = io.BytesIO()
    colours = cell_colours(block.map.values, block.shades, block.kind, theme)
    imsave(data, colours, format="png")
    return (
        f'<image x="{block.x:g}" y="{block.y:g}" width="{C * block.width:g}" '
        f'height="{R * block.height:g}" preserveAspectRatio="none" '
        f'style="image-rendering:pixelated" '
        f'href="data:image/png;base64,{base64.b64encode(data.getvalue()).decode()}">'
        f"<title>{escape(block.map.name)}</title></image>"
    )


def _arc(item: Arc) -> str:
    """A bow; a loop where the token looks at itself."""
    spread = 9.0 if item.start == item.end else 0.0
    top = item.y - item.height * 4 / 3
    return (
        f'<path d="M{item.start - spread:.1f} {item.y:g} C{item.start - spread:.1f} {top:g} '
        f'{item.end + spread:.1f} {top:g} {item.end + spread:.1f} {item.y:g}" fill="none" '
        f'stroke="{BAR}" stroke-width="{1 + 3 * item.weight:.2f}" '
        f'stroke-opacity="{0.25 + 0.75 * item.weight:.2f}"/>'
    )


def _strip(item: Strip, theme: Theme) -> Iterator[str]:
    colours = palette(item.kind, theme)
    yield '<linearGradient id="strip">'
    for share in np.linspace(0, 1, 9):
        yield f'<stop offset="{share:g}" stop-color="{hex_of(colours[round(share * 255)])}"/>'
    yield "</linearGradient>"
    yield (
        f'<rect x="{item.x:g}" y="{item.y:g}" width="{item.width:g}" height="{item.height:g}" '
        'rx="2" fill="url(#strip)"/>'
    )
