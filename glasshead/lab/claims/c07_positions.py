"""Claim 7: without positions attention cannot tell the order of its input."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from glasshead.attention.mask import Mask
from glasshead.errors import NotFiniteError
from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Verdict, Words
from glasshead.lab.claims.drawing import AGAINST, CHANCE, FOR, OTHER, tidy
from glasshead.lab.claims.masked import features_under
from glasshead.lab.claims.search import (
    BEST_RATE,
    BURST,
    RATES,
    WENT_ON,
    cautions,
    searched,
    shown,
)
from glasshead.lab.claims.stats import difference, mean
from glasshead.lab.claims.training import fit
from glasshead.model.gpt import GPT, GPTConfig

__all__ = ["CLAIM", "judge", "measure"]

T, V, BATCH = 12, 11, 64
ROUNDING, MOVED = 1e-5, 1e-3  # of the largest output: the same, not the same
GUESSING, LEARNED = 0.6, 0.9  # accuracies; chance is 0.5

CAUSAL = Mask(causal=True)

Way = tuple[str, Mask]  # positions and mask


class PositionsOutcome(NamedTuple):
    loss: float  # mean over the last tenth of the steps
    right: float  # accuracy, trained
    untrained: float  # and before
    moved: float  # what shuffling does beside shuffling, untrained


def measure(
    budget: Budget,
    *,
    bare: str = "none",
    mask: Mask = CAUSAL,
    steps: int | None = None,
    rates: Sequence[float] = RATES,
) -> Evidence:
    """`bare` are the positions of the model that should have none, `mask` that of the third way."""
    steps = steps or (150 if budget.quick else 400)
    ways: dict[str, Way] = {
        "bare": (bare, Mask()),
        "positions": ("learned", Mask()),
        "causal": (bare, mask),
    }
    found = searched(
        budget,
        list(ways),
        lambda way, lr, seed: _run(ways[way], lr, seed, steps),
        lambda outcome: outcome.loss,
        rates,
    )
    return {
        "length": T,
        "steps": steps,
        "rates": shown(found),
        "moved": {way: [one.moved for one in side.results] for way, side in found.items()},
        "right": {way: [one.right for one in side.results] for way, side in found.items()},
        "untrained": {way: [one.untrained for one in side.results] for way, side in found.items()},
    }


def _run(way: Way, lr: float, seed: int, steps: int) -> PositionsOutcome:
    """Train a model to say which came first."""
    positions, mask = way
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        model = GPT(GPTConfig(V, max_len=T, n_layers=2, n_heads=2, d_model=32, positions=positions))
    moved, untrained = _equivariance(model, mask, seed), _accuracy(model, mask, seed)
    generator, losses = torch.Generator().manual_seed(seed), list[float]()

    def loss(_step: int) -> Tensor:
        ids, first = _sequences(BATCH, generator)
        value = F.cross_entropy(_answer(model, ids, mask), first)
        losses.append(value.item())
        return value

    try:
        fit(model, loss, lr=lr, steps=steps)
    except NotFiniteError:  # who diverges can but guess
        return PositionsOutcome(BURST, 0.5, untrained, moved)
    last = losses[-max(1, steps // 10) :]
    return PositionsOutcome(sum(last) / len(last), _accuracy(model, mask, seed), untrained, moved)


def _sequences(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random tokens, among them one 0 and one 1; and which of the two comes first."""
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
    """How far outputs of shuffled words are from shuffled outputs, of the largest output."""
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
    gap = difference(evidence["right"]["positions"], evidence["right"]["bare"])
    en = (
        "Without positions and mask, shuffling the words shuffles the outputs, within "
        f"{moved['bare']:.0e} of the largest; with learned positions they differ by "
        f"{moved['positions']:.2f}. Trained to say which of two words comes first, the model "
        f"without positions is right in {right['bare']:.1%} (chance 50 %), with them in "
        f"{right['positions']:.1%}. Without positions but under a causal mask: "
        f"{right['causal']:.1%}."
    )
    zh = (
        "没有位置也没有掩码时，打乱词序只会同样打乱输出（相差不超过最大输出的 "
        f"{moved['bare']:.0e}）；有可学习的位置时相差 {moved['positions']:.2f}。训练模型判断两个词"
        f"谁在前：没有位置时正确率 {right['bare']:.1%}（随机为 50%），有位置时 "
        f"{right['positions']:.1%}。没有位置但有因果掩码时：{right['causal']:.1%}。"
    )
    if verdict is Verdict.HOLDS_WHEN:
        en = f"Holds only when no mask tells the order: a causal mask does. {en}"
        zh = f"只有当掩码不透露次序时成立：因果掩码就会透露。{zh}"
    aside = cautions(evidence["rates"], NAMES)
    numbers = {
        "accuracy, no positions": right["bare"],
        "accuracy, learned positions": right["positions"],
        "accuracy, no positions, causal mask": right["causal"],
        "accuracy gained by positions": gap,
        "shuffled outputs, no positions": moved["bare"],
        "shuffled outputs, learned positions": moved["positions"],
        "shuffled outputs, no positions, causal mask": moved["causal"],
    }
    return Finding(verdict, Words(en + aside.en, zh + aside.zh), numbers)


