"""The figure of claim 5: one sentence, then all stories."""

from typing import Any

from glasshead.lab.claims.claim import Evidence, Words
from glasshead.lab.claims.drawing import CHANCE, FOR, OTHER, tidy
from glasshead.lab.claims.stats import mean
from glasshead.text.tinyworld.lexicon import NOUNS, PLACES

__all__ = ["draw"]

_ROWS = {
    "name": Words("names the word", "说出词"),
    "gender": Words("gives its gender", "说出德语性"),
    "untrained": Words("untrained", "未训练"),
}
_TASKS = {
    "untrained": Words("untrained", "未训练"),
    "shuffled": Words("shuffled\nanswers", "打乱\n答案"),
    "gender": Words("gender", "德语性"),
    "10": Words("classes", "随机分类"),
    "30": Words("classes", "随机分类"),
    "name": Words("the word", "那个词"),
}


def draw(evidence: Evidence, figure: Any, lang: str) -> None:
    figure.set_size_inches(7.2, 5.2)
    top, bottom = figure.subplots(2, 1, height_ratios=(1, 2.1))
    _draw_sentence(evidence, top, lang)
    _draw_tasks(evidence, bottom, lang)


def _draw_sentence(evidence: Evidence, axes: Any, lang: str) -> None:
    rows = [
        [mean(weights).value for weights in zip(*evidence["readers"][key]["sentence"], strict=True)]
        for key in _ROWS
    ]
    axes.imshow(rows, aspect="auto", cmap="Blues", vmin=0, vmax=1)
    axes.set_yticks(range(len(rows)), [name[lang] for name in _ROWS.values()])
    axes.set_xticks(range(len(rows[0])), _labels(evidence, lang), fontsize=8, linespacing=1.0)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    referent = evidence["referent"]
    for at, row in enumerate(rows):
        color = "white" if row[referent] > 0.5 else "#333333"
        axes.annotate(f"{row[referent]:.2f}", (referent, at), ha="center", va="center",
                      fontsize=7.5, color=color)  # fmt: skip
    title = Words(
        "What the second “it” looks at, in the document's sentence (best heads)",
        "文档那句话里，第二个“它”在看什么（最好的头）",
    )
    axes.set_title(title[lang], loc="left", fontsize=10.5)


def _labels(evidence: Evidence, lang: str) -> list[str]:
    """All words, one character below the other; in English only those that matter."""
    words: list[str] = evidence["words"]
    if lang == "zh":
        return ["\n".join(word) for word in words]
    names = {noun.zh: noun.en for noun in (*NOUNS, *PLACES)} | {"晚餐": "dinner"}
    named = {at: names.get(words[at], "") for at in evidence["nouns"]}
    named |= dict.fromkeys(evidence["pronouns"], "it") | {words.index("饿坏"): "\nstarving"}
    return [named.get(at, "") for at in range(len(words))]


def _draw_tasks(evidence: Evidence, axes: Any, lang: str) -> None:
    found = evidence["readers"]
    tasks = [task for task in _TASKS if task in found]
    share = Words("right noun on top, share of stories", "看得最多的名词正是所指")
    weight = Words("mean weight on it", "给所指的平均权重")
    sides = (("share", FOR, -0.12, share), ("weight", OTHER, 0.12, weight))
    for what, color, aside, name in sides:
        label: str | None = name[lang]
        for at, task in enumerate(tasks):
            values = found[task][what]
            axes.plot([at + aside] * len(values), values, "o", color=color, markersize=5, alpha=0.7,
                      label=label, markeredgewidth=0)  # fmt: skip
            value = mean(values).value
            axes.plot([at + aside - 0.1, at + aside + 0.1], [value] * 2, color=color, linewidth=1.6)
            axes.annotate(f"{value:.2f}", (at + aside, max(values)), xytext=(0, 5), ha="center",
                          textcoords="offset points", fontsize=8, color=color)  # fmt: skip
            label = None
            if f"{task}, adamw" in found:
                others = found[f"{task}, adamw"][what]
                axes.plot([at + aside + (0.18 if aside > 0 else -0.18)] * len(others), others, "o",
                          mfc="white", color=color, markersize=4.5)  # fmt: skip
    axes.axhline(evidence["chance"], **CHANCE)
    axes.annotate(Words("a noun by chance", "随机选名词")[lang], (0.995, evidence["chance"]),
                  xycoords=("axes fraction", "data"), xytext=(0, 3), textcoords="offset points",
                  ha="right", fontsize=8, color=CHANCE["color"])  # fmt: skip
    if "name, adamw" in found:
        axes.plot([], [], "o", mfc="white", color="#555555", markersize=4.5, label="AdamW")
    counted = Words("{} answers", "{} 种答案")[lang]
    names = [_TASKS[task][lang] for task in tasks]
    for at, task in enumerate(tasks):
        if task not in ("untrained", "shuffled"):
            names[at] += f"\n({counted.format(found[task]['classes'])})"
    axes.set_xticks(range(len(tasks)), names, fontsize=8.5)
    axes.set_xlim(-0.5, len(tasks) - 0.5)
    axes.set_ylim(0, 1.1)
    title = Words(
        "{n} unseen stories, by what must be answered", "{n} 个没见过的故事，按必须回答什么"
    )
    tidy(axes, title[lang].format(n=evidence["stories"]))
    axes.legend(fontsize=8.5, loc="upper left", bbox_to_anchor=(0, 0.97))
