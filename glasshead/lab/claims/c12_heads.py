"""Claim 12: several heads capture different relations."""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Verdict, Words
from glasshead.lab.claims.heads_figure import draw
from glasshead.lab.claims.readers import (
    LANG,
    LEARNED,
    NAME,
    Training,
    readers,
    seen_stories,
    tokenizer,
    unseen_stories,
    untrained,
)
from glasshead.lab.claims.stats import Interval, cohens_d, difference, mean
from glasshead.lab.looking import attentions, looking
from glasshead.lab.referents import Head
from glasshead.model.transformer import Reader
from glasshead.observe.ablation import ablating
from glasshead.text.tinyworld import Story
from glasshead.training.pronouns import NOWHERE, StoryBatch, story_batch

__all__ = ["CLAIM", "as_trained", "divergence", "judge", "measure"]

# Heads look at different things if they are at least half as far apart as heads that are as sharp
# and look at places that have nothing to do with each other; and farther than before training, for
# heads drawn by chance are unrelated, too.
APART = 0.5
SAME = 0.02  # an accuracy that falls by less is the same
SPARE = 0.25  # if more of the heads than this can go, several do not do different work

RELATIONS = ("itself", "word before", "word after", "nouns", "referent", "ending")


def as_trained(model: Reader) -> Reader:
    return model


def measure(
    budget: Budget,
    *,
    alter: Callable[[Reader], Reader] = as_trained,
    training: Training | None = None,
    n_stories: int | None = None,
) -> Evidence:
    """`alter`: what is done to a reader before its heads are compared."""
    plan, n = training or Training.of(budget), n_stories or (120 if budget.quick else 300)
    made = readers(budget, [(NAME, budget.seeds, plan)])[NAME, plan.optimizer]
    stories, chosen_on = unseen_stories(n), story_batch(seen_stories(n), tokenizer(), LANG)
    batch, layers = story_batch(stories, tokenizer(), LANG), len(made[0].model.encoder.blocks)
    asked = batch.answers != NOWHERE
    names = ("accuracy", "apart", "unrelated", "apart before", "unrelated before")
    found: dict[str, list[Any]] = {
        name: [] for name in (*names, "relations", "singly", "together", "distances")
    }
    for seed, one in zip(budget.seeds, made, strict=True):
        budget.progress(0.96, f"heads of seed {seed}")
        model = alter(one.model)
        maps, before = _maps(model, batch), _maps(untrained(seed), batch)
        found["distances"].append(_distances(maps, batch, asked, seed)[0].tolist())
        for when, some in (("", maps), (" before", before)):
            apart, unrelated = _by_layer(some, batch, layers, seed)
            found[f"apart{when}"].append(apart)
            found[f"unrelated{when}"].append(unrelated)
        found["relations"].append(_relations(maps, stories))
        found["accuracy"].append(_accuracy(model, batch, []))
        found["singly"].append(_singly(model, batch))
        found["together"].append(_together(model, chosen_on, batch))
    fixed = {"stories": n, "steps": plan.steps, "rate": made[0].rates.shown()}
    fixed |= {"layers": layers, "heads": maps.shape[1]}
    return fixed | {"relation_names": list(RELATIONS), **found}


@torch.no_grad()
def _maps(model: Reader, batch: StoryBatch) -> Tensor:
    """(N, L H, S, S): all heads, the first layer's first."""
    with looking(attentions(model.encoder)) as maps:
        model.encoder(batch.ids)
    return torch.cat(list(maps), 1)


def divergence(p: Tensor, q: Tensor) -> Tensor:
    """Jensen and Shannon's, in bits: 0 for equal rows, 1 for rows that share no place.

    >>> one, other = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    >>> divergence(one, other).item(), divergence(one, one).item()
    (1.0, 0.0)
    """

    def entropy(rows: Tensor) -> Tensor:
        return -torch.special.xlogy(rows, rows).sum(-1)

    return (entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2) / torch.tensor(2.0).log()


