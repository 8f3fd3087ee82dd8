"""Claim 9: attention weights can be interpreted: they show which words the answer rests on."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Verdict, Words
from glasshead.lab.claims.drawing import CHANCE, FOR, GREY, tidy
from glasshead.lab.claims.readers import (
    GENDER,
    LANG,
    LEARNED,
    NAME,
    Training,
    answered,
    best_head,
    classes_of,
    pronoun_rows,
    readers,
    tokenizer,
    unseen_stories,
    untrained,
)
from glasshead.lab.claims.stats import Interval, cohens_d, difference, mean
from glasshead.lab.looking import attentions, cut
from glasshead.lab.referents import Head, Truth
from glasshead.model.transformer import Reader
from glasshead.text.tinyworld import Story
from glasshead.training.pronouns import StoryBatch, story_batch

__all__ = ["CLAIM", "judge", "measure", "more_attended"]

# Hiding the looked-at word must change the answer in this many stories more than hiding the other
# one: in most of them the answer then rests on what was shown.
MOST = 0.5
READERS, PLACES, NOUNS = (NAME, GENDER, "untrained"), ("best", "all"), ("looked", "other")

Choice = Callable[[Tensor], Tensor]


def more_attended(weights: Tensor) -> Tensor:
    """(N,) which of two nouns has more of the best head's attention, from (N, 2)."""
    return weights.argmax(1)


def measure(
    budget: Budget,
    *,
    choose: Choice = more_attended,
    training: Training | None = None,
    n_stories: int | None = None,
) -> Evidence:
    """`choose`: which of the two nouns of a story is taken for the one that is looked at."""
    plan = training or Training.of(budget)
    stories, pairs = _stories(n_stories or (80 if budget.quick else 250))
    kinds = [(answers, budget.seeds, plan) for answers in (NAME, GENDER)]
    made = readers(budget, kinds)
    models: dict[str, list[Reader]] = {
        answers: [one.model for one in made[answers, plan.optimizer]] for answers in (NAME, GENDER)
    }
    models["untrained"] = [untrained(seed) for seed in budget.seeds]
    found = {
        name: _figures(some, name if name in (NAME, GENDER) else NAME, stories, pairs, choose)
        for name, some in models.items()
    }
    words = [len(story.tokens[LANG]) for story in stories]
    return {
        "stories": len(stories),
        "steps": plan.steps,
        "rates": {
            answers: made[answers, plan.optimizer][0].rates.shown() for answers in (NAME, GENDER)
        },
        "chance": sum(1 / n for n in words) / len(words),
        "readers": found,
    }


def _stories(n: int) -> tuple[list[Story], Tensor]:
    """Unseen stories, each with its other ending, and (N, 2) where its actor and its thing stand.

    In a story and its other ending the same two words stand in the same places, but the pronoun
    stands for the other one: so what is looked at and what is not are equally far away. Only
    stories whose two nouns differ in gender, or the gender need not change with the noun.
    """
    kept: list[Story] = []
    for story in unseen_stories(8 * n):
        if story.about != "place" and story.actor.gender != story.thing.gender:
            kept += [story, story.flip()]
        if len(kept) >= 2 * n:
            break
    pairs = [[s.tokens[LANG].index(noun.word(LANG)) for noun in (s.actor, s.thing)] for s in kept]
    return kept, torch.tensor(pairs)


