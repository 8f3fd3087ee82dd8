"""Claim 2: scaling keeps the gradient through softmax alive."""

from collections.abc import Callable
from typing import Any

import torch

from glasshead.attention.functional import attend
from glasshead.attention.scores import Scoring
from glasshead.lab.claims.c01_scale import sqrt_of_width
from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Verdict, Words
from glasshead.lab.claims.drawing import AGAINST, FOR, band, tidy
from glasshead.lab.claims.stats import mean, ratio

__all__ = ["CLAIM", "judge", "measure"]

WIDTHS = (8, 16, 32, 64, 128, 256, 512)
KEYS = 64
# A row is dead when its gradient is under 1 % of the largest that softmax can have: 1/2, the norm
# of diag(w) - w wᵀ for two keys that share the weight.
DEAD = 0.01 * 0.5
# One word of twenty that learns nothing is worth a division; one of a hundred may be chance.
NEEDED = 0.05  # without the scale at least so many rows are dead ...
ALIVE = 0.01  # ... and with it at most so many


def measure(budget: Budget, *, scale: Callable[[int], float] = sqrt_of_width) -> Evidence:
    stacks = 8 if budget.quick else 32
    found: dict[str, dict[str, list[list[float]]]] = {
        name: {side: [[] for _ in WIDTHS] for side in ("raw", "scaled")}
        for name in ("at scores", "dead", "at query", "at query, median")
    }
    for n, seed in enumerate(budget.seeds):
        generator = torch.Generator().manual_seed(seed)
        for at, D in enumerate(WIDTHS):
            budget.progress((n + at / len(WIDTHS)) / len(budget.seeds), f"seed {seed}, d_k {D}")
            q, k, v, g = torch.randn(4, stacks, 1, KEYS, D, generator=generator)
            for side, by in (("raw", 1.0), ("scaled", scale(D))):
                norms, reaching = _gradients(q, k, v, g, by)
                found["at scores"][side][at].append(norms.mean().item())
                found["dead"][side][at].append((norms < DEAD).float().mean().item())
                found["at query"][side][at].append(reaching.mean().item())
                found["at query, median"][side][at].append(reaching.median().item())
    return {"widths": list(WIDTHS), "keys": KEYS, "rows": stacks * KEYS, **found}


