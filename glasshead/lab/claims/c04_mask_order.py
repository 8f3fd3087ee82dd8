"""Claim 4: masked before softmax, rows sum to 1; masked after it, they do not."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from glasshead.attention.functional import attend
from glasshead.attention.mask import Mask
from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Verdict, Words
from glasshead.lab.claims.drawing import AGAINST, FOR, OTHER, band, tidy
from glasshead.lab.claims.stats import difference, mean

__all__ = ["CLAIM", "after", "before", "judge", "measure", "renormalised"]

T, D = 16, 8
ROUNDING = 1e-5
FAR = 0.1  # a row that is so far from 1 does not sum to 1

Masking = Callable[[Tensor, Tensor], Tensor]


def before(q: Tensor, k: Tensor) -> Tensor:
    weights = attend(q, k, k, Mask(causal=True), weights=True).weights
    assert weights is not None
    return weights


def after(q: Tensor, k: Tensor) -> Tensor:
    weights = attend(q, k, k, weights=True).weights
    assert weights is not None
    return weights.tril()


def renormalised(q: Tensor, k: Tensor) -> Tensor:
    weights = after(q, k)
    return weights / weights.sum(-1, keepdim=True)


def measure(budget: Budget, *, early: Masking = before, late: Masking = after) -> Evidence:
    """Row sums, and how far a row's weights move when a key of its future is another."""
    stacks = 64 if budget.quick else 512
    ways = {"before": early, "after": late, "after, renormalised": renormalised}
    sums: dict[str, list[list[float]]] = {way: [[] for _ in range(T)] for way in ways}
    leaks: dict[str, list[float]] = {way: [] for way in ways}
    off: list[float] = []  # the farthest from 1 of any row masked early
    apart: list[float] = []
    for n, seed in enumerate(budget.seeds):
        budget.progress(n / len(budget.seeds), f"seed {seed}")
        generator = torch.Generator().manual_seed(seed)
        q, k, other = torch.randn(3, stacks, 1, T, D, generator=generator)
        moved = torch.cat([k[:, :, :-1], other[:, :, -1:]], 2)  # only the last key is another
        for way, masking in ways.items():
            weights = masking(q, k)
            for row, total in enumerate(weights.sum(-1).mean((0, 1)).tolist()):
                sums[way][row].append(total)
            change = (masking(q, moved) - weights)[:, :, :-1].abs().sum(-1)
            leaks[way].append(change.mean().item())
        off.append((early(q, k).sum(-1) - 1).abs().max().item())
        apart.append((early(q, k) - renormalised(q, k)).abs().max().item())
    fixed = {"length": T, "width": D, "rows": stacks}
    return fixed | {"sums": sums, "off": off, "leaks": leaks, "apart": apart}


def judge(evidence: Evidence) -> Finding:
    sums, leaks = evidence["sums"], evidence["leaks"]

    # The last row sees everything and sums to 1 in any case.
    rows = [sum(seed) / len(seed) for seed in zip(*sums["after"][:-1], strict=True)]
    late, exact = mean(rows), max(evidence["off"])
    if exact <= ROUNDING and late.high < 1 - FAR:
        verdict = Verdict.HOLDS
    elif exact > FAR or late.low > 1 - FAR:
        verdict = Verdict.FAILS
    else:
        verdict = Verdict.UNCLEAR
    leak = difference(leaks["after"], leaks["before"])
    apart = max(evidence["apart"])
    first = mean(sums["after"][0])
    en = (
        f"Masked before softmax, rows of {evidence['length']} sum to 1 within {exact:.0e}. Masked "
        f"after it they sum to {late:.2f} (the last row, which sees all, left out), the first to "
        f"{first:.2f}. Masked late, rows also feel their future: another last key moves the "
        f"weights of a row before it by {leak:.3f} in sum. Late weights divided by their sum are "
        f"those masked early, within {apart:.0e}."
    )
    zh = (
        f"在 softmax 之前掩码，长度 {evidence['length']} 的各行之和为 1（误差 {exact:.0e}）。之后"
        f"再掩码，和为 {late:.2f}（不计能看到全部的最后一行），第一行为 {first:.2f}。后掩码的行还"
        f"受未来影响：换掉最后一个键，前面一行的权重总共变化 {leak:.3f}。后掩码的权重除以行和，就"
        f"是先掩码的权重，相差不超过 {apart:.0e}。"
    )
    numbers = {
        "farthest from 1, masked before": exact,
        "row sum, masked after": late,
        "first row, masked after": first,
        "leak of the last key, masked after": leak,
        "renormalised against before, largest difference": apart,
    }
    return Finding(verdict, Words(en, zh), numbers)


