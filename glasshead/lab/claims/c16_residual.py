"""Claim 16: residual connections stop gradients from vanishing."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Numbers
from glasshead.lab.claims.drawing import (
    AGAINST,
    FOR,
    OTHER,
    SERIES,
    draw_band,
    draw_bar,
    draw_chance,
    style_axes,
)
from glasshead.lab.claims.search import RATES, SEARCH_WORDS, caution, compare_at_best_rates
from glasshead.lab.claims.stats import difference, geometric_mean, mean
from glasshead.lab.claims.training import TextTask
from glasshead.lab.claims.verdict import Verdict
from glasshead.lab.texts import join_sentences, read_texts
from glasshead.model.loss import next_token_loss

__all__ = ["CLAIM", "judge", "measure"]

TEXTS = read_texts(__file__)
DEPTHS = (1, 2, 4, 8, 16, 24)
# Below a thousandth of what one layer gets, a gradient has vanished; above a thousand times, burst.
GONE = 1e-3
LEAST = 1e-300  # a gradient of 0 counts as this
# A tenth of a nat below the frequencies of characters: something was learned.
LEARNED = 0.1
# The blocks of rungs 6 and 7, which add the residual.
LAYER = {"n_heads": 4, "d_model": 32, "feed_forward": "linear-relu", "project": False}
SIDES: dict[str, dict[str, Any]] = {
    "without": {"residual": False, "norm_place": "none"},
    "with": {"residual": True, "norm_place": "none"},
    "with, pre-norm": {"residual": True, "norm_place": "pre"},
    "norm alone": {"residual": False, "norm_place": "pre"},
}
EASY = "one layer"  # without residual or norm: are the steps enough to learn anything?
COLORS = {"without": AGAINST, "with": FOR, "with, pre-norm": SERIES[3], "norm alone": OTHER}


def measure(
    budget: Budget,
    *,
    residual: bool = True,
    depths: tuple[int, ...] = DEPTHS,
    depth: int | None = None,
    steps: int | None = None,
    rates: Sequence[float] = RATES,
) -> Evidence:
    """`residual`: False takes them from the sides that have them. `depth` is the one trained."""
    depth = depth or (6 if budget.quick else 12)
    steps = steps or (100 if budget.quick else 250)
    task = TextTask(block=8, batch_size=32)
    sides = {
        name: {**LAYER, **side, "residual": residual and side["residual"]}
        for name, side in SIDES.items()
    }
    gradients: dict[str, list[list[float]]] = {side: [] for side in sides}
    for side, settings in sides.items():
        for layers in depths:
            gradients[side].append(
                [_gradient(task, seed, {**settings, "n_layers": layers}) for seed in budget.seeds]
            )

    def run(side: str, lr: float, seed: int) -> float:
        settings = sides["without" if side == EASY else side]
        model = task.gpt(seed, **settings, n_layers=1 if side == EASY else depth)
        return task.train(model, lr=lr, seed=seed, steps=steps, points=1).val[-1]

    trained = [side for side in sides if not budget.quick or side != "norm alone"] + [EASY]
    found = compare_at_best_rates(budget, trained, run, lambda loss: loss, rates)
    return {
        "depths": list(depths),
        "gradient": gradients,
        "depth": depth,
        "steps": steps,
        "rates": {side: one.evidence() for side, one in found.items()},
        "losses": {side: one.results for side, one in found.items()},
        "unigram": task.unigram_loss(),
    }


def _gradient(task: TextTask, seed: int, settings: dict[str, Any]) -> float:
    """Return the norm of the gradient at the embeddings of an untrained model."""
    model, batch = task.gpt(seed, **settings), task.first_batch(seed)
    # In float64: what is left after 24 layers is less than float32 can hold.
    next_token_loss(model.double(), batch.ids, batch.targets).backward()
    assert model.embedding.weight.grad is not None
    return model.embedding.weight.grad.norm().item()


def judge(evidence: Evidence) -> Finding:
    losses, unigram, depth = (evidence[name] for name in ("losses", "unigram", "depth"))
    ratios = {
        side: [max(d, LEAST) / max(o, LEAST) for o, d in zip(rows[0], rows[-1], strict=True)]
        for side, rows in evidence["gradient"].items()
    }
    share = {side: geometric_mean(values) for side, values in ratios.items()}
    best = {side: mean(values) for side, values in losses.items()}
    learned = {side: mean([unigram - loss for loss in some]) for side, some in losses.items()}
    easy, learns, stuck = learned[EASY], learned["with"], learned["without"]
    normed = share["with, pre-norm"]
    if not easy.low > LEARNED:
        # Where one layer learns nothing, depth is not to blame.
        verdict = Verdict.UNCLEAR
    elif share["without"].high < GONE < share["with"].low and learns.low > LEARNED:
        # It does not vanish, but it may grow instead: then a norm is needed as well.
        if share["with"].high < 1 / GONE:
            verdict = Verdict.HOLDS
        elif share["with"].low > 1 / GONE and GONE < normed.low and normed.high < 1 / GONE:
            verdict = Verdict.HOLDS_WHEN
        else:
            verdict = Verdict.UNCLEAR
    elif share["without"].low > GONE or share["with"].high < GONE or learns.high < LEARNED:
        verdict = Verdict.FAILS
    else:
        verdict = Verdict.UNCLEAR
    deepest = evidence["depths"][-1]
    words = [
        TEXTS["result"].format(
            deepest=deepest, depth=depth, steps=evidence["steps"], share=share, best=best,
            unigram=unigram,
        )
    ]  # fmt: skip
    if stuck.high < LEARNED:
        words.append(TEXTS["frequencies_at_best"])
    elif stuck.low > LEARNED:
        words.append(TEXTS["learns_something"])
    if verdict is Verdict.HOLDS_WHEN:
        words.append(TEXTS["only_with_norm"])
    if not easy.low > LEARNED:
        words.append(TEXTS["one_layer_too"])
    names = {side: TEXTS[f"side.{side}"] for side in (*COLORS, EASY) if side in losses}
    words.append(caution(evidence["rates"], names))
    numbers: Numbers = {
        **{
            f"log10 of the gradient at {deepest} layers over one, {side}": mean(
                [math.log10(value) for value in values]
            )
            for side, values in ratios.items()
        },
        "one layer below character frequencies by": easy,
        **{f"loss, {depth} layers, {side}": value for side, value in best.items()},
        "loss without minus with": difference(losses["without"], losses["with"]),
        "unigram": unigram,
    }
    return Finding(verdict, join_sentences(words), numbers, TEXTS["when"])


def draw(evidence: Evidence, figure: Any, say: Mapping[str, str]) -> None:
    left, right = figure.subplots(1, 2, width_ratios=(1.3, 1))
    depths, losses = evidence["depths"], evidence["losses"]
    for side, color in COLORS.items():
        draw_band(left, depths, evidence["gradient"][side], color, label=say[f"side.{side}"])
    left.set_yscale("log")
    style_axes(left, say["figure.gradient"], x=say["figure.layers"], powers=depths)
    left.legend(fontsize=8, loc="lower left")
    sides = [side for side in COLORS if side in losses]
    for at, side in enumerate(sides):
        draw_bar(right, at, losses[side], COLORS[side], width=0.6)
    draw_chance(right, evidence["unigram"], say["figure.unigram"])
    right.set_xticks(range(len(sides)), [say[f"figure.short.{side}"] for side in sides])
    right.set_ylim(0, 1.15 * evidence["unigram"])
    style_axes(right, say["figure.loss"].format(depth=evidence["depth"], steps=evidence["steps"]))
    right.grid(visible=False, axis="x")


CLAIM = Claim.of(
    16, TEXTS, measure, judge, draw,
    deepest=DEPTHS[-1], gone=GONE, burst=1 / GONE, learned=LEARNED, **SEARCH_WORDS,
)  # fmt: skip
