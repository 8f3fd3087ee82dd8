"""Claim 3: under a causal mask nothing in the future changes an output of the past."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from glasshead.attention.mask import Mask
from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Numbers
from glasshead.lab.claims.drawing import style_axes
from glasshead.lab.claims.models import build_seeded, capture_embeddings, features_under
from glasshead.lab.claims.stats import mean
from glasshead.lab.claims.verdict import Verdict
from glasshead.lab.texts import read_texts
from glasshead.model.gpt import GPT, GPTConfig

__all__ = ["CLAIM", "judge", "measure", "run_unmasked"]

TEXTS = read_texts(__file__)
T, V = 23, 29
POSITIONS = ("none", "learned", "sinusoidal", "rotary", "alibi")
BACKENDS = ("explicit", "sdpa")
# As parts of the change that a token makes where it may be seen. Rounding is 1e-7.
NOTHING = 1e-5
SOMETHING = 1e-3

Forward = Callable[[GPT, Tensor], Tensor]


def run_masked(model: GPT, ids: Tensor) -> Tensor:
    return model(ids)


def run_unmasked(model: GPT, ids: Tensor) -> Tensor:
    return model.logits(features_under(model, ids, Mask()))


def measure(budget: Budget, *, forward: Forward = run_masked) -> Evidence:
    """Replace one token at a time and see which outputs change; `forward` runs the model."""
    texts = 2 if budget.quick else 8
    ahead: dict[str, list[float]] = {}
    control: list[float] = []
    gradients: list[float] = []
    maps: dict[str, list[list[float]]] = {}
    kinds = [(p, b) for p in POSITIONS for b in BACKENDS]
    for n, (positions, backend) in enumerate(kinds):
        for seed in budget.seeds:
            budget.progress(n / len(kinds), f"{positions}, {backend}, seed {seed}")
            model, ids = _case(positions, backend, seed, texts)
            change = _changes(model, ids, forward, seed)  # (T, T)
            ahead.setdefault(f"{positions}, {backend}", []).append(_change_ahead(change))
            if positions == "learned":
                gradients.append(_gradient_ahead(model, ids, forward))
                open_ = _changes(model, ids, run_unmasked, seed)
                control.append(_change_ahead(open_))
                maps = maps or {"mask": change.tolist(), "no mask": open_.tolist()}
    fixed = {"length": T, "texts": texts}
    return {**fixed, "ahead": ahead, "control": control, "gradient ahead": gradients, "maps": maps}


def _change_ahead(change: Tensor) -> float:
    """Return the largest change before the replaced token, over the median change after it."""
    return (change.triu(1).max() / change[torch.ones(T, T).tril().bool()].median()).item()


def _case(positions: str, backend: str, seed: int, texts: int) -> tuple[GPT, Tensor]:
    config = GPTConfig(V, max_len=T, n_layers=3, n_heads=2, d_model=28, positions=positions,
                       backend=backend)  # fmt: skip
    model = build_seeded(seed, lambda: GPT(config)).eval()
    return model, torch.randint(V, (texts, T), generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def _changes(model: GPT, ids: Tensor, forward: Forward, seed: int) -> Tensor:
    """(i, j): the largest change of the logits at i when the token at j is replaced."""
    generator = torch.Generator().manual_seed(seed)
    before = forward(model, ids)
    change = torch.zeros(T, T)
    for j in range(T):
        other = ids.clone()
        other[:, j] = (ids[:, j] + torch.randint(1, V, ids.shape[:1], generator=generator)) % V
        change[:, j] = (forward(model, other) - before).abs().amax((0, 2))
    return change


def _gradient_ahead(model: GPT, ids: Tensor, forward: Forward) -> float:
    """Return the largest gradient of the middle output with respect to a later embedding."""
    with capture_embeddings(model) as embedded:
        logits = forward(model, ids)
    (gradient,) = torch.autograd.grad(logits[:, T // 2].sum(), embedded[0])
    return gradient[:, T // 2 + 1 :].abs().max().item()


def judge(evidence: Evidence) -> Finding:
    kinds = evidence["ahead"]
    largest = max(max(values) for values in kinds.values())
    gradient = max(evidence["gradient ahead"])
    if min(evidence["control"]) < SOMETHING:
        verdict = Verdict.UNCLEAR  # the measurement would not notice a missing mask
    elif largest <= NOTHING and gradient == 0:
        verdict = Verdict.HOLDS
    elif largest > SOMETHING or gradient > 0:
        verdict = Verdict.FAILS
    else:
        verdict = Verdict.UNCLEAR
    control, zero = mean(evidence["control"]), TEXTS["exactly_zero"]
    words = TEXTS["result"].format(
        length=evidence["length"],
        kinds=len(kinds),
        largest=f"{largest:.0e}" if largest else zero,
        gradient=f"{gradient:.0e}" if gradient else zero,
        control=control,
    )
    numbers: Numbers = {
        "largest change ahead, of the change behind": largest,
        "the same without a mask": control,
        "largest gradient ahead": gradient,
    }
    return Finding(verdict, words, numbers)


def draw(evidence: Evidence, figure: Any, say: Mapping[str, str]) -> None:
    import numpy as np

    panels = figure.subplots(1, 2, sharey=True)
    for axes, name in zip(panels, ("mask", "no mask"), strict=True):
        change = np.asarray(evidence["maps"][name])
        shown = np.ma.masked_equal(change / np.median(change[change > 0]), 0)
        image = axes.imshow(shown, cmap="Blues", vmin=0, vmax=2.5, aspect="equal")
        axes.set_facecolor("#efe9dc")
        style_axes(axes, say[f"figure.{name}"], x=say["figure.token"])
        axes.grid(visible=False)
    panels[0].set_ylabel(say["figure.output"])
    if not np.triu(evidence["maps"]["mask"], 1).any():
        panels[0].text(0.95, 0.93, say["figure.zero"], transform=panels[0].transAxes, ha="right",
                       va="top")  # fmt: skip
    figure.colorbar(image, ax=panels, shrink=0.85, label=say["figure.scale"])


CLAIM = Claim.of(3, TEXTS, measure, judge, draw, nothing=NOTHING, something=SOMETHING)
