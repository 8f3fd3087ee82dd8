"""Claim 1: wide heads make softmax nearly one-hot; dividing by the square root of d_k mends it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from glasshead.attention.functional import attend
from glasshead.attention.multihead import MultiHeadAttention
from glasshead.attention.scores import Scoring
from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Verdict, Words
from glasshead.lab.claims.drawing import AGAINST, CHANCE, FOR, band, tidy
from glasshead.lab.claims.stats import Interval, cohens_d, mean, ratio

__all__ = ["CLAIM", "judge", "measure"]

WIDTHS = (8, 16, 32, 64, 128, 256, 512)
KEYS = 64
# More than half of the weight: one key outweighs the 63 others together.
ONE_HOT = 0.5
# The scale mends it if the widest head is as sharp as the narrowest, give or take a quarter. Raw,
# it must be sharper by more than that, or it is not the width that makes it so.
SAME = 1.25
SOURCES = {
    "normal": Words("random queries and keys", "随机的查询和键"),
    "layer": Words("an untrained layer's", "未训练的层给出的"),
}


def sqrt_of_width(D: int) -> float:
    return D**-0.5


def measure(
    budget: Budget, *, scale: Callable[[int], float] = sqrt_of_width, spread: float = 1.0
) -> Evidence:
    """`scale` is the remedy under test; `spread` the standard deviation of queries and keys."""
    stacks = 8 if budget.quick else 64
    top: dict[str, dict[str, list[list[float]]]] = {
        source: {side: [[] for _ in WIDTHS] for side in ("raw", "scaled")} for source in SOURCES
    }
    for n, seed in enumerate(budget.seeds):
        budget.progress(n / len(budget.seeds), f"seed {seed}")
        generator = torch.Generator().manual_seed(seed)
        for at, D in enumerate(WIDTHS):
            x = spread * torch.randn(2, stacks, 1, KEYS, D, generator=generator)
            for source, (q, k) in (("normal", (x[0], x[1])), ("layer", _untrained(x[0], seed))):
                for side, by in (("raw", 1.0), ("scaled", scale(D))):
                    seen = attend(q, k, k, scoring=Scoring(scale=by), weights=True)
                    assert seen.weights is not None
                    top[source][side][at].append(seen.weights.amax(-1).mean().item())
    return {"widths": list(WIDTHS), "keys": KEYS, "rows": stacks * KEYS, "top": top}


def _untrained(x: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Queries and keys as an untrained layer of the package makes them."""
    D = x.shape[-1]
    with torch.random.fork_rng([]), torch.no_grad():
        torch.manual_seed(seed)
        q, k, _ = MultiHeadAttention(D, 1).qkv(x).split(D, -1)
    return q, k


def judge(evidence: Evidence) -> Finding:
    top = evidence["top"]
    raw, scaled = (
        {source: mean(top[source][side][-1]) for source in top} for side in ("raw", "scaled")
    )
    grown, growth = (
        {source: ratio(top[source][side][-1], top[source][side][0]) for source in top}
        for side in ("raw", "scaled")
    )
    narrow = mean(top["normal"]["raw"][0])
    sharp = [s for s in top if raw[s].low > ONE_HOT and grown[s].low > SAME]
    mended = all(growth[s].high < SAME and scaled[s].high < ONE_HOT for s in top)
    if mended and len(sharp) == len(top):
        verdict = Verdict.HOLDS
    elif mended and sharp:
        verdict = Verdict.HOLDS_WHEN
    elif all(raw[s].high < ONE_HOT or grown[s].high < SAME for s in top) or any(
        growth[s].low > SAME or scaled[s].low > ONE_HOT for s in top
    ):
        verdict = Verdict.FAILS
    else:
        verdict = Verdict.UNCLEAR
    widest = evidence["widths"][-1]
    en = (
        f"With {evidence['keys']} keys the largest weight is on average {narrow:.3f} at d_k "
        f"{evidence['widths'][0]} and {raw['normal']:.3f} at d_k {widest} (an untrained layer's "
        f"queries and keys: {raw['layer']:.3f}). Divided by √d_k it is "
        f"{scaled['normal']:.3f} (layer: {scaled['layer']:.3f}), {growth['normal']:.2f} times that "
        "of the narrowest head."
    )
    zh = (
        f"{evidence['keys']} 个键时，最大权重平均为：d_k={evidence['widths'][0]} 时 {narrow:.3f}，"
        f"d_k={widest} 时 {raw['normal']:.3f}（未训练的层给出的查询和键：{raw['layer']:.3f}）。"
        f"除以 √d_k 后为 {scaled['normal']:.3f}（层：{scaled['layer']:.3f}），是最窄的头的 "
        f"{growth['normal']:.2f} 倍。"
    )
    if verdict is Verdict.HOLDS_WHEN:
        en = f"Holds only for: {'; '.join(SOURCES[s].en for s in sharp)}. {en}"
        zh = f"只对这些成立：{'；'.join(SOURCES[s].zh for s in sharp)}。{zh}"
    numbers: dict[str, Interval | float] = {
        "raw, narrowest": narrow,
        "raw, widest": raw["normal"],
        "raw, widest, untrained layer": raw["layer"],
        "scaled, widest": scaled["normal"],
        "scaled, widest, untrained layer": scaled["layer"],
        "raw, widest over narrowest": grown["normal"],
        "raw, widest over narrowest, untrained layer": grown["layer"],
        "scaled, widest over narrowest": growth["normal"],
        "scaled, widest over narrowest, untrained layer": growth["layer"],
        "Cohen's d, raw against scaled, widest": cohens_d(
            top["normal"]["raw"][-1], top["normal"]["scaled"][-1]
        ),
    }
    return Finding(verdict, Words(en, zh), numbers)


