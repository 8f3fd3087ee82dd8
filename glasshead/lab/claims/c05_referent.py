"""Claim 5: the second 它 attends to the kitten, not to the butterfly or the park."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Numbers
from glasshead.lab.claims.drawing import FOR, OTHER, annotate, draw_chance, draw_map, style_axes
from glasshead.lab.claims.readers import (
    GENDER,
    LANG,
    LEARNED,
    NAME,
    READER_WORDS,
    SHUFFLED,
    Training,
    answered_batch,
    best_head,
    count_classes,
    pronoun_rows,
    train_readers,
    unseen_stories,
    untrained_reader,
)
from glasshead.lab.claims.search import caution
from glasshead.lab.claims.stats import Interval, at_least, cohens_d, difference, mean
from glasshead.lab.claims.verdict import Verdict, not_learned
from glasshead.lab.referents import Truth, head_figures
from glasshead.lab.texts import Words, join_sentences, join_words, read_texts
from glasshead.model.transformer import Reader
from glasshead.text.tinyworld import Story, World
from glasshead.text.tinyworld.lexicon import NOUNS, PLACES

__all__ = ["CLAIM", "judge", "last_pronoun", "measure"]

TEXTS = read_texts(__file__)
# Believing the map may mislead in one story of ten; and "attends to" means that the word gets more
# than all other words together.
SHARE, WEIGHT = 0.9, 0.5
ABOVE = 0.2  # how far the share must lie above that of the reader before it was trained
FEWER = 0.05  # a difference between two tasks that is worth mentioning
FIGURES = ("accuracy", "share", "weight")


def last_pronoun(story: Story) -> int:
    return story.pronouns[LANG][-1].index


def measure(
    budget: Budget,
    *,
    whose: Callable[[Story], int] = last_pronoun,
    training: Training | None = None,
    n_stories: int | None = None,
) -> Evidence:
    """`whose`: the place in a story whose attention is measured."""
    plan, n = training or Training.of(budget), n_stories or (300 if budget.quick else 500)
    few = budget.seeds[:3]
    short = replace(plan, steps=plan.steps // 2)  # there is nothing to learn
    kinds = [(NAME, budget.seeds, plan), (GENDER, budget.seeds, plan), (SHUFFLED, few[:1], short)]
    if not budget.quick:
        adamw = replace(plan, optimizer="adamw")
        kinds += [("10", few, plan), ("30", few, plan)]
        kinds += [(NAME, few, adamw), (GENDER, few, adamw)]
    stories = unseen_stories(n)
    found: dict[str, Any] = {}
    for (answers, optimizer), made in train_readers(budget, kinds).items():
        key = answers if optimizer == "muon" else f"{answers}, {optimizer}"
        found[key] = {
            **_figures([one.model for one in made], answers, stories, whose),
            "classes": count_classes(answers),
            "rate": made[0].rates.evidence(),
        }
    start = [untrained_reader(seed) for seed in budget.seeds]
    found["untrained"] = _figures(start, NAME, stories, whose)
    sentence = World.seed_story()
    return {
        "stories": n,
        "steps": plan.steps,
        "chance": Truth.of(stories, LANG).chance,
        "readers": found,
        "words": list(sentence.tokens[LANG]),
        "nouns": list(sentence.nouns[LANG]),
        "referent": sentence.pronouns[LANG][-1].referent_index,
        "pronouns": [pronoun.index for pronoun in sentence.pronouns[LANG]],
    }


@torch.no_grad()
def _figures(
    models: Sequence[Reader],
    answers: str,
    stories: Sequence[Story],
    whose: Callable[[Story], int],
) -> dict[str, Any]:
    """Measure for each model how often it is right, how often the referent is on top, with which
    weight, and what it attends to in the document's own sentence."""
    truth, sentence = Truth.of(stories, LANG), World.seed_story()
    batch = answered_batch(stories, answers)
    places, rows = torch.tensor([whose(story) for story in stories]), torch.arange(len(stories))
    found: dict[str, list[Any]] = {name: [] for name in (*FIGURES, "sentence")}
    for model in models:
        best = best_head(model)
        weights, given = pronoun_rows(model, stories, places)
        right = (given == batch.answers)[rows, truth.pronouns]
        heads = head_figures(weights, truth)
        found["accuracy"].append(right.double().mean().item())
        found["share"].append(heads.share[best].item())
        found["weight"].append(heads.weight[best].item())
        own, _ = pronoun_rows(model, [sentence], torch.tensor([whose(sentence)]))
        found["sentence"].append(own[0][best].tolist())
    return found


