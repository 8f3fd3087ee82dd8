"""Claim 1: wide heads make softmax nearly one-hot; dividing by √d_k prevents it."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from glasshead.attention.functional import attend
from glasshead.attention.multihead import MultiHeadAttention
from glasshead.attention.scores import Scoring
from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Numbers
from glasshead.lab.claims.drawing import AGAINST, FOR, draw_band, draw_chance, style_axes
from glasshead.lab.claims.models import build_seeded
from glasshead.lab.claims.stats import cohens_d, mean, ratio
from glasshead.lab.claims.verdict import Verdict
from glasshead.lab.texts import join_sentences, join_words, read_texts

__all__ = ["CLAIM", "judge", "measure"]

TEXTS = read_texts(__file__)
WIDTHS = (8, 16, 32, 64, 128, 256, 512)
KEYS = 64
# More than half of the weight: one key outweighs the 63 others together.
ONE_HOT = 0.5
# The scale works if the widest head is as sharp as the narrowest, within a quarter. Without it, the
# widest must be sharper by more than that, or the width is not the reason.
SAME = 1.25
SIDES = ("raw", "scaled")
# Queries and keys are not always as large as random ones: does it hold with these too?
SPREADS = (0.5, 1.0, 2.0)


def sqrt_of_width(D: int) -> float:
    return D**-0.5


def measure(
    budget: Budget,
    *,
    scale: Callable[[int], float] = sqrt_of_width,
    spreads: tuple[float, ...] = SPREADS,
) -> Evidence:
    """`scale` is the remedy under test; `spreads` the standard deviations of queries and keys."""
    stacks = 8 if budget.quick else 64
    found = {
        f"{spread:g}": _largest_weights(
            budget.part(n / len(spreads), 1 / len(spreads)), scale, spread, stacks
        )
        for n, spread in enumerate(spreads)
    }
    main = "1" if "1" in found else next(iter(found))
    fixed = {"widths": list(WIDTHS), "keys": KEYS, "rows": stacks * KEYS}
    return {**fixed, "top": found.pop(main), "other spreads": found}


def _largest_weights(
    budget: Budget, scale: Callable[[int], float], spread: float, stacks: int
) -> dict[str, dict[str, list[list[float]]]]:
    top: dict[str, dict[str, list[list[float]]]] = {
        source: {side: [[] for _ in WIDTHS] for side in SIDES} for source in ("normal", "layer")
    }
    for n, seed in enumerate(budget.seeds):
        budget.progress(n / len(budget.seeds), f"seed {seed}")
        generator = torch.Generator().manual_seed(seed)
        for at, D in enumerate(WIDTHS):
            x = spread * torch.randn(2, stacks, 1, KEYS, D, generator=generator)
            for source, (q, k) in (("normal", (x[0], x[1])), ("layer", _project(x[0], seed))):
                for side, by in zip(SIDES, (1.0, scale(D)), strict=True):
                    weights = attend(q, k, k, scoring=Scoring(scale=by), weights=True).weights
                    assert weights is not None
                    top[source][side][at].append(weights.amax(-1).mean().item())
    return top


@torch.no_grad()
def _project(x: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Return the queries and keys that an untrained layer of the package makes."""
    D = x.shape[-1]
    q, k, _ = build_seeded(seed, lambda: MultiHeadAttention(D, 1)).qkv(x).split(D, -1)
    return q, k


def _judge_spread(top: Mapping[str, Any]) -> tuple[Verdict, list[str]]:
    """Return the verdict for one spread, and for which sources softmax gets sharp."""
    raw, scaled = ({source: mean(top[source][side][-1]) for source in top} for side in SIDES)
    grown, growth = (
        {source: ratio(top[source][side][-1], top[source][side][0]) for source in top}
        for side in SIDES
    )
    sharp = [s for s in top if raw[s].low > ONE_HOT and grown[s].low > SAME]
    prevented = all(growth[s].high < SAME and scaled[s].high < ONE_HOT for s in top)
    if prevented and len(sharp) == len(top):
        return Verdict.HOLDS, sharp
    if prevented and sharp:
        return Verdict.HOLDS_WHEN, sharp
    if all(raw[s].high < ONE_HOT or grown[s].high < SAME for s in top) or any(
        growth[s].low > SAME or scaled[s].low > ONE_HOT for s in top
    ):
        return Verdict.FAILS, sharp
    return Verdict.UNCLEAR, sharp


def judge(evidence: Evidence) -> Finding:
    top, widths = evidence["top"], evidence["widths"]
    raw, scaled = ({source: mean(top[source][side][-1]) for source in top} for side in SIDES)
    grown, growth = (
        {source: ratio(top[source][side][-1], top[source][side][0]) for source in top}
        for side in SIDES
    )
    narrow = mean(top["normal"]["raw"][0])
    verdict, sharp = _judge_spread(top)
    others = evidence.get("other spreads", {})
    elsewhere = {spread: _judge_spread(other)[0] for spread, other in others.items()}
    only_one = verdict is Verdict.HOLDS and set(elsewhere.values()) - {Verdict.HOLDS}
    words = [
        TEXTS["result"].format(
            keys=evidence["keys"], widths=widths, widest=widths[-1],
            narrow=narrow, raw=raw, scaled=scaled, growth=growth,
        )
    ]  # fmt: skip
    inputs = join_words((TEXTS[f"inputs.{s}"] for s in sharp), "; ", "；")
    if verdict is Verdict.HOLDS_WHEN:
        words.insert(0, TEXTS["only_for"].format(inputs=inputs))
    if only_one:
        verdict = Verdict.HOLDS_WHEN
        words.insert(0, TEXTS["only_spread"])
    for spread, other in others.items():
        sides = [[mean(other[s][side][-1]).value for s in other] for side in SIDES]
        words.append(TEXTS["other_spread"].format(spread=spread, raw=sides[0], scaled=sides[1]))
    numbers: Numbers = {"raw, narrowest": narrow}
    for name, values in (("raw, widest", raw), ("scaled, widest", scaled),
                         ("raw, widest over narrowest", grown),
                         ("scaled, widest over narrowest", growth)):  # fmt: skip
        numbers |= {name: values["normal"], f"{name}, untrained layer": values["layer"]}
    normal = top["normal"]
    effect = cohens_d(normal["raw"][-1], normal["scaled"][-1])
    numbers["Cohen's d, raw against scaled, widest"] = effect
    when = TEXTS["when.spread"] if only_one else TEXTS["when.inputs"].format(inputs=inputs)
    return Finding(verdict, join_sentences(words), numbers, when)


def draw(evidence: Evidence, figure: Any, say: Mapping[str, str]) -> None:
    axes = figure.subplots()
    top, xs = evidence["top"], evidence["widths"]
    for side, color in (("raw", AGAINST), ("scaled", FOR)):
        label = say[f"figure.{side}"]
        draw_band(axes, xs, top["normal"][side], color, label=label)
        draw_band(axes, xs, top["layer"][side], color, label=f"{label} · {say['figure.layer']}",
                  linestyle="--")  # fmt: skip
    draw_chance(axes, 1 / evidence["keys"], say["figure.alike"], xs[0])
    axes.set_ylim(-0.06, 1)
    style_axes(axes, say["figure.title"], x=say["figure.width"], powers=xs)
    axes.legend(fontsize=8.5, loc="upper left")


CLAIM = Claim.of(1, TEXTS, measure, judge, draw, one_hot=ONE_HOT, same=SAME)
