"""Claim 6: attention carries over any distance in one step, where a recurrent network forgets."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Verdict, Words
from glasshead.lab.claims.drawing import AGAINST, CHANCE, FOR, OTHER, band, tidy
from glasshead.lab.claims.rnn import LSTMReader, count, equal
from glasshead.lab.claims.search import (
    BEST_RATE,
    RATES,
    WENT_ON,
    Searched,
    cautions,
    searched,
    shown,
)
from glasshead.lab.claims.spread import parted
from glasshead.lab.claims.stats import Interval, difference, geometric, mean, unbroken
from glasshead.lab.claims.training import fit
from glasshead.model.gpt import GPT, GPTConfig

__all__ = ["CLAIM", "judge", "measure"]

SYMBOLS = NOISE = 8  # to be named, and to be read past
ASK = SYMBOLS + NOISE  # the token that asks
CHANCE_LEVEL = 1 / SYMBOLS
B = 32
# A fifth of the questions: no rounding, and what a reader would call a difference.
APART = 0.2
# Nine answers in ten: the symbol is remembered.
LEARNED = 0.9
# A gradient a thousand times smaller far away than near is gone in the noise of a batch.
GONE = 1e-3
REACH = 64  # positions over which the gradient is measured
LEAST = 1e-30  # smaller gradients than float32 can hold count as this

SIDES = ("attention", "lstm", "open lstm")


def measure(
    budget: Budget,
    *,
    distances: tuple[int, ...] | None = None,
    steps: int | None = None,
    window: int | None = None,
    rates: Sequence[float] = RATES,
) -> Evidence:
    """`window`: how far back attention may see; None is everything, as the claim has it."""
    distances = distances or ((4, 16, 64) if budget.quick else (4, 8, 16, 32, 64, 96))
    steps = steps or (400 if budget.quick else 600)
    longest = max(*distances, REACH)
    makers = _makers(longest + 1, window)
    items = [(distance, longest, window, steps, rates) for distance in distances]
    # Long sequences take longer.
    found = parted(budget, _learned, items, distances)
    return {
        "parameters": {side: count(make(0)) for side, make in makers.items()},
        "distances": list(distances),
        "steps": steps,
        "batch": B,
        "chance": CHANCE_LEVEL,
        "accuracy": {s: [[right for _, right in one[s].results] for one in found] for s in SIDES},
        "steps to learn": {s: [[n for n, _ in one[s].results] for one in found] for s in SIDES},
        "rates": {str(d): shown(one) for d, one in zip(distances, found, strict=True)},
        "reach": list(range(REACH)),
        "gradient": {s: [_gradient(make(seed), seed) for seed in budget.seeds]
                     for s, make in makers.items()},
    }  # fmt: skip


def _learned(
    budget: Budget,
    distance: int,
    longest: int,
    window: int | None,
    steps: int,
    rates: Sequence[float],
) -> dict[str, Searched[tuple[int, float]]]:
    """One distance, learned by all sides: the steps taken and the accuracy."""
    makers = _makers(longest + 1, window)
    return searched(
        budget,
        SIDES,
        lambda side, lr, seed: _learn(makers[side], distance, lr, seed, steps),
        # Whoever learns sooner is better; among those who do not, whoever answers better.
        lambda result: (result[0] - result[1]) / steps,
        rates,
        failed=(steps, 0.0),
    )


def _makers(max_len: int, window: int | None) -> dict[str, Callable[[int], nn.Module]]:
    V = ASK + 1

    def gpt() -> GPT:
        config = GPTConfig(
            V, max_len, n_layers=1, n_heads=2, d_model=32, d_ff=64, positions="sinusoidal",
            window=window,
        )  # fmt: skip
        return GPT(config)

    parameters = count(gpt())

    def seeded(make: Callable[[], nn.Module]) -> Callable[[int], nn.Module]:
        def made(seed: int) -> nn.Module:
            with torch.random.fork_rng([]):
                torch.manual_seed(seed)
                return make()

        return made

    # exp(-1) of a state is left after so many steps: an LSTM that starts out remembering.
    keep = math.log(max_len)
    return {
        "attention": seeded(gpt),
        "lstm": seeded(lambda: equal(lambda width: LSTMReader(V, width), parameters)),
        "open lstm": seeded(lambda: equal(lambda width: LSTMReader(V, width, keep), parameters)),
    }


def _questions(distance: int, rows: int, seed: int, step: int) -> tuple[Tensor, Tensor]:
    """A symbol, noise, and the token that asks which symbol it was."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    ids = torch.randint(SYMBOLS, ASK, (rows, distance + 1), generator=generator)
    symbols = torch.randint(SYMBOLS, (rows,), generator=generator)
    ids[:, 0], ids[:, -1] = symbols, ASK
    return ids, symbols


