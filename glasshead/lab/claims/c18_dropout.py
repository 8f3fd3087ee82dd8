"""Claim 18: dropout curbs over-fitting; a tenth to a fifth is usual."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Numbers
from glasshead.lab.claims.drawing import AGAINST, FOR, OTHER, draw_band, style_axes
from glasshead.lab.claims.search import RATES, SEARCH_WORDS, caution, compare_at_best_rates
from glasshead.lab.claims.stats import Interval, difference, mean
from glasshead.lab.claims.training import LossCurve, TextTask, say_lower, say_narrower
from glasshead.lab.claims.verdict import POSITIVE, Verdict, combine_verdicts
from glasshead.lab.texts import Words, join_sentences, join_words, read_texts

__all__ = ["CLAIM", "judge", "measure"]

TEXTS = read_texts(__file__)
# Two hundredths of a nat: twice the spread of these models' losses over seeds.
BETTER = 0.02
# A model over-fits where its loss on unseen text is a fifth of a nat above that on its own text.
OVERFIT = 0.2
POINTS = 9
MODEL = {"n_layers": 1, "n_heads": 4, "d_model": 64, "feed_forward": "relu"}


def measure(
    budget: Budget,
    *,
    dropouts: tuple[float, ...] = (0.1, 0.2),
    sizes: tuple[int, ...] = (3_000, 200_000),
    steps: int | None = None,
    rates: Sequence[float] = RATES,
) -> Evidence:
    """`dropouts`: beside none; `sizes` of the training text in characters, the smallest first."""
    steps = steps or (300 if budget.quick else 600)
    sides = {"0": 0.0, **{str(p): p for p in dropouts}}
    texts: dict[str, Any] = {}
    parts = len(sizes) + 1

    def runner(size: int) -> Callable[[str, float, int], LossCurve]:
        task = TextTask(block=16, batch_size=16, characters=size)

        def run(side: str, lr: float, seed: int) -> LossCurve:
            model = task.gpt(seed, **MODEL, dropout=sides[side])
            return task.train(model, lr=lr, seed=seed, steps=steps, points=POINTS, seen=True)

        return run

    for at, size in enumerate(sizes):
        within = budget.part(at / parts, 1 / parts, f"{size:,} characters, dropout ")
        found = compare_at_best_rates(
            within, tuple(sides), runner(size), lambda curve: curve.val[-1], rates
        )
        results = {side: one.results for side, one in found.items()}
        searches = {side: one.evidence() for side, one in found.items()}
        texts[str(size)] = {"rates": searches, **_curves(results)}
    # The smallest text again, at a large rate: training goes on long after it has been learned.
    budget.progress(1 - 1 / parts, f"{sizes[0]:,} characters, rate {rates[-1]:g}")
    run = runner(sizes[0])
    pushed = {side: [run(side, rates[-1], seed) for seed in budget.seeds] for side in sides}
    return {
        "sizes": list(sizes),
        "dropout": list(sides),
        "steps": steps,
        "texts": texts,
        "pushed": {"rate": rates[-1], **_curves(pushed)},
    }


def _curves(results: dict[str, list[LossCurve]]) -> dict[str, Any]:
    return {
        "at": results["0"][0].steps,
        "train": {side: [curve.train for curve in some] for side, some in results.items()},
        "val": {side: [curve.val for curve in some] for side, some in results.items()},
    }


def _ends(text: dict[str, Any], which: str, side: str) -> list[float]:
    return [curve[-1] for curve in text[which][side]]


def _gaps(text: dict[str, Any], side: str) -> list[float]:
    pairs = zip(_ends(text, "val", side), _ends(text, "train", side), strict=True)
    return [val - train for val, train in pairs]


@dataclass(frozen=True)
class Effect:
    """The effect of one dropout rate."""

    tuned: Interval  # the loss lower by: small text, best rates
    hard: Interval  # the same, both at the large rate
    closed: Interval  # there, the gap narrower by
    ample: Interval  # the loss lower by: large text

    @classmethod
    def of(cls, evidence: Evidence, side: str) -> "Effect":
        few, many = evidence["sizes"][0], evidence["sizes"][-1]
        texts, pushed = evidence["texts"], evidence["pushed"]

        def lower(text: dict[str, Any]) -> Interval:
            return difference(_ends(text, "val", "0"), _ends(text, "val", side))

        # At the best rates the two sides may differ in more than dropout; at one rate they do not.
        closed = difference(_gaps(pushed, "0"), _gaps(pushed, side))
        return cls(lower(texts[str(few)]), lower(pushed), closed, lower(texts[str(many)]))

    @property
    def verdict(self) -> Verdict:
        """The verdict for a model that over-fits."""
        narrows = self.closed.low > BETTER
        helps = [one.low > BETTER for one in (self.tuned, self.hard)]
        if narrows and all(helps) and self.ample.high >= 0:
            return Verdict.HOLDS
        if narrows and any(helps):
            return Verdict.HOLDS_WHEN
        if self.tuned.high < BETTER and self.hard.high < BETTER:
            return Verdict.FAILS
        return Verdict.UNCLEAR

    @property
    def condition(self) -> str:
        if self.verdict is Verdict.HOLDS:
            return "both"
        return "small" if self.tuned.low > BETTER else "long"


def judge(evidence: Evidence) -> Finding:
    few, many = evidence["sizes"][0], evidence["sizes"][-1]
    pushed, steps = evidence["pushed"], evidence["steps"]
    gap = {size: mean(_gaps(evidence["texts"][str(size)], "0")) for size in (few, many)}
    effects = {side: Effect.of(evidence, side) for side in evidence["dropout"][1:]}
    verdict = combine_verdicts([effect.verdict for effect in effects.values()])
    if not gap[few].low > OVERFIT:
        verdict = Verdict.UNCLEAR
    rate = f"{pushed['rate']:g}"
    words = [TEXTS["gap"].format(few=few, many=many, gap_few=gap[few], gap_many=gap[many])]
    numbers: Numbers = {
        f"gap without dropout, {few:,} characters": gap[few],
        f"gap without dropout, {many:,} characters": gap[many],
    }
    for side, effect in effects.items():
        p = f"{float(side):.0%}"
        words.append(
            TEXTS["effect"].format(
                p=p, rate=rate, tuned=say_lower(effect.tuned), hard=say_lower(effect.hard),
                closed=say_narrower(effect.closed), ample=say_lower(effect.ample),
            )
        )  # fmt: skip
        early = _first_better_step(pushed, side)
        if early is not None:
            words.append(TEXTS["pays"].format(rate=rate, early=early, steps=steps))
        numbers |= {
            f"{p}: gap narrower by, {few:,} characters, rate {rate}": effect.closed,
            f"{p}: loss lower by, {few:,} characters, best rates": effect.tuned,
            f"{p}: loss lower by, {few:,} characters, rate {rate}": effect.hard,
            f"{p}: loss lower by, {many:,} characters": effect.ample,
        }
    if verdict is Verdict.HOLDS_WHEN:
        shown = {f"{float(side):.0%}": effect for side, effect in effects.items()}
        cases = [
            TEXTS["case"].format(p=p, when=TEXTS[f"when.{effect.condition}"])
            for p, effect in shown.items()
            if effect.verdict in POSITIVE
        ]
        words.append(TEXTS["only_for"].format(cases=join_words(cases, "; ", "；")))
        unsure = [p for p, effect in shown.items() if effect.verdict is Verdict.UNCLEAR]
        if unsure:
            words.append(TEXTS["unsure"].format(which=join_words(unsure)))
    for size in dict.fromkeys((few, many)):
        names = {
            side: TEXTS["side_on_text"].format(
                side=TEXTS["side"].format(p=float(side)), size=size
            )
            for side in evidence["dropout"]
        }  # fmt: skip
        words.append(caution(evidence["texts"][str(size)]["rates"], names))
    return Finding(verdict, join_sentences(words), numbers, _condition(effects))


def _condition(effects: Mapping[str, Effect]) -> Words:
    rates: dict[str, list[str]] = {}
    for side, effect in effects.items():
        if effect.verdict in POSITIVE:
            rates.setdefault(effect.condition, []).append(f"{float(side):.0%}")
    cases = [
        TEXTS["in_short"].format(p=join_words(p), when=TEXTS[f"in_short_when.{name}"])
        for name, p in rates.items()
    ]
    return join_words(cases, "; or ", "，或者")


def _first_better_step(text: dict[str, Any], side: str) -> int | None:
    """Return the step from which on the mean validation loss is lower with dropout."""
    both = [[sum(v) / len(v) for v in zip(*text["val"][s], strict=True)] for s in ("0", side)]
    worse = [n for n, (a, b) in enumerate(zip(*both, strict=True)) if b >= a]
    steps: list[int] = text["at"]
    if not worse or worse[-1] + 1 == len(steps):
        return None
    return steps[worse[-1] + 1]


def draw(evidence: Evidence, figure: Any, say: Mapping[str, str]) -> None:
    few, many = evidence["sizes"][0], evidence["sizes"][-1]
    texts, pushed, dropout = evidence["texts"], evidence["pushed"], evidence["dropout"]
    panels = {"few": texts[str(few)], "pushed": pushed, "many": texts[str(many)]}
    colors = {"0": AGAINST, **dict.fromkeys(dropout[1:-1], OTHER)}
    colors[dropout[-1]] = FOR
    rows = zip(figure.subplots(1, 3, sharey=True), panels.items(), strict=True)
    for n, (axes, (name, text)) in enumerate(rows):
        for side in dropout:
            val, train = (list(zip(*text[which][side], strict=True)) for which in ("val", "train"))
            label = say["side"].format(p=float(side))
            draw_band(axes, text["at"], val, colors[side], marker="", label=label)
            draw_band(axes, text["at"], train, colors[side], marker="", linestyle=":")
        axes.plot([], [], color="#555555", label=say["figure.unseen"])
        axes.plot([], [], color="#555555", linestyle=":", label=say["figure.seen"])
        axes.set_ylim(0.4, 2.4)
        title = say[f"figure.{name}"].format(few=few, many=many, rate=f"{pushed['rate']:g}")
        style_axes(axes, title, x=say["figure.step"], y=say["figure.loss"] if n == 0 else "")
    axes.legend(fontsize=8, loc="upper right")


CLAIM = Claim.of(
    18, TEXTS, measure, judge, draw,
    better=BETTER, overfit=OVERFIT, large_rate=RATES[-1], **SEARCH_WORDS,
)  # fmt: skip
