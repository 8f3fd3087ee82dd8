"""What the claims' figures share: colours, axes, and the step from a drawing to a PNG."""

import io
from collections.abc import Sequence
from typing import Any

from glasshead.lab.claims.claim import Claim, Evidence

__all__ = ["AGAINST", "CHANCE", "FOR", "GREY", "OTHER", "SERIES", "band", "render", "tidy"]

FOR = "#2a6f97"  # what the claim speaks for: scaled, attention, with
AGAINST = "#d1495b"  # what it speaks against: raw, recurrent, without
OTHER = "#edae49"  # a third side
GREY = "#8a8f98"  # controls, notes
# Keywords of a line at chance.
CHANCE: dict[str, Any] = {"color": GREY, "linestyle": (0, (4, 3)), "linewidth": 1}
SERIES = ("#2a6f97", "#d1495b", "#edae49", "#66a182", "#7b5ea7", "#8a8f98")

SIZE = (7.2, 3.6)  # inches; at 200 dots each, twice the 720 pixels it is shown at


def tidy(axes: Any, title: str = "", *, x: str = "", y: str = "") -> None:
    """The house's axes: title at the left, a faint grid, two spines."""
    axes.set_title(title, loc="left", fontsize=10.5)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def band(
    axes: Any, xs: Sequence[float], seeds: Sequence[Sequence[float]], color: str, **line: Any
) -> None:
    """A line through the means, in a band from the lowest to the highest seed.

    `seeds[i]` are the values at xs[i], one for each seed.
    """
    means = [sum(values) / len(values) for values in seeds]
    axes.plot(xs, means, **({"color": color, "marker": "o", "markersize": 4} | line))
    axes.fill_between(xs, [min(v) for v in seeds], [max(v) for v in seeds], color=color, alpha=0.15,
                      linewidth=0)  # fmt: skip


def render(claim: Claim, evidence: Evidence, lang: str) -> bytes:
    """The claim's figure as a PNG. Where no Chinese font is installed its words are English."""
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
    with matplotlib.rc_context(style):
        figure = Figure(figsize=SIZE, dpi=200)
        figure.set_layout_engine("constrained", w_pad=0.1, h_pad=0.08, wspace=0.04)
        claim.draw(evidence, figure, "zh" if font else "en")
        picture = io.BytesIO()
        figure.savefig(picture, format="png")
        return picture.getvalue()
