"""Claim 2: scaling keeps the gradient through softmax from vanishing."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from glasshead.attention.functional import attend
from glasshead.attention.scores import Scoring
from glasshead.lab.claims.c01_scale import KEYS, SIDES, WIDTHS, sqrt_of_width
from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding
from glasshead.lab.claims.drawing import AGAINST, FOR, draw_band, style_axes
from glasshead.lab.claims.stats import mean, ratio
from glasshead.lab.claims.verdict import Verdict, judge_cases
from glasshead.lab.texts import join_sentences, read_texts

__all__ = ["CLAIM", "judge", "measure"]

TEXTS = read_texts(__file__)
# A row is dead when its gradient is under 1 % of the largest that softmax can have: 1/2, the norm
# of diag(w) - w wᵀ for two keys that share the weight.
DEAD = 0.01 * 0.5
# One word of twenty that learns nothing is worth a division; one of a hundred may be chance.
NEEDED = 0.05  # without the scale at least so many rows are dead ...
ALIVE = 0.01  # ... and with it at most so many
# The documents speak of large d_k. The heads of the models that they describe have 64.
LARGE = 64


def measure(budget: Budget, *, scale: Callable[[int], float] = sqrt_of_width) -> Evidence:
    stacks = 8 if budget.quick else 32
    found: dict[str, dict[str, list[list[float]]]] = {
        name: {side: [[] for _ in WIDTHS] for side in SIDES}
        for name in ("at scores", "dead", "at query", "at query, median")
    }
    for n, seed in enumerate(budget.seeds):
        generator = torch.Generator().manual_seed(seed)
        for at, D in enumerate(WIDTHS):
            budget.progress((n + at / len(WIDTHS)) / len(budget.seeds), f"seed {seed}, d_k {D}")
            q, k, v, g = torch.randn(4, stacks, 1, KEYS, D, generator=generator)
            for side, by in zip(SIDES, (1.0, scale(D)), strict=True):
                norms, reaching = _gradients(q, k, v, g, by)
                found["at scores"][side][at].append(norms.mean().item())
                found["dead"][side][at].append((norms < DEAD).float().mean().item())
                found["at query"][side][at].append(reaching.mean().item())
                found["at query, median"][side][at].append(reaching.median().item())
    return {"widths": list(WIDTHS), "keys": KEYS, "rows": stacks * KEYS, **found}


def _gradients(q: Tensor, k: Tensor, v: Tensor, g: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Return for each row the norms of softmax's Jacobian and of the gradient at its query."""
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
    raw, scaled = ([mean(values) for values in dead[side]] for side in SIDES)
    helps = [
        before.low >= NEEDED and after.high <= ALIVE
        for before, after in zip(raw, scaled, strict=True)
    ]
    where_claimed = [yes for width, yes in zip(widths, helps, strict=True) if width >= LARGE]
    refuted = raw[-1].high < NEEDED or scaled[-1].low > ALIVE
    verdict = judge_cases(where_claimed or helps, refuted)
    query, middle = (
        ratio(evidence[name]["raw"][-1], evidence[name]["scaled"][-1])
        for name in ("at query", "at query, median")
    )
    norm = ratio(evidence["at scores"]["scaled"][-1], evidence["at scores"]["raw"][-1])
    words = [
        TEXTS["result"].format(
            widths=widths, widest=widths[-1], raw_narrowest=raw[0], raw_widest=raw[-1],
            scaled_widest=scaled[-1], norm=norm, middle=middle, query=query,
        )
    ]  # fmt: skip
    if middle.high < 1 < query.low:
        words.append(TEXTS["uneven"])
    wide = [width for width, yes in zip(widths, helps, strict=True) if yes]
    where = ", ".join(map(str, wide))
    if verdict is Verdict.HOLDS_WHEN:
        words.insert(0, TEXTS["only_when"].format(widths=where))
    elif verdict is Verdict.HOLDS and wide != widths:
        words.append(TEXTS["narrow"].format(least=min(wide)))
    numbers = {
        "dead rows, raw, widest": raw[-1],
        "dead rows, scaled, widest": scaled[-1],
        "dead rows, raw, narrowest": raw[0],
        "softmax gradient, scaled over raw, widest": norm,
        "gradient at the query, raw over scaled, mean": query,
        "gradient at the query, raw over scaled, median": middle,
    }
    shape = "from" if wide == widths[-len(wide) :] else "at"
    when = TEXTS[f"when.{shape}"].format(widths=where, least=min(wide, default=0))
    return Finding(verdict, join_sentences(words), numbers, when)


def draw(evidence: Evidence, figure: Any, say: Mapping[str, str]) -> None:
    left, right = figure.subplots(1, 2)
    xs = evidence["widths"]
    for side, color in (("raw", AGAINST), ("scaled", FOR)):
        draw_band(left, xs, evidence["dead"][side], color, label=say[f"figure.{side}"])
        draw_band(right, xs, evidence["at query"][side], color, label=say["figure.mean"])
        draw_band(right, xs, evidence["at query, median"][side], color, linestyle="--",
                  label=say["figure.median"])  # fmt: skip
    left.axhline(NEEDED, color="#999999", linewidth=0.8, linestyle=":")
    right.set_yscale("log")
    for axes, title in ((left, "dead"), (right, "reaching")):
        style_axes(axes, say[f"figure.{title}"], x=say["figure.width"], powers=xs)
        axes.legend(fontsize=8.5)


CLAIM = Claim.of(2, TEXTS, measure, judge, draw, needed=NEEDED, alive=ALIVE, large=LARGE)
