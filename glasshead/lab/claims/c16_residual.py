"""Claim 16: residual connections stop gradients from vanishing."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Verdict, Words
from glasshead.lab.claims.drawing import AGAINST, CHANCE, FOR, OTHER, SERIES, band, tidy
from glasshead.lab.claims.search import BEST_RATE, RATES, WENT_ON, cautions, searched, shown
from glasshead.lab.claims.stats import Interval, difference, geometric, mean
from glasshead.lab.claims.training import TextTask
from glasshead.model.loss import next_token_loss

__all__ = ["CLAIM", "judge", "measure"]

DEPTHS = (1, 2, 4, 8, 16, 24)
# Below a thousandth of what one layer gets, a gradient has vanished; above a thousand times, burst.
GONE = 1e-3
LEAST = 1e-300  # nothing at all counts as this
# A tenth of a nat below the frequencies of characters: something was learned.
LEARNED = 0.1
# The blocks of rungs 6 and 7, where the residual comes in.
LAYER = {"n_heads": 4, "d_model": 32, "feed_forward": "linear-relu", "project": False}
SIDES: dict[str, dict[str, Any]] = {
    "without": {"residual": False, "norm_place": "none"},
    "with": {"residual": True, "norm_place": "none"},
    "with, pre-norm": {"residual": True, "norm_place": "pre"},
    "norm alone": {"residual": False, "norm_place": "pre"},
}
EASY = "one layer"  # without residual or norm: can the steps teach anything?


def measure(
    budget: Budget,
    *,
    residual: bool = True,
    depths: tuple[int, ...] = DEPTHS,
    depth: int | None = None,
    steps: int | None = None,
    rates: Sequence[float] = RATES,
) -> Evidence:
    """`residual`: whether the sides that have residuals have them. `depth` is the one trained."""
    depth = depth or (6 if budget.quick else 12)
    steps = steps or (100 if budget.quick else 250)
    task = TextTask(block=8, batch_size=32)
    sides = {
        name: {**LAYER, **side, "residual": residual and side["residual"]}
        for name, side in SIDES.items()
    }
    gradients: dict[str, list[list[float]]] = {side: [] for side in sides}
    for side, settings in sides.items():
        for layers in depths:
            gradients[side].append(
                [_gradient(task, seed, {**settings, "n_layers": layers}) for seed in budget.seeds]
            )

    def run(side: str, lr: float, seed: int) -> float:
        settings = sides["without" if side == EASY else side]
        model = task.gpt(seed, **settings, n_layers=1 if side == EASY else depth)
        return task.train(model, lr=lr, seed=seed, steps=steps, points=1).val[-1]

    trained = [side for side in sides if not budget.quick or side != "norm alone"] + [EASY]
    found = searched(budget, trained, run, lambda loss: loss, rates)
    return {
        "depths": list(depths),
        "gradient": gradients,
        "depth": depth,
        "steps": steps,
        "rates": shown(found),
        "losses": {side: one.results for side, one in found.items()},
        "unigram": task.unigram(),
    }


def _gradient(task: TextTask, seed: int, settings: dict[str, Any]) -> float:
    """The norm of the loss's gradient with respect to the embeddings, untrained."""
    model, batch = task.gpt(seed, **settings), task.first(seed)
    # In float64: what is left after 24 layers is less than float32 can hold.
    next_token_loss(model.double(), batch.ids, batch.targets).backward()
    assert model.embedding.weight.grad is not None
    return model.embedding.weight.grad.norm().item()


