"""Claim 9: attention weights can be interpreted: they show which words the answer depends on."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from glasshead.lab.attention_maps import Head, hide_keys, self_attentions
from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Numbers
from glasshead.lab.claims.drawing import FOR, GREY, draw_bar, draw_chance, style_axes
from glasshead.lab.claims.readers import (
    GENDER,
    LANG,
    LEARNED,
    NAME,
    Training,
    answered_batch,
    best_head,
    pronoun_rows,
    train_readers,
    unseen_stories,
    untrained_reader,
)
from glasshead.lab.claims.stats import Interval, at_least, cohens_d, difference, mean
from glasshead.lab.claims.verdict import Verdict
from glasshead.lab.referents import Truth
from glasshead.lab.texts import Words, join_sentences, join_words, read_texts
from glasshead.model.transformer import Reader
from glasshead.text.tinyworld import Story
from glasshead.training.pronouns import StoryBatch

__all__ = ["CLAIM", "judge", "measure", "more_attended"]

TEXTS = read_texts(__file__)
# Hiding the attended word must change the answer in this many stories more than hiding the other
# one: in most of them the answer then depends on what was shown.
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
    """`choose`: which of the two nouns of a story counts as the attended one."""
    plan = training or Training.of(budget)
    stories, pairs = _stories(n_stories or (80 if budget.quick else 250))
    made = train_readers(budget, [(answers, budget.seeds, plan) for answers in (NAME, GENDER)])
    trained = {answers: made[answers, plan.optimizer] for answers in (NAME, GENDER)}
    models = {answers: [one.model for one in some] for answers, some in trained.items()}
    models["untrained"] = [untrained_reader(seed) for seed in budget.seeds]
    words = [len(story.tokens[LANG]) for story in stories]
    return {
        "stories": len(stories),
        "steps": plan.steps,
        "rates": {answers: some[0].rates.evidence() for answers, some in trained.items()},
        "chance": sum(1 / n for n in words) / len(words),
        "readers": {
            name: _figures(some, GENDER if name == GENDER else NAME, stories, pairs, choose)
            for name, some in models.items()
        },
    }


def _stories(n: int) -> tuple[list[Story], Tensor]:
    """Return unseen stories with their other endings, and (N, 2) the places of actor and thing.

    In a story and its other ending the same two words stand in the same places, but the pronoun
    stands for the other one: so the attended noun and the other one are equally far away. Only
    stories whose two nouns differ in gender, or the gender need not change with the noun.
    """
    stories: list[Story] = []
    for story in unseen_stories(8 * n):
        if story.about != "place" and story.actor.gender != story.thing.gender:
            stories += [story, story.flip()]
        if len(stories) >= 2 * n:
            break
    pairs = [
        [s.tokens[LANG].index(noun.word(LANG)) for noun in (s.actor, s.thing)] for s in stories
    ]
    return stories, torch.tensor(pairs)


@torch.no_grad()
def _figures(
    models: Sequence[Reader], answers: str, stories: Sequence[Story], pairs: Tensor, choose: Choice
) -> dict[str, Any]:
    truth, rows = Truth.of(stories, LANG), torch.arange(len(stories))
    batch = answered_batch(stories, answers)
    found: dict[str, Any] = {name: [] for name in ("accuracy", "agreement")}
    found |= {f"{noun}, {place}": [] for place in PLACES for noun in NOUNS}
    found |= {f"distance, {noun}": [] for noun in NOUNS}
    for model in models:
        best = best_head(model)
        maps, given = pronoun_rows(model, stories)
        weights = maps[:, best[0], best[1]]  # (N, S)
        chosen = choose(weights.gather(1, pairs))
        keys = {"looked": pairs[rows, chosen], "other": pairs[rows, 1 - chosen]}
        before = given[rows, truth.pronouns]
        right = before == batch.answers[rows, truth.pronouns]
        found["accuracy"].append(right.double().mean().item())
        for noun, places in keys.items():
            apart = (truth.pronouns - places).double().mean().item()
            found[f"distance, {noun}"].append(apart)
            for place, only in (("best", best), ("all", None)):
                logits = _logits_without(model, batch, truth.pronouns, places, only)
                changed = (logits.argmax(-1) != before).double().mean().item()
                found[f"{noun}, {place}"].append(changed)
        found["agreement"].append(_agreement(model, batch, truth.pronouns, before, weights))
    return found


def _logits_without(
    model: Reader, batch: StoryBatch, queries: Tensor, keys: Tensor, only: Head | None = None
) -> Tensor:
    """(N, V) logits at the pronouns when each may not see one word."""
    with hide_keys(self_attentions(model.encoder), queries, keys, only):
        x = model.encoder(batch.ids)
    return model.head(x[torch.arange(len(queries)), queries])


def _agreement(
    model: Reader, batch: StoryBatch, queries: Tensor, before: Tensor, weights: Tensor
) -> float:
    """Return how often hiding the word with the most weight lowers the answer most."""
    lost = torch.full(weights.shape, -torch.inf)
    for key in range(weights.shape[1]):
        keys = torch.full_like(queries, key)
        # The pronoun itself is no word to look back at, and some stories have ended.
        there = (batch.lengths > key) & (queries != key)
        if there.any():
            logits = _logits_without(model, batch, queries, keys).log_softmax(-1)
            left = logits.gather(1, before[:, None])[:, 0]
            lost[there, key] = -left[there]
    others = weights.clone()
    others[torch.arange(len(queries)), queries] = -1
    return (lost.argmax(1) == others.argmax(1)).double().mean().item()


def judge(evidence: Evidence) -> Finding:
    found = evidence["readers"]
    means = {
        reader: {what: mean(values) for what, values in found[reader].items()} for reader in READERS
    }

    def effect(reader: str, place: str) -> Interval:
        return difference(found[reader][f"looked, {place}"], found[reader][f"other, {place}"])

    learned = all(means[reader]["accuracy"].low >= LEARNED for reader in (NAME, GENDER))
    depends = {
        (reader, place): at_least(effect(reader, place), MOST)
        for reader in (NAME, GENDER)
        for place in PLACES
    }
    if not learned or depends[NAME, "all"] is None:
        verdict = Verdict.UNCLEAR
    elif not depends[NAME, "all"]:
        verdict = Verdict.FAILS
    elif all(depends.values()):
        verdict = Verdict.HOLDS
    else:
        verdict = Verdict.HOLDS_WHEN if False in depends.values() else Verdict.UNCLEAR
    numbers: Numbers = {"agreement, chance": evidence["chance"]}
    for reader in READERS:
        numbers |= {f"{what}, {reader}": value for what, value in means[reader].items()}
        numbers |= {f"looked minus other, {place}, {reader}": effect(reader, place)
                    for place in PLACES}  # fmt: skip
    sides = (found[NAME]["looked, all"], found[NAME]["other, all"])
    numbers["looked against other, all, name, Cohen's d"] = cohens_d(*sides)

    def against(reader: str, place: str) -> Words:
        of = means[reader]
        return TEXTS["against"].format(looked=of[f"looked, {place}"], other=of[f"other, {place}"])

    words = [
        TEXTS["result"].format(
            far=[means[NAME][f"distance, {noun}"].value for noun in NOUNS],
            chance=evidence["chance"],
            **{f"{reader}_{place}": against(reader, place) for reader, place in depends}, **means,
        )
    ]  # fmt: skip
    task = depends[GENDER, "all"] is False
    pointing = depends[NAME, "best"] is False or (not task and depends[GENDER, "best"] is False)
    conditions = ["pointing"] * pointing + ["task"] * task
    if verdict is Verdict.HOLDS_WHEN:
        when = join_words((TEXTS[f"when.{name}"] for name in conditions), ", and ", "，并且")
        words.insert(0, TEXTS["only_when"].format(when=when))
    short = join_words((TEXTS[f"in_short.{name}"] for name in conditions), " and ", "、且")
    return Finding(verdict, join_sentences(words), numbers, short)


def draw(evidence: Evidence, figure: Any, say: Mapping[str, str]) -> None:
    left, right = figure.subplots(1, 2, width_ratios=(2.3, 1))
    found = evidence["readers"]
    cases = [(reader, place) for place in reversed(PLACES) for reader in READERS]
    for noun, color, aside in (("looked", FOR, -0.17), ("other", GREY, 0.17)):
        for at, (reader, place) in enumerate(cases):
            draw_bar(left, at + aside, found[reader][f"{noun}, {place}"], color, width=0.32,
                     label=None if at else say[f"figure.{noun}"])  # fmt: skip
    left.set_xticks(range(len(cases)), [say[f"figure.reader.{reader}"] for reader, _ in cases])
    left.axvline(2.5, color="#bbbbbb", linewidth=0.8)
    for at, place in ((1, "all"), (4, "best")):
        left.annotate(say[f"figure.{place}"], (at, 1.09), ha="center", fontsize=9, color="#555555")
    for at, reader in enumerate(READERS):
        color = GREY if reader == "untrained" else FOR
        draw_bar(right, at, found[reader]["agreement"], color, width=0.5)
    draw_chance(right, evidence["chance"])
    right.set_xticks(range(len(READERS)), [say[f"figure.reader.{reader}"] for reader in READERS])
    for axes, title in ((left, "changed"), (right, "agreement")):
        axes.set_ylim(0, 1.3)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
        style_axes(axes, say[f"figure.{title}"])
    left.legend(fontsize=8.5, loc="upper center", ncols=2, columnspacing=1.2, handlelength=1.2)


CLAIM = Claim.of(9, TEXTS, measure, judge, draw, most=MOST, learned=LEARNED)
