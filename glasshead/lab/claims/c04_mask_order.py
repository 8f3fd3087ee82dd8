"""Claim 4: masked before softmax, rows sum to 1; masked after it, they do not."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from glasshead.attention.functional import attend
from glasshead.attention.mask import Mask
from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding
from glasshead.lab.claims.drawing import AGAINST, FOR, OTHER, draw_band, draw_bar, style_axes
from glasshead.lab.claims.stats import difference, mean
from glasshead.lab.claims.verdict import Verdict
from glasshead.lab.texts import read_texts

__all__ = ["CLAIM", "judge", "mask_after", "mask_before", "measure", "renormalise"]

TEXTS = read_texts(__file__)
T, D = 16, 8
ROUNDING = 1e-5
FAR = 0.1  # a row this far from 1 does not sum to 1

Masking = Callable[[Tensor, Tensor], Tensor]


def mask_before(q: Tensor, k: Tensor) -> Tensor:
    weights = attend(q, k, k, Mask(causal=True), weights=True).weights
    assert weights is not None
    return weights


def mask_after(q: Tensor, k: Tensor) -> Tensor:
    weights = attend(q, k, k, weights=True).weights
    assert weights is not None
    return weights.tril()


def renormalise(q: Tensor, k: Tensor) -> Tensor:
    weights = mask_after(q, k)
    return weights / weights.sum(-1, keepdim=True)


def measure(
    budget: Budget, *, early: Masking = mask_before, late: Masking = mask_after
) -> Evidence:
    """Row sums, and how much a row's weights change when a key of its future is replaced."""
    stacks = 64 if budget.quick else 512
    ways = {"before": early, "after": late, "after, renormalised": renormalise}
    sums: dict[str, list[list[float]]] = {way: [[] for _ in range(T)] for way in ways}
    leaks: dict[str, list[float]] = {way: [] for way in ways}
    off: list[float] = []  # the largest distance from 1 of any row masked early
    apart: list[float] = []
    for n, seed in enumerate(budget.seeds):
        budget.progress(n / len(budget.seeds), f"seed {seed}")
        generator = torch.Generator().manual_seed(seed)
        q, k, other = torch.randn(3, stacks, 1, T, D, generator=generator)
        moved = torch.cat([k[:, :, :-1], other[:, :, -1:]], 2)  # only the last key is replaced
        for way, masking in ways.items():
            weights = masking(q, k)
            for row, total in enumerate(weights.sum(-1).mean((0, 1)).tolist()):
                sums[way][row].append(total)
            change = (masking(q, moved) - weights)[:, :, :-1].abs().sum(-1)
            leaks[way].append(change.mean().item())
        off.append((early(q, k).sum(-1) - 1).abs().max().item())
        apart.append((early(q, k) - renormalise(q, k)).abs().max().item())
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
    apart, first = max(evidence["apart"]), mean(sums["after"][0])
    words = TEXTS["result"].format(
        length=evidence["length"], exact=exact, late=late, first=first, leak=leak, apart=apart
    )
    numbers = {
        "farthest from 1, masked before": exact,
        "row sum, masked after": late,
        "first row, masked after": first,
        "leak of the last key, masked after": leak,
        "renormalised against before, largest difference": apart,
    }
    return Finding(verdict, words, numbers)


def draw(evidence: Evidence, figure: Any, say: Mapping[str, str]) -> None:
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
    xs, leaks = range(1, evidence["length"] + 1), evidence["leaks"]
    colors = {"before": FOR, "after": AGAINST, "after, renormalised": OTHER}
    for at, (way, color) in enumerate(colors.items()):
        style = {"linestyle": ":", "markersize": 2.5} if way == "after, renormalised" else {}
        draw_band(left, xs, evidence["sums"][way], color, label=say[f"figure.{way}"], **style)
        draw_bar(right, at, leaks[way], color, text="{:.3f}")
    left.set_ylim(0, 1.1)
    style_axes(left, say["figure.sums"], x=say["figure.row"])
    left.legend(fontsize=8.5, loc="lower right")
    right.set_xticks(range(3), [say[f"figure.short.{way}"] for way in colors])
    right.set_ylim(0, 1.25 * max(1e-6, *map(max, leaks.values())))
    style_axes(right, say["figure.leak"])


CLAIM = Claim.of(4, TEXTS, measure, judge, draw, rounding=ROUNDING, far=FAR)
