"""The figure of claim 11: one story's map, and how many stories come out right."""

from typing import Any

from glasshead.lab.claims.claim import Evidence, Words
from glasshead.lab.claims.drawing import AGAINST, FOR, GREY, OTHER, tidy
from glasshead.lab.claims.stats import mean

__all__ = ["draw"]

_ARMS = {
    "cross": (Words("cross-\nattention", "交叉\n注意力"), FOR),
    "encoder": (Words("encoder", "编码器"), OTHER),
    "both": (Words("both", "两者"), OTHER),
    "neither": (Words("neither", "都不能"), AGAINST),
}


def draw(evidence: Evidence, figure: Any, lang: str) -> None:
    figure.set_size_inches(7.2, 4.6)
    langs, found = next(iter(evidence["pairs"].items()))
    left, right = figure.subfigures(1, 2, width_ratios=(1.25, 1))
    _draw_map(found["arms"]["cross"]["example"], left.subplots(), lang)
    above, below = right.subplots(2, 1)
    _draw_exact(found["arms"], langs, above, lang)
    _draw_points(found, below, lang)


def _draw_map(example: dict[str, Any], axes: Any, lang: str) -> None:
    axes.imshow(example["weights"], aspect="auto", cmap="Blues", vmin=0, vmax=1)
    for source, target in example["links"]:
        axes.plot(source, target, "o", mfc="none", color=AGAINST, markersize=8, markeredgewidth=1.1)
    axes.set_xticks(range(len(example["source"])), example["source"], rotation=60, ha="right",
                    rotation_mode="anchor", fontsize=8)  # fmt: skip
    axes.set_yticks(range(len(example["target"])), example["target"], fontsize=8)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    title = Words(
        "Looked at while writing (rings: the truth)", "写每个词时看了什么（圆圈：真正的对应）"
    )
    axes.set_title(title[lang], loc="left", fontsize=10.5)


def _draw_exact(arms: dict[str, Any], langs: str, axes: Any, lang: str) -> None:
    shown = [arm for arm in _ARMS if arm in arms]
    _bars(axes, [(_ARMS[arm][0][lang], arms[arm]["exact"], _ARMS[arm][1]) for arm in shown])
    names = {
        "de": Words("German", "德语"),
        "en": Words("English", "英语"),
        "zh": Words("Chinese", "汉语"),
    }
    title = Words(
        "{}: stories without\na fault, if … may look far", "{}：一字不差的故事，\n若……可以看远处"
    )
    tidy(axes, title[lang].format("→".join(names[one][lang] for one in langs.split(","))))


def _draw_points(found: dict[str, Any], axes: Any, lang: str) -> None:
    cross = found["arms"]["cross"]
    bars = [
        (Words("best\nhead", "最好\n的头")[lang], cross["points moved"], FOR),
        (Words("dia-\ngonal", "对角线")[lang], [found["diagonal"]["points moved"]], GREY),
        (Words("un-\ntrained", "未训练")[lang], found["untrained"]["points moved"], GREY),
        (Words("other\nstory", "别的\n故事")[lang], cross["other moved"], GREY),
    ]
    _bars(axes, bars)
    tidy(
        axes, Words("Words that move: points\nto the right one", "换了位置的词：\n指对的占比")[lang]
    )


def _bars(axes: Any, bars: list[tuple[str, list[float], str]]) -> None:
    for at, (_, values, color) in enumerate(bars):
        axes.bar(at, mean(values).value, width=0.55, color=color, alpha=0.85)
        axes.plot([at] * len(values), values, "o", color="#333333", markersize=2.5, alpha=0.7)
        axes.annotate(f"{mean(values).value:.2f}", (at, max(values)), xytext=(0, 3), ha="center",
                      textcoords="offset points", fontsize=8)  # fmt: skip
    axes.set_xticks(range(len(bars)), [name for name, _, _ in bars], fontsize=8.5)
    axes.set_ylim(0, 1.15)
    axes.set_yticks([0, 0.5, 1])
