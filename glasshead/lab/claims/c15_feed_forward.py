"""Claim 15: a feed-forward layer adds expressiveness. Why did it make rung 5 worse than rung 4?"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Verdict, Words
from glasshead.lab.claims.drawing import AGAINST, FOR, GREY, OTHER, band, tidy
from glasshead.lab.claims.rnn import count
from glasshead.lab.claims.search import BEST_RATE, RATES, WENT_ON, cautions, searched, shown
from glasshead.lab.claims.stats import Interval, difference, mean
from glasshead.lab.claims.training import TextTask, fit
from glasshead.model.gpt import GPT, GPTConfig

__all__ = ["CLAIM", "judge", "measure"]

# Two hundredths of a nat: twice what seeds move the loss of these models.
BETTER = 0.02
# Of a table to be learned by heart, a twentieth.
MORE = 0.05
# A tenth of a nat below the frequencies of characters: something was learned.
LEARNED = 0.1
N = 24  # symbols: a table of 24 x 24 random answers
LAYER: dict[str, Any] = {
    "n_layers": 1,
    "n_heads": 4,
    "d_model": 32,
    "norm_place": "none",
    "project": False,
}
TABLE: dict[str, Any] = {"n_heads": 2, "d_model": 16, "norm_place": "none"}


def measure(
    budget: Budget,
    *,
    feed_forward: str = "relu",
    steps: int | None = None,
    table_steps: int | None = None,
    rates: Sequence[float] = RATES,
) -> Evidence:
    """`feed_forward`: what is added, widened four times as in rung 8."""
    steps = steps or (150 if budget.quick else 500)
    table_steps = table_steps or (200 if budget.quick else 500)

    def text_progress(done: float, what: str) -> None:
        budget.progress(0.7 * done, what)

    def table_progress(done: float, what: str) -> None:
        budget.progress(0.7 + 0.3 * done, f"table, {what}")

    text = _text(Budget(budget.quick, budget.seeds, text_progress), feed_forward, steps, rates)
    sides = {
        "attention": {"n_layers": 1, "feed_forward": "none"},
        "feed-forward": {"n_layers": 1, "feed_forward": feed_forward},
        # Two more layers of attention have the parameters of a feed-forward widened four times.
        "more attention": {"n_layers": 3, "feed_forward": "none"},
    }
    found = searched(
        Budget(budget.quick, budget.seeds, table_progress),
        list(sides),
        lambda side, lr, seed: _table(sides[side], lr, seed, table_steps),
        lambda right: -right,
        rates,
        failed=0.0,
    )
    return {
        **text,
        "table": {
            "entries": N * N,
            "steps": table_steps,
            "chance": 1 / N,
            "rates": shown(found),
            "parameters": {side: count(_reader(0, s)) for side, s in sides.items()},
            "right": {side: one.results for side, one in found.items()},
        },
    }


def _text(budget: Budget, feed_forward: str, steps: int, rates: Sequence[float]) -> dict[str, Any]:
    """Rungs 4 and 5, and what lies between: each at its best rate and at every one of `rates`, with
    and without residual."""
    task = TextTask(block=8, batch_size=32)
    kinds = {
        "attention": "none",
        "linear-relu": "none" if feed_forward == "none" else "linear-relu",
        "wide": feed_forward,
    }
    sides = {
        f"{residual}{name}": {**LAYER, "residual": bool(residual), "feed_forward": kind}
        for residual in ("", "residual ")
        for name, kind in kinds.items()
    }

    def run(side: str, lr: float, seed: int) -> float:
        model = task.gpt(seed, **sides[side])
        return task.train(model, lr=lr, seed=seed, steps=steps, points=1).val[-1]

    def progress(done: float, what: str) -> None:
        budget.progress(done / 2, what)

    within = Budget(budget.quick, budget.seeds, progress)
    found = searched(within, list(sides), run, lambda loss: loss, rates)
    losses: dict[str, dict[str, list[float]]] = {}
    for n, (side, one) in enumerate(found.items()):
        budget.progress((1 + n / len(sides)) / 2, f"{side}, every rate")
        losses[side] = {
            f"{lr:g}": one.results if lr == one.lr else [run(side, lr, s) for s in budget.seeds]
            for lr in sorted({*rates, one.lr})
        }
    return {"steps": steps, "rates": list(rates), "search": shown(found), "losses": losses,
            "unigram": task.unigram()}  # fmt: skip


def _reader(seed: int, settings: dict[str, Any]) -> GPT:
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return GPT(GPTConfig(N + 1, max_len=3, **TABLE, **settings))


def _table(settings: dict[str, Any], lr: float, seed: int, steps: int) -> float:
    """Learn a random table by heart: a, b, = and the answer. The share that is right."""
    generator = torch.Generator().manual_seed(seed)
    answers = torch.randint(N, (N * N,), generator=generator)
    a, b = torch.arange(N).repeat_interleave(N), torch.arange(N).repeat(N)
    ids = torch.stack([a, b, torch.full_like(a, N)], dim=1)  # (N², 3)
    model = _reader(seed, settings)

    def loss(step: int) -> Tensor:
        return F.cross_entropy(model(ids)[:, -1], answers)

    fit(model, loss, lr=lr, steps=steps)
    with torch.no_grad():
        return (model(ids)[:, -1].argmax(-1) == answers).float().mean().item()


def judge(evidence: Evidence) -> Finding:
    losses, rates = evidence["losses"], evidence["rates"]

    def at_best(side: str) -> list[float]:
        values: list[float] = losses[side][f"{evidence['search'][side]['best']:g}"]
        return values

    def worse(before: str, after: str, lr: float) -> Interval:
        return difference(losses[after][f"{lr:g}"], losses[before][f"{lr:g}"])

    right = evidence["table"]["right"]
    on_text = difference(at_best("residual attention"), at_best("residual wide"))
    by_heart = difference(right["feed-forward"], right["attention"])
    same_size = difference(right["feed-forward"], right["more attention"])
    helps_text, helps_table = on_text.low > BETTER, by_heart.low > MORE
    # Or is it only that there are more parameters? Then attention could have used them as well.
    itself = same_size.low > MORE
    table = evidence["table"]
    without = [evidence["unigram"] - loss for loss in at_best("residual attention")]
    learned = (
        mean(without).low > LEARNED
        and max(mean(values).low for values in right.values()) > table["chance"] + MORE
    )
    if not learned:
        verdict = Verdict.UNCLEAR
    elif helps_text and helps_table and itself:
        verdict = Verdict.HOLDS
    elif helps_text or helps_table:
        verdict = Verdict.HOLDS_WHEN
    elif on_text.high < BETTER and by_heart.high < MORE:
        verdict = Verdict.FAILS
    else:
        verdict = Verdict.UNCLEAR
    low, high = rates[0], rates[-1]
    rung5 = {lr: worse("attention", "linear-relu", lr) for lr in rates}
    mended = worse("residual attention", "residual linear-relu", high)
    slow = worse("residual attention", "residual wide", low)
    # No gain at the best rates but one at the smallest: what was added is speed.
    speed = -slow.high > BETTER and on_text.high < BETTER
    en = (
        f"A table of {table['entries']} random answers, learned by heart: "
        f"{mean(right['attention']):.0%} with attention alone, {mean(right['feed-forward']):.0%} "
        f"with a feed-forward, {mean(right['more attention']):.0%} when two more layers of "
        f"attention have its parameters instead. On the stories, after {evidence['steps']} steps "
        f"and at the best rates, it lowers the loss by {on_text:.3f} nats; at rate {low:g} by "
        f"{-slow.value:.3f}{': what it adds there is speed' if speed else ''}. Rung 5 against rung "
        f"4 (one linear layer, no residual): {rung5[high]:+.3f} at rate {high:g}, "
        f"{rung5[low]:+.3f} at {low:g}, and {mended:+.3f} at {high:g} with a residual."
    )
    zh = (
        f"背下一张有 {table['entries']} 个随机答案的表：只有注意力 {mean(right['attention']):.0%}，"
        f"加前馈层 {mean(right['feed-forward']):.0%}；把同样多的参数给两层注意力，则为 "
        f"{mean(right['more attention']):.0%}。在故事文本上训练 {evidence['steps']} 步，各取最好的"
        f"学习率，前馈层使损失降低 {on_text:.3f}；学习率 {low:g} 时降低 {-slow.value:.3f}"
        f"{'：这里它带来的是速度' if speed else ''}。第 5 级对第 4 级（一个线性层，无残差）：学习率"
        f" {high:g} 时 "
        f"{rung5[high]:+.3f}，{low:g} 时 {rung5[low]:+.3f}；加残差后在 {high:g} 时 {mended:+.3f}。"
    )
    if verdict is Verdict.HOLDS_WHEN:
        when = _when(on_text, helps_table, same_size)
        en += f" So it holds only {' and '.join(one.en for one in when)}."
        zh += f"所以，只在{'、且'.join(one.zh for one in when)}时成立。"
    if not learned:
        en += " Too little was learned of the text or of the table, so one cannot tell."
        zh += "文本或表学到的太少，因此无法判断。"
    tables = {f"table {side}": one for side, one in table["rates"].items()}
    search = {**evidence["search"], **tables}
    aside = cautions(search, DECIDING)
    numbers: dict[str, Interval | float] = {
        "text, best rates: loss lower by": on_text,
        f"text, rate {low:g}: loss higher by": slow,
        "table: more right than attention alone": by_heart,
        "table: more right than attention of the same size": same_size,
        **{f"rung 5 minus rung 4, rate {lr:g}": value for lr, value in rung5.items()},
        f"the same with a residual, rate {high:g}": mended,
        "text: attention below character frequencies by": mean(without),
    }
    return Finding(verdict, Words(en + aside.en, zh + aside.zh), numbers)


# Of the sides that decide.
DECIDING = {
    "residual attention": Words("attention on the text", "文本上的注意力"),
    "residual wide": Words("feed-forward on the text", "文本上的前馈"),
    "table attention": Words("attention on the table", "表上的注意力"),
    "table feed-forward": Words("feed-forward on the table", "表上的前馈"),
    "table more attention": Words("more attention on the table", "表上更多的注意力"),
}


def _when(on_text: Interval, helps_table: bool, same_size: Interval) -> list[Words]:
    """What it holds only for, where it helps with one of the two at least."""
    fewer = Words("against fewer parameters", "与参数更少的模型相比")
    when = []
    if on_text.high < BETTER:
        when.append(Words("for what is learned by heart, not on the text", "背表（而非文本）"))
    elif on_text.low <= BETTER:
        en = "for what is learned by heart (on the text one cannot tell)"
        when.append(Words(en, "背表（文本上无法判断）"))
    if not helps_table:
        # No attention of the same size was trained on the text.
        when.append(Words(f"on the text, {fewer.en}", f"文本上{fewer.zh}"))
    elif same_size.high < MORE:
        en = f"{fewer.en}: as attention they are worth as much or more"
        when.append(Words(en, f"{fewer.zh}（同样的参数给注意力，作用不相上下甚至更大）"))
    elif same_size.low <= MORE:
        en = f"{fewer.en} (whether as attention they would be worth as much cannot be told)"
        when.append(Words(en, f"{fewer.zh}（同样的参数给注意力是否一样好，无法判断）"))
    return when


def draw(evidence: Evidence, figure: Any, lang: str) -> None:
    figure.set_size_inches(7.2, 3.9)
    left, right = figure.subplots(1, 2, width_ratios=(1.35, 1))
    rates = evidence["rates"]
    kinds = {
        "linear-relu": (Words("rung 5's: linear, ReLU", "第 5 级：线性层加 ReLU"), AGAINST),
        "wide": (Words("widened four times", "加宽四倍"), FOR),
    }
    for residual, style in (("", "--"), ("residual ", "-")):
        base = evidence["losses"][f"{residual}attention"]
        for kind, (name, color) in kinds.items():
            after = evidence["losses"][f"{residual}{kind}"]
            pairs = [(base[f"{lr:g}"], after[f"{lr:g}"]) for lr in rates]
            gains = [[b - a for a, b in zip(*pair, strict=True)] for pair in pairs]
            tail = Words("with residual", "有残差") if residual else Words("no residual", "无残差")
            label = f"{name[lang]} · {tail[lang]}"
            band(left, rates, gains, color, linestyle=style, label=label)
    left.axhline(0, color=GREY, linewidth=1)
    left.set_xscale("log")
    left.set_xticks(rates, [f"{lr:g}" for lr in rates])
    left.minorticks_off()
    tidy(
        left,
        Words("Loss with a feed-forward minus without", "加前馈层后损失的变化")[lang],
        x=Words("learning rate", "学习率")[lang],
    )
    left.legend(fontsize=7.5, loc="lower right")
    bars = {
        "attention": (Words("attention", "注意力"), GREY),
        "feed-forward": (Words("+ feed-\nforward", "加前馈"), FOR),
        "more attention": (Words("+ 2 layers of\nattention", "再加两层\n注意力"), OTHER),
    }
    for at, (side, (_, color)) in enumerate(bars.items()):
        values = evidence["table"]["right"][side]
        right.bar(at, sum(values) / len(values), color=color, width=0.6)
        right.plot([at] * len(values), values, "o", color="#333333", markersize=3)
    right.set_xticks(
        range(3), [name[lang] for name, _ in bars.values()], fontsize=8, linespacing=1.35
    )
    right.set_ylim(0, 1.05)
    entries = evidence["table"]["entries"]
    tidy(right, Words(f"{entries} answers by heart", f"背下 {entries} 个答案")[lang])
    right.grid(visible=False, axis="x")


CLAIM = Claim(
    number=15,
    title=Words("A feed-forward layer adds expressiveness", "前馈层增强表达力"),
    claim=Words(
        "A feed-forward layer after attention gives each token a non-linear transformation of its "
        "own and so adds expressiveness.",
        "注意力之后的前馈层为每个词元提供独立的非线性变换，增强了模型的表达力。",
    ),
    source="004",
    how=Words(
        "One layer of attention on the stories as in rungs 4 and 5, without a feed-forward, with "
        "rung 5's (linear, ReLU), with one widened four times; each with and without a residual, "
        f"with {BEST_RATE.en} and with each of the three. Apart from it, a table of random answers "
        "to be learned by heart, where a control puts the feed-forward's parameters into two more "
        "layers of attention.",
        "在故事文本上训练一层注意力，如第 4、5 级：无前馈、第 5 级的前馈（线性层加 ReLU）、加宽四倍"
        f"的前馈；各有残差与无残差，取{BEST_RATE.zh}，也看那三个学习率各自如何。另外背一张随机答案"
        "的表；对照组把前馈层的参数换成再加两层注意力。",
    ),
    for_=Words(
        f"At the best rates the loss on the stories falls by more than {BETTER} nats, {MORE:.0%} "
        f"more of the table is learned than by attention alone, and {MORE:.0%} more than by "
        "attention of the same size. Some of it: it holds only when. All of this if attention gets "
        f"{LEARNED} nats below character frequencies on the stories and the best learns "
        f"{MORE:.0%} of the table beyond chance; if not, one cannot tell.",
        f"各取最好的学习率，故事文本上的损失降低 {BETTER} 以上；表的正确率比只有注意力时高 "
        f"{MORE:.0%} 以上，且比参数相同的注意力也高 {MORE:.0%} 以上。只满足一部分：仅在该情形下成"
        f"立。前提是注意力在故事文本上的损失比字频低 {LEARNED} 以上，且最好的一方背下的表比随机多 "
        f"{MORE:.0%}；否则无法判断。",
    ),
    against=Words(
        f"Less than {BETTER} nats and less than {MORE:.0%}.",
        f"损失降低不到 {BETTER}，且正确率提高不到 {MORE:.0%}。",
    ),
    measure=measure,
    judge=judge,
    draw=draw,
    tried=Words(
        "The verdict was “holds” until the control with equal parameters was let count; the "
        "table's model was made narrower, because at width 32 everyone solved it. At first the "
        f"control only had to be no {MORE:.0%} better; now it has to be {MORE:.0%} worse; and that "
        f"something must have been learned was not asked. {WENT_ON.en}",
        "在“参数量相等”的对照计入之前，结论曾是“成立”；查表任务的模型后来变窄了，因为宽度 32 时"
        f"谁都能全对。起初只要求对照不比它好 {MORE:.0%}，现在要求对照比它差 {MORE:.0%}；也没有"
        f"要求先学到东西。{WENT_ON.zh}",
    ),
    correction=Words(
        "004 describes rung 5's feed-forward as two layers, widened four times. The code of rung 5 "
        "is one linear layer of the same width and a ReLU; the wide one arrives with rung 8.",
        "004 把第 5 级的前馈描述为先加宽四倍的两层结构。第 5 级的代码只有一个同宽的线性层加 ReLU；"
        "加宽四倍的两层前馈到第 8 级才出现。",
    ),
)