def _gradients(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """For each row: the norm of softmax's Jacobian, and of the gradient that reaches its query."""
    q = q.clone().requires_grad_()
    seen = attend(q, k, v, scoring=Scoring(scale=scale), weights=True, backend="explicit")
    (reaching,) = torch.autograd.grad(seen.context, q, g)
    assert seen.weights is not None
    w = seen.weights.detach()
    squares = w.square().sum(-1)
    # ‖diag(w) - w wᵀ‖² = Σ w² - 2 Σ w³ + (Σ w²)²
    norms = (squares - 2 * w.pow(3).sum(-1) + squares.square()).clamp(min=0).sqrt()
    return norms.flatten(), reaching.norm(dim=-1).flatten()


def judge(evidence: Evidence) -> Finding:
    dead, widths = evidence["dead"], evidence["widths"]
    raw, scaled = ([mean(dead[side][at]) for at in range(len(widths))] for side in dead)
    needed = [
        width
        for width, before, after in zip(widths, raw, scaled, strict=True)
        if before.low >= NEEDED and after.high <= ALIVE
    ]
    if len(needed) == len(widths):
        verdict = Verdict.HOLDS
    elif needed:
        verdict = Verdict.HOLDS_WHEN
    elif raw[-1].high < NEEDED or scaled[-1].low > ALIVE:
        verdict = Verdict.FAILS
    else:
        verdict = Verdict.UNCLEAR
    query = ratio(evidence["at query"]["raw"][-1], evidence["at query"]["scaled"][-1])
    middle = ratio(
        evidence["at query, median"]["raw"][-1], evidence["at query, median"]["scaled"][-1]
    )
    norm = ratio(evidence["at scores"]["scaled"][-1], evidence["at scores"]["raw"][-1])
    widest = widths[-1]
    en = (
        f"At d_k {widest} the gradient is dead in {raw[-1]:.1%} of the rows without the scale, in "
        f"{scaled[-1]:.1%} with it; on average softmax passes {norm:.2f} times as much with it. At "
        f"d_k {widths[0]}: {raw[0]:.1%} without. What reaches the queries at d_k {widest} without "
        f"the scale is {middle:.2f} times what it is with it in the median row, {query:.1f} times "
        "in the mean."
    )
    zh = (
        f"d_k={widest} 时，不缩放有 {raw[-1]:.1%} 的行梯度消失，缩放后为 {scaled[-1]:.1%}；缩放后 "
        f"softmax 平均传过的梯度是原来的 {norm:.2f} 倍。d_k={widths[0]} 时，不缩放为 "
        f"{raw[0]:.1%}。d_k={widest} 时到达查询的梯度，不缩放与缩放之比：中位的行 {middle:.2f}，平"
        f"均 {query:.1f}。"
    )
    if middle.high < 1 < query.low:
        en += " So many rows get almost nothing, and a few far too much."
        zh += "可见许多行几乎得不到梯度，少数行则大得过头。"
    if verdict is Verdict.HOLDS_WHEN:
        spans = ", ".join(map(str, needed))
        en = f"Holds only when heads are wide (here d_k {spans}). {en}"
        zh = f"只有头较宽时成立（此处 d_k 为 {spans}）。{zh}"
    numbers = {
        "dead rows, raw, widest": raw[-1],
        "dead rows, scaled, widest": scaled[-1],
        "dead rows, raw, narrowest": raw[0],
        "softmax gradient, scaled over raw, widest": norm,
        "gradient at the query, raw over scaled, mean": query,
        "gradient at the query, raw over scaled, median": middle,
    }
    return Finding(verdict, Words(en, zh), numbers)


def draw(evidence: Evidence, figure: Any, lang: str) -> None:
    left, right = figure.subplots(1, 2)
    xs = evidence["widths"]
    labels = {
        "raw": Words("raw", "不缩放")[lang],
        "scaled": Words("divided by √d_k", "除以 √d_k")[lang],
    }
    for side, color in (("raw", AGAINST), ("scaled", FOR)):
        band(left, xs, evidence["dead"][side], color, label=labels[side])
        band(right, xs, evidence["at query"][side], color, label=Words("mean", "平均")[lang])
        band(right, xs, evidence["at query, median"][side], color, linestyle="--",
             label=Words("median", "中位数")[lang])  # fmt: skip
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(xs, [str(x) for x in xs])
    left.axhline(NEEDED, color="#999999", linewidth=0.8, linestyle=":")
    right.set_yscale("log")
    width = Words("head width d_k", "头宽 d_k")[lang]
    tidy(
        left,
        Words("Share of rows with a dead gradient", "梯度消失的行所占比例")[lang],
        x=width,
    )
    tidy(right, Words("Gradient that reaches the query", "到达查询的梯度大小")[lang], x=width)
    left.legend(fontsize=8.5)
    right.legend(fontsize=8.5)


CLAIM = Claim(
    number=2,
    title=Words("√d_k keeps gradients alive", "√d_k 让梯度不消失"),
    claim=Words(
        "Dividing by √d_k keeps the gradient through softmax from vanishing or becoming unstable.",
        "除以 √d_k 可以防止 softmax 的梯度消失或不稳定。",
    ),
    source="001, 004",
    how=Words(
        "Random queries, keys and values of spread 1, 64 keys, head widths from 8 to 512. For each "
        "row, the norm of softmax's Jacobian, and of the gradient that reaches the query when a "
        "random one arrives at the output; with the scale and without.",
        "随机的查询、键、值（标准差 1），64 个键，头宽 8 到 512。对每一行测 softmax 雅可比矩阵的"
        "范数，以及输出端给随机梯度时到达查询的梯度；缩放与不缩放各一次。",
    ),
    for_=Words(
        f"A row is dead when its Jacobian has less than 1 % of the largest norm possible. At every "
        f"width at least {NEEDED:.0%} are dead without the scale and at most {ALIVE:.0%} with it; "
        f"at some widths only: holds only when.",
        f"雅可比范数不到可能最大值的 1%，这一行算梯度消失。每种头宽下，不缩放至少 {NEEDED:.0%} 的"
        f"行消失、缩放后至多 {ALIVE:.0%}；只在部分头宽下如此，则为“仅在……时成立”。",
    ),
    against=Words(
        f"At d_k 512 fewer than {NEEDED:.0%} are dead without it, or more than {ALIVE:.0%} with "
        "it.",
        f"d_k=512 时，不缩放消失的不到 {NEEDED:.0%}，或缩放后仍超过 {ALIVE:.0%}。",
    ),
    measure=measure,
    judge=judge,
    draw=draw,
    tried=Words(
        "The widths and the 1 % that calls a row dead were chosen after one look with another "
        "seed.",
        "宽度，以及“低于 1 % 算死行”这条线，是用别的种子先看过一次之后定下的。",
    ),
)
