"""Claim 15: a feed-forward layer adds expressiveness. Why did it make rung 5 worse than rung 4?"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Numbers
from glasshead.lab.claims.drawing import AGAINST, FOR, GREY, OTHER, draw_band, draw_bar, style_axes
from glasshead.lab.claims.models import build_seeded, count_parameters
from glasshead.lab.claims.search import RATES, SEARCH_WORDS, caution, compare_at_best_rates
from glasshead.lab.claims.stats import Interval, difference, mean
from glasshead.lab.claims.training import TextTask, fit, say_lower
from glasshead.lab.claims.verdict import Verdict
from glasshead.lab.texts import join_sentences, join_words, read_texts
from glasshead.model.gpt import GPT, GPTConfig

__all__ = ["CLAIM", "judge", "measure"]

TEXTS = read_texts(__file__)
# Two hundredths of a nat: twice the spread of these models' losses over seeds.
BETTER = 0.02
# Of a table to be learned by heart, a twentieth.
MORE = 0.05
# A tenth of a nat below the frequencies of characters: something was learned.
LEARNED = 0.1
N = 24  # symbols: a table of 24 x 24 random answers
LAYER: dict[str, Any] = {
    "n_layers": 1, "n_heads": 4, "d_model": 32, "norm_place": "none", "project": False
}  # fmt: skip
TABLE: dict[str, Any] = {"n_heads": 2, "d_model": 16, "norm_place": "none"}
# The sides that decide the verdict.
DECIDING = ("residual attention", "residual wide", "table attention", "table feed-forward",
            "table more attention")  # fmt: skip


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
    text = _learn_text(budget.part(0, 0.7), feed_forward, steps, rates)
    sides = {
        "attention": {"n_layers": 1, "feed_forward": "none"},
        "feed-forward": {"n_layers": 1, "feed_forward": feed_forward},
        # Two more layers of attention have the parameters of a feed-forward widened four times.
        "more attention": {"n_layers": 3, "feed_forward": "none"},
    }
    found = compare_at_best_rates(
        budget.part(0.7, 0.3, "table, "),
        tuple(sides),
        lambda side, lr, seed: _learn_table(sides[side], lr, seed, table_steps),
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
            "rates": {side: one.evidence() for side, one in found.items()},
            "parameters": {side: count_parameters(_reader(0, s)) for side, s in sides.items()},
            "right": {side: one.results for side, one in found.items()},
        },
    }


def _learn_text(
    budget: Budget, feed_forward: str, steps: int, rates: Sequence[float]
) -> dict[str, Any]:
    """Train rungs 4 and 5 and what lies between: each at its best rate and at every one of `rates`,
    with and without residual."""
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

    found = compare_at_best_rates(
        budget.part(0, 0.5), tuple(sides), run, lambda loss: loss, rates
    )  # fmt: skip
    losses: dict[str, dict[str, list[float]]] = {}
    for n, (side, one) in enumerate(found.items()):
        budget.progress((1 + n / len(sides)) / 2, f"{side}, every rate")
        losses[side] = {
            f"{lr:g}": one.results if lr == one.lr else [run(side, lr, s) for s in budget.seeds]
            for lr in sorted({*rates, one.lr})
        }
    return {
        "steps": steps,
        "rates": list(rates),
        "search": {side: one.evidence() for side, one in found.items()},
        "losses": losses,
        "unigram": task.unigram_loss(),
    }


def _reader(seed: int, settings: dict[str, Any]) -> GPT:
    return build_seeded(seed, lambda: GPT(GPTConfig(N + 1, max_len=3, **TABLE, **settings)))


def _learn_table(settings: dict[str, Any], lr: float, seed: int, steps: int) -> float:
    """Learn a random table by heart: a, b, = and the answer. Return the share that is right."""
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
    losses, rates, table = evidence["losses"], evidence["rates"], evidence["table"]

    def at_best(side: str) -> list[float]:
        values: list[float] = losses[side][f"{evidence['search'][side]['best']:g}"]
        return values

    def worse(before: str, after: str, lr: float) -> Interval:
        return difference(losses[after][f"{lr:g}"], losses[before][f"{lr:g}"])

    right = {side: mean(values) for side, values in table["right"].items()}
    on_text = difference(at_best("residual attention"), at_best("residual wide"))
    # Is it only that there are more parameters? Then attention could have used them as well.
    by_heart, same_size = (
        difference(table["right"]["feed-forward"], table["right"][side])
        for side in ("attention", "more attention")
    )
    helps_text, helps_table = on_text.low > BETTER, by_heart.low > MORE
    below = mean([evidence["unigram"] - loss for loss in at_best("residual attention")])
    best_right = max(one.low for one in right.values())
    learned = below.low > LEARNED and best_right > table["chance"] + MORE
    if not learned:
        verdict = Verdict.UNCLEAR
    elif helps_text and helps_table and same_size.low > MORE:
        verdict = Verdict.HOLDS
    elif helps_text or helps_table:
        verdict = Verdict.HOLDS_WHEN
    elif on_text.high < BETTER and by_heart.high < MORE:
        verdict = Verdict.FAILS
    else:
        verdict = Verdict.UNCLEAR
    low, high = rates[0], rates[-1]
    rung5 = {lr: worse("attention", "linear-relu", lr) for lr in rates}
    with_residual = worse("residual attention", "residual linear-relu", high)
    slow = worse("residual attention", "residual wide", low)
    # No gain at the best rates but one at the smallest: what was added is speed.
    speed = -slow.high > BETTER and on_text.high < BETTER
    words = [
        TEXTS["result"].format(
            table=table, right=right, steps=evidence["steps"], low=low, high=high,
            on_text=say_lower(on_text), slow=say_lower(-slow),
            speed=TEXTS["speed"] if speed else "",
            rung5_low=rung5[low], rung5_high=rung5[high], with_residual=with_residual,
        )
    ]  # fmt: skip
    conditions = _conditions(on_text, helps_table, same_size)
    if verdict is Verdict.HOLDS_WHEN:
        when = [TEXTS[f"when.{name}"].format(fewer=TEXTS["when.fewer"]) for name in conditions]
        words.append(TEXTS["only"].format(when=join_words(when, " and ", "，且")))
    if not learned:
        words.append(TEXTS["too_little"])
    tables = {f"table {side}": one for side, one in table["rates"].items()}
    names = {side: TEXTS[f"deciding.{side}"] for side in DECIDING}
    words.append(caution({**evidence["search"], **tables}, names))
    numbers: Numbers = {
        "text, best rates: loss lower by": on_text,
        f"text, rate {low:g}: loss higher by": slow,
        "table: more right than attention alone": by_heart,
        "table: more right than attention of the same size": same_size,
        **{f"rung 5 minus rung 4, rate {lr:g}": value for lr, value in rung5.items()},
        f"the same with a residual, rate {high:g}": with_residual,
        "text: attention below character frequencies by": below,
    }
    short = join_words((TEXTS[f"in_short.{name}"] for name in conditions), " and ", "、且")
    return Finding(verdict, join_sentences(words), numbers, short)


def _conditions(on_text: Interval, helps_table: bool, same_size: Interval) -> list[str]:
    """Name the conditions under which it holds, where it helps with one of the two at least."""
    names = []
    if on_text.high < BETTER:
        names.append("by_heart")
    elif on_text.low <= BETTER:
        names.append("by_heart_unsure")
    if not helps_table:
        names.append("on_text")  # where no attention of the same size was trained
    elif same_size.high < MORE:
        names.append("as_much")
    elif same_size.low <= MORE:
        names.append("as_much_unsure")
    return names


def draw(evidence: Evidence, figure: Any, say: Mapping[str, str]) -> None:
    figure.set_size_inches(7.2, 3.9)
    left, right = figure.subplots(1, 2, width_ratios=(1.35, 1))
    rates, table = evidence["rates"], evidence["table"]
    for residual, style in (("", "--"), ("residual ", "-")):
        base = evidence["losses"][f"{residual}attention"]
        for kind, color in (("linear-relu", AGAINST), ("wide", FOR)):
            after = evidence["losses"][f"{residual}{kind}"]
            pairs = [(base[f"{lr:g}"], after[f"{lr:g}"]) for lr in rates]
            gains = [[b - a for a, b in zip(*pair, strict=True)] for pair in pairs]
            tail = say["figure.residual" if residual else "figure.no_residual"]
            label = f"{say[f'figure.{kind}']} · {tail}"
            draw_band(left, rates, gains, color, linestyle=style, label=label)
    left.axhline(0, color=GREY, linewidth=1)
    left.set_xscale("log")
    left.set_xticks(rates, [f"{lr:g}" for lr in rates])
    left.minorticks_off()
    style_axes(left, say["figure.loss"], x=say["figure.rate"])
    left.legend(fontsize=7.5, loc="lower right")
    bars = {"attention": GREY, "feed-forward": FOR, "more attention": OTHER}
    for at, (side, color) in enumerate(bars.items()):
        draw_bar(right, at, table["right"][side], color, width=0.6)
    names = [say[f"figure.bar.{side}"] for side in bars]
    right.set_xticks(range(3), names, fontsize=8, linespacing=1.35)
    right.set_ylim(0, 1.05)
    style_axes(right, say["figure.table"].format(entries=table["entries"]))
    right.grid(visible=False, axis="x")


CLAIM = Claim.of(
    15, TEXTS, measure, judge, draw, better=BETTER, more=MORE, learned=LEARNED, **SEARCH_WORDS
)
