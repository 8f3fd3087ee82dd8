"""Claim 25: attention sinks form because the weights of softmax must sum to one."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from glasshead.attention.hooks import AttentionCall, AttentionHook
from glasshead.errors import NotFiniteError
from glasshead.lab.attention_maps import gpt_attentions, record_weights
from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Numbers
from glasshead.lab.claims.drawing import AGAINST, FOR, GREY, draw_bar, style_axes
from glasshead.lab.claims.models import build_seeded
from glasshead.lab.claims.search import BURST, RATES, SEARCH_WORDS, caution, compare_at_best_rates
from glasshead.lab.claims.stats import difference, mean, ratio
from glasshead.lab.claims.training import fit, story_text
from glasshead.lab.claims.verdict import Verdict, not_learned
from glasshead.lab.texts import Words, join_sentences, read_texts
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.observe.hooks import attach_hooks
from glasshead.text.batches import TextBatches

__all__ = ["CLAIM", "FreeSink", "judge", "measure"]

TEXTS = read_texts(__file__)
# Fixed on 2026-11-19, before the first run. A sink: late words give the first, which says nothing,
# this much of their weight on average over all heads; equal weights would give it about 4 %.
SINK = 0.2
HALF = 0.5  # with a free sink the first word gets at most this part of it ...
MOST = 0.8  # ... and if it still gets more than this, the sum is not the reason
LEARNED = 0.5  # nats below character frequencies
BLOCK, BATCH = 32, 16
MODEL: dict[str, Any] = {"n_layers": 3, "n_heads": 4, "d_model": 48, "positions": "rotary"}
SIDES = {"plain": AGAINST, "free": FOR}


class FreeSink(AttentionHook):
    """Lets weight go nowhere: as if there were a key with score 0 and value 0.

    Weights then sum to Z / (1 + Z), with Z the sum of the exponentials of the scores.
    """

    def after(self, call: AttentionCall, context: Tensor) -> Tensor:
        return context * _given(call)[..., None]


def _given(call: AttentionCall) -> Tensor:
    """(B, H, T) the part of the weight that goes to words."""
    scores = call.q @ call.k.mT * call.q.shape[-1] ** -0.5
    T = scores.shape[-1]
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, -torch.inf).logsumexp(-1).sigmoid()


class _GivenHook(AttentionHook):
    """Notes the part of the weight that goes to words."""

    def __init__(self, found: list[Tensor]) -> None:
        self.found = found

    def after(self, call: AttentionCall, context: Tensor) -> Tensor:
        self.found.append(_given(call))
        return context


@contextmanager
def no_hook(model: GPT) -> Iterator[None]:
    yield


@contextmanager
def free_sink(model: GPT) -> Iterator[None]:
    """Give every head of the model a free sink inside the `with`."""
    with attach_hooks({layer: FreeSink() for layer in gpt_attentions(model)}):
        yield


Free = Callable[[GPT], Any]


def measure(
    budget: Budget,
    *,
    free: Free = free_sink,
    steps: int | None = None,
    rates: Sequence[float] = RATES,
) -> Evidence:
    """`free`: what is attached to the models of the second side."""
    steps = steps or (200 if budget.quick else 400)
    ways = {"plain": no_hook, "free": free}
    start = story_text().tokenizer.vocab_size  # the id of the word that begins each window

    def run(side: str, lr: float, seed: int) -> dict[str, float]:
        config = GPTConfig(start + 1, max_len=BLOCK + 1, **MODEL)
        model = build_seeded(seed, lambda: GPT(config))
        with ways[side](model):
            return _train(model, side == "free", lr, seed, steps, start)

    failed = {"loss": BURST, "first": 0.0, "most": 0.0, "given": 1.0}
    found = compare_at_best_rates(
        budget, tuple(ways), run, lambda result: result["loss"], rates, failed=failed
    )
    counts = torch.bincount(torch.from_numpy(story_text().corpus.training).long()) + 1.0
    held = torch.from_numpy(story_text().corpus.validation).long()
    return {
        "steps": steps,
        "length": BLOCK,
        "rates": {side: one.evidence() for side, one in found.items()},
        "unigram": -(counts / counts.sum()).log()[held].mean().item(),
    } | {
        name: {side: [result[name] for result in one.results] for side, one in found.items()}
        for name in failed
    }


def _train(
    model: GPT, is_free: bool, lr: float, seed: int, steps: int, start: int
) -> dict[str, float]:
    training, held = (
        TextBatches(ids, batch_size=BATCH, block=BLOCK, seed=seed)
        for ids in (story_text().corpus.training, story_text().corpus.validation)
    )

    def loss_of(ids: Tensor, targets: Tensor) -> Tensor:
        """The loss after a first word that is always the same."""
        begun = F.pad(ids, (1, 0), value=start)
        return F.cross_entropy(model(begun)[:, 1:].transpose(1, 2), targets)

    def loss(step: int) -> Tensor:
        batch = training.at(step)
        return loss_of(batch.ids, batch.targets)

    fit(model, loss, lr=lr, steps=steps)
    model.eval()
    layers = gpt_attentions(model)
    given: list[Tensor] = []
    with (
        torch.no_grad(),
        attach_hooks({layer: _GivenHook(given) for layer in layers}),
        record_weights(layers) as maps,
    ):
        batches = held.evenly_spaced(4)
        value = torch.stack([loss_of(batch.ids, batch.targets) for batch in batches]).mean().item()
    if not value < BURST:
        raise NotFiniteError(f"the loss is {value}", hint="a smaller lr")
    late = slice(BLOCK // 2, None)
    parts = torch.stack(
        [weights[:, :, late, 0] * (part[:, :, late] if is_free else 1.0)
         for weights, part in zip(maps, given, strict=True)]
    )  # fmt: skip
    n = len(layers)
    by_head = parts.unflatten(0, (-1, n)).mean((0, 2, 4))  # (L, H)
    total = torch.stack(given)[..., late].mean().item() if is_free else 1.0
    return {
        "loss": value, "first": by_head.mean().item(), "most": by_head.max().item(), "given": total
    }  # fmt: skip


def judge(evidence: Evidence) -> Finding:
    first, losses = evidence["first"], evidence["loss"]
    means = {side: mean(values) for side, values in first.items()}
    most = {side: mean(values) for side, values in evidence["most"].items()}
    given = mean(evidence["given"]["free"])
    below = {
        side: mean([evidence["unigram"] - loss for loss in some]) for side, some in losses.items()
    }
    left = ratio(first["free"], first["plain"])
    why = Words("", "")
    behind = [side for side in SIDES if not below[side].low > LEARNED]
    if behind:
        verdict, why = Verdict.UNCLEAR, not_learned(TEXTS[f"side.{behind[0]}"])
    elif means["plain"].low < SINK:
        verdict, why = Verdict.UNCLEAR, TEXTS["no_sink"]
    elif left.high < HALF:
        verdict = Verdict.HOLDS
    else:
        verdict = Verdict.FAILS if left.low > MOST else Verdict.UNCLEAR
    worse = difference(losses["free"], losses["plain"])
    words = [
        TEXTS["result"].format(
            steps=evidence["steps"], first=means, most=most, left=left, given=given, worse=worse,
            equal=2 / (1.5 * evidence["length"]),
        )
    ]  # fmt: skip
    if verdict is Verdict.UNCLEAR and not behind and means["plain"].low < SINK:
        words.append(TEXTS["no_sink_formed"].format(sink=SINK))
    words.append(caution(evidence["rates"], {side: TEXTS[f"side.{side}"] for side in SIDES}))
    numbers: Numbers = {
        **{f"weight on the first word, {side}": value for side, value in means.items()},
        **{f"the same, head with most, {side}": value for side, value in most.items()},
        "first word, free over plain": left,
        "weight that goes to words, free": given,
        "loss, free minus plain": worse,
        **{f"below character frequencies by, {side}": value for side, value in below.items()},
    }
    return Finding(verdict, join_sentences(words), numbers, why=why)


def draw(evidence: Evidence, figure: Any, say: Mapping[str, str]) -> None:
    left, right = figure.subplots(1, 2)
    for at, (side, color) in enumerate(SIDES.items()):
        draw_bar(left, at - 0.18, evidence["first"][side], color, width=0.32)
        draw_bar(left, at + 0.18, evidence["most"][side], GREY, width=0.32)
        draw_bar(right, at, evidence["loss"][side], color, text="{:.3f}")
    left.axhline(SINK, color="#333333", linewidth=0.8, linestyle=":")
    left.set_ylim(0, 1.1)
    for axes in (left, right):
        axes.set_xticks(range(2), [say[f"figure.{side}"] for side in SIDES])
    style_axes(left, say["figure.first"])
    style_axes(right, say["figure.loss"])


CLAIM = Claim.of(
    25, TEXTS, measure, judge, draw,
    sink=SINK, half=HALF, most=MOST, learned=LEARNED, block=BLOCK, **SEARCH_WORDS,
)  # fmt: skip
