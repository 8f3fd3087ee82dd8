"""Claim 19: dropout is off at inference."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from glasshead.generation.decode import generate
from glasshead.generation.sampling import GREEDY
from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Numbers
from glasshead.lab.claims.drawing import AGAINST, FOR, draw_bar, style_axes
from glasshead.lab.claims.stats import cohens_d, difference, mean
from glasshead.lab.claims.training import fit, loss_on
from glasshead.lab.claims.verdict import Verdict
from glasshead.lab.texts import join_sentences, read_texts
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.model.loss import next_token_loss
from glasshead.text.batches import Batch, TextBatches
from glasshead.text.corpus import split_by_position
from glasshead.text.tinyworld import corpus
from glasshead.text.tokenizer import CharTokenizer

__all__ = ["CLAIM", "judge", "measure"]

TEXTS = read_texts(__file__)
BLOCK, BATCH, DROPOUT, LR = 32, 32, 0.2, 3e-3
PROMPTS, PROMPT, WRITTEN = 16, 8, 24
SWAYED = 0.05  # of the texts: at least so many differ where dropout is on

Switch = Callable[[GPT], object]
Decode = Callable[[GPT, list[list[int]]], list[list[int]]]


def leave_as_trained(model: GPT) -> None:
    pass


def decode_by_package(model: GPT, prompts: list[list[int]]) -> list[list[int]]:
    steps = list(generate(model, prompts, GREEDY, max_tokens=WRITTEN))
    return [[-1 if token is None else token for token in row] for row in zip(*steps, strict=True)]


@torch.no_grad()
def decode_plainly(model: GPT, prompts: list[list[int]]) -> list[list[int]]:
    """Write the likeliest token again and again, as the original loop: without a call of eval()."""
    ids = torch.tensor(prompts)
    for _ in range(WRITTEN):
        new = model(ids[:, -BLOCK:])[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, new], 1)
    return ids[:, PROMPT:].tolist()


def measure(
    budget: Budget,
    *,
    off: Switch = GPT.eval,
    left: Switch = leave_as_trained,
    decode: Decode = decode_by_package,
    dropout: float = DROPOUT,
    steps: int | None = None,
) -> Evidence:
    """`off` turns dropout off, `left` is what training does last, `decode` writes texts."""
    steps = steps or (200 if budget.quick else 1000)
    text = "\n".join(corpus(1000 if budget.quick else 4000, "zh"))
    tokenizer = CharTokenizer.train(text)
    parts = split_by_position(tokenizer.encode_ids(text))
    differ: dict[str, list[float]] = {"on": [], "left": [], "off": [], "ours": []}
    losses: dict[str, list[float]] = {"on": [], "off": []}
    for n, seed in enumerate(budget.seeds):
        budget.progress(n / len(budget.seeds), f"seed {seed}")
        train, val = (TextBatches(p, batch_size=BATCH, block=BLOCK, seed=seed) for p in parts)
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            config = GPTConfig(tokenizer.vocab_size, max_len=BLOCK, n_layers=2, n_heads=4,
                               d_model=48, dropout=dropout)  # fmt: skip
            model = GPT(config)
            fit(model, loss_on(model, train), lr=LR, steps=steps)
        held = val.evenly_spaced(20)
        prompts = held[0].ids[:PROMPTS, :PROMPT].tolist()
        left(model)
        differ["left"].append(_share_different(model, decode_plainly, prompts))
        model.train()
        differ["ours"].append(_share_different(model, decode, prompts))
        model.train()
        differ["on"].append(_share_different(model, decode_plainly, prompts))
        losses["on"].append(_loss(model, held, seed))
        off(model)
        differ["off"].append(_share_different(model, decode_plainly, prompts))
        losses["off"].append(_loss(model, held, seed))
    fixed = {"dropout": dropout, "steps": steps, "prompts": PROMPTS, "written": WRITTEN}
    return fixed | {"differ": differ, "losses": losses}


def _share_different(model: GPT, decode: Decode, prompts: list[list[int]]) -> float:
    """Continue the texts twice; return the share that comes out differently."""
    written = []
    for seed in (1, 2):
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            written.append(decode(model, prompts))
    pairs = list(zip(*written, strict=True))
    return sum(a != b for a, b in pairs) / len(pairs)


@torch.no_grad()
def _loss(model: GPT, batches: Sequence[Batch], seed: int) -> float:
    """Return nats per character, in whatever mode the model is."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        losses = [next_token_loss(model, batch.ids, batch.targets) for batch in batches]
    return torch.stack(losses).mean().item()


def judge(evidence: Evidence) -> Finding:
    differ = {state: mean(values) for state, values in evidence["differ"].items()}
    cost = difference(evidence["losses"]["on"], evidence["losses"]["off"])
    if differ["off"].high > 0:
        verdict = Verdict.FAILS
    elif differ["on"].low < SWAYED:
        verdict = Verdict.UNCLEAR
    else:
        verdict = Verdict.HOLDS if differ["ours"].high == 0 else Verdict.HOLDS_WHEN
    words = [TEXTS["only_when"]] if verdict is Verdict.HOLDS_WHEN else []
    words.append(TEXTS["result"].format(dropout=evidence["dropout"], differ=differ, cost=cost))
    numbers: Numbers = {
        "texts that differ, as training left it": differ["left"],
        "texts that differ, dropout on": differ["on"],
        "texts that differ, after eval()": differ["off"],
        "texts that differ, by generate": differ["ours"],
        "loss, on minus off": cost,
        "Cohen's d of the loss": cohens_d(evidence["losses"]["on"], evidence["losses"]["off"]),
    }
    if verdict is Verdict.HOLDS and differ["left"].high > 0:
        words.append(TEXTS["left_on"])
    return Finding(verdict, join_sentences(words), numbers, TEXTS["when"], TEXTS["why"])


def draw(evidence: Evidence, figure: Any, say: Mapping[str, str]) -> None:
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
    states = {"left": AGAINST, "off": FOR, "ours": FOR}
    for at, (state, color) in enumerate(states.items()):
        draw_bar(left, at, evidence["differ"][state], color, width=0.5, text="{:.0%}")
    left.set_xticks(range(3), [say[f"figure.{state}"] for state in states])
    left.set_ylim(0, 1.15)
    losses, sides = evidence["losses"], {"on": AGAINST, "off": FOR}
    for at, (state, color) in enumerate(sides.items()):
        draw_bar(right, at, losses[state], color, width=0.5, text="{:.3f}")
    right.set_xticks(range(2), [say[f"figure.state.{state}"] for state in sides])
    right.set_ylim(0, 1.15 * max(losses["on"]))
    style_axes(left, say["figure.differ"])
    style_axes(right, say["figure.loss"], x="dropout")
    for axes in (left, right):
        axes.grid(axis="x", visible=False)


CLAIM = Claim.of(19, TEXTS, measure, judge, draw, dropout=DROPOUT, prompts=PROMPTS, swayed=SWAYED)
