"""Show the results of the ladder: a table for the terminal, a picture, a JSON object."""

import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from glasshead.lab.examples.published import CHARACTERS, RUNS, VOCABULARY
from glasshead.lab.ladder import LadderText, Summary
from glasshead.lab.ladder_samples import changes
from glasshead.lab.rungs import RUNGS
from glasshead.lab.texts import LANGUAGES, Language, Words, read_texts, texts_in

__all__ = ["ADDS", "as_json", "draw", "label_font", "tables"]

TEXTS = read_texts(__file__)
# What each rung adds to the one below.
ADDS: dict[Language, tuple[str, ...]] = {
    lang: tuple(TEXTS[f"adds.{number}"][lang] for number in RUNGS) for lang in LANGUAGES
}
WORSE = 0.1  # nats; a line says so if a rung is worse than the one below by more


def tables(
    rows: Sequence[Summary], text: LadderText, lang: Language = "en"
) -> Iterator[RenderableType]:
    words = texts_in(lang, TEXTS)
    steps = sorted({climb.steps for row in rows for climb in row.climbs})
    yield Text(words["text"].format(**text.about))
    yield Text(
        words["settings"].format(seeds=len(rows[0].climbs), steps=", ".join(map(str, steps)))
    )
    table = Table(box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(Text(words["rung"]), justify="right", no_wrap=True)
    table.add_column(Text(words["what"]), overflow="fold")
    for name in ("parameters", "train", "val", "speed"):
        table.add_column(Text(words[name]), justify="right", no_wrap=True)
    published = _is_documents_text(text)
    if published:
        table.add_column(Text(words["published"]), justify="right")
    best = min((row.val for row in rows if math.isfinite(row.val)), default=None)
    for row in rows:
        table.add_row(
            str(row.rung),
            Text(ADDS[lang][row.rung - 1]),
            f"{row.parameters:,}",
            _loss(row.train, row.train_sd),
            Text(_loss(row.val, row.val_sd), style="bold" if row.val == best else ""),
            f"{row.tokens_per_s:,.0f}",
            *([_published(row.rung, words)] if published else []),
        )
    yield table
    if published:
        yield Text(words["published_steps"])
    for row, below in zip(rows[1:], rows, strict=False):
        if row.rung == below.rung + 1 and row.val - below.val > WORSE:
            worse = {"rung": row.rung, "below": below.rung, "loss": row.val - below.val}
            yield Text(words["worse"].format(**worse))
    for row in rows:
        yield from _details(row, lang)


def _details(row: Summary, lang: Language) -> Iterator[Text]:
    """Yield what a rung changes in the code, and what it writes."""
    yield Text("")
    adds = Words(ADDS["en"][row.rung - 1], ADDS["zh"][row.rung - 1])
    yield Text(TEXTS["of_rung"].format(rung=row.rung, adds=adds)[lang], style="bold")
    for line in changes(row.rung):
        yield Text(f"  {line}", style="green" if line.startswith("+") else "red")
    for sample in row.climbs[0].samples:
        yield Text("  " + sample.replace("\n", "↵"))


def _is_documents_text(text: LadderText) -> bool:
    """Tell whether the losses can be compared with the published ones: they are of ci.txt."""
    about = text.about
    return about["characters"] == CHARACTERS and about["vocabulary"] == VOCABULARY


def _published(rung: int, words: dict[str, str]) -> str:
    run = RUNS[rung]
    losses = " / ".join(f"{loss:.3f}" for loss in (run.train, run.val) if loss is not None)
    return words["published_at"].format(losses=losses, steps=run.steps)


def as_json(rows: Sequence[Summary], text: LadderText) -> dict[str, Any]:
    rungs = []
    for row in rows:
        rung = RUNGS[row.rung]
        adds = {"adds": ADDS["en"][row.rung - 1], "adds_zh": ADDS["zh"][row.rung - 1]}
        about = {**adds, "model": rung.model, "lr": rung.lr, "batch_size": rung.batch_size}
        rungs.append({**asdict(row), **about, "changes": changes(row.rung)})
    return {"text": text.about, "rungs": rungs}


def label_font() -> str | None:
    """Return an installed font with all Chinese characters of the picture."""
    from glasshead.observe.fonts import chinese_font

    return chinese_font("".join(words.zh for words in TEXTS.values()))


def draw(rows: Sequence[Summary], lang: Language = "en") -> bytes:
    """Draw ladder.png: curves on the left, final losses on the right.

    Labels are in English where no font with Chinese characters is installed (`label_font`).
    """
    import matplotlib
    from matplotlib.figure import Figure  # the figure alone: no window, no global state

    font = label_font() if lang == "zh" else None
    lang = "zh" if font else "en"
    families = [font] * bool(font) + ["DejaVu Sans"]
    style: dict[Any, Any] = {"font.family": families, "font.size": 10, "axes.unicode_minus": False}
    with matplotlib.rc_context(style):
        height = max(4.4, 1.6 + 0.42 * len(rows))
        figure = Figure(figsize=(12, height), dpi=150, layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
        # From purple to yellow; the palest yellow would not show on white.
        shades = matplotlib.colormaps["viridis"]
        colors = {row.rung: shades(0.92 * (row.rung - 1) / (len(RUNGS) - 1)) for row in rows}
        _draw_curves(left, rows, colors, texts_in(lang, TEXTS))
        _draw_ends(right, rows, colors, lang)
        picture = io.BytesIO()
        figure.savefig(picture, format="png")
        return picture.getvalue()


def _draw_curves(axes: Any, rows: Sequence[Summary], colors: Any, words: dict[str, str]) -> None:
    ends = []
    for row in rows:
        curves = [climb.curve for climb in row.climbs]
        steps = [point.step for point in curves[0]]
        vals = [[point.val for point in points] for points in zip(*curves, strict=True)]
        means = [sum(some) / len(some) for some in vals]
        if not means:
            continue
        color = colors[row.rung]
        axes.plot(steps, means, color=color, linewidth=1.8, marker="o" if len(steps) < 3 else "")
        if len(curves) > 1:
            axes.fill_between(
                steps, [min(v) for v in vals], [max(v) for v in vals], color=color, alpha=0.15
            )
        ends.append((means[-1], steps[-1], row.rung, color))
    _style(axes, words["curves"])
    axes.set_xlabel(words["step"])
    finals = sorted(end[0] for end in ends if math.isfinite(end[0]))
    starts = [line.get_ydata()[0] for line in axes.lines]
    if finals and starts:
        # The first points lie far above the losses to compare.
        top = min(max(starts), finals[-1] + 0.5 * max(0.4, finals[-1] - finals[0]))
        margin = 0.05 * max(top - finals[0], 0.1)
        axes.set_ylim(finals[0] - margin, top + margin)
    _label_ends(axes, ends)


def _label_ends(axes: Any, ends: list[tuple[float, int, int, Any]]) -> None:
    """Write each rung at the end of its curve, moved apart where labels would overlap."""
    low, high = axes.get_ylim()
    apart, last = 0.045 * (high - low), -math.inf
    for value, step, rung, color in sorted(e for e in ends if math.isfinite(e[0])):
        place = max(value, last + apart)
        last = place
        axes.annotate(
            str(rung),
            (step, value),
            xytext=(1.03, (place - low) / (high - low)),
            textcoords="axes fraction",
            va="center",
            color=color,
            fontweight="bold",
            arrowprops={"arrowstyle": "-", "color": color, "linewidth": 0.6, "relpos": (0, 0.5)},
            annotation_clip=False,
        )


def _draw_ends(axes: Any, rows: Sequence[Summary], colors: Any, lang: Language) -> None:
    words = texts_in(lang, TEXTS)
    for place, row in enumerate(rows):
        color = colors[row.rung]
        axes.plot([row.train, row.val], [place, place], color=color, linewidth=1.2, alpha=0.5)
        axes.errorbar(row.train, place, xerr=row.train_sd, fmt="o", color=color, mfc="white",
                      capsize=3, markersize=7)  # fmt: skip
        axes.errorbar(row.val, place, xerr=row.val_sd, fmt="o", color=color, capsize=3,
                      markersize=7)  # fmt: skip
        axes.annotate(
            f"{row.train:.3f} / {row.val:.3f}",
            (max(row.train, row.val) + (row.val_sd or 0), place),
            xytext=(10, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color="#555555",
        )
    names = [f"{ADDS[lang][row.rung - 1]}   {row.rung}" for row in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    low, high = axes.get_xlim()
    axes.set_xlim(low, high + 0.35 * (high - low))  # room for the numbers
    _style(axes, words["ends"])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    grey = {"color": "#555555", "linestyle": "", "marker": "o", "markersize": 7}
    axes.plot([], [], mfc="white", label=words["train"], **grey)
    axes.plot([], [], label=words["val"], **grey)
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.06), ncols=2)


def _style(axes: Any, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=12)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _loss(mean: float, sd: float | None) -> str:
    return f"{mean:.3f}" if sd is None else f"{mean:.3f} ±{sd:.3f}"
