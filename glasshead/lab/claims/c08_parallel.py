"""Claim 8: all positions are computed at once, so training is faster than a recurrent network's."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshead.attention.cache import FixedCache
from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Verdict, Words
from glasshead.lab.claims.drawing import AGAINST, FOR, GREY, OTHER, band, tidy
from glasshead.lab.claims.rnn import LSTMReader, count, equal
from glasshead.lab.claims.stats import Interval, mean, ratio
from glasshead.lab.claims.timing import Work, by_turns
from glasshead.machine import pick_device
from glasshead.model.gpt import GPT, GPTConfig

__all__ = ["CLAIM", "at_once", "judge", "measure", "one_by_one"]

V = 64
TOKENS = 2048  # in a full batch; a longer text is a batch by itself
FASTER = 1.1  # a tenth faster is faster
# One text leaves it to the model to find work that can be done at once; a full batch has it anyway.
TRAINING = ("one text", "full batch")

Forward = Callable[[nn.Module, Tensor], Tensor]


def at_once(model: nn.Module, ids: Tensor) -> Tensor:
    """All positions in one call."""
    logits: Tensor = model(ids)
    return logits


def one_by_one(model: nn.Module, ids: Tensor) -> Tensor:
    """The same logits, a position at a time: what training would be if nothing were parallel."""
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
        kind: {side: [[] for _ in lengths] for side in ("attention", "lstm")}
        for kind in (*TRAINING, "writing")
    }
    rounds = [(seed, at) for seed in budget.seeds for at in range(len(lengths))]
    for n, (seed, at) in enumerate(rounds):
        T = lengths[at]
        budget.progress(n / len(rounds), f"length {T}, seed {seed}")
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            gpt = GPT(GPTConfig(V, n_layers=1, n_heads=4, d_model=64, positions="rotary")).to(where)
            lstm = equal(lambda width: LSTMReader(V, width), count(gpt)).to(where)
            ids = torch.randint(V, (max(1, TOKENS // T), T + 1)).to(where)
        sizes = {"attention": count(gpt), "lstm": count(lstm)}
        work = {
            "one text": (_step(gpt, ids[:1], forward), _step(lstm, ids[:1], at_once)),
            "full batch": (_step(gpt, ids, forward), _step(lstm, ids, at_once)),
            "writing": (_write(gpt, ids[:1, :-1]), _write_on(lstm, ids[:1, :-1])),
        }
        for kind, both in work.items():
            best = by_turns(both, seconds, where)
            for side, value in zip(("attention", "lstm"), best, strict=True):
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
    """One step of training: forward, backward, AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step() -> None:
        loss = F.cross_entropy(forward(model, ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _write(model: GPT, ids: Tensor) -> Work:
    """One more token after ids, whose keys and values are cached."""
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


def _write_on(model: LSTMReader, ids: Tensor) -> Work:
    """One more token from the state that ids left."""
    with torch.no_grad():
        _, state = model.lstm(model.embedding(ids))

    def write() -> None:
        with torch.no_grad():
            model.head(model.lstm(model.embedding(ids[:, -1:]), state)[0])

    return write


def judge(evidence: Evidence) -> Finding:
    times, lengths = evidence["seconds"], evidence["lengths"]
    faster: dict[str, dict[int, Interval]] = {
        kind: {
            T: ratio(lstm, attention)
            for T, lstm, attention in zip(
                lengths, times[kind]["lstm"], times[kind]["attention"], strict=True
            )
        }
        for kind in (*TRAINING, "writing")
    }
    cells = [faster[kind][T] for kind in TRAINING for T in lengths]
    holds = {kind: [T for T in lengths if faster[kind][T].low > FASTER] for kind in TRAINING}
    if all(one.low > FASTER for one in cells):
        verdict = Verdict.HOLDS
    elif any(holds.values()):
        verdict = Verdict.HOLDS_WHEN
    elif all(one.high < FASTER for one in cells):
        verdict = Verdict.FAILS
    else:
        verdict = Verdict.UNCLEAR
    one, full, writing = (faster[kind] for kind in (*TRAINING, "writing"))
    first, last, best = lengths[0], lengths[-1], max(lengths, key=lambda T: one[T].value)
    ms = {
        side: 1e3 * mean(times["one text"][side][lengths.index(best)]).value
        for side in ("attention", "lstm")
    }
    texts = dict(zip(lengths, evidence["texts"], strict=True))
    # No length is named twice, where the first or the last is the best as well.
    some, few = (list(dict.fromkeys(ends)) for ends in ((first, best, last), (first, best)))
    took = f"({ms['attention']:.1f} against {ms['lstm']:.1f} ms)"
    single = [f"{one[T]:.2f} times at {T} tokens{f' {took}' * (T == best)}" for T in some]
    batched = [f"{full[T]:.2f} times with texts of {T} ({texts[T]} of them)" for T in few]
    en = (
        "A step of training on one text, with attention against an LSTM of the same size, is so "
        f"many times as fast: {', '.join(single)}. On a full batch: {', '.join(batched)}. Writing "
        f"one more token, which nothing makes parallel: {writing[first]:.2f} times after {first} "
        f"tokens, {writing[last]:.2f} times after {last}. "
        f"({evidence['device']}, threads: {evidence['threads']})"
    )
    took = f"（{ms['attention']:.1f} 对 {ms['lstm']:.1f} 毫秒）"
    single = [f"{T} 个词元时 {one[T]:.2f} 倍{took * (T == best)}" for T in some]
    batched = [f"{texts[T]} 个长 {T} 的文本 {full[T]:.2f} 倍" for T in few]
    zh = (
        f"在一个文本上训练一步，注意力的速度是参数相同的 LSTM 的：{'，'.join(single)}。满批："
        f"{'，'.join(batched)}。再写一个词元（无法并行）：已有 {first} 个时 "
        f"{writing[first]:.2f} 倍，{last} 个时 {writing[last]:.2f} 倍。（{evidence['device']}，线程"
        f"数 {evidence['threads']}）"
    )
    if verdict is Verdict.HOLDS_WHEN:
        lists = {kind: ", ".join(map(str, some)) or "–" for kind, some in holds.items()}
        en += (
            f" It holds only at these lengths: one text {lists['one text']}; full batch "
            f"{lists['full batch']}."
        )
        zh += f"所以只在这些长度上成立：一个文本 {lists['one text']}；满批 {lists['full batch']}。"
    alone = [T for T in lengths if texts[T] == 1]
    if alone:
        en += f" From {alone[0]} tokens on, a full batch is one text."
        zh += f"从 {alone[0]} 个词元起，满批就是一个文本。"
    if evidence["device"] == "cpu" and verdict is not Verdict.HOLDS:
        en += " No GPU was measured: what can do more side by side may come out otherwise."
        zh += "没有测 GPU：能同时做更多事的设备，结果可能不同。"
    numbers: dict[str, Interval | float] = {
        f"{kind}, times as fast, {T}": value
        for kind, some in faster.items()
        for T, value in some.items()
    }
    return Finding(verdict, Words(en, zh), numbers)


def draw(evidence: Evidence, figure: Any, lang: str) -> None:
    xs, times = evidence["lengths"], evidence["seconds"]
    left, right = figure.subplots(1, 2)
    names = {
        "attention": (Words("attention", "注意力"), FOR),
        "lstm": (Words("LSTM", "LSTM"), AGAINST),
    }
    for side, (name, color) in names.items():
        ms = [[1e3 * value for value in values] for values in times["one text"][side]]
        band(left, xs, ms, color, label=name[lang])
    kinds = {
        "one text": (Words("training, one text", "训练，一个文本"), FOR, "-"),
        "full batch": (Words("training, full batch", "训练，满批"), FOR, "--"),
        "writing": (Words("writing a token", "写一个词元"), OTHER, "-"),
    }
    for kind, (name, color, style) in kinds.items():
        pairs = zip(times[kind]["lstm"], times[kind]["attention"], strict=True)
        ratios = [[a / b for a, b in zip(x, y, strict=True)] for x, y in pairs]
        band(right, xs, ratios, color, label=name[lang], linestyle=style)
    right.axhline(1, color=GREY, linewidth=1)
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(xs, [str(x) for x in xs], fontsize=8)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(lambda value, _: "")
    below = Words("tokens in a text", "文本的词元数")[lang]
    tidy(
        left,
        Words("A step of training on one text, ms", "在一个文本上训练一步，毫秒")[lang],
        x=below,
    )
    title = Words("Attention is so many times as fast", "注意力的速度是 LSTM 的几倍")[lang]
    tidy(right, title, x=below)
    left.legend(fontsize=8.5)
    right.legend(fontsize=8)


CLAIM = Claim(
    number=8,
    title=Words("All positions at once", "所有位置并行计算"),
    claim=Words(
        "Attention computes all positions in parallel, so it trains faster than an RNN, which must "
        "go step by step.",
        "注意力可以并行计算所有位置，因此训练比必须逐步进行的 RNN 更快。",
    ),
    source="001, 003",
    how=Words(
        "Seconds for a step of training, one block of attention against an LSTM of as many "
        "parameters (within 2 %): on one text of growing length, and on a full batch of "
        f"{TOKENS:,} tokens in such texts (one text where it is longer). Both by turns; the "
        "fastest run of each counts. Beside it, seconds to write one more token after such a text. "
        "On a GPU where there is one.",
        "训练一步的时间，一个注意力块对参数相同（差 2% 以内）的 LSTM：在一个长度递增的文本上，以及"
        f"由这样的文本组成的 {TOKENS:,} 个词元的满批上（更长的文本自成一批）。轮流运行，各取最快的"
        "一次。另外量在这样的文本之后再写一个词元的时间。有 GPU 时用 GPU。",
    ),
    for_=Words(
        f"A step is at least {FASTER} times as fast at every length, on one text and on a full "
        "batch. At some: it holds only when.",
        f"无论一个文本还是满批，在每个长度上训练一步都快到 {FASTER} 倍以上。只在某些情形：仅在该情"
        f"形下成立。",
    ),
    against=Words(
        f"Nowhere {FASTER} times as fast.",
        f"在任何情形下都不到 {FASTER} 倍。",
    ),
    measure=measure,
    judge=judge,
    draw=draw,
    tried=Words(
        "One text at a time was added after a first look at full batches.",
        "“一次只算一段文本”的情形，是先看过整批的结果之后才加上的。",
    ),
    correction=Words(
        "001 says that this speeds up training and inference. A generated text is written one "
        "token after another by attention too, and each token looks at all before it: an LSTM's "
        "step costs the same however long the text is. At inference only the reading of the prompt "
        "is parallel.",
        "001 说这提高了训练和推理的效率。但生成文本时，注意力同样只能一个词元接一个词元地写，而且每"
        "个词元都要看之前的全部；LSTM 的一步无论文本多长开销都相同。推理时只有读入提示是并行的。",
    ),
)
