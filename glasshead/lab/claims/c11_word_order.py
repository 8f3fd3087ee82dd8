"""Claim 11: cross-attention handles differences in word order."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from glasshead.lab.alignments import Links, error_rates, least_error
from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Verdict, Words
from glasshead.lab.claims.order_figure import draw
from glasshead.lab.claims.readers import BEST_FACTOR
from glasshead.lab.claims.search import WENT_ON, cautions
from glasshead.lab.claims.stats import Interval, cohens_d, difference, mean
from glasshead.lab.claims.translators import (
    Langs,
    Reach,
    Settings,
    Written,
    fresh,
    translators,
    written,
)
from glasshead.lab.referents import Head
from glasshead.text.tinyworld import Story, World

__all__ = ["ARMS", "CLAIM", "judge", "measure", "moved_words"]

NEAR = 1  # how far the short-sighted look
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
    settings: Settings | None = None,
    n_stories: int | None = None,
) -> Evidence:
    """`arms`: how far each translator may look."""
    plan = settings or (Settings(250, 100) if budget.quick else Settings(350, 130))
    n, few = n_stories or (150 if budget.quick else 300), budget.seeds[:3]
    tests: dict[Langs, dict[str, Sequence[int]]] = {
        ("de", "en"): {"cross": budget.seeds, "neither": budget.seeds}
    }
    if not budget.quick:
        tests["de", "en"] |= {"encoder": few, "both": few}
        tests["zh", "de"] = {"cross": few, "neither": few}
    sides = [(langs, arm, seeds) for langs, some in tests.items() for arm, seeds in some.items()]
    made = translators(budget, [(langs, arms[arm], seeds) for langs, arm, seeds in sides], plan)
    unseen = list(islice(World().stories("test"), n))
    budget.progress(0.98, "looking")
    found: dict[str, Any] = {
        ",".join(langs): {**_controls(langs, unseen, budget.seeds), "arms": {}} for langs in tests
    }
    for (langs, arm, _), (models, rates) in zip(sides, made, strict=True):
        figures = _figures([(model, arms[arm]) for model in models], langs, unseen)
        found[",".join(langs)]["arms"][arm] = {**figures, "rate": rates.shown()}
    return {"stories": n, "steps": plan.steps, "near": NEAR, "pairs": found}


def moved_words(links: Links) -> set[int]:
    """The target words with a link that crosses another: they do not stand where the source has
    them.

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
    """For each model: stories and words that are right, and where its best head points."""
    chosen_on = list(islice(World(1).stories("train"), 100))
    names = ("exact", "right moved", "right kept", "error", "points moved", "points kept")
    found: dict[str, list[Any]] = {name: [] for name in (*names, "other moved")}
    sure = [story.alignment(*langs) for story in unseen]
    example: dict[str, Any] = {}
    for model, reach in models:
        best = _best(written(model, reach, langs, chosen_on), langs, chosen_on)
        wrote = written(model, reach, langs, unseen)
        looked = [maps[best].argmax(-1) for maps in wrote.maps]
        moved, kept = _split(wrote.right, sure)
        found["exact"].append(sum(bool(right.all()) for right in wrote.right) / len(unseen))
        found["right moved"].append(moved)
        found["right kept"].append(kept)
        found["error"].append(_error(looked, sure))
        moved, kept = _split(_hits(looked, sure), sure)
        found["points moved"].append(moved)
        found["points kept"].append(kept)
        other = _of_another(looked, sure)
        found["other moved"].append(_split(_hits(looked, other), other)[0])
        if not example:
            at = _telling(unseen, sure)
            example = {
                "source": list(unseen[at].tokens[langs[0]]),
                "target": list(unseen[at].tokens[langs[1]]),
                "weights": [[round(w, 3) for w in row] for row in wrote.maps[at][best].tolist()],
                "links": sorted(map(list, sure[at])),
            }
    return {**found, "example": example}


def _controls(langs: Langs, unseen: Sequence[Story], seeds: Sequence[int]) -> dict[str, Any]:
    """Where the diagonal and untrained translators point, and the least error there can be."""
    sure = [story.alignment(*langs) for story in unseen]
    lengths = [tuple(len(story.tokens[lang]) for lang in langs) for story in unseen]
    diagonal = [torch.linspace(0, S - 1, T).round().long() for S, T in lengths]
    start = _figures([(fresh(langs, seed), Reach()) for seed in seeds], langs, unseen)
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


def _best(wrote: Written, langs: Langs, stories: Sequence[Story]) -> Head:
    """The head whose links have the lowest error rate."""
    sure = [story.alignment(*langs) for story in stories]
    errors = error_rates([maps.argmax(-1) for maps in wrote.maps], sure)
    layer, head = divmod(int(errors.argmin()), errors.shape[1])
    return layer, head


