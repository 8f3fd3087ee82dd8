"""Claim 11: cross-attention handles differences in word order."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from glasshead.lab.alignments import Langs, Links, error_rates, least_error
from glasshead.lab.attention_maps import Head
from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Numbers
from glasshead.lab.claims.drawing import AGAINST, FOR, GREY, OTHER, draw_bar, draw_map, style_axes
from glasshead.lab.claims.readers import READER_WORDS
from glasshead.lab.claims.search import caution
from glasshead.lab.claims.stats import at_least, cohens_d, difference, mean
from glasshead.lab.claims.translators import (
    Reach,
    TranslationTrace,
    TranslatorPlan,
    trace_translations,
    train_translators,
    untrained_translator,
)
from glasshead.lab.claims.verdict import Verdict, not_learned
from glasshead.lab.texts import Words, join_sentences, read_texts
from glasshead.text.tinyworld import Story, World

__all__ = ["ARMS", "CLAIM", "judge", "measure", "moved_words"]

TEXTS = read_texts(__file__)
NEAR = 1  # how far those look that may not look anywhere
ARMS: dict[str, Reach] = {
    "cross": Reach(encoder=NEAR),  # only the cross-attention can fetch a word from afar
    "neither": Reach(cross=NEAR, encoder=NEAR),
    "encoder": Reach(cross=NEAR),  # only the encoder can
    "both": Reach(),  # the ordinary translator
}
HANDLES = 0.5  # more stories translated without a fault, thanks to cross-attention
SEEN = 0.2  # how much more often than any control the head must point to the right word
LEARNED = 0.9  # of the words that stay in their place: with fewer right, nothing was learned


def measure(
    budget: Budget,
    *,
    arms: Mapping[str, Reach] = ARMS,
    settings: TranslatorPlan | None = None,
    n_stories: int | None = None,
) -> Evidence:
    """`arms`: how far each translator may look."""
    plan = settings or (TranslatorPlan(250, 100) if budget.quick else TranslatorPlan(350, 130))
    n, few = n_stories or (150 if budget.quick else 300), budget.seeds[:3]
    tests: dict[Langs, dict[str, Sequence[int]]] = {
        ("de", "en"): {"cross": budget.seeds, "neither": budget.seeds}
    }
    if not budget.quick:
        tests["de", "en"] |= {"encoder": few, "both": few}
        tests["zh", "de"] = {"cross": few, "neither": few}
    sides = [(langs, arm, seeds) for langs, some in tests.items() for arm, seeds in some.items()]
    wanted = [(langs, arms[arm], seeds) for langs, arm, seeds in sides]
    made = train_translators(budget, wanted, plan)
    unseen = list(islice(World().stories("test"), n))
    budget.progress(0.98, "measuring")
    found: dict[str, Any] = {
        ",".join(langs): {**_controls(langs, unseen, budget.seeds), "arms": {}} for langs in tests
    }
    for (langs, arm, _), (models, rates) in zip(sides, made, strict=True):
        figures = _figures([(model, arms[arm]) for model in models], langs, unseen)
        found[",".join(langs)]["arms"][arm] = {**figures, "rate": rates.evidence()}
    return {"stories": n, "steps": plan.steps, "near": NEAR, "pairs": found}


def moved_words(links: Links) -> set[int]:
    """Return the target words with a link that crosses another: words whose order changes.

    >>> sorted(moved_words(frozenset({(0, 0), (1, 2), (2, 1)})))
    [1, 2]
    """
    return {
        target
        for source, target in links
        if any((source - other) * (target - at) < 0 for other, at in links)
    }


def _figures(
    models: Sequence[tuple[Any, Reach]], langs: Langs, unseen: Sequence[Story]
) -> dict[str, Any]:
    """Measure for each model the shares of right stories, words, and links of its best head."""
    chosen_on = list(islice(World(1).stories("train"), 100))
    names = ("exact", "right moved", "right kept", "error", "points moved", "points kept")
    found: dict[str, list[Any]] = {name: [] for name in (*names, "other moved")}
    sure = [story.alignment(*langs) for story in unseen]
    example: dict[str, Any] = {}
    for model, reach in models:
        best = _best_head(trace_translations(model, reach, langs, chosen_on), langs, chosen_on)
        trace = trace_translations(model, reach, langs, unseen)
        looked = [maps[best].argmax(-1) for maps in trace.maps]
        moved, stayed = _split(trace.right, sure)
        found["exact"].append(sum(bool(right.all()) for right in trace.right) / len(unseen))
        found["right moved"].append(moved)
        found["right kept"].append(stayed)
        found["error"].append(_error(looked, sure))
        moved, stayed = _split(_hits(looked, sure), sure)
        found["points moved"].append(moved)
        found["points kept"].append(stayed)
        other = _links_of_next(looked, sure)
        found["other moved"].append(_split(_hits(looked, other), other)[0])
        if not example:
            at = _clear_example(unseen, sure)
            example = {
                "source": list(unseen[at].tokens[langs[0]]),
                "target": list(unseen[at].tokens[langs[1]]),
                "weights": [[round(w, 3) for w in row] for row in trace.maps[at][best].tolist()],
                "links": sorted(map(list, sure[at])),
            }
    return {**found, "example": example}


def _controls(langs: Langs, unseen: Sequence[Story], seeds: Sequence[int]) -> dict[str, Any]:
    """Measure where the diagonal and untrained translators point, and the least possible error."""
    sure = [story.alignment(*langs) for story in unseen]
    lengths = [tuple(len(story.tokens[lang]) for lang in langs) for story in unseen]
    diagonal = [torch.linspace(0, S - 1, T).round().long() for S, T in lengths]
    start = _figures(
        [(untrained_translator(langs, seed), Reach()) for seed in seeds], langs, unseen
    )
    linked = [{target for _, target in links} for links in sure]
    return {
        "diagonal": {
            "error": _error(diagonal, sure),
            "points moved": _split(_hits(diagonal, sure), sure)[0],
        },
        "untrained": {name: start[name] for name in ("error", "points moved")},
        "least": least_error([T for _, T in lengths], sure),
        "moved": sum(map(len, map(moved_words, sure))) / sum(map(len, linked)),
    }


def _best_head(trace: TranslationTrace, langs: Langs, stories: Sequence[Story]) -> Head:
    """Return the head whose links have the lowest error rate."""
    sure = [story.alignment(*langs) for story in stories]
    errors = error_rates([maps.argmax(-1) for maps in trace.maps], sure)
    layer, head = divmod(int(errors.argmin()), errors.shape[1])
    return layer, head


def _error(looked: Sequence[Tensor], sure: Sequence[Links]) -> float:
    return error_rates([places[None, None] for places in looked], sure).item()


def _hits(looked: Sequence[Tensor], sure: Sequence[Links]) -> list[Tensor]:
    """Return for each story (T,) whether the word looked at is that of the word written."""
    return [
        torch.tensor([(source, target) in links for target, source in enumerate(places.tolist())])
        for places, links in zip(looked, sure, strict=True)
    ]


def _split(hits: Sequence[Tensor], sure: Sequence[Links]) -> tuple[float, float]:
    """Return the shares of hits, of words that moved and of words that stayed."""
    moved, stayed = [], []
    for hit, links in zip(hits, sure, strict=True):
        away = moved_words(links)
        moved += [bool(hit[t]) for t in sorted(away)]
        stayed += [bool(hit[t]) for t in sorted({t for _, t in links} - away)]
    return sum(moved) / len(moved), sum(stayed) / len(stayed)


def _links_of_next(looked: Sequence[Tensor], sure: Sequence[Links]) -> list[Links]:
    """Return for each story the links of the next one, up to its own length."""
    return [
        frozenset((s, t) for s, t in links if t < len(places))
        for places, links in zip(looked, [*sure[1:], sure[0]], strict=True)
    ]


def _clear_example(stories: Sequence[Story], sure: Sequence[Links]) -> int:
    """Return a short story in which many words move."""
    short = [n for n, story in enumerate(stories) if len(story.tokens["en"]) <= 16] or [0]
    return max(short, key=lambda n: len(moved_words(sure[n])))


def judge(evidence: Evidence) -> Finding:
    numbers: Numbers = {}
    handles: list[bool | None] = []
    seen: list[bool | None] = []
    learned = True
    for langs, found in evidence["pairs"].items():
        cross, neither = found["arms"]["cross"], found["arms"]["neither"]
        gain = difference(cross["exact"], neither["exact"])
        controls = {
            "diagonal": [found["diagonal"]["points moved"]] * len(cross["exact"]),
            "untrained": found["untrained"]["points moved"][: len(cross["exact"])],
            "another story": cross["other moved"],
        }
        hardest = max(controls, key=lambda name: sum(controls[name]))
        more = difference(cross["points moved"], controls[hardest])
        handles.append(at_least(gain, HANDLES))
        seen.append(at_least(more, SEEN))
        # The other arm is crippled on purpose: what it has not learned is the result.
        learned &= mean(cross["right kept"]).low >= LEARNED
        for arm, figures in found["arms"].items():
            for name, values in figures.items():
                if name not in ("example", "rate"):
                    numbers[f"{langs}: {name}, {arm}"] = mean(values)
        effect = cohens_d(cross["exact"], neither["exact"])
        numbers |= {
            f"{langs}: exact, cross minus neither": gain,
            f"{langs}: exact, Cohen's d": effect,
            f"{langs}: points moved, above {hardest}": more,
            f"{langs}: points moved, diagonal": found["diagonal"]["points moved"],
            f"{langs}: points moved, untrained": mean(found["untrained"]["points moved"]),
            f"{langs}: error, diagonal": found["diagonal"]["error"],
            f"{langs}: error, untrained": mean(found["untrained"]["error"]),
            f"{langs}: error, least": found["least"],
            f"{langs}: words that move": found["moved"],
        }
    if not learned or None in handles:
        verdict = Verdict.UNCLEAR
    elif not all(handles):
        verdict = Verdict.HOLDS_WHEN if any(handles) else Verdict.FAILS
    elif None in seen:
        verdict = Verdict.UNCLEAR
    else:
        verdict = Verdict.HOLDS if all(seen) else Verdict.HOLDS_WHEN
    words: list[Words] = []
    where = ", ".join(
        langs.replace(",", "→")
        for langs, yes in zip(evidence["pairs"], handles, strict=True)
        if yes
    )
    when = TEXTS["when.translation" if all(handles) else "when.pairs"].format(pairs=where)
    if verdict is Verdict.HOLDS_WHEN and all(handles):
        words.append(TEXTS["only_translation"])
    elif verdict is Verdict.HOLDS_WHEN:
        words.append(TEXTS["only_for"].format(pairs=where))
    for langs, found in evidence["pairs"].items():
        words += _describe_pair(langs.replace(",", "→"), found)
    why = Words("", "") if learned else not_learned(TEXTS["free_side"])
    return Finding(verdict, join_sentences(words), numbers, when, why)


def _describe_pair(arrow: str, found: Mapping[str, Any]) -> list[Words]:
    means = {
        arm: {
            name: mean(values) for name, values in some.items() if name not in ("example", "rate")
        }
        for arm, some in {**found["arms"], "untrained": found["untrained"]}.items()
    }
    fixed = {name: found[name] for name in ("moved", "diagonal", "least")}
    words = [TEXTS["pair"].format(arrow=arrow, **fixed, **means)]
    if "encoder" in means:
        encoder, both = means["encoder"]["exact"], means["both"]["exact"]
        error = means["both"]["error"]
        words.append(TEXTS["other_way"].format(encoder=encoder, both=both, error=error))
    rates = {arm: found["arms"][arm]["rate"] for arm in ("cross", "neither")}
    names = {arm: TEXTS["arm_rate"].format(arrow=arrow, arm=arm) for arm in rates}
    return [*words, caution(rates, names)]


def draw(evidence: Evidence, figure: Any, say: Mapping[str, str]) -> None:
    figure.set_size_inches(7.2, 4.6)
    langs, found = next(iter(evidence["pairs"].items()))
    left, right = figure.subfigures(1, 2, width_ratios=(1.25, 1))
    arms, cross = found["arms"], found["arms"]["cross"]
    _draw_example(cross["example"], left.subplots(), say)
    above, below = right.subplots(2, 1)
    colors = {"cross": FOR, "encoder": OTHER, "both": OTHER, "neither": AGAINST}
    _draw_bars(
        above,
        [(say[f"figure.arm.{a}"], arms[a]["exact"], colors[a]) for a in colors if a in arms],
    )
    names = "→".join(say[f"figure.language.{one}"] for one in langs.split(","))
    style_axes(above, say["figure.exact"].format(names))
    pointers = {
        "best": cross["points moved"],
        "diagonal": [found["diagonal"]["points moved"]],
        "untrained": found["untrained"]["points moved"],
        "other": cross["other moved"],
    }
    _draw_bars(
        below,
        [(say[f"figure.pointer.{name}"], values, FOR if name == "best" else GREY)
         for name, values in pointers.items()],
    )  # fmt: skip
    style_axes(below, say["figure.points"])


def _draw_example(example: dict[str, Any], axes: Any, say: Mapping[str, str]) -> None:
    draw_map(axes, example["weights"], say["figure.map"], aspect="auto")
    for source, target in example["links"]:
        axes.plot(source, target, "o", mfc="none", color=AGAINST, markersize=8, markeredgewidth=1.1)
    axes.set_xticks(range(len(example["source"])), example["source"], rotation=60, ha="right",
                    rotation_mode="anchor", fontsize=8)  # fmt: skip
    axes.set_yticks(range(len(example["target"])), example["target"], fontsize=8)


def _draw_bars(axes: Any, bars: Sequence[tuple[str, Sequence[float], str]]) -> None:
    for at, (_, values, color) in enumerate(bars):
        draw_bar(axes, at, values, color)
    axes.set_xticks(range(len(bars)), [name for name, _, _ in bars], fontsize=8.5)
    axes.set_ylim(0, 1.15)
    axes.set_yticks([0, 0.5, 1])


CLAIM = Claim.of(
    11, TEXTS, measure, judge, draw, handles=HANDLES, seen=SEEN, learned=LEARNED, **READER_WORDS
)