def judge(evidence: Evidence) -> Finding:
    share = {
        side: geometric(
            [
                max(deep, LEAST) / max(one, LEAST)
                for one, deep in zip(rows[0], rows[-1], strict=True)
            ]
        )
        for side, rows in evidence["gradient"].items()
    }
    losses, unigram = evidence["losses"], evidence["unigram"]
    best = {side: mean(values) for side, values in losses.items()}
    learned = {side: mean([unigram - loss for loss in some]) for side, some in losses.items()}
    easy, learns, stuck = learned[EASY], learned["with"], learned["without"]
    normed = share["with, pre-norm"]
    if not easy.low > LEARNED:
        # Where one layer learns nothing, depth is not to blame.
        verdict = Verdict.UNCLEAR
    elif share["without"].high < GONE < share["with"].low and learns.low > LEARNED:
        # Saved from vanishing, but it may grow instead: then a norm is needed beside it.
        if share["with"].high < 1 / GONE:
            verdict = Verdict.HOLDS
        elif share["with"].low > 1 / GONE and GONE < normed.low and normed.high < 1 / GONE:
            verdict = Verdict.HOLDS_WHEN
        else:
            verdict = Verdict.UNCLEAR
    elif share["without"].low > GONE or share["with"].high < GONE or learns.high < LEARNED:
        verdict = Verdict.FAILS
    else:
        verdict = Verdict.UNCLEAR
    deepest, depth, steps = evidence["depths"][-1], evidence["depth"], evidence["steps"]
    gap = difference(losses["without"], losses["with"])
    en = (
        f"At {deepest} layers the gradient at the embeddings is {share['without']:.0e} of "
        f"what it is at one layer without residuals, {share['with']:.2g} times with them, "
        f"{share['with, pre-norm']:.2g} times with pre-norm beside them (norms without "
        f"residuals: {share['norm alone'].value:.2g}). {depth} layers, {steps} steps, each at its "
        f"best rate: loss {best['without']:.3f} without, {best['with']:.3f} with, "
        f"{best['with, pre-norm']:.3f} with pre-norm; character frequencies alone give "
        f"{unigram:.3f}, one layer {best[EASY]:.3f}. "
    )
    zh = (
        f"{deepest} 层时，嵌入处的梯度与一层时之比：无残差 {share['without']:.0e}，有残差 "
        f"{share['with']:.2g}，有残差加前置归一化 {share['with, pre-norm']:.2g}（只有归"
        f"一化、无残差：{share['norm alone'].value:.2g}）。{depth} 层训练 {steps} 步，各取最好的学"
        f"习率：损失无残差 {best['without']:.3f}，有残差 {best['with']:.3f}，加前置归一化 "
        f"{best['with, pre-norm']:.3f}；只凭字频为 {unigram:.3f}，一层为 "
        f"{best[EASY]:.3f}。"
    )
    if stuck.high < LEARNED:
        en += "Without residuals the deep net learns the frequencies at best."
        zh += "没有残差，深层网络至多学到字频。"
    elif stuck.low > LEARNED:
        en += "Without residuals the deep net does learn something."
        zh += "没有残差，深层网络也学到了一些东西。"
    if verdict is Verdict.HOLDS_WHEN:
        en += (
            " Residuals alone let gradients grow with depth: it holds only with norms beside them."
        )
        zh += "只有残差时梯度随深度增大：要同时有归一化才成立。"
    if not easy.low > LEARNED:
        en += " One layer learned next to nothing either, so one cannot tell."
        zh += "一层的网络也几乎什么都没学到，因此无法判断。"
    names = {side: name for side, (name, _) in NAMES.items() if side in losses}
    aside = cautions(evidence["rates"], {**names, EASY: Words("one layer", "一层")})
    numbers: dict[str, Interval | float] = {
        **{
            f"log10 of the gradient at {deepest} layers over one, {side}": mean(
                [
                    math.log10(max(deep, LEAST) / max(one, LEAST))
                    for one, deep in zip(rows[0], rows[-1], strict=True)
                ]
            )
            for side, rows in evidence["gradient"].items()
        },
        "one layer below character frequencies by": easy,
        **{f"loss, {depth} layers, {side}": value for side, value in best.items()},
        "loss without minus with": gap,
        "unigram": unigram,
    }
    return Finding(verdict, Words(en + aside.en, zh + aside.zh), numbers)


NAMES = {
    "without": (Words("no residual", "无残差"), AGAINST),
    "with": (Words("residual", "有残差"), FOR),
    "with, pre-norm": (Words("residual, pre-norm", "有残差，前置归一化"), SERIES[3]),
    "norm alone": (Words("norm, no residual", "只有归一化"), OTHER),
}