def _error(looked: Sequence[Tensor], sure: Sequence[Links]) -> float:
    return error_rates([places[None, None] for places in looked], sure).item()


def _hits(looked: Sequence[Tensor], sure: Sequence[Links]) -> list[Tensor]:
    """For each story (T,): whether the word that is looked at means the same."""
    return [
        torch.tensor([(source, target) in links for target, source in enumerate(places.tolist())])
        for places, links in zip(looked, sure, strict=True)
    ]


def _split(hits: Sequence[Tensor], sure: Sequence[Links]) -> tuple[float, float]:
    """Shares of hits: of the words that moved, of those that stayed."""
    moved, kept = [], []
    for hit, links in zip(hits, sure, strict=True):
        away = moved_words(links)
        moved += [bool(hit[t]) for t in sorted(away)]
        kept += [bool(hit[t]) for t in sorted({t for _, t in links} - away)]
    return sum(moved) / len(moved), sum(kept) / len(kept)


def _of_another(looked: Sequence[Tensor], sure: Sequence[Links]) -> list[Links]:
    """For each story the links of the next one, as far as it has such words."""
    return [
        frozenset((s, t) for s, t in links if t < len(places))
        for places, links in zip(looked, [*sure[1:], sure[0]], strict=True)
    ]


def _telling(stories: Sequence[Story], sure: Sequence[Links]) -> int:
    """A short story in which many words move."""
    short = [n for n, story in enumerate(stories) if len(story.tokens["en"]) <= 16] or [0]
    return max(short, key=lambda n: len(moved_words(sure[n])))


