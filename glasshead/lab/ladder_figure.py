"""What a climb of the ladder gives: a table for the terminal, a picture, a JSON object."""

import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Literal

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from glasshead.lab.ladder import LadderText, Summary
from glasshead.lab.rungs import RUNGS

__all__ = ["ADDS", "as_json", "draw", "label_font", "tables"]

Language = Literal["zh", "en"]

# What each rung adds to the one below.
ADDS: dict[Language, tuple[str, ...]] = {
    "en": (
        "embedding and head: a bigram table",
        "learned positions",
        "one causal attention head",
        "four heads, each a quarter as wide",
        "a linear layer and ReLU",
        "three blocks instead of one",
        "residual connections",
        "output projection, 4× feed-forward",
        "LayerNorm before each layer",
        "dropout 0.2",
        "scale: width 384, 6 layers, block 256",
        "metrics and checkpoints",
    ),
    "zh": (
        "词嵌入和输出层：二元模型",
        "可学习的位置",
        "一个因果注意力头",
        "四个头，各占四分之一宽",
        "一个线性层和 ReLU",
        "三层代替一层",
        "残差连接",
        "输出投影，4 倍宽的前馈层",
        "每层之前加 LayerNorm",
        "dropout 0.2",
        "放大：宽 384，6 层，块长 256",
        "指标和检查点",
    ),
}
_ENGLISH = {
    "text": "{name}: {characters:,} characters, {vocabulary:,} distinct; the last tenth validates.",
    "settings": "Seeds: {seeds}. Steps: {steps}. Losses in nats a character.",
    "rung": "rung",
    "adds": "adds",
    "parameters": "parameters",
    "train": "training",
    "val": "validation",
    "speed": "tokens/s",
    "step": "step",
    "curves": "Validation loss as the rungs train",
    "ends": "Loss at the end",
    "worse": "Rung {rung} came out {loss:.2f} worse than rung {below}.",
}
_CHINESE = {
    "text": "{name}：{characters:,} 个字符，{vocabulary:,} 种；最后十分之一用于验证。",
    "settings": "种子数：{seeds}。步数：{steps}。损失单位：nat/字符。",
    "rung": "级",
    "adds": "增加",
    "parameters": "参数",
    "train": "训练",
    "val": "验证",
    "speed": "词元/秒",
    "step": "步",
    "curves": "各级训练中的验证损失",
    "ends": "训练结束时的损失",
    "worse": "第 {rung} 级比第 {below} 级差了 {loss:.2f}。",
}
_TEXTS: dict[Language, dict[str, str]] = {"zh": _CHINESE, "en": _ENGLISH}

WORSE = 0.1  # nats: a rung that loses so much to the one below is pointed out


def tables(
    rows: Sequence[Summary], text: LadderText, lang: Language = "en"
) -> Iterator[RenderableType]:
    words = _TEXTS[lang]
    steps = sorted({climb.steps for row in rows for climb in row.climbs})
    yield Text(words["text"].format(**text.about))
    yield Text(
        words["settings"].format(seeds=len(rows[0].climbs), steps=", ".join(map(str, steps)))
    )
    table = Table(box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(Text(words["rung"]), justify="right", no_wrap=True)
    table.add_column(Text(words["adds"]), overflow="fold")
    for name in ("parameters", "train", "val", "speed"):
        table.add_column(Text(words[name]), justify="right", no_wrap=True)
    best = min((row.val for row in rows if math.isfinite(row.val)), default=None)
    for row in rows:
        table.add_row(
            str(row.rung),
            Text(ADDS[lang][row.rung - 1]),
            f"{row.parameters:,}",
            _loss(row.train, row.train_sd),
            Text(_loss(row.val, row.val_sd), style="bold" if row.val == best else ""),
            f"{row.tokens_per_s:,.0f}",
        )
    yield table
    for row, below in zip(rows[1:], rows, strict=False):
        if row.rung == below.rung + 1 and row.val - below.val > WORSE:
            worse = {"rung": row.rung, "below": below.rung, "loss": row.val - below.val}
            yield Text(words["worse"].format(**worse))


def as_json(rows: Sequence[Summary], text: LadderText) -> dict[str, Any]:
    rungs = []
    for row in rows:
        rung = RUNGS[row.rung]
        adds = {"adds": ADDS["en"][row.rung - 1], "adds_zh": ADDS["zh"][row.rung - 1]}
        about = {**adds, "model": rung.model, "lr": rung.lr, "batch_size": rung.batch_size}
        rungs.append({**asdict(row), **about})
    return {"text": text.about, "rungs": rungs}


def label_font() -> str | None:
    """An installed font that has all Chinese characters of the picture."""
    from glasshead.observe.fonts import chinese_font

    return chinese_font("".join([*ADDS["zh"], *_CHINESE.values()]))


def draw(rows: Sequence[Summary], lang: Language = "en") -> bytes:
    """ladder.png: curves on the left, where they end on the right.

    Chinese needs a font (`label_font`); where there is none the labels are in English.
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
        # From purple to yellow as the ladder goes up; the palest yellow would vanish on white.
        shades = matplotlib.colormaps["viridis"]
        colors = {row.rung: shades(0.92 * (row.rung - 1) / (len(RUNGS) - 1)) for row in rows}
        _draw_curves(left, rows, colors, _TEXTS[lang])
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
        # The first points lie far above what is to be compared.
        top = min(max(starts), finals[-1] + 0.5 * max(0.4, finals[-1] - finals[0]))
        margin = 0.05 * max(top - finals[0], 0.1)
        axes.set_ylim(finals[0] - margin, top + margin)
    _label_ends(axes, ends)


def _label_ends(axes: Any, ends: list[tuple[float, int, int, Any]]) -> None:
    """Each curve's rung at its end, pushed apart where they would lie on each other."""
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
    words = _TEXTS[lang]
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
