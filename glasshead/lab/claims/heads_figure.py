"""The figure of claim 12: what heads look at, how far apart they are, how many can go."""

from typing import Any

from glasshead.lab.claims.claim import Evidence, Words
from glasshead.lab.claims.drawing import FOR, GREY, band, tidy
from glasshead.lab.claims.stats import mean

__all__ = ["draw"]

_RELATIONS = {
    "itself": Words("itself", "自己"),
    "word before": Words("word before", "前一个词"),
    "word after": Words("word after", "后一个词"),
    "nouns": Words("nouns", "名词"),
    "referent": Words("it → what it means", "它 → 所指"),
    "ending": Words("it → the ending", "它 → 结尾"),
}


def draw(evidence: Evidence, figure: Any, lang: str) -> None:
    figure.set_size_inches(7.2, 5.6)
    above, below = figure.subfigures(2, 1, height_ratios=(1.05, 1))
    left, right = above.subplots(1, 2, width_ratios=(1.25, 1))
    _draw_relations(evidence, left, lang)
    _draw_distances(evidence, right, lang)
    left, right = below.subplots(1, 2, width_ratios=(1, 1.25))
    _draw_bits(evidence, left, lang)
    _draw_ablation(evidence, right, lang)


def _names(evidence: Evidence) -> list[str]:
    per_layer = evidence["heads"] // evidence["layers"]
    return [f"{at // per_layer}.{at % per_layer}" for at in range(evidence["heads"])]


def _draw_relations(evidence: Evidence, axes: Any, lang: str) -> None:
    table = list(zip(*evidence["relations"][0], strict=True))  # relations down, heads across
    axes.imshow(table, aspect="auto", cmap="Blues", vmin=0, vmax=1)
    for at, row in enumerate(table):
        for head, value in enumerate(row):
            color = "white" if value > 0.5 else "#333333"
            if value >= 0.1:
                axes.annotate(f"{value:.1f}", (head, at), ha="center", va="center", fontsize=7,
                              color=color)  # fmt: skip
    names = [_RELATIONS[name][lang] for name in evidence["relation_names"]]
    axes.set_yticks(range(len(names)), names)
    axes.set_xticks(range(evidence["heads"]), _names(evidence))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    title = Words("Mean weight, by layer.head", "平均权重（层.头）")
    axes.set_title(title[lang], loc="left", fontsize=10.5)


def _draw_distances(evidence: Evidence, axes: Any, lang: str) -> None:
    picture = axes.imshow(evidence["distances"][0], cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(evidence["heads"]), _names(evidence), fontsize=8)
    axes.set_yticks(range(evidence["heads"]), _names(evidence), fontsize=8)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.figure.colorbar(picture, ax=axes, shrink=0.9, pad=0.02).outline.set_visible(False)
    title = Words("Apart on pronouns' rows, bits", "代词的行相距多远（比特）")
    axes.set_title(title[lang], loc="left", fontsize=10.5)


def _draw_bits(evidence: Evidence, axes: Any, lang: str) -> None:
    sides = ((" before", Words("before\ntraining", "训练前"), GREY),
             ("", Words("trained", "训练后"), FOR))  # fmt: skip
    names = []
    for at in range(2 * evidence["layers"]):
        layer, (when, name, color) = at // 2, sides[at % 2]
        apart, unrelated = (
            [seed[layer] for seed in evidence[f"{what}{when}"]] for what in ("apart", "unrelated")
        )
        axes.bar(at, mean(apart).value, width=0.6, color=color, alpha=0.85)
        axes.plot([at] * len(apart), apart, "o", color="#333333", markersize=2.5, alpha=0.7)
        most = mean(unrelated).value
        axes.plot([at - 0.4, at + 0.4], [most, most], color="#333333", linewidth=1.4,
                  linestyle=(0, (3, 2)))  # fmt: skip
        axes.annotate(f"{mean(apart).value:.2f}/{most:.2f}", (at, max(most, *apart)),
                      xytext=(0, 4), textcoords="offset points", ha="center",
                      fontsize=7.5)  # fmt: skip
        names.append(name[lang])
        if at % 2:
            text = Words("layer {}", "第 {} 层")[lang].format(layer)
            axes.annotate(text, (at - 0.5, 1.02), ha="center", fontsize=8.5, color="#555555")
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(0, 1.12)
    title = Words("Pairs in a layer, bits apart (dashed:\nequally sharp, unrelated)",
                  "同层成对的头相距，比特\n（虚线：同样尖锐而互不相关）")  # fmt: skip
    tidy(axes, title[lang])


def _draw_ablation(evidence: Evidence, axes: Any, lang: str) -> None:
    n = evidence["heads"]
    runs = [
        [whole, *lefts]
        for whole, lefts in zip(evidence["accuracy"], evidence["together"], strict=True)
    ]
    band(axes, range(n + 1), list(zip(*runs, strict=True)), FOR,
         label=Words("the least missed first", "从最不要紧的开始")[lang])  # fmt: skip
    for at, lefts in enumerate(evidence["singly"]):
        axes.plot([1] * n, lefts, "x", color=GREY, markersize=5,
                  label=None if at else Words("any one alone", "任意单独一个")[lang])  # fmt: skip
    axes.set_ylim(0, 1.05)
    axes.set_xticks(range(n + 1))
    tidy(axes, Words("Accuracy without some heads", "去掉一些头之后的正确率")[lang],
         x=Words("heads taken out", "去掉的头数")[lang])  # fmt: skip
    axes.legend(fontsize=8.5, loc="lower left")
