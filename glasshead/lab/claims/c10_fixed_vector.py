"""Claim 10: a context vector of fixed size fails on long sentences; attention does not."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Verdict, Words
from glasshead.lab.claims.drawing import AGAINST, CHANCE, FOR, OTHER, band, tidy
from glasshead.lab.claims.rnn import LSTMSeq2Seq, count, equal
from glasshead.lab.claims.search import (
    BEST_RATE,
    BURST,
    RATES,
    WENT_ON,
    cautions,
    searched,
    shown,
)
from glasshead.lab.claims.spread import parted
from glasshead.lab.claims.stats import Interval, difference, mean, unbroken
from glasshead.lab.claims.training import fit
from glasshead.model.transformer import Memory, Transformer, TransformerConfig

__all__ = ["CLAIM", "OneVector", "judge", "measure"]

SYMBOLS = 10
PAD, BEGIN, FIRST = 0, 1, 2  # ids
B = 32
# A fifth of the symbols: no rounding, and what a reader would call a difference.
APART = 0.2
# Nine symbols in ten are right: the sentence came through.
THROUGH = 0.9

SIDES = ("attention", "one vector", "lstm")
# What is to be written: the sentence, or the sentence from its end, where what was read last and is
# freshest in a recurrent memory comes first.
TASKS = {"copy": Words("copying", "抄写"), "reverse": Words("reversing", "倒写")}

Build = Callable[[TransformerConfig], Transformer]


class OneVector(Transformer):
    """The same Transformer, but its decoder sees one vector of all that the encoder made."""

    def encode(self, source: Tensor) -> Memory:
        memory = super().encode(source)
        return Memory(memory.x[:, :1], memory.keys[:, :1])


def measure(
    budget: Budget,
    *,
    attention: Build = Transformer,
    tasks: Sequence[str] = tuple(TASKS),
    longest: int | None = None,
    steps: int | None = None,
    rates: Sequence[float] = RATES,
) -> Evidence:
    """`attention`: what fixed vectors are compared with. Trained up to `longest` symbols."""
    longest = longest or (16 if budget.quick else 24)
    steps = steps or (400 if budget.quick else 1000)
    lengths = sorted({1, *(max(1, longest * n // 8) for n in (1, 2, 3, 4, 6, 8, 10, 12, 16))})
    items = [(task, attention, lengths, longest, steps, rates) for task in tasks]
    found = parted(budget, _learned, items)
    return {
        "parameters": {side: count(make()) for side, make in _makers(attention).items()},
        "lengths": lengths,
        "longest": longest,
        "steps": steps,
        "batch": B,
        "chance": 1 / SYMBOLS,
        "tasks": dict(zip(tasks, found, strict=True)),
    }


def _makers(attention: Build) -> dict[str, Callable[[], nn.Module]]:
    config = TransformerConfig(
        SYMBOLS + FIRST, n_layers=1, n_heads=2, d_model=32, d_ff=64, dropout=0.0
    )
    parameters = count(Transformer(config))
    return {
        "attention": lambda: attention(config),
        "one vector": lambda: OneVector(config),
        "lstm": lambda: equal(lambda width: LSTMSeq2Seq(config.vocab_size, width), parameters),
    }


def _learned(
    budget: Budget,
    task: str,
    attention: Build,
    lengths: Sequence[int],
    longest: int,
    steps: int,
    rates: Sequence[float],
) -> dict[str, Any]:
    """One task, learned by all sides: the search, and the accuracy by side, length and seed."""
    makers = _makers(attention)

    def run(side: str, lr: float, seed: int) -> tuple[float, list[float]]:
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            model = makers[side]()

        def loss(step: int) -> Tensor:
            source, target_in, target = _sentences(task, longest, None, B, seed, step)
            return F.cross_entropy(model(source, target_in).flatten(0, 1), target.flatten())

        fit(model, loss, lr=lr, steps=steps)
        with torch.no_grad():
            last = torch.stack([loss(10**6 + n) for n in range(20)]).mean().item()
        return last, [_accuracy(model, task, n, seed) for n in lengths]

    failed = (BURST, [0.0] * len(lengths))
    found = searched(budget, SIDES, run, lambda result: result[0], rates, failed=failed)
    return {
        "rates": shown(found),
        "accuracy": {
            side: [list(values) for values in zip(*(acc for _, acc in one.results), strict=True)]
            for side, one in found.items()
        },
    }


def _sentences(
    task: str, longest: int, length: int | None, rows: int, seed: int, step: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Random sentences, what the writer gets and what it is to write. A batch has one length."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    length = length or int(torch.randint(1, longest + 1, (), generator=generator))
    source = torch.randint(FIRST, FIRST + SYMBOLS, (rows, length), generator=generator)
    target = source.flip(1) if task == "reverse" else source
    begin = torch.full((rows, 1), BEGIN)
    return source, torch.cat([begin, target[:, :-1]], dim=1), target


def _accuracy(model: nn.Module, task: str, length: int, seed: int) -> float:
    source, target_in, target = _sentences(task, length, length, 200, seed, 2 * 10**6)
    with torch.no_grad():
        return (model(source, target_in).argmax(-1) == target).float().mean().item()


@dataclass(frozen=True)
class TaskOutcome:
    """What came of one task; all by side."""

    short: Mapping[str, Interval]  # right at the shortest
    long: Mapping[str, Interval]  # at the longest trained on
    beyond: Mapping[str, Interval]  # at twice as many
    reached: Mapping[str, int]  # up to how many symbols most are right
    apart: Interval  # attention minus the better fixed vector, at the longest
    falls: Interval  # what that vector loses from the shortest to the longest
    learned: bool  # the shortest, by attention and by that vector

    @classmethod
    def of(cls, evidence: Evidence, task: str) -> "TaskOutcome":
        lengths, accuracy = evidence["lengths"], evidence["tasks"][task]["accuracy"]
        at = lengths.index(evidence["longest"])
        short, long, beyond = (
            {side: mean(accuracy[side][n]) for side in SIDES} for n in (0, at, -1)
        )
        # Against whichever fixed vector does better.
        fixed = max(("one vector", "lstm"), key=lambda side: long[side].value)
        return cls(
            short,
            long,
            beyond,
            {
                side: unbroken(lengths, [mean(values).value > THROUGH for values in accuracy[side]])
                for side in SIDES
            },
            difference(accuracy["attention"][at], accuracy[fixed][at]),
            difference(accuracy[fixed][0], accuracy[fixed][at]),
            all(short[side].low > THROUGH for side in ("attention", fixed)),
        )

    @property
    def verdict(self) -> Verdict:
        beyond = self.beyond["attention"]
        if not self.learned:
            # Who cannot do the shortest has not run out of room: it was not learned.
            return Verdict.UNCLEAR
        if min(self.apart.low, self.falls.low) > APART and self.long["attention"].low > THROUGH:
            if beyond.low > THROUGH:
                return Verdict.HOLDS
            return Verdict.HOLDS_WHEN if beyond.high < THROUGH else Verdict.UNCLEAR
        return Verdict.FAILS if self.apart.high < APART else Verdict.UNCLEAR


def judge(evidence: Evidence) -> Finding:
    found = {task: TaskOutcome.of(evidence, task) for task in evidence["tasks"]}
    verdicts = {task: one.verdict for task, one in found.items()}
    holding = [t for t, v in verdicts.items() if v in (Verdict.HOLDS, Verdict.HOLDS_WHEN)]
    if len(set(verdicts.values())) == 1:
        verdict = next(iter(verdicts.values()))
    else:
        verdict = Verdict.HOLDS_WHEN if holding else Verdict.UNCLEAR
    last, longest, first = evidence["lengths"][-1], evidence["longest"], evidence["lengths"][0]
    en = (
        f"After {evidence['steps']} steps, on sentences of {longest} symbols, the longest trained "
        f"on (chance {evidence['chance']:.0%}):"
    )
    zh = (
        f"训练 {evidence['steps']} 步后，在训练中最长的 {longest} 个符号的句子上（随机 "
        f"{evidence['chance']:.0%}）："
    )
    numbers: dict[str, Interval | float] = {}
    for task, one in found.items():
        each = [f"{one.long[side]:.0%}" for side in SIDES]
        far = [str(one.reached[side]) for side in SIDES]
        en += (
            f" {TASKS[task].en.capitalize()}, {each[0]} of symbols are right with attention, "
            f"{each[1]} when the same Transformer must pass all through one vector, {each[2]} for "
            "an LSTM pair; nine "
            f"in ten are right up to {far[0]}, {far[1]} and {far[2]} symbols, and at {last}, "
            f"longer than any seen in training, attention has {one.beyond['attention']:.0%}."
        )
        zh += (
            f"{TASKS[task].zh}时，有注意力 {each[0]} 的符号正确；同一个 Transformer 只能通过一个向"
            f"量传递时 {each[1]}；一对 LSTM {each[2]}；九成正确的长度分别到 {'、'.join(far)}；"
            f"{last} 个符号（比训练中的都长）时，注意力为 {one.beyond['attention']:.0%}。"
        )
        if one.verdict is Verdict.FAILS and one.long["attention"].high < THROUGH:
            en += " With attention the longest was not learned either; more steps may change that."
            zh += "注意力也没有学会最长的；训练更久可能会不同。"
        if not one.learned:
            en += f" Sentences of {first} were not learned by both, so one cannot tell."
            zh += f"长 {first} 的句子并非双方都学会，因此无法判断。"
        numbers |= {
            **{f"{task}: right at {longest}, {side}": x for side, x in one.long.items()},
            **{f"{task}: right at {last}, {side}": x for side, x in one.beyond.items()},
            f"{task}: attention minus the better fixed vector": one.apart,
            f"{task}: what the better fixed vector loses from the shortest": one.falls,
            **{f"{task}: right at {first}, {side}": x for side, x in one.short.items()},
        }
    said = [_said(task, one) for task, one in verdicts.items()]
    en += f" So {'; '.join(words.en for words in said)}."
    zh += f"所以：{'；'.join(words.zh for words in said)}。"
    for task, name in TASKS.items():
        if task in found:
            names = {side: Words(f"{of.en}, {name.en}", f"{name.zh}的{of.zh}")
                     for side, (of, _) in NAMES.items()}  # fmt: skip
            aside = cautions(evidence["tasks"][task]["rates"], names)
            en, zh = en + aside.en, zh + aside.zh
    return Finding(verdict, Words(en, zh), numbers)


def _said(task: str, verdict: Verdict) -> Words:
    said = {
        Verdict.HOLDS: Words("it holds", "成立"),
        Verdict.HOLDS_WHEN: Words(
            "it holds only when sentences are no longer than those trained on",
            "只有当句子不比训练时的更长时才成立",
        ),
        Verdict.FAILS: Words("it does not hold", "不成立"),
        Verdict.UNCLEAR: Words("one cannot tell", "无法判断"),
    }[verdict]
    return Words(f"for {TASKS[task].en} {said.en}", f"就{TASKS[task].zh}而言{said.zh}")


NAMES = {
    "attention": (Words("attention to all of the source", "注意力，可看整个源句"), FOR),
    "one vector": (Words("the same through one vector", "同一模型，只经过一个向量"), OTHER),
    "lstm": (Words("LSTM pair, fixed vector", "一对 LSTM，固定向量"), AGAINST),
}


def draw(evidence: Evidence, figure: Any, lang: str) -> None:
    titles = {
        "copy": Words("Symbols copied correctly", "抄写正确的符号"),
        "reverse": Words("Written backwards correctly", "倒写正确的符号"),
    }
    figure.set_size_inches(7.2, 3.9)
    longest = evidence["longest"]
    panels = figure.subplots(1, len(evidence["tasks"]), sharey=True, squeeze=False)[0]
    for axes, (task, found) in zip(panels, evidence["tasks"].items(), strict=True):
        for side, (name, color) in NAMES.items():
            band(axes, evidence["lengths"], found["accuracy"][side], color, label=name[lang])
        axes.axvspan(longest, evidence["lengths"][-1], color="#8a8f98", alpha=0.08, linewidth=0)
        axes.annotate(
            Words("longer than in training", "比训练时更长")[lang],
            (longest, 1.02),
            xytext=(6, 0),
            textcoords="offset points",
            fontsize=8,
            color="#6b7078",
            va="bottom",
        )
        axes.axhline(evidence["chance"], **CHANCE)
        axes.annotate(Words("chance", "随机")[lang], (1, evidence["chance"]), xytext=(0, -11),
                      textcoords="offset points", fontsize=8, color="#6b7078")  # fmt: skip
        axes.set_ylim(0, 1.1)
        tidy(axes, titles[task][lang], x=Words("length of the sentence", "句子长度")[lang])
    figure.legend(*panels[0].get_legend_handles_labels(), fontsize=8.5, ncols=3,
                  loc="outside lower center")  # fmt: skip


CLAIM = Claim(
    number=10,
    title=Words("One vector cannot hold a long sentence", "固定向量装不下长句"),
    claim=Words(
        "A context vector of fixed size cannot hold all of a long sentence; attention, which looks "
        "at all of the source for each output, can.",
        "固定大小的上下文向量无法容纳长句的全部信息；注意力在生成每个输出时都能看到全部输入，因而可"
        "以。",
    ),
    source="002",
    how=Words(
        "Copy random sentences of up to a certain length; and, as another task, write them "
        "backwards, which suits a memory that knows best what it read last. A Transformer; the "
        "same Transformer, parameter for parameter, whose decoder sees one vector of the "
        "encoder's; an LSTM pair of as many parameters (within 2 %). Same batches and steps, each "
        f"with {BEST_RATE.en}. Then sentences up to twice as long. The decoder is given the right "
        "symbols so far.",
        "抄写不超过一定长度的随机句子；另一个任务是把它倒着写，这更适合最记得刚读过的东西的记忆。一"
        "个 Transformer；参数完全相同、但解码器只能看到编码器一个向量的 Transformer；参数相同（差 "
        f"2% 以内）的一对 LSTM。批次和步数相同，各取{BEST_RATE.zh}。然后测到两倍长的句子。解码时给"
        "出此前正确的符号。",
    ),
    for_=Words(
        f"At the longest sentences of the training, attention gets more than {THROUGH:.0%} right, "
        f"{APART:.0%} more than the better of the fixed vectors, which falls by {APART:.0%} from "
        f"the shortest; in both tasks. If attention fails on longer ones (less than {THROUGH:.0%} "
        "at twice the length), or for one task only: it holds only when. All of this if the "
        f"shortest are learned ({THROUGH:.0%} right); if not, or where an interval holds the "
        "threshold, one cannot tell.",
        f"在训练中最长的句子上，注意力正确 {THROUGH:.0%} 以上，比较好的固定向量高 {APART:.0%} 以"
        f"上，而后者比最短时低 {APART:.0%} 以上；两个任务都如此。若更长时（两倍长度）注意力也不到 "
        f"{THROUGH:.0%}，或只有一个任务如此：仅在该情形下成立。前提是最短的句子都学会了（"
        f"{THROUGH:.0%} 正确）；否则，或区间跨过门槛，则无法判断。",
    ),
    against=Words(
        "The shortest are learned, and at the longest sentences of the training less than "
        f"{APART:.0%} lies between the two, in both tasks.",
        f"最短的句子都学会了，而在训练中最长的句子上相差不到 {APART:.0%}，两个任务都如此。",
    ),
    measure=measure,
    judge=judge,
    draw=draw,
    tried=Words(
        "At first only copying was measured. In a trial of reversing (one seed) the LSTM with one "
        "vector did about as well as attention at most lengths, so reversing was made to count as "
        "well. The rules that the shortest must be learned and that intervals across the threshold "
        f"tell nothing came after the first results. {WENT_ON.en}",
        "起初只测“照抄”。在“倒着抄”的一次试验（一个种子）里，只有一个向量的 LSTM 在多数长度上与注意"
        "力不相上下，因此让“倒写”也计入。“最短的必须学会”和“区间跨过门槛则无法判断”这两条是看过最"
        f"初的结果之后加上的。{WENT_ON.zh}",
    ),
)