NAMES: Mapping[str, Words] = {
    "bare": Words("no positions", "没有位置"),
    "positions": Words("learned positions", "可学习的位置"),
    "causal": Words("no positions, causal mask", "没有位置，有因果掩码"),
}


def draw(evidence: Evidence, figure: Any, lang: str) -> None:
    left, right = figure.subplots(1, 2)
    colors = {"bare": AGAINST, "positions": FOR, "causal": OTHER}
    names = [name[lang].replace(", ", ",\n").replace("，", "，\n") for name in NAMES.values()]
    for at, way in enumerate(NAMES):
        found = mean(evidence["right"][way])
        left.bar(at, found.value, 0.55, color=colors[way])
        left.errorbar(at, found.value, yerr=[[found.value - found.low], [found.high - found.value]],
                      fmt="none", ecolor="#333333", capsize=3, linewidth=1)  # fmt: skip
        left.annotate(f"{found.value:.1%}", (at, found.high), xytext=(0, 4), ha="center",
                      textcoords="offset points", fontsize=9)  # fmt: skip
        untrained = mean(evidence["untrained"][way]).value
        left.plot([at - 0.27, at + 0.27], [untrained] * 2, color="#333333", linewidth=1,
                  linestyle=":")  # fmt: skip
        right.bar(at, max(evidence["moved"][way]), 0.55, color=colors[way])
    left.axhline(0.5, **CHANCE)
    left.set_ylim(0, 1.12)
    right.set_yscale("log")
    right.set_ylim(1e-8, 10)
    for axes in (left, right):
        axes.set_xticks(range(3), names, fontsize=8.5)
    title = Words("Says which word came first", "判断哪个词在前")
    controls = Words("dashed: chance; dotted: untrained", "虚线：随机；点线：未训练")
    tidy(left, title[lang], y=controls[lang])
    title = Words("Change beyond mere shuffling", "除打乱之外的变化")
    tidy(right, title[lang], y=Words("of the largest output", "与最大输出之比")[lang])
    for axes in (left, right):
        axes.grid(axis="x", visible=False)


CLAIM = Claim(
    number=7,
    title=Words("Attention needs positions", "注意力需要位置信息"),
    claim=Words(
        "Attention does not see the order of words; without positions it is blind to it.",
        "注意力本身看不到词序；没有位置信息就无从分辨。",
    ),
    source="001",
    how=Words(
        f"Two layers, {T} words, two of them marked; which came first? Three models that differ in "
        "one thing each: no positions; learned positions; no positions but a causal mask. The "
        f"same steps, each with {BEST_RATE.en}. Beside it, untrained: are the "
        "outputs of shuffled words the shuffled outputs?",
        f"两层，{T} 个词，其中两个有标记，谁在前？三个模型，每次只差一处：没有位置；可学习的位置；"
        f"没有位置但有因果掩码。步数相同，各用{BEST_RATE.zh}。另外，未训练时：打乱的词的输出，"
        "是否就是打乱的输出？",
    ),
    for_=Words(
        f"Without positions shuffling changes nothing else (less than {ROUNDING:.0e}) and the "
        f"answer is a guess (at most {GUESSING:.0%}), with them it is learned (at least "
        f"{LEARNED:.0%}); and a causal mask does not help. If the mask does: holds only when.",
        f"没有位置时，打乱不改变别的（小于 {ROUNDING:.0e}），答案只能猜（至多 {GUESSING:.0%}）；有"
        f"位置则能学会（至少 {LEARNED:.0%}）；且因果掩码无济于事。若掩码有用，则为“仅在……时成立”。",
    ),
    against=Words(
        f"Without positions or mask the outputs differ (more than {MOVED:.0e}), or the answer is "
        f"found in more than {GUESSING:.0%}.",
        f"没有位置和掩码时输出就不同（大于 {MOVED:.0e}），或正确率超过 {GUESSING:.0%}。",
    ),
    measure=measure,
    judge=judge,
    draw=draw,
    tried=WENT_ON,
)
