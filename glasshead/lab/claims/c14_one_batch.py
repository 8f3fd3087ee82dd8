"""Claim 14: all heads in one batch are faster than a loop over heads."""

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.attention.functional import attend
from glasshead.attention.mask import Mask
from glasshead.attention.multihead import MultiHeadAttention
from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Verdict, Words
from glasshead.lab.claims.drawing import FOR, GREY, tidy
from glasshead.lab.claims.stats import Interval, ratio
from glasshead.lab.claims.timing import by_turns

__all__ = ["CLAIM", "InOneBatch", "Looped", "judge", "measure"]

H, C = 8, 256
# (texts, positions): from one short text to a batch of long ones
SIZES = ((1, 16), (1, 128), (8, 64), (4, 512))
FASTER = 1.1  # a tenth faster is faster
CAUSAL = Mask(causal=True)

# What is timed: a module made of the layer.
Way = Callable[[MultiHeadAttention], nn.Module]


class InOneBatch(nn.Module):
    def __init__(self, layer: MultiHeadAttention) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x, mask=CAUSAL).out
        return out


class Looped(nn.Module):
    """The same layer, a head at a time, as the documents' first version does it.

    Each head has queries, keys and values of its own, copied from the layer's.
    """

    def __init__(self, layer: MultiHeadAttention) -> None:
        super().__init__()
        C, D = layer.d_model, layer.d_head
        parts = [part.split(D) for part in layer.qkv.weight.detach().split(C)]  # q, k, v
        self.heads = nn.ModuleList(
            nn.ModuleList(nn.Linear(C, D, bias=False) for _ in parts) for _ in range(layer.n_heads)
        )
        for h, head in enumerate(self.heads):
            for linear, part in zip(head.children(), parts, strict=True):
                linear.load_state_dict({"weight": part[h]})
        self.out = nn.Linear(C, C)
        self.out.load_state_dict(layer.out.state_dict())
        self.backend = layer.backend

    def forward(self, x: Tensor) -> Tensor:
        contexts = []
        for head in self.heads:
            q, k, v = (linear(x)[:, None] for linear in head.children())  # (B, 1, T, D)
            contexts.append(attend(q, k, v, CAUSAL, backend=self.backend).context[:, 0])
        merged: Tensor = self.out(torch.cat(contexts, -1))
        return merged


def measure(
    budget: Budget,
    *,
    batch: Way = InOneBatch,
    loop: Way = Looped,
    sizes: tuple[tuple[int, int], ...] = SIZES,
    seconds: float | None = None,
) -> Evidence:
    """Each seed is a round of its own: both sides by turns, the best time of each counts."""
    seconds = seconds or (0.25 if budget.quick else 2.0)  # a size and seed
    times: dict[str, dict[str, list[list[float]]]] = {
        kind: {side: [[] for _ in sizes] for side in ("batch", "loop")}
        for kind in ("forward", "training")
    }
    apart = 0.0
    rounds = [(s, at) for s in budget.seeds for at in range(len(sizes))]
    for n, (seed, at) in enumerate(rounds):
        B, T = sizes[at]
        budget.progress(n / len(rounds), f"{B} x {T}, seed {seed}")
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            layer, x = MultiHeadAttention(C, H), torch.randn(B, T, C)
            ways = (batch(layer), loop(layer))
        with torch.no_grad():
            apart = max(apart, (ways[0](x) - ways[1](x)).abs().max().item())
        for kind, run in (("forward", _forward), ("training", _forward_and_back)):
            best = by_turns([partial(run, way, x) for way in ways], seconds / 2)
            for side, value in zip(("batch", "loop"), best, strict=True):
                times[kind][side][at].append(value)
    return {
        "heads": H,
        "d_model": C,
        "sizes": [list(size) for size in sizes],
        "threads": torch.get_num_threads(),
        "seconds": times,
        "largest difference of results": apart,
    }


def _forward(way: nn.Module, x: Tensor) -> None:
    with torch.no_grad():
        way(x)


def _forward_and_back(way: nn.Module, x: Tensor) -> None:
    way(x).sum().backward()
    way.zero_grad(set_to_none=True)


