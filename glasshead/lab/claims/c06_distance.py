"""Claim 6: attention reaches any distance in one step, where a recurrent network forgets."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Numbers
from glasshead.lab.claims.drawing import AGAINST, FOR, OTHER, draw_band, draw_chance, style_axes
from glasshead.lab.claims.models import (
    LSTMReader,
    build_seeded,
    capture_embeddings,
    count_parameters,
    match_parameters,
)
from glasshead.lab.claims.search import RATES, SEARCH_WORDS, caution, compare_at_best_rates
from glasshead.lab.claims.stats import difference, geometric_mean, longest_run, mean
from glasshead.lab.claims.training import Plateau, fit, run_parts
from glasshead.lab.claims.verdict import POSITIVE, Verdict, not_learned
from glasshead.lab.texts import Words, join_sentences, join_words, read_texts
from glasshead.model.gpt import GPT, GPTConfig

__all__ = ["CLAIM", "judge", "measure"]

TEXTS = read_texts(__file__)
SYMBOLS = NOISE = 8  # to be named, and to be ignored
ASK = SYMBOLS + NOISE  # the token that asks
CHANCE_LEVEL = 1 / SYMBOLS
B = 32
# A fifth of the questions: more than rounding, and what a reader would call a difference.
APART = 0.2
# Nine answers in ten: the symbol is remembered.
LEARNED = 0.9
# A gradient a thousand times smaller far away than near is lost in the noise of a batch.
GONE = 1e-3
REACH = 64  # positions over which the gradient is measured
LEAST = 1e-30  # smaller gradients than float32 can hold count as this
PLATEAU = Plateau()  # where a training ends that does not learn, if it has steps left

SIDES = {"attention": FOR, "lstm": AGAINST, "open lstm": OTHER}


def measure(
    budget: Budget,
    *,
    distances: tuple[int, ...] | None = None,
    steps: int | None = None,
    window: int | None = None,
    rates: Sequence[float] = RATES,
) -> Evidence:
    """`window`: how far back attention may see; None is everything, as in the claim."""
    distances = distances or ((4, 16, 64) if budget.quick else (4, 8, 16, 32, 64, 96))
    steps = steps or (400 if budget.quick else 3000)
    longest = max(*distances, REACH)
    makers = _makers(longest + 1, window)
    items = [(distance, longest, window, steps, rates) for distance in distances]
    # Long sequences take longer.
    found = run_parts(budget, _learn_distance, items, distances)
    rates_tried = [{side: one.evidence() for side, one in some.items()} for some in found]
    return {
        "parameters": {side: count_parameters(make(0)) for side, make in makers.items()},
        "distances": list(distances),
        "steps": steps,
        "batch": B,
        "chance": CHANCE_LEVEL,
        "accuracy": {s: [[right for _, right in one[s].results] for one in found] for s in SIDES},
        "steps to learn": {s: [[n for n, _ in one[s].results] for one in found] for s in SIDES},
        "rates": dict(zip(map(str, distances), rates_tried, strict=True)),
        "reach": list(range(REACH)),
        "gradient": {s: [_gradient(make(seed), seed) for seed in budget.seeds]
                     for s, make in makers.items()},
    }  # fmt: skip


def _learn_distance(
    budget: Budget,
    distance: int,
    longest: int,
    window: int | None,
    steps: int,
    rates: Sequence[float],
) -> dict[str, Any]:
    """Train all sides on one distance: the steps taken and the accuracy."""
    makers = _makers(longest + 1, window)
    return compare_at_best_rates(
        budget,
        tuple(SIDES),
        lambda side, lr, seed: _learn(makers[side], distance, lr, seed, steps),
        # A side that learns sooner is better; of those that do not learn, the more accurate one.
        lambda result: (result[0] - result[1]) / steps,
        rates,
        failed=(steps, 0.0),
    )


def _makers(max_len: int, window: int | None) -> dict[str, Callable[[int], nn.Module]]:
    """Return what builds the model of each side from a seed."""
    V = ASK + 1
    config = GPTConfig(V, max_len, n_layers=1, n_heads=2, d_model=32, d_ff=64,
                       positions="sinusoidal", window=window)  # fmt: skip
    parameters = count_parameters(GPT(config))

    def lstm(forget: float) -> nn.Module:
        return match_parameters(lambda width: LSTMReader(V, width, forget), parameters)

    return {
        "attention": lambda seed: build_seeded(seed, lambda: GPT(config)),
        "lstm": lambda seed: build_seeded(seed, lambda: lstm(1.0)),
        # exp(-1) of the state is left after max_len steps: this LSTM starts out remembering.
        "open lstm": lambda seed: build_seeded(seed, lambda: lstm(math.log(max_len))),
    }


def _questions(distance: int, rows: int, seed: int, step: int) -> tuple[Tensor, Tensor]:
    """Return a symbol, noise and the token that asks which symbol it was; and the symbols."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    ids = torch.randint(SYMBOLS, ASK, (rows, distance + 1), generator=generator)
    symbols = torch.randint(SYMBOLS, (rows,), generator=generator)
    ids[:, 0], ids[:, -1] = symbols, ASK
    return ids, symbols


