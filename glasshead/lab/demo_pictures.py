"""The demo's pictures as SVG: weights as shades under the words they belong to.

Colours are variables of the page, so that one picture serves by day and by night. A number in a
picture is shown where the pointer rests.
"""

from collections.abc import Collection, Mapping, Sequence
from html import escape

from rich.cells import cell_len
from torch import Tensor

__all__ = ["grid", "matrix", "strips"]

CELL = 10.5  # width of half a Chinese character
ROW = 17  # height of a strip
LEFT = 64  # room for the names of strips


def _svg(width: float, height: float, parts: Sequence[str], label: str, least: int = 0) -> str:
    style = f' style="min-width:{least}px"' if least else ""
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(label)}"'
        f"{style}>{''.join(parts)}</svg>"
    )


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind.strip()}">{escape(text)}</text>'


def _shade(x: float, y: float, w: float, h: float, weight: float, title: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" class="shade" '
        f'fill-opacity="{weight:.3f}"><title>{escape(title)}</title></rect>'
    )


def _frame(x: float, y: float, w: float, h: float) -> str:
    box = f'x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}"'
    return f'<rect {box} class="frame"/>'


def strips(
    tokens: Sequence[str],
    rows: Mapping[str, Tensor],
    *,
    best: str,
    asking: int,
    answers: Mapping[int, str] | None = None,
) -> str:
    """A sentence; above it arcs to the words that `asking` looks at in the strip called `best`,
    below it a strip of shades for each of `rows`, (S,) weights each."""
    widths = [cell_len(token) * CELL + 1.5 for token in tokens]
    starts = [LEFT + sum(widths[:place]) for place in range(len(tokens))]
    middles = [start + width / 2 for start, width in zip(starts, widths, strict=True)]
    weights = rows[best].tolist()
    line = 118 if max(weights) > 0.02 else 40
    parts = []
    for place, weight in enumerate(weights):
        if weight >= 0.02 and place != asking:
            far = abs(middles[place] - middles[asking])
            top = line - 24 - min(86.0, 16 + far * 0.16)
            parts.append(
                f'<path d="M{middles[asking]:.1f} {line - 22} C{middles[asking]:.1f} {top:.1f} '
                f'{middles[place]:.1f} {top:.1f} {middles[place]:.1f} {line - 22}" class="arc" '
                f'stroke-width="{1 + 6 * weight:.2f}" stroke-opacity="{0.25 + 0.75 * weight:.2f}"/>'
            )
    most = max(range(len(tokens)), key=lambda place: weights[place])
    for place, token in enumerate(tokens):
        kind = "asking" if place == asking else "most" if place == most else ""
        parts.append(_text(middles[place], line, token, f"word {kind}"))
    for place, answer in (answers or {}).items():
        parts.append(_text(middles[place], line + 17, f"→{answer}", "answer"))
    top = line + (30 if answers else 14)
    for number, (name, row) in enumerate(rows.items()):
        y = top + number * ROW
        parts.append(_text(LEFT - 10, y + ROW - 5, name, f"name {'best' if name == best else ''}"))
        for place, weight in enumerate(row.tolist()):
            title = f"{name}  {tokens[place]}  {weight:.3f}"
            parts.append(_shade(starts[place], y, widths[place] - 1.5, ROW - 2, weight, title))
    width = starts[-1] + widths[-1] + 4
    label = f"{tokens[asking]} → {tokens[most]} {weights[most]:.2f}"
    return _svg(width, top + len(rows) * ROW + 4, parts, label, least=720)


def matrix(
    source: Sequence[str],
    target: Sequence[str],
    weights: Tensor,
    links: Collection[tuple[int, int]],
    marked: int | None,
) -> str:
    """Where each word of the target (down) looked in the source (across); rings are the truth."""
    side = 20.0
    left = 14 + max((cell_len(word) for word in target), default=1) * 7.6
    top = 14 + max(map(len, source)) * 15
    parts = []
    for column, word in enumerate(source):
        x = left + column * side + side / 2 - 0.75
        for place, character in enumerate(reversed(word)):  # Chinese, so upright
            parts.append(_text(x, top - 8 - place * 15, character, "column"))
    for row, word in enumerate(target):
        y = top + row * side
        kind = "name small best" if row == marked else "name small"
        parts.append(_text(left - 8, y + side - 6, word, kind))
        for column, weight in enumerate(weights[row].tolist()):
            title = f"{word} → {source[column]}  {weight:.3f}"
            x = left + column * side
            parts.append(_shade(x, y, side - 1.5, side - 1.5, weight, title))
    for column, row in sorted(links):
        cx, cy = (start + n * side + side / 2 - 0.75 for start, n in ((left, column), (top, row)))
        parts.append(f'<circle cx="{cx:.1f}" cy="{cy:.1f}" r="5.5" class="ring"/>')
    if marked is not None:
        across = len(source) * side + 1.5
        parts.append(_frame(left - 1.5, top + marked * side - 1.5, across, side + 1.5))
    height = top + len(target) * side + 4
    return _svg(left + len(source) * side + 4, height, parts, " ".join(target), least=560)


def grid(table: Tensor, best: tuple[int, int], form: str, low_is_good: bool = False) -> str:
    """A figure for each layer (down) and head (across); the best is framed."""
    wide, high, left, top = 74.0, 38.0, 34.0, 22.0
    n_layers, n_heads = table.shape
    parts = [
        _text(left + head * wide + wide / 2, 14, f"H{head}", "tick") for head in range(n_heads)
    ]
    for layer in range(n_layers):
        y = top + layer * high
        parts.append(_text(left - 16, y + high / 2 + 4, f"L{layer}", "tick"))
        for head in range(n_heads):
            value = table[layer, head].item()
            shade = min(1.0, max(0.0, 1 - value if low_is_good else value))
            x = left + head * wide
            shown = f"{value:{form}}"
            parts.append(_shade(x, y, wide - 3, high - 3, 0.85 * shade, shown))
            kind = "figure over" if shade > 0.6 else "figure"
            parts.append(_text(x + wide / 2 - 1.5, y + high / 2 + 3.5, shown, kind))
    x, y = left + best[1] * wide, top + best[0] * high
    parts.append(_frame(x - 1.5, y - 1.5, wide, high))
    return _svg(left + n_heads * wide + 2, top + n_layers * high + 2, parts, form)