@torch.no_grad()
def _figures(
    models: Sequence[Reader], answers: str, stories: Sequence[Story], pairs: Tensor, choose: Choice
) -> dict[str, Any]:
    truth, rows = Truth.of(stories, LANG), torch.arange(len(stories))
    batch = answered(story_batch(stories, tokenizer(), LANG), classes_of(answers))
    found: dict[str, Any] = {name: [] for name in ("accuracy", "agreement")}
    found |= {f"{noun}, {place}": [] for place in PLACES for noun in NOUNS}
    found |= {f"distance, {noun}": [] for noun in NOUNS}
    for model in models:
        best = best_head(model)
        looked_at, said = pronoun_rows(model, stories)
        weights = looked_at[:, best[0], best[1]]  # (N, S)
        chosen = choose(weights.gather(1, pairs))
        keys = {"looked": pairs[rows, chosen], "other": pairs[rows, 1 - chosen]}
        before = said[rows, truth.pronouns]
        right = before == batch.answers[rows, truth.pronouns]
        found["accuracy"].append(right.double().mean().item())
        for noun, places in keys.items():
            apart = (truth.pronouns - places).double().mean().item()
            found[f"distance, {noun}"].append(apart)
            for place, only in (("best", best), ("all", None)):
                logits = _without(model, batch, truth.pronouns, places, only)
                changed = (logits.argmax(-1) != before).double().mean().item()
                found[f"{noun}, {place}"].append(changed)
        found["agreement"].append(_agreement(model, batch, truth.pronouns, before, weights))
    return found


def _without(
    model: Reader, batch: StoryBatch, queries: Tensor, keys: Tensor, only: Head | None = None
) -> Tensor:
    """(N, V) logits at the pronouns when each may not see one word."""
    with cut(attentions(model.encoder), queries, keys, only):
        x = model.encoder(batch.ids)
    return model.head(x[torch.arange(len(queries)), queries])


def _agreement(
    model: Reader, batch: StoryBatch, queries: Tensor, before: Tensor, weights: Tensor
) -> float:
    """How often the word with the most weight is the one without which the answer loses most."""
    lost = torch.full(weights.shape, -torch.inf)
    for key in range(weights.shape[1]):
        keys = torch.full_like(queries, key)
        # The pronoun itself is no word to look back at, and some stories have ended.
        there = (batch.lengths > key) & (queries != key)
        if there.any():
            logits = _without(model, batch, queries, keys).log_softmax(-1)
            left = logits.gather(1, before[:, None])[:, 0]
            lost[there, key] = -left[there]
    others = weights.clone()
    others[torch.arange(len(queries)), queries] = -1
    return (lost.argmax(1) == others.argmax(1)).double().mean().item()


def judge(evidence: Evidence) -> Finding:
    found: Mapping[str, Any] = evidence["readers"]

    def effect(reader: str, place: str) -> Interval:
        return difference(found[reader][f"looked, {place}"], found[reader][f"other, {place}"])

    def rests(reader: str, place: str) -> bool | None:
        interval = effect(reader, place)
        if interval.low >= MOST:
            return True
        return False if interval.high < MOST else None

    learned = all(mean(found[reader]["accuracy"]).low >= LEARNED for reader in (NAME, GENDER))
    cases = [(reader, place) for reader in (NAME, GENDER) for place in PLACES]
    if not learned or rests(NAME, "all") is None:
        verdict = Verdict.UNCLEAR
    elif not rests(NAME, "all"):
        verdict = Verdict.FAILS
    elif all(rests(*case) for case in cases):
        verdict = Verdict.HOLDS
    elif any(rests(*case) is False for case in cases):
        verdict = Verdict.HOLDS_WHEN
    else:
        verdict = Verdict.UNCLEAR
    numbers: dict[str, Interval | float] = {"agreement, chance": evidence["chance"]}
    for reader in READERS:
        numbers |= {f"{what}, {reader}": mean(values) for what, values in found[reader].items()}
        numbers |= {f"looked minus other, {place}, {reader}": effect(reader, place)
                    for place in PLACES}  # fmt: skip
    sides = (found[NAME]["looked, all"], found[NAME]["other, all"])
    numbers["looked against other, all, name, Cohen's d"] = cohens_d(*sides)
    return Finding(verdict, _words(verdict, evidence, rests), numbers)