def draw(evidence: Evidence, figure: Any, lang: str) -> None:
    raw, by_root = Words("raw", "不缩放")[lang], Words("divided by √d_k", "除以 √d_k")[lang]
    layer = Words("untrained layer", "未训练的层")[lang]
    axes = figure.subplots()
    top, xs = evidence["top"], evidence["widths"]
    band(axes, xs, top["normal"]["raw"], AGAINST, label=raw)
    band(axes, xs, top["layer"]["raw"], AGAINST, label=f"{raw} · {layer}", linestyle="--")
    band(axes, xs, top["normal"]["scaled"], FOR, label=by_root)
    band(axes, xs, top["layer"]["scaled"], FOR, label=f"{by_root} · {layer}", linestyle="--")
    axes.axhline(1 / evidence["keys"], **CHANCE)
    alike = Words("all keys alike", "所有键相同")[lang]
    axes.annotate(alike, (xs[0], 1 / evidence["keys"]), xytext=(0, -11), fontsize=8,
                  textcoords="offset points", color="#6b7078")  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_xticks(xs, [str(x) for x in xs])
    axes.set_ylim(-0.06, 1)
    title = Words("Largest of 64 weights, mean over rows", "64 个权重中最大的一个，各行平均")[lang]
    tidy(axes, title, x=Words("head width d_k", "头宽 d_k")[lang])
    axes.legend(fontsize=8.5, loc="upper left")


CLAIM = Claim(
    number=1,
    title=Words("√d_k keeps softmax soft", "√d_k 让 softmax 不至于尖锐"),
    claim=Words(
        "With large d_k the dot products grow until softmax is nearly one-hot; dividing by √d_k "
        "prevents it.",
        "d_k 较大时点积变大，softmax 接近 one-hot；除以 √d_k 可以避免。",
    ),
    source="000, 004",
    how=Words(
        "Random queries and keys of spread 1, and those an untrained layer makes; 64 keys; head "
        "widths from 8 to 512. The same scores go through softmax as they are and divided by √d_k.",
        "随机的查询和键（标准差 1），以及未训练的层给出的查询和键；64 个键；头宽 8 到 512。同样的"
        "分数，直接做 softmax，或先除以 √d_k。",
    ),
    for_=Words(
        f"At d_k 512 one key has more than {ONE_HOT} of the weight without the scale and more than "
        f"{SAME} times what it has at d_k 8; with the scale less than either. For both kinds of "
        "queries and keys; if the first is so for one kind only: holds only when.",
        f"d_k=512 时，不缩放则一个键占 {ONE_HOT} 以上，且超过 d_k=8 时的 {SAME} 倍；缩放后两者都不"
        "到。两种查询和键都要如此；若前一半只对其中一种成立，则为“仅在……时成立”。",
    ),
    against=Words(
        f"Less than {ONE_HOT}, or than {SAME} times, even without the scale, for both kinds; or "
        "more than either with it, for one of them.",
        f"两种都是：不缩放也不到 {ONE_HOT} 或不到 {SAME} 倍；或其中一种：缩放后仍超过。",
    ),
    measure=measure,
    judge=judge,
    draw=draw,
    correction=Words(
        "002 leaves √d_k out of its snippet for the causal mask, 003 out of its formula in section "
        "2.1; both divide by it elsewhere. 002's two-head example has heads of width 1, where "
        "√1 = 1 and the scale does nothing.",
        "002 的因果掩码片段和 003 第 2.1 节的公式漏掉了 √d_k（两文别处都有）。002 的双头示例头宽"
        "为 1，√1 = 1，缩放不起作用。",
    ),
)
