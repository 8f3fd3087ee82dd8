"""Claim 14: all heads in one batch are faster than a loop over heads."""

import statistics
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.attention.functional import attend
from glasshead.attention.mask import Mask
from glasshead.attention.multihead import MultiHeadAttention
from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Numbers
from glasshead.lab.claims.drawing import FOR, GREY, annotate, style_axes
from glasshead.lab.claims.stats import at_least, ratio
from glasshead.lab.claims.timing import time_by_turns
from glasshead.lab.claims.verdict import Verdict, judge_cases
from glasshead.lab.texts import join_sentences, join_words, read_texts

__all__ = ["CLAIM", "InOneBatch", "Looped", "judge", "measure"]

TEXTS = read_texts(__file__)
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
    """The same layer, one head at a time, as in the documents' first version.

    Each head has its own projections, copied from the layer's.
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
    """Time both sides in turn, one round per seed; the fastest time of each counts."""
    seconds = seconds or (0.25 if budget.quick else 2.0)  # per size and seed
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
            best = time_by_turns([partial(run, way, x) for way in ways], seconds / 2)
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
    verdict = judge_cases([at_least(value, FASTER) for value in found.values()])
    each = {
        kind: ", ".join(
            f"{B}×{T}: {found[kind, (B, T)]:.2f}" for B, T in map(tuple, evidence["sizes"])
        )
        for kind in evidence["seconds"]
    }
    fixed = {name: evidence[name] for name in ("heads", "threads")}
    words = [TEXTS["result"].format(**fixed, each=each)]
    if verdict is Verdict.HOLDS_WHEN:
        cases = [
            join_words([TEXTS[f"kind.{kind}"], "×".join(map(str, size))], " ", " ")
            for kind, size in won
        ]
        words.insert(0, TEXTS["only_at"].format(cases=join_words(cases)))
    middle = statistics.median(value.value for value in found.values())
    numbers: Numbers = {
        f"loop over batch, {kind}, {B} x {T}": value for (kind, (B, T)), value in found.items()
    }
    numbers["loop over batch, median"] = middle
    kinds, sizes = evidence["seconds"], [tuple(size) for size in evidence["sizes"]]
    always = [size for size in sizes if all((kind, size) in won for kind in kinds)]
    shape = "always" if len(always) * len(kinds) == len(won) else "partly"
    listed = ", ".join("×".join(map(str, size)) for size in dict.fromkeys(size for _, size in won))
    return Finding(
        verdict, join_sentences(words), numbers, TEXTS[f"when.{shape}"].format(sizes=listed)
    )


def draw(evidence: Evidence, figure: Any, say: Mapping[str, str]) -> None:
    axes = figure.subplots()
    sizes = evidence["sizes"]
    for kind, shift, color in (("forward", -0.19, FOR), ("training", 0.19, "#7fb3d5")):
        times = evidence["seconds"][kind]
        found = [ratio(times["loop"][at], times["batch"][at]) for at in range(len(sizes))]
        xs = [at + shift for at in range(len(sizes))]
        values = [one.value for one in found]
        spread = [[one.value - one.low for one in found], [one.high - one.value for one in found]]
        axes.bar(xs, values, 0.36, color=color, label=say[f"kind.{kind}"])
        axes.errorbar(xs, values, yerr=spread, fmt="none", ecolor="#333333", capsize=3,
                      linewidth=1)  # fmt: skip
        for x, one in zip(xs, found, strict=True):
            annotate(axes, f"{one.value:.2f}", (x, one.high), (0, 4), ha="center", fontsize=8.5,
                     color="black")  # fmt: skip
    axes.axhline(1, color=GREY, linewidth=1)
    axes.set_ylim(0, 1.12 * axes.get_ylim()[1])
    axes.set_xticks(range(len(sizes)), [f"{B} × {T}" for B, T in sizes])
    style_axes(axes, say["figure.title"], x=say["figure.sizes"])
    axes.legend(fontsize=8.5)


CLAIM = Claim.of(14, TEXTS, measure, judge, draw, heads=H, d_model=C, faster=FASTER)
