"""Claim 10: a context vector of fixed size fails on long sentences; attention does not."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Numbers
from glasshead.lab.claims.drawing import (
    AGAINST,
    FOR,
    GREY,
    OTHER,
    annotate,
    draw_band,
    draw_chance,
    style_axes,
)
from glasshead.lab.claims.models import (
    LSTMSeq2Seq,
    build_seeded,
    count_parameters,
    match_parameters,
)
from glasshead.lab.claims.search import BURST, RATES, SEARCH_WORDS, caution, compare_at_best_rates
from glasshead.lab.claims.stats import Interval, difference, longest_run, mean
from glasshead.lab.claims.training import Plateau, fit, run_parts
from glasshead.lab.claims.verdict import POSITIVE, Verdict, combine_verdicts, not_learned
from glasshead.lab.texts import Words, join_sentences, join_words, read_texts
from glasshead.model.transformer import Memory, Transformer, TransformerConfig

__all__ = ["CLAIM", "OneVector", "judge", "measure"]

TEXTS = read_texts(__file__)
SYMBOLS = 10
PAD, BEGIN, FIRST = 0, 1, 2  # ids
B = 32
# A fifth of the symbols: more than rounding, and what a reader would call a difference.
APART = 0.2
# Nine symbols in ten are right: the sentence came through.
THROUGH = 0.9

SIDES = {"attention": FOR, "one vector": OTHER, "lstm": AGAINST}
# What is to be written: the sentence, or the sentence from its end, where what was read last and is
# freshest in a recurrent memory comes first.
TASKS = ("copy", "reverse")

Build = Callable[[TransformerConfig], Transformer]


class OneVector(Transformer):
    """The same Transformer, but its decoder sees only one of the encoder's vectors."""

    def encode(self, source: Tensor) -> Memory:
        memory = super().encode(source)
        return Memory(memory.x[:, :1], memory.keys[:, :1])


