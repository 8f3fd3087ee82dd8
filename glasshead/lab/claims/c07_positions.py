"""Claim 7: without positions attention cannot tell the order of its input."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from glasshead.attention.mask import Mask
from glasshead.errors import NotFiniteError
from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding
from glasshead.lab.claims.drawing import AGAINST, FOR, OTHER, draw_bar, draw_chance, style_axes
from glasshead.lab.claims.models import build_seeded, features_under
from glasshead.lab.claims.search import BURST, RATES, SEARCH_WORDS, caution, compare_at_best_rates
from glasshead.lab.claims.stats import difference, mean
from glasshead.lab.claims.training import fit
from glasshead.lab.claims.verdict import Verdict
from glasshead.lab.texts import join_sentences, read_texts
from glasshead.model.gpt import GPT, GPTConfig

__all__ = ["CLAIM", "judge", "measure"]

TEXTS = read_texts(__file__)
T, V, BATCH = 12, 11, 64
ROUNDING, MOVED = 1e-5, 1e-3  # of the largest output: the same, not the same
GUESSING, LEARNED = 0.6, 0.9  # accuracies; chance is 0.5

CAUSAL = Mask(causal=True)
SIDES = {"bare": AGAINST, "positions": FOR, "causal": OTHER}


class PositionsOutcome(NamedTuple):
    loss: float  # mean over the last tenth of the steps
    right: float  # accuracy, trained
    untrained: float  # accuracy before
    moved: float  # what shuffling does beyond shuffling, untrained


def measure(
    budget: Budget,
    *,
    bare: str = "none",
    mask: Mask = CAUSAL,
    steps: int | None = None,
    rates: Sequence[float] = RATES,
) -> Evidence:
    """`bare`: positions of the models that should have none; `mask`: that of the third model."""
    steps = steps or (150 if budget.quick else 400)
    ways = {"bare": (bare, Mask()), "positions": ("learned", Mask()), "causal": (bare, mask)}
    found = compare_at_best_rates(
        budget,
        tuple(ways),
        lambda way, lr, seed: _learn_order(*ways[way], lr, seed, steps),
        lambda outcome: outcome.loss,
        rates,
    )
    return {
        "length": T,
        "steps": steps,
        "rates": {side: one.evidence() for side, one in found.items()},
    } | {
        name: {way: [getattr(one, name) for one in side.results] for way, side in found.items()}
        for name in ("moved", "right", "untrained")
    }


def _learn_order(positions: str, mask: Mask, lr: float, seed: int, steps: int) -> PositionsOutcome:
    """Train a model to say which of two tokens came first."""
    config = GPTConfig(V, max_len=T, n_layers=2, n_heads=2, d_model=32, positions=positions)
    model = build_seeded(seed, lambda: GPT(config))
    moved, untrained = _equivariance(model, mask, seed), _accuracy(model, mask, seed)
    generator, losses = torch.Generator().manual_seed(seed), list[float]()

    def loss(_step: int) -> Tensor:
        ids, first = _sequences(BATCH, generator)
        value = F.cross_entropy(_answer(model, ids, mask), first)
        losses.append(value.item())
        return value

    try:
        fit(model, loss, lr=lr, steps=steps)
    except NotFiniteError:  # a model that diverged can only guess
        return PositionsOutcome(BURST, 0.5, untrained, moved)
    last = losses[-max(1, steps // 10) :]
    return PositionsOutcome(sum(last) / len(last), _accuracy(model, mask, seed), untrained, moved)


def _sequences(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return random tokens, among them one 0 and one 1, and which of the two comes first."""
    ids = torch.randint(2, V, (n, T), generator=generator)
    places = torch.rand(n, T, generator=generator).argsort(1)[:, :2]
    ids.scatter_(1, places, torch.tensor([0, 1]).expand(n, 2))
    return ids, (places[:, 0] > places[:, 1]).long()


