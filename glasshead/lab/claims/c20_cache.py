"""Claim 20: a KV cache changes nothing but the time."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from glasshead.attention.cache import Cache
from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Numbers
from glasshead.lab.claims.drawing import AGAINST, FOR, OTHER, draw_band, draw_bar, style_axes
from glasshead.lab.claims.stats import mean, ratio
from glasshead.lab.claims.story_models import StoryPlan, train_story_models, unseen_windows
from glasshead.lab.claims.verdict import Verdict
from glasshead.lab.texts import join_sentences, read_texts
from glasshead.model.gpt import GPT

__all__ = ["CLAIM", "judge", "measure"]

TEXTS = read_texts(__file__)
# Fixed on 2026-11-19, before the first run.
ROUNDING = 1e-5  # of the largest logit: float32 sums in another order
FASTER = 1.5  # the time must differ, or there is no use in a cache
PROMPTS, PROMPT = 32, 8
LENGTHS = (16, 64, 256)  # that are written
KINDS = ("float32", "bfloat16")

Caches = Callable[[GPT], Sequence[Cache]]


def empty_caches(model: GPT) -> Sequence[Cache]:
    return model.new_caches()


def measure(
    budget: Budget,
    *,
    caches: Caches = empty_caches,
    plan: StoryPlan | None = None,
    lengths: tuple[int, ...] | None = None,
) -> Evidence:
    """`caches`: what keeps the past for the next token."""
    plan = plan or StoryPlan.of(budget)
    lengths = lengths or (LENGTHS[:2] if budget.quick else LENGTHS)
    trained = train_story_models(budget, plan)
    prompts = unseen_windows(PROMPTS, PROMPT)[:, :PROMPT]
    found: dict[str, Any] = {kind: {name: [] for name in ("differ", "apart")} for kind in KINDS}
    seconds: dict[str, list[list[float]]] = {"cached": [], "again": []}
    for n, model in enumerate(trained.models):
        budget.progress(0.8 + 0.2 * n / len(trained.models), f"seed {budget.seeds[n]}")
        for kind in KINDS:
            copy = _in_type(model, getattr(torch, kind))
            longest = max(lengths) if kind == "float32" else min(64, max(lengths))
            with_cache, _ = _continue_texts(copy, prompts, longest, caches)
            without, _ = _continue_texts(copy, prompts, longest, None)
            differ = (with_cache != without).any(1).float().mean().item()
            found[kind]["differ"].append(differ)
            found[kind]["apart"].append(_apart(copy, without, caches))
        times = [
            [_continue_texts(model, prompts[:1], length, which)[1] for length in lengths]
            for which in (caches, None)
        ]
        for side, values in zip(seconds, times, strict=True):
            seconds[side].append(values)
    return {
        **trained.evidence(),
        "prompts": PROMPTS,
        "lengths": list(lengths),
        "kinds": found,
        "seconds": seconds,
    }


def _in_type(model: GPT, dtype: torch.dtype) -> GPT:
    copy = GPT(model.config)
    copy.load_state_dict(model.state_dict())
    return copy.to(dtype).eval()


@torch.no_grad()
def _continue_texts(
    model: GPT, prompts: Tensor, length: int, make: Caches | None
) -> tuple[Tensor, float]:
    """Write the likeliest tokens; return them and the processor time."""
    start = time.process_time()
    ids, caches = prompts, make(model) if make else None
    new = prompts
    for _ in range(length):
        logits = model(new, caches=caches) if caches else model(ids)
        new = logits[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, new], 1)
    return ids[:, prompts.shape[1] :], time.process_time() - start


@torch.no_grad()
def _apart(model: GPT, written: Tensor, make: Caches) -> float:
    """Return how far the logits of one text are from those of the same text, token by token."""
    whole, caches = model(written), make(model)
    parts = [model(written[:, t : t + 1], caches=caches) for t in range(written.shape[1])]
    return ((torch.cat(parts, 1) - whole).abs().max() / whole.abs().max()).item()


def judge(evidence: Evidence) -> Finding:
    kinds = {
        kind: {name: mean(values) for name, values in some.items()}
        for kind, some in evidence["kinds"].items()
    }
    cached, again = (
        [seed[-1] for seed in evidence["seconds"][side]] for side in ("cached", "again")
    )
    faster = ratio(again, cached)
    same = {kind: some["differ"].high == 0 for kind, some in kinds.items()}
    exact = same["float32"] and kinds["float32"]["apart"].high <= ROUNDING
    if not exact or faster.high < FASTER:
        verdict = Verdict.FAILS
    elif faster.low < FASTER:
        verdict = Verdict.UNCLEAR
    else:
        verdict = Verdict.HOLDS if same["bfloat16"] else Verdict.HOLDS_WHEN
    words = [TEXTS["only_when"]] if verdict is Verdict.HOLDS_WHEN else []
    words.append(
        TEXTS["result"].format(
            prompts=evidence["prompts"], longest=evidence["lengths"][-1], kinds=kinds, faster=faster
        )
    )
    numbers: Numbers = {
        **{f"texts that differ, {kind}": some["differ"] for kind, some in kinds.items()},
        **{f"logits apart, {kind}": some["apart"] for kind, some in kinds.items()},
        **{
            f"processor time without over with, {length} tokens": ratio(
                *([seed[at] for seed in evidence["seconds"][s]] for s in ("again", "cached"))
            )
            for at, length in enumerate(evidence["lengths"])
        },
    }
    return Finding(verdict, join_sentences(words), numbers, TEXTS["when"])


def draw(evidence: Evidence, figure: Any, say: Mapping[str, str]) -> None:
    left, right = figure.subplots(1, 2)
    for at, (kind, color) in enumerate((("float32", FOR), ("bfloat16", OTHER))):
        draw_bar(left, at, evidence["kinds"][kind]["differ"], color, text="{:.0%}")
    left.set_xticks(range(2), KINDS)
    left.set_ylim(0, 1.1)
    style_axes(left, say["figure.differ"])
    for side, color in (("cached", FOR), ("again", AGAINST)):
        seeds = list(zip(*evidence["seconds"][side], strict=True))
        draw_band(right, evidence["lengths"], seeds, color, label=say[f"figure.{side}"])
    right.set_yscale("log")
    style_axes(right, say["figure.seconds"], x=say["figure.written"], powers=evidence["lengths"])
    right.legend(fontsize=8.5, loc="upper left")


CLAIM = Claim.of(
    20, TEXTS, measure, judge, draw,
    prompts=PROMPTS, rounding=ROUNDING, faster=FASTER, longest=LENGTHS[-1],
)  # fmt: skip
