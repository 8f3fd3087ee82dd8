"""What the claims' figures share: colours, axes, bars, and rendering to a PNG."""

import io
from collections.abc import Sequence
from typing import Any

from glasshead.lab.claims.claim import Claim, Evidence
from glasshead.lab.claims.stats import mean

__all__ = [
    "AGAINST",
    "FOR",
    "GREY",
    "OTHER",
    "SERIES",
    "annotate",
    "draw_band",
    "draw_bar",
    "draw_chance",
    "draw_map",
    "render",
    "style_axes",
]

FOR = "#2a6f97"  # the side that the claim favours: scaled, attention, with
AGAINST = "#d1495b"  # the other side: raw, recurrent, without
OTHER = "#edae49"  # a third side
GREY = "#8a8f98"  # controls, notes
DARK = "#333333"
CHANCE: dict[str, Any] = {"color": GREY, "linestyle": (0, (4, 3)), "linewidth": 1}
SERIES = ("#2a6f97", "#d1495b", "#edae49", "#66a182", "#7b5ea7", "#8a8f98")

SIZE = (7.2, 3.6)  # inches; at 200 dots each, twice the 720 pixels it is shown at


def style_axes(
    axes: Any, title: str = "", *, x: str = "", y: str = "", powers: Sequence[float] = ()
) -> None:
    """Set titles and the common style: title at the left, a faint grid, two spines.

    `powers`: values of a logarithmic x axis, each of which gets a tick.
    """
    if powers:
        axes.set_xscale("log", base=2)
        axes.set_xticks(powers, [str(value) for value in powers])
    axes.set_title(title, loc="left", fontsize=10.5)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def annotate(
    axes: Any, text: str, at: tuple[float, float], offset: tuple[float, float], **style: Any
) -> None:
    """Write a small text at this offset in points from a place in the data."""
    plain = {"textcoords": "offset points", "fontsize": 8, "color": "#6b7078"}
    axes.annotate(text, at, xytext=offset, **plain | style)


def draw_chance(axes: Any, level: float, text: str = "", x: float | None = None) -> None:
    """Draw a dashed line at this level, with a text below it at x, or above its right end."""
    axes.axhline(level, **CHANCE)
    if x is not None:
        annotate(axes, text, (x, level), (0, -11))
    elif text:
        annotate(axes, text, (0.98, level), (0, 4), ha="right", xycoords=("axes fraction", "data"))


def draw_band(
    axes: Any, xs: Sequence[float], seeds: Sequence[Sequence[float]], color: str, **line: Any
) -> None:
    """Draw a line through the means, in a band from the lowest to the highest seed.

    `seeds[i]` are the values at xs[i], one for each seed.
    """
    means = [sum(values) / len(values) for values in seeds]
    axes.plot(xs, means, **({"color": color, "marker": "o", "markersize": 4} | line))
    axes.fill_between(xs, [min(v) for v in seeds], [max(v) for v in seeds], color=color, alpha=0.15,
                      linewidth=0)  # fmt: skip


def draw_bar(
    axes: Any, x: float, values: Sequence[float], color: str, *,
    width: float = 0.55, text: str = "{:.2f}", label: str | None = None,
) -> None:  # fmt: skip
    """Draw the mean as a bar with its number above, and a dot for each seed."""
    height = mean(values).value
    axes.bar(x, height, width, color=color, alpha=0.85, label=label)
    axes.plot([x] * len(values), values, "o", color=DARK, markersize=2.5, alpha=0.7)
    number = text.format(height)
    number = number if set(number) & set("123456789") else "0"
    annotate(axes, number, (x, max(values)), (0, 3), ha="center", color="black")


def draw_map(axes: Any, rows: Sequence[Sequence[float]], title: str, **image: Any) -> Any:
    """Draw weights from 0 to 1 as shades of blue, without ticks and spines; return the image."""
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(title, loc="left", fontsize=10.5)
    return axes.imshow(rows, cmap="Blues", vmin=0, vmax=1, **image)


def render(claim: Claim, evidence: Evidence, lang: str) -> bytes:
    """Draw the claim's figure as a PNG. Without a Chinese font its words are English."""
    import matplotlib
    from matplotlib.figure import Figure  # the figure alone: no window, no global state

    from glasshead.observe.fonts import chinese_font

    font = chinese_font() if lang == "zh" else None
    style: dict[Any, Any] = {
        "font.family": [font] * bool(font) + ["DejaVu Sans"],
        "font.size": 9.5,
        "axes.unicode_minus": False,
        "axes.edgecolor": "#666666",
        "legend.frameon": False,
    }
    shown = "zh" if font else "en"
    say = {"lang": shown, **{name: words[shown] for name, words in claim.texts.items()}}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=SIZE, dpi=200)
        figure.set_layout_engine("constrained", w_pad=0.1, h_pad=0.08, wspace=0.04)
        claim.draw(evidence, figure, say)
        picture = io.BytesIO()
        figure.savefig(picture, format="png")
        return picture.getvalue()