def judge(evidence: Evidence) -> Finding:
    found = evidence["readers"]
    means = {key: {what: mean(one[what]) for what in FIGURES} for key, one in found.items()}
    raised = {
        key: difference(found[key]["share"], found["untrained"]["share"]) for key in (NAME, GENDER)
    }

    def shows(key: str) -> bool | None:
        return _shows(means[key]["share"], means[key]["weight"], raised[key])

    fewer, lighter = (difference(found[NAME][w], found[GENDER][w]) for w in ("share", "weight"))
    top = [
        max(evidence["nouns"], key=row.__getitem__) == evidence["referent"]
        for row in found[NAME]["sentence"]
    ]
    learned = {key: means[key]["accuracy"].low >= LEARNED for key in (NAME, GENDER)}
    other_optimizer = _with_adamw(found)
    task = shows(GENDER) is False and max(fewer.low, lighter.low) > FEWER
    why = Words("", "")
    if learned[NAME] and (shows(NAME) is False or 2 * sum(top) <= len(top)):
        verdict = Verdict.FAILS
    elif not all(learned.values()):
        behind = next(task for task, yes in learned.items() if not yes)
        verdict, why = Verdict.UNCLEAR, not_learned(TEXTS[f"reader.{behind}"])
    elif shows(NAME) is None:
        verdict = Verdict.UNCLEAR
    elif task or (shows(GENDER) and other_optimizer is False):
        verdict = Verdict.HOLDS_WHEN
    else:
        verdict = Verdict.HOLDS if shows(GENDER) else Verdict.UNCLEAR
    conditions = ["task"] * task + ["muon"] * (other_optimizer is False)
    when = join_words((TEXTS[f"when.{name}"] for name in conditions), " and ", "、")
    numbers: Numbers = {f"{what}, {key}": means[key][what] for key in found for what in FIGURES}
    numbers |= {
        "chance": evidence["chance"],
        "share, name minus untrained": raised[NAME],
        "share, gender minus untrained": raised[GENDER],
        "share, name minus gender": fewer,
        "weight, name minus gender": lighter,
        "share, name against gender, Cohen's d": cohens_d(
            found[NAME]["share"], found[GENDER]["share"]
        ),
        "document's sentence, readers that look at the kitten": sum(top) / len(top),
    }
    words = [TEXTS["only_when"].format(when=when)] if verdict is Verdict.HOLDS_WHEN else []
    fixed = {"stories": evidence["stories"], "chance": evidence["chance"]}
    words.append(TEXTS["result"].format(**fixed, **means, top=f"{sum(top)}/{len(top)}"))
    if "10" in found:
        shares = ", ".join(f"{n}: {means[n]['share'].value:.2f}" for n in ("10", "30"))
        adamw = [means[f"{task}, adamw"]["share"].value for task in (NAME, GENDER)]
        words.append(TEXTS["between"].format(shares=shares, adamw=adamw))
    rates = {task: found[task]["rate"] for task in (NAME, GENDER)}
    words.append(caution(rates, {task: TEXTS[f"rate.{task}"] for task in rates}))
    return Finding(verdict, join_sentences(words), numbers, when, why)


def _shows(share: Interval, weight: Interval, raised: Interval) -> bool | None:
    """Return whether a reader's best head shows the word; None if the intervals do not tell."""
    pairs = ((share, SHARE), (weight, WEIGHT), (raised, ABOVE))
    reached = [at_least(interval, least) for interval, least in pairs]
    return False if False in reached else None if None in reached else True


def _with_adamw(found: Mapping[str, Any]) -> bool | None:
    """Return whether the reader that names the word shows it when trained with AdamW; None if it
    was not measured, has not learned, or the intervals do not tell."""
    one = found.get(f"{NAME}, adamw")
    if one is None or mean(one["accuracy"]).low < LEARNED:
        return None
    start = found["untrained"]["share"][: len(one["share"])]
    return _shows(mean(one["share"]), mean(one["weight"]), difference(one["share"], start))