def _learn(
    make: Callable[[int], nn.Module], distance: int, lr: float, seed: int, steps: int
) -> tuple[int, float]:
    """Steps until 95 % of the last twenty batches are right (or all steps), and the accuracy."""
    model = make(seed)
    right: list[float] = []

    def loss(step: int) -> Tensor:
        ids, symbols = _questions(distance, B, seed, step)
        logits = model(ids)[:, -1]
        right.append((logits.argmax(-1) == symbols).float().mean().item())
        return F.cross_entropy(logits, symbols)

    taken = fit(
        model, loss, lr=lr, steps=steps, done=lambda step: step > 20 and sum(right[-20:]) >= 19
    )
    with torch.no_grad():
        ids, symbols = _questions(distance, 512, seed, 10**6)
        return taken, (model(ids)[:, -1].argmax(-1) == symbols).float().mean().item()


def _gradient(model: nn.Module, seed: int) -> list[float]:
    """How strongly the last output depends on the input so many positions before it, untrained."""
    ids, symbols = _questions(REACH - 1, B, seed, 0)
    seen: list[Tensor] = []

    def keep(module: nn.Module, args: Any, x: Tensor) -> Tensor:
        seen.append(x.detach().requires_grad_())
        return seen[0]

    table = model.get_submodule("embedding")
    handle = table.register_forward_hook(keep)
    F.cross_entropy(model(ids)[:, -1], symbols).backward()
    handle.remove()
    assert seen[0].grad is not None
    norms: list[float] = seen[0].grad.norm(dim=-1).mean(0).flip(0).tolist()  # nearest first
    return norms