def _learn(
    make: Callable[[int], nn.Module], distance: int, lr: float, seed: int, steps: int
) -> tuple[int, float]:
    """Train until 95 % of the last twenty batches are right, or until the loss no longer falls;
    return the steps and the accuracy."""
    model = make(seed)
    right: list[float] = []
    losses: list[float] = []

    def loss(step: int) -> Tensor:
        ids, symbols = _questions(distance, B, seed, step)
        logits = model(ids)[:, -1]
        right.append((logits.argmax(-1) == symbols).float().mean().item())
        value = F.cross_entropy(logits, symbols)
        losses.append(value.item())
        return value

    def done(step: int) -> bool:
        return (step > 20 and sum(right[-20:]) >= 19) or PLATEAU.reached(losses)

    taken = fit(model, loss, lr=lr, steps=steps, done=done)
    with torch.no_grad():
        ids, symbols = _questions(distance, 512, seed, 10**6)
        return taken, (model(ids)[:, -1].argmax(-1) == symbols).float().mean().item()


def _gradient(model: nn.Module, seed: int) -> list[float]:
    """Return the gradient of the last output with respect to each input, nearest first."""
    ids, symbols = _questions(REACH - 1, B, seed, 0)
    with capture_embeddings(model) as embedded:
        F.cross_entropy(model(ids)[:, -1], symbols).backward()
    assert embedded[0].grad is not None
    norms: list[float] = embedded[0].grad.norm(dim=-1).mean(0).flip(0).tolist()
    return norms