def judge(evidence: Evidence) -> Finding:
    found = {
        (kind, tuple(size)): ratio(times["loop"][at], times["batch"][at])
        for kind, times in evidence["seconds"].items()
        for at, size in enumerate(evidence["sizes"])
    }
    won = [key for key, value in found.items() if value.low >= FASTER]
    lost = [key for key, value in found.items() if value.high < FASTER]
    if len(won) == len(found):
        verdict = Verdict.HOLDS
    elif won:
        verdict = Verdict.HOLDS_WHEN
    elif len(lost) == len(found):
        verdict = Verdict.FAILS
    else:
        verdict = Verdict.UNCLEAR
    each = {
        kind: ", ".join(
            f"{B}×{T}: {found[kind, (B, T)]:.2f}" for B, T in map(tuple, evidence["sizes"])
        )
        for kind in evidence["seconds"]
    }
    en = (
        f"How many times as long a loop over {evidence['heads']} heads takes on this CPU "
        f"({evidence['threads']} threads), by texts × positions. Forward: {each['forward']}. "
        f"Forward and back: {each['training']}."
    )
    zh = (
        f"在本机 CPU（{evidence['threads']} 个线程）上，逐个计算 {evidence['heads']} 个头所需时间"
        f"是一次算完的多少倍（文本数×位置数）。前向：{each['forward']}。前向加反向："
        f"{each['training']}。"
    )
    if verdict is Verdict.HOLDS_WHEN:
        names = {"forward": ("forward", "前向"), "training": ("forward and back", "前向加反向")}
        en = f"Holds only at: {_named(won, names, 0)}. {en}"
        zh = f"只在这些情形成立：{_named(won, names, 1)}。{zh}"
    middle = statistics.median(value.value for value in found.values())
    numbers: dict[str, Interval | float] = {
        f"loop over batch, {kind}, {B} x {T}": value for (kind, (B, T)), value in found.items()
    }
    return Finding(verdict, Words(en, zh), {**numbers, "loop over batch, median": middle})


def _named(
    keys: list[tuple[str, tuple[int, ...]]], names: dict[str, tuple[str, str]], lang: int
) -> str:
    return ", ".join(f"{names[kind][lang]} {'×'.join(map(str, size))}" for kind, size in keys)


def draw(evidence: Evidence, figure: Any, lang: str) -> None:
    axes = figure.subplots()
    sizes = evidence["sizes"]
    kinds = (
        ("forward", -0.19, FOR, Words("forward", "前向")),
        ("training", 0.19, "#7fb3d5", Words("forward and back", "前向加反向")),
    )
    for kind, shift, color, name in kinds:
        times = evidence["seconds"][kind]
        found = [ratio(times["loop"][at], times["batch"][at]) for at in range(len(sizes))]
        xs = [at + shift for at in range(len(sizes))]
        values = [one.value for one in found]
        spread = [[one.value - one.low for one in found], [one.high - one.value for one in found]]
        axes.bar(xs, values, 0.36, color=color, label=name[lang])
        axes.errorbar(xs, values, yerr=spread, fmt="none", ecolor="#333333", capsize=3,
                      linewidth=1)  # fmt: skip
        for x, one in zip(xs, found, strict=True):
            axes.annotate(f"{one.value:.2f}", (x, one.high), xytext=(0, 4), ha="center",
                          textcoords="offset points", fontsize=8.5)  # fmt: skip
    axes.axhline(1, color=GREY, linewidth=1)
    axes.set_ylim(0, 1.12 * axes.get_ylim()[1])
    axes.set_xticks(range(len(sizes)), [f"{B} × {T}" for B, T in sizes])
    title = Words("Time of a loop over heads, as a multiple of one batch's",
                  "逐头循环的时间，是一次算完的多少倍")[lang]  # fmt: skip
    tidy(axes, title, x=Words("texts × positions", "文本数 × 位置数")[lang])
    axes.legend(fontsize=8.5)


CLAIM = Claim(
    number=14,
    title=Words("One batch beats a loop over heads", "一次算完所有头，胜过逐头循环"),
    claim=Words(
        "Computing all heads at once is faster than a loop over them.",
        "同时计算所有的头比逐个循环更快。",
    ),
    source="002",
    how=Words(
        f"One layer of {H} heads and width {C}, forward alone and with its backward pass, at four "
        "sizes. The loop has the same numbers as parameters of each head's own, computes the same "
        "result head by head on the same kernel, and is timed by turns with the batch; the best "
        "time of each counts, a round for each seed.",
        f"{H} 个头、宽 {C} 的一层，只做前向或加上反向，四种大小。循环版参数相同（每个头各有自己的参"
        "数）、用同样的内核逐头算出同样的结果，两者轮流计时，取各自最短时间，每个种子一轮。",
    ),
    for_=Words(
        f"The loop takes at least {FASTER} times as long at every size, forward and back (lower "
        "end of the interval); at some sizes only: holds only when.",
        f"每种大小、前向和反向，循环都至少要 {FASTER} 倍时间（取区间下端）；只在部分大小如此，则为"
        "“仅在……时成立”。",
    ),
    against=Words(
        f"Less than {FASTER} times everywhere (upper end).",
        f"处处都不到 {FASTER} 倍（取区间上端）。",
    ),
    measure=measure,
    judge=judge,
    draw=draw,
)