def judge(evidence: Evidence) -> Finding:
    numbers: dict[str, Interval | float] = {}
    handles: list[bool | None] = []
    seen: list[bool | None] = []
    learned = True
    for langs, found in evidence["pairs"].items():
        arms = found["arms"]
        gain = difference(arms["cross"]["exact"], arms["neither"]["exact"])
        controls = {
            "diagonal": [found["diagonal"]["points moved"]] * len(arms["cross"]["exact"]),
            "untrained": found["untrained"]["points moved"][: len(arms["cross"]["exact"])],
            "another story": arms["cross"]["other moved"],
        }
        hardest = max(controls, key=lambda name: sum(controls[name]))
        more = difference(arms["cross"]["points moved"], controls[hardest])
        handles.append(_at_least(gain, HANDLES))
        seen.append(_at_least(more, SEEN))
        learned &= all(mean(arms[arm]["right kept"]).low >= LEARNED for arm in ("cross", "neither"))
        for arm, figures in arms.items():
            for name, values in figures.items():
                if name not in ("example", "rate"):
                    numbers[f"{langs}: {name}, {arm}"] = mean(values)
        numbers |= {
            f"{langs}: exact, cross minus neither": gain,
            f"{langs}: exact, Cohen's d": cohens_d(
                arms["cross"]["exact"], arms["neither"]["exact"]
            ),
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
    where = [langs for langs, yes in zip(evidence["pairs"], handles, strict=True) if yes]
    return Finding(verdict, _words(verdict, evidence, where), numbers)


def _at_least(interval: Interval, threshold: float) -> bool | None:
    if interval.low >= threshold:
        return True
    return False if interval.high < threshold else None


def _words(verdict: Verdict, evidence: Evidence, where: Sequence[str]) -> Words:
    """`where`: the pairs of languages in which the order is handled."""
    en, zh = [], []
    if verdict is Verdict.HOLDS_WHEN and len(where) == len(evidence["pairs"]):
        en.append("Holds only when the translation counts, not what the map shows.")
        zh.append("只有看译文、而不是看注意力图时成立。")
    elif verdict is Verdict.HOLDS_WHEN:
        some = ", ".join(langs.replace(",", "→") for langs in where)
        en.append(f"Holds only for {some}.")
        zh.append(f"只对 {some} 成立。")
    for langs, found in evidence["pairs"].items():
        arms, least = found["arms"], found["least"]
        cross, neither = arms["cross"], arms["neither"]
        arrow = langs.replace(",", "→")
        en.append(
            f"{arrow}, where {found['moved']:.0%} of the words move: with the encoder held to "
            f"words next to each other, {mean(cross['exact']):.1%} of unseen stories are "
            "translated without a fault if cross-attention may look anywhere, "
            f"{mean(neither['exact']):.1%} if only beside its own place. For words that move its "
            f"best head points to the right one in {mean(cross['points moved']):.1%} (the diagonal "
            f"{found['diagonal']['points moved']:.1%}, untrained "
            f"{mean(found['untrained']['points moved']).value:.1%}, links of another story "
            f"{mean(cross['other moved']).value:.1%}). Its alignment error is "
            f"{mean(cross['error']):.2f} (diagonal {found['diagonal']['error']:.2f}, untrained "
            f"{mean(found['untrained']['error']).value:.2f}, one link a word at best {least:.2f})."
        )
        zh.append(
            f"{arrow}，{found['moved']:.0%} 的词换了位置：编码器只许看相邻的词，这时若交叉注意力可"
            f"以看任何地方，{mean(cross['exact']):.1%} 的没见过的故事译得一字不差；若只许看同一位置"
            f"附近，为 {mean(neither['exact']):.1%}。对换了位置的词，最好的头指对的占 "
            f"{mean(cross['points moved']):.1%}（对角线 {found['diagonal']['points moved']:.1%}，未"
            f"训练 {mean(found['untrained']['points moved']).value:.1%}，别的故事的对应 "
            f"{mean(cross['other moved']).value:.1%}）。对齐错误率 {mean(cross['error']):.2f}（对角"
            f"线 {found['diagonal']['error']:.2f}，未训练 "
            f"{mean(found['untrained']['error']).value:.2f}，每词一条线最低 {least:.2f}）。"
        )
        if "encoder" in arms:
            encoder, both = (mean(arms[arm]["exact"]) for arm in ("encoder", "both"))
            en.append(
                "The other way round, with cross-attention held to its place and the encoder "
                f"free: {encoder:.1%}. With both free: {both:.1%}, and an alignment error of "
                f"{mean(arms['both']['error']):.2f}."
            )
            zh.append(
                f"反过来，交叉注意力受限而编码器自由：{encoder:.1%}。两者都自由：{both:.1%}，对齐错"
                f"误率 {mean(arms['both']['error']):.2f}。"
            )
        names = {arm: Words(f"{arrow} {arm}, times the usual", f"{arrow} {arm}，通常的倍数")
                 for arm in ("cross", "neither")}  # fmt: skip
        aside = cautions({arm: arms[arm]["rate"] for arm in names}, names)
        en.append(aside.en.strip())
        zh.append(aside.zh)
    return Words(" ".join(filter(None, en)), "".join(zh))


CLAIM = Claim(
    number=11,
    title=Words("Cross-attention handles word order", "交叉注意力处理语序差异"),
    claim=Words(
        "While each word is written, cross-attention looks at the relevant words of the source, so "
        "languages with another word order (German) can be translated.",
        "写每个词时，交叉注意力会看源句中相关的词，因此能翻译语序不同的语言（如德语）。",
    ),
    source="002, 003",
    how=Words(
        "Translators of the embedded world, one layer each, from German to English (the full run: "
        "also from Chinese to German). The encoder may look only at words next to each other, so "
        "it cannot put them in order. Then one thing is changed: cross-attention may look "
        "anywhere, or only beside its own place. Same stories, steps and search of "
        f"{BEST_FACTOR.en}. "
        "Where the best head looks (chosen on other stories) is compared with the world's own "
        "alignments; controls: the diagonal, untrained translators, the alignments of another "
        "story. The full run adds the encoder alone, and both free.",
        "内置世界的译者，编码器和解码器各一层，从德语到英语（完整运行还有汉语到德语）。编码器只许看"
        "相邻的词，所以不能调整语序。然后只改变一件事：交叉注意力可以看任何地方，或只许看同一位置附"
        f"近。故事、步数和{BEST_FACTOR.zh}都相同。最好的头（在别的故事上选出）看的地方，与世界自己的词对应"
        "比较；对照：对角线、未训练的译者、别的故事的对应。完整运行还包括只有编码器自由，以及两者都"
        "自由。",
    ),
    for_=Words(
        f"In every pair of languages: at least {HANDLES:.0%} more stories without a fault if "
        f"cross-attention may look anywhere, and the best head points to the right word at least "
        f"{SEEN} more often than any control, among words that move (lower ends). If only the "
        "first, or only in some pairs: holds only when.",
        f"每对语言都要：交叉注意力可以看任何地方时，一字不差的故事多至少 {HANDLES:.0%}；对换了位置"
        f"的词，最好的头指对的比任何对照多至少 {SEEN}（区间下端）。若只有前者，或只对部分语言如此，"
        "则为“仅在……时成立”。",
    ),
    against=Words(
        f"In every pair less than {HANDLES:.0%} more stories (upper end), although at least "
        f"{LEARNED:.0%} of the words that stay in place are right.",
        f"每对语言中，一字不差的故事都多不到 {HANDLES:.0%}（区间上端），尽管不换位置的词至少对了 "
        f"{LEARNED:.0%}。",
    ),
    measure=measure,
    judge=judge,
    draw=draw,
    tried=WENT_ON,
)
