"""Claim 13: several heads that share the width cost no more than one."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from glasshead.attention.multihead import MultiHeadAttention
from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Verdict, Words
from glasshead.lab.claims.drawing import AGAINST, FOR, GREY, OTHER, tidy
from glasshead.lab.claims.stats import Interval

__all__ = ["CLAIM", "judge", "measure"]

HEADS = (1, 2, 4, 8, 16)
C, T = 128, 96
SAME = 1.1  # within a tenth is constant


def split(C: int, H: int) -> int:
    return C // H


def measure(budget: Budget, *, d_head: Callable[[int, int], int] = split) -> Evidence:
    """Counts, not times: the same on every machine, so one seed says it all."""
    ways: dict[str, Callable[[int, int], int]] = {"split": d_head, "whole": lambda C, H: C}
    counts: dict[str, dict[str, list[int]]] = {}
    for n, (way, width) in enumerate(ways.items()):
        budget.progress(n / len(ways), way)
        counts[way] = {"parameters": [], "products": [], "exponentials": []}
        for H in HEADS:
            layer = MultiHeadAttention(C, H, d_head=width(C, H), backend="explicit")
            x = torch.randn(1, T, C, generator=torch.Generator().manual_seed(budget.seeds[0]))
            with torch.no_grad(), FlopCounterMode(display=False) as counter:
                weights = layer(x, weights=True).weights
            assert weights is not None
            counts[way]["parameters"].append(sum(p.numel() for p in layer.parameters()))
            counts[way]["products"].append(counter.get_total_flops() // 2)
            counts[way]["exponentials"].append(weights.numel())
    return {"heads": list(HEADS), "d_model": C, "length": T, "counts": counts}


def judge(evidence: Evidence) -> Finding:
    heads = evidence["heads"]

    def growth(way: str, what: str) -> float:
        values = evidence["counts"][way][what]
        return values[-1] / values[0]

    parameters, products, exponentials = (
        growth("split", what) for what in ("parameters", "products", "exponentials")
    )
    constant = max(parameters, products) <= SAME
    if constant and exponentials <= SAME:
        verdict = Verdict.HOLDS
    elif constant:
        verdict = Verdict.HOLDS_WHEN
    else:
        verdict = Verdict.FAILS
    whole, most = growth("whole", "parameters"), heads[-1]
    en = (
        f"{most} heads of a width of {evidence['d_model']} in all have {parameters:.2f} times the "
        f"parameters and do {products:.2f} times the multiplications of 1 head; heads that each "
        f"keep the whole width have {whole:.1f} times the parameters. The maps do grow: "
        f"{exponentials:.0f} times as many weights pass through softmax, "
        f"{evidence['counts']['split']['exponentials'][-1]:,} against "
        f"{evidence['counts']['split']['products'][-1]:,} multiplications."
    )
    zh = (
        f"总宽 {evidence['d_model']} 不变，从 1 个头到 {most} 个头，参数为 {parameters:.2f} 倍，乘"
        f"法为 {products:.2f} 倍；若每个头都保留全宽，参数为 {whole:.1f} 倍。但注意力图会变多：经"
        f"过 softmax 的权重是 {exponentials:.0f} 倍，"
        f"{evidence['counts']['split']['exponentials'][-1]:,} 个，乘法是 "
        f"{evidence['counts']['split']['products'][-1]:,} 次。"
    )
    if verdict is Verdict.HOLDS_WHEN:
        en = f"Holds only when cost means parameters and multiplications. {en}"
        zh = f"只有把代价理解为参数和乘法次数时成立。{zh}"
    numbers: dict[str, Interval | float] = {
        "parameters, most heads over one": parameters,
        "multiplications, most heads over one": products,
        "weights through softmax, most heads over one": exponentials,
        "parameters, heads of the whole width, most over one": whole,
    }
    return Finding(verdict, Words(en, zh), numbers)


def draw(evidence: Evidence, figure: Any, lang: str) -> None:
    axes = figure.subplots()
    heads, counts = evidence["heads"], evidence["counts"]
    lines = (
        ("split", "parameters", FOR, "-", Words("parameters", "参数")),
        ("split", "products", OTHER, "--", Words("multiplications", "乘法次数")),
        ("split", "exponentials", AGAINST, "-", Words("weights made by softmax", "softmax 的权重")),
        ("whole", "parameters", GREY, ":",
         Words("parameters, each head of the whole width", "参数（每个头都是全宽）")),
    )  # fmt: skip
    for way, what, color, line, name in lines:
        values = counts[way][what]
        # Two pairs of lines lie on each other: the later of each is drawn with open circles.
        hollow = {"markersize": 9, "mfc": "none"} if line in ("--", ":") else {"markersize": 4}
        axes.plot(heads, [value / values[0] for value in values], color=color, linestyle=line,
                  marker="o", label=name[lang], **hollow)  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(heads, [str(H) for H in heads])
    axes.set_yticks(heads, [f"{H}×" for H in heads])
    title = Words("Cost, as a multiple of one head's", "代价，与一个头相比的倍数")[lang]
    tidy(axes, title, x=Words("heads", "头数")[lang])
    axes.legend(fontsize=8.5)


CLAIM = Claim(
    number=13,
    title=Words("Splitting the width keeps the cost", "把宽度分给各头，代价不变"),
    claim=Words(
        "Each head gets a part of the width, so several heads cost no more than one.",
        "每个头只分到一部分宽度，所以多个头的代价与一个头相同。",
    ),
    source="002, 004",
    how=Words(
        f"The package's layer of width {C} with 1 to 16 heads on {T} positions. Parameters are "
        "counted, multiplications counted as they happen, and the weights that pass through "
        "softmax. Nothing is timed. Control: heads that each keep the whole width.",
        f"宽 {C} 的层，1 到 16 个头，{T} 个位置。数参数，数实际发生的乘法，数经过 softmax 的权重；"
        "不计时。对照：每个头都保留全宽。",
    ),
    for_=Words(
        f"With 16 heads all three counts are at most {SAME} times those of one. If only parameters "
        "and multiplications are: holds only when.",
        f"16 个头时三种计数都不超过一个头的 {SAME} 倍。若只有参数和乘法如此，则为“仅在……时成立”。",
    ),
    against=Words(
        f"Parameters or multiplications grow more than {SAME} times.",
        f"参数或乘法超过 {SAME} 倍。",
    ),
    measure=measure,
    judge=judge,
    draw=draw,
    correction=Words(
        "002 says that 8 dimensions and 3 heads make 2 arrays of 4. 8 is not divisible by 3; its "
        "own code rightly refuses. 2 arrays of 4 are 2 heads.",
        "002 说 8 维、3 个头会分成 2 个 4 维数组。8 不能被 3 整除，它自己的代码也会（正确地）拒绝；"
        "2 个 4 维数组是 2 个头。",
    ),
)