def judge(evidence: Evidence) -> Finding:
    distances, accuracy, chance = (evidence[name] for name in ("distances", "accuracy", "chance"))
    far, near = ({side: mean(accuracy[side][at]) for side in SIDES} for at in (-1, 0))
    learned = {side: near[side].low > LEARNED for side in SIDES}
    apart = {
        side: difference(accuracy["attention"][-1], accuracy[side][-1])
        for side in ("lstm", "open lstm")
    }
    ratios = {
        side: [max(row[-1], LEAST) / max(row[1], LEAST) for row in rows]
        for side, rows in evidence["gradient"].items()
    }
    share = {side: geometric_mean(values) for side, values in ratios.items()}
    flat, fades = share["attention"].low > GONE, share["attention"].high < GONE
    carries = flat and far["attention"].low > chance + APART
    both_learned = learned["attention"] and learned["lstm"]
    if not both_learned:
        # A side that fails nearby has not forgotten: it has not learned.
        verdict = Verdict.UNCLEAR
    elif carries and learned["open lstm"] and all(one.low > APART for one in apart.values()):
        verdict = Verdict.HOLDS
    elif carries and apart["lstm"].low > APART:
        verdict = Verdict.HOLDS_WHEN
    elif apart["lstm"].high < APART or fades:
        verdict = Verdict.FAILS
    else:
        verdict = Verdict.UNCLEAR
    reached = {
        side: longest_run(distances, [mean(values).value > LEARNED for values in accuracy[side]])
        for side in SIDES
    }
    first, last = distances[0], distances[-1]
    can = TEXTS["all_can" if all(learned.values()) else "each_is"]
    each = join_words(f"{near[side]:.0%}" for side in SIDES)
    nearby = TEXTS["nearby"].format(first=first, can=can, each=each)
    words = [
        TEXTS["result"].format(
            steps=evidence["steps"], last=last, far=far, chance=chance, nearby=nearby,
            reached=reached, reach=REACH - 1, share=share,
        )
    ]  # fmt: skip
    if verdict is Verdict.HOLDS_WHEN:
        words.append(TEXTS["only_against"])
    if not both_learned:
        words.append(TEXTS["not_learned"].format(first=first))
    names = {
        side: TEXTS["side_at_distance"].format(name=TEXTS[f"side.{side}"], last=last)
        for side in SIDES
    }
    words.append(caution(evidence["rates"][str(last)], names))
    numbers: Numbers = {
        f"attention, {last} apart": far["attention"],
        f"LSTM, {last} apart": far["lstm"],
        f"LSTM with open gates, {last} apart": far["open lstm"],
        "attention minus LSTM": apart["lstm"],
        "attention minus LSTM with open gates": apart["open lstm"],
        **{
            f"log10 of the gradient far over near, {side}": mean([math.log10(x) for x in values])
            for side, values in ratios.items()
        },
        **{f"{side}, {first} apart": value for side, value in near.items()},
    }
    why, missed = Words("", ""), _missed_rates(accuracy)
    if missed and verdict in POSITIVE:
        verdict, why = Verdict.UNCLEAR, TEXTS["missed"].format(side=TEXTS[f"side.{missed[0]}"])
    if not both_learned:
        behind = next(side for side in ("attention", "lstm") if not learned[side])
        why = not_learned(TEXTS[f"side.{behind}"])
    return Finding(verdict, join_sentences(words), numbers, TEXTS["when"], why)


def _missed_rates(accuracy: Mapping[str, Sequence[Sequence[float]]]) -> list[str]:
    """Return the LSTMs that are right more often at a longer distance than at a shorter one.

    What is learned at the longer one could be learned at the shorter: its rate was a bad one.
    """
    found = []
    for side in ("lstm", "open lstm"):
        means = [fmean(values) for values in accuracy[side]]
        if any(later - means[at] > APART for at in range(len(means)) for later in means[at:]):
            found.append(side)
    return found


def draw(evidence: Evidence, figure: Any, say: Mapping[str, str]) -> None:
    left, right = figure.subplots(1, 2)
    distances = evidence["distances"]
    for side, color in SIDES.items():
        label = say[f"side.{side}"]
        draw_band(left, distances, evidence["accuracy"][side], color, label=label)
        seeds = list(zip(*evidence["gradient"][side], strict=True))[1:]
        # What float32 cannot hold any more is drawn at its edge.
        shown = [[max(value, LEAST) for value in values] for values in seeds]
        draw_band(right, evidence["reach"][1:], shown, color, label=label, marker="")
    draw_chance(left, evidence["chance"], say["figure.chance"], distances[0])
    left.set_ylim(-0.02, 1.05)
    right.set_yscale("log")
    style_axes(left, say["figure.accuracy"], x=say["figure.distance"], powers=distances)
    style_axes(right, say["figure.gradient"], x=say["figure.before"])
    left.legend(fontsize=8.5, loc="center left")


CLAIM = Claim.of(
    6, TEXTS, measure, judge, draw,
    apart=APART, learned=LEARNED, gone=GONE, plateau=PLATEAU, **SEARCH_WORDS,
)  # fmt: skip