def draw(evidence: Evidence, figure: Any, lang: str) -> None:
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
    xs = list(range(1, evidence["length"] + 1))
    names = {
        "before": Words("before softmax", "softmax 之前")[lang],
        "after": Words("after softmax", "softmax 之后")[lang],
        "after, renormalised": Words("after, divided by the sum", "之后，再除以行和")[lang],
    }
    colors = {"before": FOR, "after": AGAINST, "after, renormalised": OTHER}
    for way in ("before", "after", "after, renormalised"):
        style = {"linestyle": ":", "markersize": 2.5} if way == "after, renormalised" else {}
        band(left, xs, evidence["sums"][way], colors[way], label=names[way], **style)
    left.set_ylim(0, 1.1)
    tidy(left, Words("Sum of a row's weights", "一行权重之和")[lang],
         x=Words("row", "行")[lang])  # fmt: skip
    left.legend(fontsize=8.5, loc="lower right")
    ways = list(names)
    heights = [mean(evidence["leaks"][way]).value for way in ways]
    right.bar(range(3), heights, color=[colors[way] for way in ways], width=0.55)
    for at, height in enumerate(heights):
        right.annotate(f"{height:.3f}", (at, height), xytext=(0, 3), textcoords="offset points",
                       ha="center", fontsize=9)  # fmt: skip
    short = Words("before,after,divided", "之前,之后,再除以和")[lang].split(",")
    right.set_xticks(range(3), short)
    right.set_ylim(0, 1.25 * max(*heights, 1e-6))
    title = Words("Leak of the future", "未来的泄漏")[lang]
    tidy(right, title)


CLAIM = Claim(
    number=4,
    title=Words("Mask before softmax, not after", "掩码要放在 softmax 之前"),
    claim=Words(
        "Masking the scores before softmax keeps the rows summing to 1; masking the weights after "
        "it does not.",
        "在 softmax 之前掩码，各行之和仍为 1；之后再掩码则不然。",
    ),
    source="002",
    how=Words(
        "The same random queries and keys, 16 positions; the causal mask is applied to the scores "
        "or to the weights. As a control the weights masked late are divided by their sum. Then "
        "one key of the future is replaced and the change in earlier rows is measured.",
        "同样的随机查询和键，16 个位置；因果掩码作用于分数或作用于权重。作为对照，把后掩码的权重"
        "除以其和。再替换一个未来的键，测量前面各行的变化。",
    ),
    for_=Words(
        f"Before: every row within {ROUNDING:.0e} of 1; after: on average more than {FAR} away.",
        f"之前：每行与 1 之差不超过 {ROUNDING:.0e}；之后：平均相差超过 {FAR}。",
    ),
    against=Words(
        f"Before: a row more than {FAR} away; or after: less than {FAR} away on average.",
        f"之前：有一行相差超过 {FAR}；或之后：平均相差不到 {FAR}。",
    ),
    measure=measure,
    judge=judge,
    draw=draw,
    correction=Words(
        "After dropout the rows of 002 no longer sum to 1 either; weights to look at are those "
        "before dropout. 003 masks with −1e10: a row that may see nothing becomes uniform (with "
        "−inf: NaN), and in fp16 the number overflows. Here such a row gives weights 0.",
        "002 在 dropout 之后各行之和也不再是 1；要观察的是 dropout 之前的权重。003 用 −1e10 掩"
        "码：全部被遮的行会变成均匀分布（用 −inf 则是 NaN），而且 fp16 会溢出。这里这样的行权重为 "
        "0。",
    ),
)