def draw(evidence: Evidence, figure: Any, say: Mapping[str, str]) -> None:
    figure.set_size_inches(7.2, 5.2)
    top, bottom = figure.subplots(2, 1, height_ratios=(1, 2.1))
    _draw_sentence(evidence, top, say)
    _draw_tasks(evidence, bottom, say)


def _draw_sentence(evidence: Evidence, axes: Any, say: Mapping[str, str]) -> None:
    readers = (NAME, GENDER, "untrained")
    rows = [
        [mean(weights).value for weights in zip(*evidence["readers"][key]["sentence"], strict=True)]
        for key in readers
    ]
    draw_map(axes, rows, say["figure.sentence"], aspect="auto")
    axes.set_yticks(range(len(rows)), [say[f"figure.row.{key}"] for key in readers])
    labels = _word_labels(evidence, say["lang"])
    axes.set_xticks(range(len(labels)), labels, fontsize=8, linespacing=1.0)
    referent = evidence["referent"]
    for at, row in enumerate(rows):
        color = "white" if row[referent] > 0.5 else "#333333"
        axes.annotate(f"{row[referent]:.2f}", (referent, at), ha="center", va="center",
                      fontsize=7.5, color=color)  # fmt: skip


def _word_labels(evidence: Evidence, lang: str) -> list[str]:
    """Return all words, written from top to bottom; in English only those that matter."""
    words: list[str] = evidence["words"]
    if lang == "zh":
        return ["\n".join(word) for word in words]
    english = {noun.zh: noun.en for noun in (*NOUNS, *PLACES)} | {"晚餐": "dinner"}
    labels = {at: english.get(words[at], "") for at in evidence["nouns"]}
    labels |= dict.fromkeys(evidence["pronouns"], "it") | {words.index("饿坏"): "\nstarving"}
    return [labels.get(at, "") for at in range(len(words))]


def _draw_tasks(evidence: Evidence, axes: Any, say: Mapping[str, str]) -> None:
    found = evidence["readers"]
    tasks = [t for t in ("untrained", SHUFFLED, GENDER, "10", "30", NAME) if t in found]
    for what, color, aside in (("share", FOR, -0.12), ("weight", OTHER, 0.12)):
        for at, task in enumerate(tasks):
            values, x = found[task][what], at + aside
            label = None if at else say[f"figure.{what}"]
            axes.plot([x] * len(values), values, "o", color=color, markersize=5, alpha=0.7,
                      label=label, markeredgewidth=0)  # fmt: skip
            value = mean(values).value
            axes.plot([x - 0.1, x + 0.1], [value] * 2, color=color, linewidth=1.6)
            annotate(axes, f"{value:.2f}", (x, max(values)), (0, 5), ha="center", color=color)
            if f"{task}, adamw" in found:
                others = found[f"{task}, adamw"][what]
                axes.plot([x + (0.18 if aside > 0 else -0.18)] * len(others), others, "o",
                          mfc="white", color=color, markersize=4.5)  # fmt: skip
    draw_chance(axes, evidence["chance"], say["figure.chance"])
    if "name, adamw" in found:
        axes.plot([], [], "o", mfc="white", color="#555555", markersize=4.5, label="AdamW")
    names = [say[f"figure.task.{task}"] for task in tasks]
    for at, task in enumerate(tasks):
        if task not in ("untrained", SHUFFLED):
            names[at] += f"\n({say['figure.answers'].format(found[task]['classes'])})"
    axes.set_xticks(range(len(tasks)), names, fontsize=8.5)
    axes.set_xlim(-0.5, len(tasks) - 0.5)
    axes.set_ylim(0, 1.1)
    style_axes(axes, say["figure.stories"].format(n=evidence["stories"]))
    axes.legend(fontsize=8.5, loc="upper left", bbox_to_anchor=(0, 0.97))


CLAIM = Claim.of(
    5, TEXTS, measure, judge, draw,
    share=SHARE, weight=WEIGHT, above=ABOVE, fewer=FEWER, learned=LEARNED, **READER_WORDS,
)  # fmt: skip
