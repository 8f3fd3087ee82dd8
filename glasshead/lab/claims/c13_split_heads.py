"""Claim 13: several heads that share the width cost no more than one."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from glasshead.attention.multihead import MultiHeadAttention
from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Numbers
from glasshead.lab.claims.drawing import AGAINST, FOR, GREY, OTHER, style_axes
from glasshead.lab.claims.models import count_parameters
from glasshead.lab.claims.verdict import Verdict
from glasshead.lab.texts import join_sentences, read_texts

__all__ = ["CLAIM", "judge", "measure"]

TEXTS = read_texts(__file__)
HEADS = (1, 2, 4, 8, 16)
C, T = 128, 96
SAME = 1.1  # within a tenth is constant


def split(C: int, H: int) -> int:
    return C // H


def measure(budget: Budget, *, d_head: Callable[[int, int], int] = split) -> Evidence:
    """Count, not time: the counts are the same on every machine, so one seed is enough."""
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
            counts[way]["parameters"].append(count_parameters(layer))
            counts[way]["products"].append(counter.get_total_flops() // 2)
            counts[way]["exponentials"].append(weights.numel())
    return {"heads": list(HEADS), "d_model": C, "length": T, "counts": counts}


def judge(evidence: Evidence) -> Finding:
    counts = evidence["counts"]
    growth = {
        way: {what: values[-1] / values[0] for what, values in some.items()}
        for way, some in counts.items()
    }
    split, whole = growth["split"], growth["whole"]["parameters"]
    constant = max(split["parameters"], split["products"]) <= SAME
    if constant and split["exponentials"] <= SAME:
        verdict = Verdict.HOLDS
    elif constant:
        verdict = Verdict.HOLDS_WHEN
    else:
        verdict = Verdict.FAILS
    words = [TEXTS["only_when"]] if verdict is Verdict.HOLDS_WHEN else []
    words.append(
        TEXTS["result"].format(
            most=evidence["heads"][-1], d_model=evidence["d_model"], whole=whole, **split,
            most_exponentials=counts["split"]["exponentials"][-1],
            most_products=counts["split"]["products"][-1],
        )
    )  # fmt: skip
    numbers: Numbers = {
        "parameters, most heads over one": split["parameters"],
        "multiplications, most heads over one": split["products"],
        "weights through softmax, most heads over one": split["exponentials"],
        "parameters, heads of the whole width, most over one": whole,
    }
    return Finding(verdict, join_sentences(words), numbers, TEXTS["when"])


def draw(evidence: Evidence, figure: Any, say: Mapping[str, str]) -> None:
    axes = figure.subplots()
    heads = evidence["heads"]
    lines = (
        ("parameters", "split", "parameters", FOR, "-"),
        ("products", "split", "products", OTHER, "--"),
        ("exponentials", "split", "exponentials", AGAINST, "-"),
        ("whole", "whole", "parameters", GREY, ":"),
    )
    for name, way, what, color, line in lines:
        values = evidence["counts"][way][what]
        # Two pairs of lines lie on each other: the later of each is drawn with open circles.
        hollow = {"markersize": 9, "mfc": "none"} if line in ("--", ":") else {"markersize": 4}
        axes.plot(heads, [value / values[0] for value in values], color=color, linestyle=line,
                  marker="o", label=say[f"figure.{name}"], **hollow)  # fmt: skip
    axes.set_yscale("log", base=2)
    axes.set_yticks(heads, [f"{H}×" for H in heads])
    style_axes(axes, say["figure.title"], x=say["figure.heads"], powers=heads)
    axes.legend(fontsize=8.5)


CLAIM = Claim.of(13, TEXTS, measure, judge, draw, d_model=C, length=T, same=SAME)