def draw(evidence: Evidence, figure: Any, lang: str) -> None:
    left, right = figure.subplots(1, 2, width_ratios=(1.3, 1))
    for side, (name, color) in NAMES.items():
        band(left, evidence["depths"], evidence["gradient"][side], color, label=name[lang])
    left.set_xscale("log", base=2)
    left.set_yscale("log")
    left.set_xticks(evidence["depths"], [str(d) for d in evidence["depths"]])
    title = Words("Gradient at the embeddings, untrained", "嵌入处的梯度（未训练）")[lang]
    tidy(left, title, x=Words("layers", "层数")[lang])
    left.legend(fontsize=8, loc="lower left")
    sides = [side for side in NAMES if side in evidence["losses"]]
    for at, side in enumerate(sides):
        values = evidence["losses"][side]
        right.bar(at, statistics.fmean(values), color=NAMES[side][1], width=0.6)
        right.plot([at] * len(values), values, "o", color="#333333", markersize=3)
        label = f"{statistics.fmean(values):.2f}"
        right.annotate(label, (at, max(values)), xytext=(0, 4), textcoords="offset points",
                       ha="center", fontsize=8)  # fmt: skip
    right.axhline(evidence["unigram"], **CHANCE)
    right.annotate(
        Words("character frequencies", "字频")[lang],
        (0.98, evidence["unigram"]),
        xycoords=("axes fraction", "data"),
        xytext=(0, 4),
        textcoords="offset points",
        ha="right",
        fontsize=8,
        color="#6b7078",
    )
    short = {
        "without": Words("none", "无残差"),
        "with": Words("residual", "有残差"),
        "with, pre-norm": Words("both", "两者"),
        "norm alone": Words("norm", "归一化"),
    }
    right.set_xticks(range(len(sides)), [short[side][lang] for side in sides])
    right.set_ylim(0, 1.15 * evidence["unigram"])
    depth, steps = evidence["depth"], evidence["steps"]
    words = Words(f"Loss, {depth} layers, {steps} steps", f"{depth} 层训练 {steps} 步后的损失")
    tidy(right, words[lang])
    right.grid(visible=False, axis="x")


CLAIM = Claim(
    number=16,
    title=Words("Residuals stop gradients from vanishing", "残差连接防止梯度消失"),
    claim=Words(
        "Residual connections let gradients pass along a shortcut, which stops them from vanishing "
        "in deep networks and makes these trainable.",
        "残差连接让梯度沿捷径传播，避免深层网络中梯度逐层衰减，使训练更深的网络成为可能。",
    ),
    source="004",
    how=Words(
        "The blocks of rungs 6 and 7 without residuals, with them, with pre-norm as well, and with "
        "norms alone. The gradient of the loss at the embeddings, untrained, from 1 to 24 layers; "
        f"then a deep net of each kind trained on the stories with {BEST_RATE.en}. "
        "Controls: character frequencies, and one layer trained as long.",
        "第 6、7 级的块：无残差、有残差、残差加前置归一化、只有归一化。未训练时损失对嵌入的梯度，1 "
        f"到 24 层；再各取{BEST_RATE.zh}，在故事文本上训练深层网络。对照：只凭字频；同样训练的一"
        "层网络。",
    ),
    for_=Words(
        f"At {DEPTHS[-1]} layers the gradient is less than {GONE:g} of one layer's without "
        f"residuals and more with them, and the deep net with them gets {LEARNED} nats below "
        f"character frequencies. If it grows more than {1 / GONE:g} times, and with pre-norm does "
        "not: only with a norm. All of this if one layer learns as much in as many steps; if not, "
        "or where an interval holds a threshold, one cannot tell.",
        f"{DEPTHS[-1]} 层时，无残差的梯度不到一层时的 {GONE:g}，有残差则大于它，且有残差的深层网络"
        f"的损失比字频低 {LEARNED} 以上。若增大到 {1 / GONE:g} 倍以上，而加前置归一化后不会：要有归"
        "一化才成立。前提是一层的网络用同样的步数也能学会；否则，或区间跨过门槛，则无法判断。",
    ),
    against=Words(
        f"More than {GONE:g} is left without residuals, or less with them, or the deep net learns "
        "nothing with them either.",
        f"无残差也剩 {GONE:g} 以上，或有残差也不到，或有残差的深层网络也学不会。",
    ),
    measure=measure,
    judge=judge,
    draw=draw,
    tried=Words(
        "The verdict depends on the block: with the blocks of rung 8 gradients with residuals "
        "grew only 16 times over 24 layers and the verdict was “holds”. Those of rungs 6 and 7 "
        "are used, because the residual enters there. The rates were widened once. These rules "
        "came after the first results: ratios are averaged in logs, one layer must have learned "
        "something, intervals across a threshold tell nothing, and “only with a norm” asks that "
        f"with pre-norm nothing bursts. {WENT_ON.en}",
        "结论取决于用哪种块：用第 8 级的块，带残差的梯度经 24 层只增长 16 "
        "倍，结论会是“成立”。这里用第 6、7 "
        "级的块，因为残差正是在那里加入的。学习率的范围放宽过一次。以下几条是看过最初的结果之后定"
        "的：比值在对数上平均；一层的网络必须先学会；区间跨过门槛则无法判断；说“要有归一化”，须是"
        f"加前置归一化后确实不爆炸。{WENT_ON.zh}",
    ),
)
