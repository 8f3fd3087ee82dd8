"""The picture of docs/results.md: small multiples, log against log, so that powers are lines."""

import math
from pathlib import Path
from typing import Any

__all__ = ["draw", "exponent"]

# Told apart by colour-blind eyes too, and dark enough for thin lines.
COLOURS = {"train": "#c2410c", "prompt": "#1d4ed8", "token": "#0891b2", "observe": "#6d28d9"}
NAMES = {
    "train": "train: a step",
    "prompt": "generate: the prompt",
    "token": "generate: a token",
    "observe": "observe: one layer",
}
AXES = {"length": "tokens of text", "width": "width of the model", "batch": "texts in a batch"}
ROWS = {"ms": "time, milliseconds", "mb": "memory, megabytes"}
INK, GREY, FAINT = "#262626", "#737373", "#e5e5e5"
NEAR = 1.5  # times: labels of lines that end closer would overlap


def exponent(points: list[dict[str, Any]], name: str) -> float | None:
    """Return the exponent of growth between the last two points: 1 linear, 2 quadratic.

    >>> exponent([{"at": 2, "ms": 8.0}, {"at": 4, "ms": 32.0}], "ms")
    2.0
    """
    some = [(p["at"], p[name]) for p in points if p.get(name)]
    if len(some) < 2:
        return None
    (a, x), (b, y) = some[-2:]
    return math.log(y / x) / math.log(b / a)


def draw(kept: dict[str, Any], file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = list(dict.fromkeys(point["axis"] for point in kept["points"]))
    figure, grid = plt.subplots(
        2, len(columns), figsize=(4.2 * len(columns), 7.4), dpi=150, squeeze=False,
        sharey="row", sharex="col",
    )  # fmt: skip
    for row, (name, says) in enumerate(ROWS.items()):
        for column, axis in enumerate(columns):
            panel = grid[row][column]
            points = [p for p in kept["points"] if p["axis"] == axis]
            _dress(panel, sorted({p["at"] for p in points}))
            _lines(panel, points, name)
            if row == 1:
                panel.set_xlabel(AXES[axis], fontsize=10, color=INK)
        grid[row][0].set_ylabel(says, fontsize=10, color=INK)
        low, high = grid[row][0].get_ylim()
        grid[row][0].set_ylim(low, high * (high / low) ** 0.26)  # room for the slopes
        for panel in grid[row]:
            _slopes(panel)
    figure.suptitle(
        f"What growing costs on {kept['machine']['name']}", x=0.012, y=0.985, ha="left",
        fontsize=13, color=INK,
    )  # fmt: skip
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="upper left", ncols=4, frameon=False, fontsize=9, handlelength=1.3,
        bbox_to_anchor=(0.0, 0.965),
    )  # fmt: skip
    figure.tight_layout(rect=(0, 0, 1, 0.955))
    figure.savefig(file)
    plt.close(figure)


def _dress(panel: Any, sizes: list[int]) -> None:
    from matplotlib.ticker import FuncFormatter, NullLocator

    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xticks(sizes)
    panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _short(x)))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.0f}" if y >= 1 else f"{y:g}"))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.yaxis.set_minor_locator(NullLocator())
    panel.tick_params(colors="#525252", labelsize=8.5, length=0)
    panel.grid(color=FAINT, linewidth=0.6)
    panel.set_axisbelow(True)
    panel.set_xlim(sizes[0] / 1.2, sizes[-1] * (sizes[-1] / sizes[0]) ** 0.11)
    for side in panel.spines.values():
        side.set_visible(False)


def _lines(panel: Any, points: list[dict[str, Any]], name: str) -> None:
    """Draw each kind of work as a line, with its exponent at the end."""
    ends: list[tuple[float, float, str, str]] = []
    for work, label in NAMES.items():
        own = [p for p in points if p["work"] == work and p[name]]
        if not own:
            continue
        panel.plot(
            [p["at"] for p in own], [p[name] for p in own], color=COLOURS[work], label=label,
            linewidth=1.8, marker="o", markersize=3.6, solid_capstyle="round",
        )  # fmt: skip
        if (power := exponent(own, name)) is not None:
            ends.append((own[-1][name], own[-1]["at"], f"{round(power, 1) + 0:.1f}", COLOURS[work]))
    ends.sort()
    for n, (y, x, words, colour) in enumerate(ends):  # those that would meet make way
        below = n > 0 and y < NEAR * ends[n - 1][0]
        above = n + 1 < len(ends) and ends[n + 1][0] < NEAR * y
        panel.annotate(
            words, (x, y), xytext=(6, 5 * (below - above)), textcoords="offset points",
            va="center", fontsize=8.5, color=colour,
        )  # fmt: skip


def _slopes(panel: Any) -> None:
    """Draw the slopes of exponents 0, 1 and 2 in the empty corner above the lines."""
    left, right = panel.get_xlim()
    low, high = panel.get_ylim()
    x = left * (right / left) ** 0.05
    end = x * (right / left) ** 0.22
    y = high / (end / x) ** 2 / (high / low) ** 0.03
    for power, words in enumerate(("0: no growth", "1: in proportion", "2: with the square")):
        tip = y * (end / x) ** power
        panel.plot([x, end], [y, tip], color="#a3a3a3", linewidth=1.1)
        panel.annotate(
            words, (end, tip), xytext=(4, 0), textcoords="offset points", va="center",
            fontsize=7.5, color=GREY,
        )  # fmt: skip


def _short(x: float) -> str:
    return f"{x / 1024:g}K" if x >= 1024 else f"{x:g}"