def judge(evidence: Evidence) -> Finding:
    far = {side: evidence["accuracy"][side][-1] for side in SIDES}
    near = {side: mean(evidence["accuracy"][side][0]) for side in SIDES}
    learned = {side: near[side].low > LEARNED for side in SIDES}
    apart = {side: difference(far["attention"], far[side]) for side in ("lstm", "open lstm")}
    share = {
        side: geometric([max(row[-1], LEAST) / max(row[1], LEAST) for row in rows])
        for side, rows in evidence["gradient"].items()
    }
    flat, fades = share["attention"].low > GONE, share["attention"].high < GONE
    carries = flat and mean(far["attention"]).low > evidence["chance"] + APART
    if not (learned["attention"] and learned["lstm"]):
        # Who cannot do it nearby has not forgotten: it was not learned.
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
        side: unbroken(
            evidence["distances"],
            [mean(values).value > LEARNED for values in evidence["accuracy"][side]],
        )
        for side in SIDES
    }
    first, last, steps = evidence["distances"][0], evidence["distances"][-1], evidence["steps"]
    each = [f"{near[side]:.0%}" for side in SIDES]
    can = Words("all can", "都能答对") if all(learned.values()) else Words("it is", "依次为")
    nearby = Words(
        f"over {first} {can.en} ({', '.join(each)})",
        f"相隔 {first} 个时{can.zh}（{'、'.join(each)}）",
    )
    en = (
        f"After {steps} steps at most, over {last} positions, attention names the symbol in "
        f"{mean(far['attention']):.0%} of cases, an LSTM in {mean(far['lstm']):.0%}, one whose "
        f"gates start open in {mean(far['open lstm']):.0%} (chance {evidence['chance']:.1%}); "
        f"{nearby.en}. Nine in ten are right up to {reached['attention']}, {reached['lstm']} and "
        f"{reached['open lstm']} positions. Before training, the gradient from {REACH - 1} "
        f"positions away is {share['attention'].value:.2g} of that from the nearest for attention, "
        f"{share['lstm'].value:.1g} for the LSTM, {share['open lstm'].value:.1g} with open gates."
    )
    zh = (
        f"最多 {steps} 步训练后，相隔 {last} 个位置时，注意力答对 {mean(far['attention']):.0%}，"
        f"LSTM 答对 {mean(far['lstm']):.0%}，遗忘门初始即打开的 LSTM 答对 "
        f"{mean(far['open lstm']):.0%}（随机 {evidence['chance']:.1%}）；"
        f"{nearby.zh}。能答对九成的距离分别到 {reached['attention']}、{reached['lstm']}、"
        f"{reached['open lstm']}。训练前，来自 {REACH - 1} 个位置之外的梯度与最近处之比：注意力 "
        f"{share['attention'].value:.2g}，LSTM {share['lstm'].value:.1g}，门打开的 LSTM "
        f"{share['open lstm'].value:.1g}。"
    )
    if verdict is Verdict.HOLDS_WHEN:
        en += " So it holds against an LSTM that starts as usual; with open gates that is not sure."
        zh += "所以，对通常初始化的 LSTM 成立；对遗忘门打开的 LSTM 则不能肯定。"
    if not (learned["attention"] and learned["lstm"]):
        en += f" Over {first} it was not learned by both, so one cannot tell what is forgotten."
        zh += f"相隔 {first} 个时并非双方都学会，因此无法判断遗忘了什么。"
    names = {
        side: Words(f"{name.en} over {last}", f"相隔 {last} 的{name.zh}")
        for side, (name, _) in NAMES.items()
    }
    aside = cautions(evidence["rates"][str(last)], names)
    numbers: dict[str, Interval | float] = {
        f"attention, {last} apart": mean(far["attention"]),
        f"LSTM, {last} apart": mean(far["lstm"]),
        f"LSTM with open gates, {last} apart": mean(far["open lstm"]),
        "attention minus LSTM": apart["lstm"],
        "attention minus LSTM with open gates": apart["open lstm"],
        **{
            f"log10 of the gradient far over near, {side}": mean(
                [math.log10(max(row[-1], LEAST) / max(row[1], LEAST)) for row in rows]
            )
            for side, rows in evidence["gradient"].items()
        },
        **{f"{side}, {first} apart": value for side, value in near.items()},
    }
    return Finding(verdict, Words(en + aside.en, zh + aside.zh), numbers)


NAMES = {
    "attention": (Words("attention", "注意力"), FOR),
    "lstm": (Words("LSTM", "LSTM"), AGAINST),
    "open lstm": (Words("LSTM with open gates", "门打开的 LSTM"), OTHER),
}


def draw(evidence: Evidence, figure: Any, lang: str) -> None:
    left, right = figure.subplots(1, 2)
    for side, (name, color) in NAMES.items():
        band(left, evidence["distances"], evidence["accuracy"][side], color, label=name[lang])
        seeds = list(zip(*evidence["gradient"][side], strict=True))[1:]
        # What float32 cannot hold any more is drawn at its edge.
        kept = [[max(value, LEAST) for value in values] for values in seeds]
        band(right, evidence["reach"][1:], kept, color, label=name[lang], marker="")
    left.axhline(evidence["chance"], **CHANCE)
    left.annotate(
        Words("chance", "随机")[lang],
        (evidence["distances"][0], evidence["chance"]),
        xytext=(0, -11),
        textcoords="offset points",
        fontsize=8,
        color="#6b7078",
    )
    left.set_xscale("log", base=2)
    left.set_xticks(evidence["distances"], [str(d) for d in evidence["distances"]])
    left.set_ylim(-0.02, 1.05)
    right.set_yscale("log")
    tidy(
        left,
        Words("Right answers after training", "训练后的正确率")[lang],
        x=Words("positions in between", "相隔的位置数")[lang],
    )
    tidy(
        right,
        Words("Gradient reaching the input, untrained", "到达输入的梯度（未训练）")[lang],
        x=Words("positions before the output", "在输出之前多少个位置")[lang],
    )
    left.legend(fontsize=8.5, loc="center left")