def _distances(maps: Tensor, batch: StoryBatch, which: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """(heads, heads) mean divergence of two heads' rows, of the words `which` (N, S); and, of equal
    entropy: of one head's row and the other's with its weights at places drawn by chance."""
    n_heads, S = maps.shape[1], maps.shape[2]
    rows = maps.transpose(1, 2)[which]  # (R, heads, S)
    keys = _real(batch)[:, None].expand(-1, S, -1)[which]  # (R, S)
    places = torch.rand(keys.shape, generator=torch.Generator().manual_seed(seed))
    order = places.masked_fill(~keys, 2.0).argsort(-1)  # words in random order, then padding
    moved = rows.gather(-1, order[:, None].expand_as(rows))
    apart, unrelated = torch.zeros(2, n_heads, n_heads)
    for one, other in combinations(range(n_heads), 2):
        here, there = rows[:, one], rows[:, other]
        apart[one, other] = apart[other, one] = divergence(here, there).mean()
        drawn = divergence(here, moved[:, other]).mean()
        unrelated[one, other] = unrelated[other, one] = drawn
    return apart, unrelated


def _real(batch: StoryBatch) -> Tensor:
    return torch.arange(batch.ids.shape[1]) < batch.lengths[:, None]  # (N, S)


def _by_layer(
    maps: Tensor, batch: StoryBatch, layers: int, seed: int
) -> tuple[list[float], list[float]]:
    """Both, the mean over the pairs of each layer. Answers are read at pronouns only, so in the
    last layer only their rows do anything; before it, every word's."""
    found: tuple[list[float], list[float]] = ([], [])
    for at, some in enumerate(maps.chunk(layers, 1)):
        which = batch.answers != NOWHERE if at == layers - 1 else _real(batch)
        n = some.shape[1]
        for values, table in zip(found, _distances(some, batch, which, seed), strict=True):
            values.append((table.sum() / (n * (n - 1))).item())
    return found


def _relations(maps: Tensor, stories: Sequence[Story]) -> list[list[float]]:
    """For each head the mean weight on each relation. The last two are of the last pronoun's row,
    the others of all rows that have such a word."""
    sums = torch.zeros(maps.shape[1], len(RELATIONS), dtype=torch.double)
    for weights, story in zip(maps.double(), stories, strict=True):
        n, last = len(story.tokens[LANG]), story.pronouns[LANG][-1]
        own, nouns = weights[:, :n, :n], list(story.nouns[LANG])
        row = own[:, last.index]
        ending = [at for at in range(last.index + 1, n) if at not in nouns]
        parts = [own.diagonal(offset, 1, 2).mean(-1) for offset in (0, -1, 1)]
        parts += [own[:, :, nouns].sum(-1).mean(-1), row[:, last.referent_index]]
        sums += torch.stack([*parts, row[:, ending].sum(-1)], -1)
    return (sums / len(stories)).tolist()


@torch.no_grad()
def _accuracy(model: Reader, batch: StoryBatch, without: Sequence[Head]) -> float:
    """Over all pronouns, with some heads giving their mean context whatever they look at."""
    at = batch.answers != NOWHERE
    if without:
        with ablating(model.encoder, heads=without, mode="mean"):
            said = model(batch.ids).argmax(-1)
    else:
        said = model(batch.ids).argmax(-1)
    return (said == batch.answers)[at].double().mean().item()


def _all_heads(model: Reader) -> list[Head]:
    layers = attentions(model.encoder)
    return [(at, head) for at, layer in enumerate(layers) for head in range(layer.n_heads)]


def _singly(model: Reader, batch: StoryBatch) -> list[float]:
    """The accuracy without each head."""
    return [_accuracy(model, batch, [head]) for head in _all_heads(model)]


def _together(model: Reader, chosen_on: StoryBatch, batch: StoryBatch) -> list[float]:
    """The accuracy without 1, 2, … heads; next goes the one least missed on other stories."""
    gone: list[Head] = []
    left, found = _all_heads(model), []
    while left:
        scores = {head: _accuracy(model, chosen_on, [*gone, head]) for head in left}
        gone.append(max(left, key=scores.__getitem__))
        left.remove(gone[-1])
        found.append(_accuracy(model, batch, gone))
    return found


def _ratios(evidence: Mapping[str, Any], when: str = "") -> list[list[float]]:
    """For each layer one number a seed: how far apart heads are, of what unrelated ones would be.

    Heads that all look at everything alike are not apart, whatever they are compared with.
    """
    seeds = zip(evidence[f"apart{when}"], evidence[f"unrelated{when}"], strict=True)
    ratios = [
        [a / b if b > 1e-6 else 0.0 for a, b in zip(apart, unrelated, strict=True)]
        for apart, unrelated in seeds
    ]
    return [list(layer) for layer in zip(*ratios, strict=True)]


def _different(ratio: Interval, rise: Interval) -> bool | None:
    """None: the intervals do not say."""
    if ratio.high < APART or rise.high <= 0:
        return False
    return True if ratio.low >= APART and rise.low > 0 else None


def judge(evidence: Evidence) -> Finding:
    e: Mapping[str, Any] = evidence
    spare = [
        next((n for n, kept in enumerate(lefts) if whole - kept > SAME), len(lefts)) / len(lefts)
        for whole, lefts in zip(e["accuracy"], e["together"], strict=True)
    ]
    singly = [
        sum(whole - kept > SAME for kept in lefts) / len(lefts)
        for whole, lefts in zip(e["accuracy"], e["singly"], strict=True)
    ]
    apart = [mean(layer) for layer in _ratios(e)]
    can_go, needed = mean(spare), mean(singly)
    rises = [
        difference(*([seed[at] for seed in e[f"apart{when}"]] for when in ("", " before")))
        for at in range(len(apart))
    ]
    different = [_different(*both) for both in zip(apart, rises, strict=True)]
    work = True if can_go.high <= SPARE else False if can_go.low > SPARE else None
    if mean(e["accuracy"]).low < LEARNED or None in different:
        verdict = Verdict.UNCLEAR
    elif not any(different):
        verdict = Verdict.FAILS
    elif all(different) and work is None:
        verdict = Verdict.UNCLEAR
    else:
        verdict = Verdict.HOLDS if all(different) and work else Verdict.HOLDS_WHEN
    numbers: dict[str, Interval | float] = {"accuracy": mean(e["accuracy"])}
    for at, (ratio, rise, before) in enumerate(
        zip(apart, rises, _ratios(e, " before"), strict=True)
    ):
        trained, start = ([seed[at] for seed in e[f"apart{when}"]] for when in ("", " before"))
        numbers |= {
            f"layer {at}: apart, bits": mean(trained),
            f"layer {at}: apart, bits, before training": mean(start),
            f"layer {at}: apart, trained minus before, bits": rise,
            f"layer {at}: apart, trained against before, Cohen's d": cohens_d(trained, start),
            f"layer {at}: apart, of equally sharp and unrelated": ratio,
            f"layer {at}: the same, before training": mean(before),
        }
    numbers |= {
        "heads that are needed one by one": needed,
        "heads that can go together": can_go,
    }
    return Finding(verdict, _words(verdict, e, numbers, different, work), numbers)


def _words(
    verdict: Verdict,
    evidence: Mapping[str, Any],
    numbers: Mapping[str, Interval | float],
    different: Sequence[bool | None],
    work: bool | None,
) -> Words:
    en, zh = [], []
    if verdict is Verdict.HOLDS_WHEN:
        some = ", ".join(str(at) for at, yes in enumerate(different) if yes)
        where = Words("", "") if all(different) else Words(f" in layer {some}", f"在第 {some} 层")
        looks = Words(" for where heads look: not each of them is needed", "就看的词不同而言")
        what = looks if work is False else Words("", "")
        en.append(f"Holds only{where.en}{',' if where.en and what.en else ''}{what.en}.")
        zh.append(f"只{where.zh}{what.zh}成立{'，并不是每个头都不可缺少' if what.zh else ''}。")
    for at in range(evidence["layers"]):
        last = at == evidence["layers"] - 1
        of = {name: numbers[f"layer {at}: {name}"] for name in (
            "apart, bits", "apart, bits, before training", "apart, of equally sharp and unrelated",
            "the same, before training")}  # fmt: skip
        bits, start, ratio, before = of.values()
        en.append(
            f"Two heads of layer {at} ({'on the rows of pronouns' if last else 'all rows'}) lie "
            f"{bits:.2f} bits apart (Jensen-Shannon; before training {start:.2f}): {ratio:.2f} of "
            f"what equally sharp heads would that look at unrelated places (before {before:.2f})."
        )
        zh.append(
            f"第 {at} 层（{'代词的行' if last else '所有的行'}）两个头平均相距 {bits:.2f} 比特"
            f"（Jensen-Shannon；训练前 {start:.2f}），是同样尖锐而位置互不相关的头的 {ratio:.2f}（"
            f"训练前 {before:.2f}）。"
        )
    needed, can_go = (numbers[f"heads that {what}"] for what in ("are needed one by one",
                                                                 "can go together"))  # fmt: skip
    en.append(
        f"Without any one head, the reader's accuracy ({numbers['accuracy']:.1%}) falls by more "
        f"than {SAME} for {needed:.0%} of the {evidence['heads']} heads. Taken out one after the "
        f"other, the least missed first, {can_go:.0%} of them can go before it does."
    )
    zh.append(
        f"只去掉一个头，读者的正确率（{numbers['accuracy']:.1%}）下降超过 {SAME} 的，占 "
        f"{evidence['heads']} 个头的 {needed:.0%}。从最不要紧的开始逐个去掉，在下降之前可以去掉 "
        f"{can_go:.0%}。"
    )
    return Words(" ".join(en), "".join(zh))


CLAIM = Claim(
    number=12,
    title=Words("Heads capture different relations", "不同的头捕捉不同的关系"),
    claim=Words(
        "Several heads capture different relations between words.",
        "多个头能捕捉词与词之间不同的关系。",
    ),
    source="000, 003, 004",
    how=Words(
        "The readers of claim 5 that name the word: 2 layers of 4 heads. How far apart two heads "
        "of a layer are (in the last layer on the rows of pronouns: no others are read) is "
        "compared with the same reader before training, and with heads of equal entropy: the same "
        "weights at places drawn by chance. What each head looks at is set beside known relations. "
        "Then heads are silenced (their context becomes its mean), each alone, and one after the "
        "other, in an order chosen on other stories.",
        "用第 5 条里说出词的读者：2 层，每层 4 个头。同层两个头相距多远（最后一层只算代词的行，别的"
        "行没人读），与训练前的同一读者比较，并与同样熵的头比较：权重不变，位置随机。再把每个头看什"
        "么与已知的关系对照。然后让头沉默（其上下文换成平均值），先各自单独，再一个接一个（次序在别的故事上"
        "选出）。",
    ),
    for_=Words(
        f"In every layer heads are at least {APART} as far apart as equally sharp, unrelated ones "
        "and farther than before training (lower ends), and at most "
        f"{SPARE:.0%} of them can go before the accuracy falls by {SAME} (upper end). If only in "
        "some layers, or if more can go: holds only when.",
        f"每一层里，各头的距离至少是同样尖锐、互不相关的头的 {APART}，且比训练前更远（区间下端）；"
        f"在正确率下降 {SAME} 之前，最多能去掉 {SPARE:.0%}（区间上端）。若只有一些层如此，或能去掉"
        "更多，则为“仅在……时成立”。",
    ),
    against=Words(
        f"In every layer heads are less than {APART} as far apart, or no farther than before "
        f"training (upper ends). A reader that is right in less than {LEARNED:.0%} tells nothing.",
        f"每一层里各头的距离都不到 {APART}，或不比训练前更远（区间上端）。答对不到 {LEARNED:.0%} 的"
        "读者不说明什么。",
    ),
    measure=measure,
    judge=judge,
    draw=draw,
    tried=Words(
        "At first all rows of the last layer were compared, but only those of pronouns are "
        "ever read there; since then only those count, which made the condition stricter. A "
        "review made it stricter again: untrained heads, nearly uniform, are as far apart as "
        "unrelated ones, so heads must also be farther apart than before training.",
        "起初比较了最后一层的所有行，可那里真正被读取的只有代词所在的行；此后只算这些行，条件因"
        "此更严。审查时又加严一次：未训练的头近乎均匀，与互不相关的头一样远，所以还要求比训练前更"
        "远。",
    ),
)