def _answer(model: GPT, ids: Tensor, mask: Mask) -> Tensor:
    return model.logits(features_under(model, ids, mask).mean(1))[:, :2]  # (B, 2)


@torch.no_grad()
def _accuracy(model: GPT, mask: Mask, seed: int) -> float:
    ids, first = _sequences(2000, torch.Generator().manual_seed(10_000 + seed))
    return (_answer(model.eval(), ids, mask).argmax(-1) == first).float().mean().item()


@torch.no_grad()
def _equivariance(model: GPT, mask: Mask, seed: int) -> float:
    """Return how far outputs of shuffled words are from shuffled outputs, over the largest one."""
    generator = torch.Generator().manual_seed(seed)
    ids, _ = _sequences(16, generator)
    order = torch.randperm(T, generator=generator)
    out = features_under(model.eval(), ids, mask)
    shuffled = features_under(model, ids[:, order], mask)
    return ((shuffled - out[:, order]).abs().max() / out.abs().max()).item()


def judge(evidence: Evidence) -> Finding:
    moved = {way: max(values) for way, values in evidence["moved"].items()}
    right = {way: mean(values) for way, values in evidence["right"].items()}
    blind = moved["bare"] <= ROUNDING and right["bare"].high <= GUESSING
    if moved["bare"] > MOVED or right["bare"].low > GUESSING:
        verdict = Verdict.FAILS
    elif not blind or right["positions"].low < LEARNED:
        verdict = Verdict.UNCLEAR
    elif right["causal"].high <= GUESSING:
        verdict = Verdict.HOLDS
    elif right["causal"].low >= LEARNED:
        verdict = Verdict.HOLDS_WHEN
    else:
        verdict = Verdict.UNCLEAR
    words = [TEXTS["only_when"]] if verdict is Verdict.HOLDS_WHEN else []
    words.append(TEXTS["result"].format(moved=moved, right=right))
    words.append(caution(evidence["rates"], {way: TEXTS[f"side.{way}"] for way in SIDES}))
    gap = difference(evidence["right"]["positions"], evidence["right"]["bare"])
    numbers = {
        "accuracy, no positions": right["bare"],
        "accuracy, learned positions": right["positions"],
        "accuracy, no positions, causal mask": right["causal"],
        "accuracy gained by positions": gap,
        "shuffled outputs, no positions": moved["bare"],
        "shuffled outputs, learned positions": moved["positions"],
        "shuffled outputs, no positions, causal mask": moved["causal"],
    }
    return Finding(verdict, join_sentences(words), numbers, TEXTS["when"])


def draw(evidence: Evidence, figure: Any, say: Mapping[str, str]) -> None:
    left, right = figure.subplots(1, 2)
    for at, (way, color) in enumerate(SIDES.items()):
        draw_bar(left, at, evidence["right"][way], color, text="{:.1%}")
        untrained = mean(evidence["untrained"][way]).value
        left.plot([at - 0.27, at + 0.27], [untrained] * 2, color="#333333", linewidth=1,
                  linestyle=":")  # fmt: skip
        right.bar(at, max(evidence["moved"][way]), 0.55, color=color)
    draw_chance(left, 0.5)
    left.set_ylim(0, 1.12)
    right.set_yscale("log")
    right.set_ylim(1e-8, 10)
    style_axes(left, say["figure.right"], y=say["figure.controls"])
    style_axes(right, say["figure.moved"], y=say["figure.of_largest"])
    names = [say[f"side.{way}"].replace(", ", ",\n").replace("，", "，\n") for way in SIDES]
    for axes in (left, right):
        axes.set_xticks(range(3), names, fontsize=8.5)
        axes.grid(axis="x", visible=False)


CLAIM = Claim.of(
    7, TEXTS, measure, judge, draw,
    length=T, rounding=ROUNDING, moved=MOVED, guessing=GUESSING, learned=LEARNED, **SEARCH_WORDS,
)  # fmt: skip
