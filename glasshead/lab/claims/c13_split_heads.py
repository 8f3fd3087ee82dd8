"""Claim 13: several heads that share the width cost no more than one."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from glasshead.attention.mask import Mask
from glasshead.attention.multihead import MultiHeadAttention
from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Numbers
from glasshead.lab.claims.drawing import AGAINST, FOR, GREY, OTHER, SERIES, style_axes
from glasshead.lab.claims.models import count_parameters
from glasshead.lab.claims.verdict import Verdict
from glasshead.lab.texts import join_sentences, join_words, read_texts

__all__ = ["CLAIM", "judge", "measure"]

TEXTS = read_texts(__file__)
HEADS = (1, 2, 4, 8, 16)
C, LENGTHS = 128, (96, 1024)
SAME = 1.1  # within a tenth is constant
CAUSAL = Mask(causal=True)


def split(C: int, H: int) -> int:
    return C // H


def measure(
    budget: Budget, *, d_head: Callable[[int, int], int] = split, backend: str = "auto"
) -> Evidence:
    """Count, not time: the counts are the same on every machine, so one seed is enough.

    `backend`: of which the memory is measured.
    """
    ways: dict[str, Callable[[int, int], int]] = {"split": d_head, "whole": lambda C, H: C}
    names = ("parameters", "products", "exponentials", "memory")
    counts: dict[str, dict[str, list[list[int]]]] = {}
    for n, (way, width) in enumerate(ways.items()):
        budget.progress(n / len(ways), way)
        counts[way] = {name: [[] for _ in LENGTHS] for name in names}
        for at, T in enumerate(LENGTHS):
            for H in HEADS:
                layer = MultiHeadAttention(C, H, d_head=width(C, H), backend="explicit")
                x = torch.randn(1, T, C, generator=torch.Generator().manual_seed(budget.seeds[0]))
                with torch.no_grad(), FlopCounterMode(display=False) as counter:
                    weights = layer(x, weights=True).weights
                assert weights is not None
                plain = MultiHeadAttention(C, H, d_head=width(C, H), backend=backend)
                found = (count_parameters(layer), counter.get_total_flops() // 2, weights.numel(),
                         _kept_bytes(plain, x))  # fmt: skip
                for name, value in zip(names, found, strict=True):
                    counts[way][name][at].append(value)
    return {"heads": list(HEADS), "d_model": C, "lengths": list(LENGTHS), "counts": counts}


def _kept_bytes(layer: MultiHeadAttention, x: Tensor) -> int:
    """Return the memory of what a forward pass keeps for the backward pass."""
    kept: dict[int, int] = {}  # by address: views share their memory

    def count_storage(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(count_storage, lambda tensor: tensor):
        out = layer(x.requires_grad_(), mask=CAUSAL)  # noqa: F841, alive while it is counted
        return sum(kept.values())


def judge(evidence: Evidence) -> Finding:
    counts = evidence["counts"]

    def growth(way: str, what: str) -> float:
        """The largest at any length: most heads over one."""
        return max(values[-1] / values[0] for values in counts[way][what])

    whole, parameters = growth("whole", "parameters"), growth("split", "parameters")
    products, memory = growth("split", "products"), growth("split", "memory")
    some = counts["split"]
    operations = max(
        (p[-1] + e[-1]) / (p[0] + e[0])
        for p, e in zip(some["products"], some["exponentials"], strict=True)
    )
    if max(parameters, products) > SAME:
        verdict = Verdict.FAILS
    else:
        verdict = Verdict.HOLDS if max(operations, memory) <= SAME else Verdict.HOLDS_WHEN
    names = [n for n, more in (("softmax", operations), ("maps", memory)) if more > SAME]
    when = join_words((TEXTS[f"when.{name}"] for name in names), " and ", "、且")
    words = [TEXTS["only_when"].format(when=when)] if verdict is Verdict.HOLDS_WHEN else []
    exponentials = growth("split", "exponentials")
    words.append(
        TEXTS["result"].format(
            most=evidence["heads"][-1], d_model=evidence["d_model"], whole=whole,
            parameters=parameters, products=products, exponentials=exponentials,
            operations=operations, memory=memory, longest=evidence["lengths"][-1],
        )
    )  # fmt: skip
    numbers: Numbers = {
        "parameters, most heads over one": parameters,
        "multiplications, most heads over one": products,
        "multiplications and exponentials, most heads over one": operations,
        "memory kept for the backward pass, most heads over one": memory,
        "weights through softmax, most heads over one": exponentials,
        "parameters, heads of the whole width, most over one": whole,
    }
    return Finding(verdict, join_sentences(words), numbers, when)


def draw(evidence: Evidence, figure: Any, say: Mapping[str, str]) -> None:
    axes = figure.subplots()
    heads = evidence["heads"]
    lines = (
        ("parameters", "split", "parameters", FOR, "-"),
        ("products", "split", "products", OTHER, "--"),
        ("exponentials", "split", "exponentials", AGAINST, "-"),
        ("memory", "split", "memory", SERIES[3], "-."),
        ("whole", "whole", "parameters", GREY, ":"),
    )
    for name, way, what, color, line in lines:
        values = evidence["counts"][way][what][-1]  # of the longest text
        # Two pairs of lines lie on each other: the later of each is drawn with open circles.
        hollow = {"markersize": 9, "mfc": "none"} if line in ("--", ":") else {"markersize": 4}
        axes.plot(heads, [value / values[0] for value in values], color=color, linestyle=line,
                  marker="o", label=say[f"figure.{name}"], **hollow)  # fmt: skip
    axes.set_yscale("log", base=2)
    axes.set_yticks(heads, [f"{H}×" for H in heads])
    style_axes(axes, say["figure.title"], x=say["figure.heads"], powers=heads)
    axes.legend(fontsize=8.5)


CLAIM = Claim.of(
    13, TEXTS, measure, judge, draw, d_model=C, lengths=LENGTHS, most=HEADS[-1], same=SAME
)