def measure(
    budget: Budget,
    *,
    attention: Build = Transformer,
    tasks: Sequence[str] = TASKS,
    longest: int | None = None,
    steps: int | None = None,
    rates: Sequence[float] = RATES,
) -> Evidence:
    """`attention`: what fixed vectors are compared with. Trained on up to `longest` symbols."""
    longest = longest or (16 if budget.quick else 24)
    steps = steps or (400 if budget.quick else 4000)
    lengths = sorted({1, *(max(1, longest * n // 8) for n in (1, 2, 3, 4, 6, 8, 10, 12, 16))})
    items = [(task, attention, lengths, longest, steps, rates) for task in tasks]
    found = run_parts(budget, _learn_task, items)
    return {
        "parameters": {side: count_parameters(make()) for side, make in _makers(attention).items()},
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
    parameters = count_parameters(Transformer(config))
    return {
        "attention": lambda: attention(config),
        "one vector": lambda: OneVector(config),
        "lstm": lambda: match_parameters(
            lambda width: LSTMSeq2Seq(config.vocab_size, width), parameters
        ),
    }


def _learn_task(
    budget: Budget,
    task: str,
    attention: Build,
    lengths: Sequence[int],
    longest: int,
    steps: int,
    rates: Sequence[float],
) -> dict[str, Any]:
    """Train all sides on one task: the search, and the accuracy by side, length and seed."""
    makers, plateau = _makers(attention), Plateau(max(100, steps // 4))

    def run(side: str, lr: float, seed: int) -> tuple[float, list[float], bool]:
        model, losses = build_seeded(seed, makers[side]), list[float]()

        def loss(step: int) -> Tensor:
            source, target_in, target = _sentences(task, longest, None, B, seed, step)
            value = F.cross_entropy(model(source, target_in).flatten(0, 1), target.flatten())
            losses.append(value.item())
            return value

        fit(model, loss, lr=lr, steps=steps, done=lambda step: plateau.reached(losses))
        ended = plateau.reached(losses)
        with torch.no_grad():
            last = torch.stack([loss(10**6 + n) for n in range(20)]).mean().item()
        return last, [_accuracy(model, task, n, seed) for n in lengths], ended

    failed = (BURST, [0.0] * len(lengths), True)
    found = compare_at_best_rates(
        budget, tuple(SIDES), run, lambda result: result[0], rates, failed=failed
    )
    return {
        "rates": {side: one.evidence() for side, one in found.items()},
        "accuracy": {
            side: [list(values) for values in zip(*(acc for _, acc, _ in one.results), strict=True)]
            for side, one in found.items()
        },
        "plateau": {side: [ended for *_, ended in one.results] for side, one in found.items()},
    }


def _sentences(
    task: str, longest: int, length: int | None, rows: int, seed: int, step: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return random sentences of one length, the decoder's input and its target."""
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
    """The outcome of one task; all by side."""

    short: Mapping[str, Interval]  # right at the shortest
    long: Mapping[str, Interval]  # at the longest trained on
    beyond: Mapping[str, Interval]  # at twice as many
    reached: Mapping[str, int]  # up to how many symbols most are right
    apart: Interval  # attention minus the better fixed vector, at the longest
    falls: Interval  # what that vector loses from the shortest to the longest
    learned: bool  # the shortest, by attention and by that vector
    ended: bool  # attention's training went to a plateau

    @classmethod
    def of(cls, evidence: Evidence, task: str) -> "TaskOutcome":
        lengths, accuracy = evidence["lengths"], evidence["tasks"][task]["accuracy"]
        at = lengths.index(evidence["longest"])
        means = {side: [mean(values) for values in accuracy[side]] for side in SIDES}
        short, long, beyond = ({side: means[side][n] for side in SIDES} for n in (0, at, -1))
        ended = evidence["tasks"][task].get("plateau", {}).get("attention", [False])
        # The better of the fixed vectors.
        fixed = max(("one vector", "lstm"), key=lambda side: long[side].value)
        return cls(
            short,
            long,
            beyond,
            {
                side: longest_run(lengths, [one.value > THROUGH for one in means[side]])
                for side in SIDES
            },
            difference(accuracy["attention"][at], accuracy[fixed][at]),
            difference(accuracy[fixed][0], accuracy[fixed][at]),
            all(short[side].low > THROUGH for side in ("attention", fixed)),
            all(ended),
        )

    @property
    def undertrained(self) -> bool:
        """Whether attention has not learned the longest and could have gone on learning."""
        return not self.ended and not self.long["attention"].low > THROUGH

    @property
    def verdict(self) -> Verdict:
        beyond = self.beyond["attention"]
        if not self.learned:
            # A side that fails on the shortest has not run out of room: it has not learned.
            return Verdict.UNCLEAR
        if min(self.apart.low, self.falls.low) > APART and self.long["attention"].low > THROUGH:
            if beyond.low > THROUGH:
                return Verdict.HOLDS
            return Verdict.HOLDS_WHEN if beyond.high < THROUGH else Verdict.UNCLEAR
        if self.undertrained:
            return Verdict.UNCLEAR
        return Verdict.FAILS if self.apart.high < APART else Verdict.UNCLEAR


def judge(evidence: Evidence) -> Finding:
    found = {task: TaskOutcome.of(evidence, task) for task in evidence["tasks"]}
    lengths, longest = evidence["lengths"], evidence["longest"]
    first, last = lengths[0], lengths[-1]
    words = [
        TEXTS["intro"].format(steps=evidence["steps"], longest=longest, chance=evidence["chance"])
    ]
    numbers: Numbers = {}
    for task, one in found.items():
        name = TEXTS[f"task.{task}"]
        words.append(
            TEXTS["task_result"].format(
                task=Words(name.en.capitalize(), name.zh), last=last, beyond=one.beyond,
                each=[f"{one.long[side]:.0%}" for side in SIDES],
                far=[one.reached[side] for side in SIDES],
            )
        )  # fmt: skip
        if one.learned and one.undertrained:
            words.append(TEXTS["longest_not_learned"].format(longest=longest))
        if not one.learned:
            words.append(TEXTS["shortest_not_learned"].format(first=first))
        numbers |= {
            **{f"{task}: right at {longest}, {side}": x for side, x in one.long.items()},
            **{f"{task}: right at {last}, {side}": x for side, x in one.beyond.items()},
            f"{task}: attention minus the better fixed vector": one.apart,
            f"{task}: what the better fixed vector loses from the shortest": one.falls,
            **{f"{task}: right at {first}, {side}": x for side, x in one.short.items()},
        }
    verdicts = [
        TEXTS["task_says"].format(
            task=TEXTS[f"task.{task}"], said=TEXTS[f"task_verdict.{one.verdict}"]
        )
        for task, one in found.items()
    ]
    words.append(TEXTS["so"].format(said=join_words(verdicts, "; ", "；")))
    for task in found:
        names = {
            side: TEXTS["side_on_task"].format(
                side=TEXTS[f"side.{side}"], task=TEXTS[f"task.{task}"]
            )
            for side in SIDES
        }
        words.append(caution(evidence["tasks"][task]["rates"], names))
    verdict = combine_verdicts([one.verdict for one in found.values()])
    behind = next((task for task, one in found.items() if one.verdict is Verdict.UNCLEAR), None)
    why = Words("", "")
    if behind is not None and (not found[behind].learned or found[behind].undertrained):
        why = not_learned(TEXTS["both_sides"].format(task=TEXTS[f"task.{behind}"]))
    return Finding(verdict, join_sentences(words), numbers, _condition(found), why)


def _condition(found: Mapping[str, TaskOutcome]) -> Words:
    holds = {task: one for task, one in found.items() if one.verdict in POSITIVE}
    beyond = all(one.verdict is Verdict.HOLDS for one in holds.values())
    tasks = join_words((TEXTS[f"task.{task}"] for task in holds), " and ", "或")
    return TEXTS["when.any_length" if beyond else "when.trained_length"].format(tasks=tasks)


def draw(evidence: Evidence, figure: Any, say: Mapping[str, str]) -> None:
    figure.set_size_inches(7.2, 3.9)
    longest, lengths = evidence["longest"], evidence["lengths"]
    panels = figure.subplots(1, len(evidence["tasks"]), sharey=True, squeeze=False)[0]
    for axes, (task, found) in zip(panels, evidence["tasks"].items(), strict=True):
        for side, color in SIDES.items():
            draw_band(axes, lengths, found["accuracy"][side], color, label=say[f"side.{side}"])
        axes.axvspan(longest, lengths[-1], color=GREY, alpha=0.08, linewidth=0)
        annotate(axes, say["figure.longer"], (longest, 1.02), (6, 0), va="bottom")
        draw_chance(axes, evidence["chance"], say["figure.chance"], 1)
        axes.set_ylim(0, 1.1)
        style_axes(axes, say[f"figure.{task}"], x=say["figure.length"])
    figure.legend(*panels[0].get_legend_handles_labels(), fontsize=8.5, ncols=3,
                  loc="outside lower center")  # fmt: skip


CLAIM = Claim.of(10, TEXTS, measure, judge, draw, apart=APART, through=THROUGH, **SEARCH_WORDS)
