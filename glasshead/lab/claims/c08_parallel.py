"""Claim 8: all positions are computed at once, so training is faster than a recurrent network's."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshead.attention.cache import FixedCache
from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Numbers
from glasshead.lab.claims.drawing import AGAINST, FOR, GREY, OTHER, draw_band, style_axes
from glasshead.lab.claims.models import LSTMReader, count_parameters, match_parameters
from glasshead.lab.claims.stats import Interval, at_least, mean, ratio
from glasshead.lab.claims.timing import Work, time_by_turns
from glasshead.lab.claims.verdict import Verdict, judge_cases
from glasshead.lab.texts import Words, join_sentences, join_words, read_texts
from glasshead.machine import pick_device
from glasshead.model.gpt import GPT, GPTConfig

__all__ = ["CLAIM", "at_once", "judge", "measure", "one_by_one"]

TEXTS = read_texts(__file__)
V = 64
TOKENS = 2048  # in a full batch; a longer text is a batch by itself
FASTER = 1.1  # a tenth faster is faster
# With one text, the model must find work that can be done at once; a full batch has it anyway.
TRAINING = ("one text", "full batch")
KINDS = (*TRAINING, "writing")
SIDES = {"attention": FOR, "lstm": AGAINST}

Forward = Callable[[nn.Module, Tensor], Tensor]


def at_once(model: nn.Module, ids: Tensor) -> Tensor:
    """Compute all positions in one call."""
    logits: Tensor = model(ids)
    return logits


def one_by_one(model: nn.Module, ids: Tensor) -> Tensor:
    """Compute the same logits one position at a time, as if nothing were parallel."""
    return torch.cat([model(ids[:, : t + 1])[:, -1:] for t in range(ids.shape[1])], dim=1)


def measure(
    budget: Budget,
    *,
    forward: Forward = at_once,
    lengths: tuple[int, ...] | None = None,
    seconds: float | None = None,
    device: str = "auto",
) -> Evidence:
    """`forward`: how attention computes its positions. Each seed is a round of its own."""
    lengths = lengths or (
        (8, 32, 128, 512, 2048) if budget.quick else (8, 32, 128, 512, 2048, 4096)
    )
    seconds = seconds or (0.1 if budget.quick else 0.5)
    where = pick_device(device)
    sizes: dict[str, int] = {}
    times: dict[str, dict[str, list[list[float]]]] = {
        kind: {side: [[] for _ in lengths] for side in SIDES} for kind in KINDS
    }
    rounds = [(seed, at) for seed in budget.seeds for at in range(len(lengths))]
    for n, (seed, at) in enumerate(rounds):
        T = lengths[at]
        budget.progress(n / len(rounds), f"length {T}, seed {seed}")
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            gpt = GPT(GPTConfig(V, n_layers=1, n_heads=4, d_model=64, positions="rotary")).to(where)
            parameters = count_parameters(gpt)
            lstm = match_parameters(lambda width: LSTMReader(V, width), parameters).to(where)
            ids = torch.randint(V, (max(1, TOKENS // T), T + 1)).to(where)
        sizes = {"attention": parameters, "lstm": count_parameters(lstm)}
        work = {
            "one text": (_step(gpt, ids[:1], forward), _step(lstm, ids[:1], at_once)),
            "full batch": (_step(gpt, ids, forward), _step(lstm, ids, at_once)),
            "writing": (_write_gpt(gpt, ids[:1, :-1]), _write_lstm(lstm, ids[:1, :-1])),
        }
        for kind, both in work.items():
            best = time_by_turns(both, seconds, where)
            for side, value in zip(SIDES, best, strict=True):
                times[kind][side][at].append(value)
    return {
        "parameters": sizes,
        "lengths": list(lengths),
        "texts": [max(1, TOKENS // T) for T in lengths],
        "device": where.type,
        "threads": torch.get_num_threads(),
        "seconds": times,
    }


def _step(model: nn.Module, ids: Tensor, forward: Forward) -> Work:
    """Return one step of training: forward, backward, AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step() -> None:
        loss = F.cross_entropy(forward(model, ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _write_gpt(model: GPT, ids: Tensor) -> Work:
    """Return what writes one more token after ids, whose keys and values are cached."""
    T = ids.shape[1]
    caches = [FixedCache(T + 1) for _ in model.blocks]
    with torch.no_grad():
        model(ids, caches=caches)

    def write() -> None:
        for cache in caches:
            cache.length = T  # each time from the same past
        with torch.no_grad():
            model(ids[:, -1:], caches=caches)

    return write


def _write_lstm(model: LSTMReader, ids: Tensor) -> Work:
    """Return what writes one more token from the state after ids."""
    with torch.no_grad():
        _, state = model.lstm(model.embedding(ids))

    def write() -> None:
        with torch.no_grad():
            model.head(model.lstm(model.embedding(ids[:, -1:]), state)[0])

    return write


def judge(evidence: Evidence) -> Finding:
    times, lengths, device = evidence["seconds"], evidence["lengths"], evidence["device"]
    faster: dict[str, dict[int, Interval]] = {
        kind: {
            T: ratio(times[kind]["lstm"][at], times[kind]["attention"][at])
            for at, T in enumerate(lengths)
        }
        for kind in KINDS
    }
    cells = [faster[kind][T] for kind in TRAINING for T in lengths]
    verdict = judge_cases([at_least(one, FASTER) for one in cells])
    one, full, writing = (faster[kind] for kind in KINDS)
    first, last, best = lengths[0], lengths[-1], max(lengths, key=lambda T: one[T].value)
    at_best = lengths.index(best)
    texts = dict(zip(lengths, evidence["texts"], strict=True))
    took = TEXTS["took"].format(
        **{side: 1e3 * mean(times["one text"][side][at_best]).value for side in SIDES}
    )
    # No length is named twice, where the first or the last is the best as well.
    single = [
        TEXTS["single"].format(
            faster=one[T], length=T, took=took if T == best else Words("", "")
        )
        for T in dict.fromkeys((first, best, last))
    ]  # fmt: skip
    batched = [
        TEXTS["batched"].format(faster=full[T], length=T, texts=texts[T])
        for T in dict.fromkeys((first, best))
    ]
    words = [
        TEXTS["result"].format(
            single=join_words(single, zh="，"), batched=join_words(batched, zh="，"),
            first=first, last=last, writing_first=writing[first], writing_last=writing[last],
            device=device, threads=evidence["threads"],
        )
    ]  # fmt: skip
    lists = {
        kind: ", ".join(str(T) for T in lengths if faster[kind][T].low > FASTER)
        for kind in TRAINING
    }
    if verdict is Verdict.HOLDS_WHEN:
        words.append(
            TEXTS["only_at"].format(lists={kind: some or "–" for kind, some in lists.items()})
        )
    alone = [T for T in lengths if texts[T] == 1]
    if alone:
        words.append(TEXTS["alone"].format(alone=alone[0]))
    if device == "cpu" and verdict is not Verdict.HOLDS:
        words.append(TEXTS["no_gpu"])
    numbers: Numbers = {
        f"{kind}, times as fast, {T}": value
        for kind, some in faster.items()
        for T, value in some.items()
    }
    some = [TEXTS[f"when.{kind}"].format(lengths=at) for kind, at in lists.items() if at]
    when = TEXTS["when.on"].format(
        cases=join_words(some, " or ", "，或者"), device=TEXTS[f"when.{device}"]
    )
    return Finding(verdict, join_sentences(words), numbers, when)


def draw(evidence: Evidence, figure: Any, say: Mapping[str, str]) -> None:
    xs, times = evidence["lengths"], evidence["seconds"]
    left, right = figure.subplots(1, 2)
    for side, color in SIDES.items():
        ms = [[1e3 * value for value in values] for values in times["one text"][side]]
        draw_band(left, xs, ms, color, label=say[f"side.{side}"])
    for kind, color, style in zip(KINDS, (FOR, FOR, OTHER), ("-", "--", "-"), strict=True):
        pairs = zip(times[kind]["lstm"], times[kind]["attention"], strict=True)
        ratios = [[a / b for a, b in zip(x, y, strict=True)] for x, y in pairs]
        draw_band(right, xs, ratios, color, label=say[f"kind.{kind}"], linestyle=style)
    right.axhline(1, color=GREY, linewidth=1)
    for axes, title, size in ((left, "step", 8.5), (right, "faster", 8)):
        axes.set_yscale("log")
        style_axes(axes, say[f"figure.{title}"], x=say["figure.tokens"], powers=xs)
        axes.tick_params(axis="x", labelsize=8)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(lambda value, _: "")
        axes.legend(fontsize=size)


CLAIM = Claim.of(8, TEXTS, measure, judge, draw, tokens=TOKENS, faster=FASTER)