def _words(verdict: Verdict, evidence: Evidence, rests: Callable[[str, str], bool | None]) -> Words:
    found = evidence["readers"]

    def of(reader: str, what: str) -> Interval:
        return mean(found[reader][what])

    def said(reader: str, place: str, and_: str) -> str:
        looked, other = (of(reader, f"{noun}, {place}") for noun in NOUNS)
        return f"{looked:.1%} {and_} {other:.1%}"

    far = [of(NAME, f"distance, {noun}").value for noun in NOUNS]
    en = (
        "How many answers change when 它 may not see the noun that it looks at, against the other "
        f"noun ({far[0]:.1f} and {far[1]:.1f} words back). Hidden in all heads: "
        f"{said(NAME, 'all', 'against')} where the word is named, {said(GENDER, 'all', 'against')} "
        "where only its gender is asked for. Hidden in the one head that shows it best: "
        f"{said(NAME, 'best', 'against')}, and {said(GENDER, 'best', 'against')}. Of all words, "
        "the one with the most weight is the one whose loss hurts most in "
        f"{of(NAME, 'agreement'):.1%} (name), {of(GENDER, 'agreement'):.1%} (gender), "
        f"{of('untrained', 'agreement'):.1%} (untrained); by chance {evidence['chance']:.1%}."
    )
    zh = (
        "不许“它”看它看得最多的名词，与不许看另一个名词相比（平均相隔 "
        f"{far[0]:.1f} 和 {far[1]:.1f} 个词），有多少答案变了。在所有头里遮住：说出词的读者 "
        f"{said(NAME, 'all', '对')}，只说性的读者 {said(GENDER, 'all', '对')}。只在最能看出来的那个"
        f"头里遮住：{said(NAME, 'best', '对')}，以及 {said(GENDER, 'best', '对')}。所有的词里，权重"
        f"最大的正是遮住后影响最大的，占 {of(NAME, 'agreement'):.1%}（说出词）、"
        f"{of(GENDER, 'agreement'):.1%}（说出性）、{of('untrained', 'agreement'):.1%}（未训练），随"
        f"机为 {evidence['chance']:.1%}。"
    )
    if verdict is Verdict.HOLDS_WHEN:
        task = rests(GENDER, "all") is False
        one = rests(NAME, "best") is False or (not task and rests(GENDER, "best") is False)
        when_en = [
            "the map is read as pointing to a word, not as the one place it comes from"
        ] * one
        when_en += ["the task needs the very word"] * task
        when_zh = ["把注意力图看作指向某个词，而不是唯一的来源"] * one
        when_zh += ["任务需要那个词本身"] * task
        en = f"Holds only when {', and '.join(when_en)}. {en}"
        zh = f"只有{'，并且'.join(when_zh)}时成立。{zh}"
    return Words(en, zh)