CLAIM = Claim(
    number=6,
    title=Words("Attention reaches far, recurrence forgets", "注意力看得远，循环网络会遗忘"),
    claim=Words(
        "Attention connects any two positions by a path of length O(1), an RNN by one of O(N): so "
        "attention carries over distances where an RNN forgets.",
        "注意力连接任意两个位置的路径长度是 O(1)，RNN 是 O(N)，因此注意力能捕捉 RNN 会遗忘的长距离"
        "依赖。",
    ),
    source="001, 003",
    how=Words(
        "Read a symbol, then noise, then name the symbol. One layer of attention against an LSTM "
        "of as many parameters (within 2 %), each distance trained anew with the same batches, the "
        f"same steps and {BEST_RATE.en}. A third side is the same LSTM with forget gates "
        "that start nearly open. Beside it, the gradient of the answer before training.",
        "读一个符号，再读噪声，最后说出那个符号。一层注意力对参数相同（差 2% 以内）的 LSTM；每个距"
        f"离都重新训练，批次、步数相同，各取{BEST_RATE.zh}。第三方是遗忘门初始几乎全开的同样的 "
        "LSTM。另外量训练前答案对输入的梯度。",
    ),
    for_=Words(
        f"At the largest distance attention is right at least {APART:.0%} more often than either "
        f"LSTM, and its gradient from afar is more than {GONE:g} of that from nearby. Against the "
        "usual LSTM only: it holds only when gates start as usual. All of this if the smallest "
        f"distance is learned ({LEARNED:.0%} right); if not, one cannot tell.",
        f"在最大距离上，注意力的正确率比两种 LSTM 都高 {APART:.0%} 以上，且远处的梯度大于近处的 "
        f"{GONE:g}。只胜过通常的 LSTM：仅在门按通常方式初始化时成立。前提是最小的距离都学会了（"
        f"{LEARNED:.0%} 正确），否则无法判断。",
    ),
    against=Words(
        f"Both learn the smallest distance and are less than {APART:.0%} apart at the largest, or "
        "attention's gradient fades as well.",
        f"双方都学会最小的距离，而在最大距离上相差不到 {APART:.0%}，或注意力的梯度也消失。",
    ),
    measure=measure,
    judge=judge,
    draw=draw,
    tried=Words(
        "Two other tasks were tried and left: where distances are mixed, an LSTM learned all "
        "of them up to 63 apart within 1,000 steps, so “forgets” depends on task and training; "
        "recalling one of eight facts defeated both sides. That the smallest distance must be "
        "learned, that a gradient's interval across the threshold tells nothing and that ratios of "
        f"gradients are averaged in logs became rules after the first results. {WENT_ON.en}",
        "另有两个任务试过后放弃：距离混在一起训练时，LSTM 在一千步内学会了相隔 63 "
        "以内的所有距离，可见“遗忘”取决于任务与训练；在八条事实里回忆一条，则双方都学不会。“最小的"
        "距离必须先学会”、“梯度的区间跨过门槛则无法判断”以及在对数上平均梯度之比，这几条是看过最初"
        f"的结果之后定的。{WENT_ON.zh}",
    ),
    correction=Words(
        "A long path is no proof of forgetting: how long an LSTM's state lasts is up to its forget "
        "gates, which may start open (the third side here). The path bears on the gradient, and by "
        "it on the learning. And O(1) is the path, not the work: attention compares all N² pairs.",
        "路径长并不等于遗忘：LSTM 的状态能保持多久取决于遗忘门，而遗忘门可以从打开开始（这里的第三"
        "方）。路径影响的是梯度，进而影响学习。另外 O(1) 指路径，不是计算量：注意力要比较全部 N² "
        "对。",
    ),
)