def draw(evidence: Evidence, figure: Any, lang: str) -> None:
    left, right = figure.subplots(1, 2, width_ratios=(2.3, 1))
    found = evidence["readers"]
    cases = [(reader, place) for place in reversed(PLACES) for reader in READERS]
    sides = (
        ("looked", FOR, -0.17, Words("the noun looked at is hidden", "遮住它看的名词")),
        ("other", GREY, 0.17, Words("the other noun is hidden", "遮住另一个名词")),
    )
    for noun, color, aside, name in sides:
        for at, (reader, place) in enumerate(cases):
            values = found[reader][f"{noun}, {place}"]
            x, height = at + aside, mean(values).value
            left.bar(x, height, width=0.32, color=color, alpha=0.85,
                     label=None if at else name[lang])  # fmt: skip
            left.plot([x] * len(values), values, "o", color="#333333", markersize=2.5, alpha=0.7)
            number = f"{height:.2f}" if height >= 0.005 else "0"
            left.annotate(number, (x, max(values)), xytext=(0, 3), ha="center",
                          textcoords="offset points", fontsize=8)  # fmt: skip
    names = {
        NAME: Words("word", "词"),
        GENDER: Words("gender", "性"),
        "untrained": Words("un-\ntrained", "未训练"),
    }
    left.set_xticks(range(len(cases)), [names[reader][lang] for reader, _ in cases])
    left.set_ylim(0, 1.3)
    left.set_yticks([0, 0.25, 0.5, 0.75, 1])
    left.axvline(2.5, color="#bbbbbb", linewidth=0.8)
    places = (
        Words("in all heads", "在所有头里"),
        Words("in the best head", "在最好的头里"),
    )
    for at, text in zip((1, 4), places, strict=True):
        left.annotate(text[lang], (at, 1.09), ha="center", fontsize=9, color="#555555")
    tidy(left, Words("Share of answers that change", "答案改变的比例")[lang])
    left.legend(fontsize=8.5, loc="upper center", ncols=2, columnspacing=1.2, handlelength=1.2)
    for at, reader in enumerate(READERS):
        values = found[reader]["agreement"]
        right.bar(at, mean(values).value, width=0.5, color=GREY if reader == "untrained" else FOR,
                  alpha=0.85)  # fmt: skip
        right.plot([at] * len(values), values, "o", color="#333333", markersize=2.5, alpha=0.7)
        right.annotate(f"{mean(values).value:.2f}", (at, max(values)), xytext=(0, 3), ha="center",
                       textcoords="offset points", fontsize=8)  # fmt: skip
    right.axhline(evidence["chance"], **CHANCE)
    right.set_xticks(range(len(READERS)), [names[reader][lang] for reader in READERS])
    right.set_ylim(0, 1.3)
    right.set_yticks([0, 0.25, 0.5, 0.75, 1])
    title = Words(
        "Most weight is most\nneeded, share of stories", "权重最大的词也是\n最要紧的词，占比"
    )
    tidy(right, title[lang])


CLAIM = Claim(
    number=9,
    title=Words("Attention weights can be interpreted", "注意力权重可以解释"),
    claim=Words(
        "Attention weights show, to a degree, which words matter to the model's decision.",
        "通过注意力权重，可以在一定程度上看出模型做决定时哪些词重要。",
    ),
    source="001",
    how=Words(
        "The readers of claim 5. For the last pronoun of unseen stories, one edge is taken out "
        "before the softmax: 它 may not see the noun that its best head looks at more; as a "
        "control the other noun of the two. Each story comes with both of its endings, so both "
        "nouns are as often the one meant and stand equally far away; their genders differ. Hidden "
        "in the best head alone, or in all heads. Then every word is hidden in turn: is the one "
        "with the most weight the one that is needed most? Controls: the other noun, the untrained "
        "reader, chance.",
        "用第 5 条的读者。对没见过的故事的最后一个代词，在 softmax 之前去掉一条边：不许“它”看它最好"
        "的头看得更多的那个名词；对照是两个名词里的另一个。每个故事都带着两种结尾，所以两个名词同样"
        "多次是所指的词，距离也一样；两者的性不同。只在最好的头里遮住，或在所有头里遮住。再逐个遮住"
        "每个词：权重最大的词是不是最要紧的词？对照：另一个名词、未训练的读者、随机。",
    ),
    for_=Words(
        f"For both readers, in the best head and in all heads: at least {MOST:.0%} more answers "
        "change than when the other noun is hidden (lower end). If so for the reader that names "
        "the word in all heads, but clearly not in another case: holds only when.",
        f"两种读者，在最好的头里和在所有头里都要：比遮住另一个名词时多改变至少 {MOST:.0%} 的答案（"
        "区间下端）。若只是说出词的读者在所有头里如此，而别的情形显然不是，则为“仅在……时成立”。",
    ),
    against=Words(
        f"Even for the reader that names the word, hidden in all heads: less than {MOST:.0%} more "
        f"(upper end). A reader that is right in less than {LEARNED:.0%} tells nothing.",
        f"即使是说出词的读者、在所有头里遮住，也多不到 {MOST:.0%}（区间上端）。答对不到 "
        f"{LEARNED:.0%} 的读者不说明什么。",
    ),
    measure=measure,
    judge=judge,
    draw=draw,
)
