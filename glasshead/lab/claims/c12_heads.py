"""Claim 12: several heads capture different relations."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from glasshead.lab.attention_maps import Head, record_weights, self_attentions
from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Numbers
from glasshead.lab.claims.drawing import FOR, GREY, annotate, draw_band, draw_map, style_axes
from glasshead.lab.claims.readers import (
    LANG,
    LEARNED,
    NAME,
    Training,
    answered_batch,
    seen_stories,
    train_readers,
    unseen_stories,
    untrained_reader,
)
from glasshead.lab.claims.stats import Interval, cohens_d, difference, mean
from glasshead.lab.claims.verdict import Verdict
from glasshead.lab.texts import Words, join_sentences, read_texts
from glasshead.model.transformer import Reader
from glasshead.observe.ablation import ablating
from glasshead.text.tinyworld import Story
from glasshead.training.pronouns import NOWHERE, StoryBatch

__all__ = ["CLAIM", "as_trained", "divergence", "judge", "measure"]

TEXTS = read_texts(__file__)
# Heads look at different things if they are at least half as far apart as equally sharp heads that
# look at unrelated places; and farther than before training, since random heads are unrelated too.
APART = 0.5
SAME = 0.02  # an accuracy that falls by less is the same
SPARE = 0.25  # if more of the heads than this can be removed, several do not do different work

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
    """`alter`: changes a reader before its heads are compared."""
    plan, n = training or Training.of(budget), n_stories or (120 if budget.quick else 300)
    made = train_readers(budget, [(NAME, budget.seeds, plan)])[NAME, plan.optimizer]
    stories, chosen_on = unseen_stories(n), answered_batch(seen_stories(n))
    batch, layers = answered_batch(stories), len(made[0].model.encoder.blocks)
    asked = batch.answers != NOWHERE
    names = ("accuracy", "apart", "unrelated", "apart before", "unrelated before")
    found: dict[str, list[Any]] = {
        name: [] for name in (*names, "relations", "singly", "together", "distances")
    }
    for seed, one in zip(budget.seeds, made, strict=True):
        budget.progress(0.96, f"heads of seed {seed}")
        model = alter(one.model)
        maps, before = _maps(model, batch), _maps(untrained_reader(seed), batch)
        found["distances"].append(_distances(maps, batch, asked, seed)[0].tolist())
        for when, some in (("", maps), (" before", before)):
            apart, unrelated = _by_layer(some, batch, layers, seed)
            found[f"apart{when}"].append(apart)
            found[f"unrelated{when}"].append(unrelated)
        found["relations"].append(_relations(maps, stories))
        found["accuracy"].append(_accuracy(model, batch, []))
        alone = [_accuracy(model, batch, [head]) for head in _all_heads(model)]
        found["singly"].append(alone)
        found["together"].append(_remove_in_turn(model, chosen_on, batch))
    fixed = {"stories": n, "steps": plan.steps, "rate": made[0].rates.evidence()}
    fixed |= {"layers": layers, "heads": maps.shape[1]}
    return fixed | {"relation_names": list(RELATIONS), **found}


@torch.no_grad()
def _maps(model: Reader, batch: StoryBatch) -> Tensor:
    """(N, L H, S, S): all heads, the first layer's first."""
    with record_weights(self_attentions(model.encoder)) as maps:
        model.encoder(batch.ids)
    return torch.cat(list(maps), 1)


def divergence(p: Tensor, q: Tensor) -> Tensor:
    """Return the Jensen-Shannon divergence in bits: 0 for equal rows, 1 for disjoint ones.

    >>> one, other = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    >>> divergence(one, other).item(), divergence(one, one).item()
    (1.0, 0.0)
    """

    def entropy(rows: Tensor) -> Tensor:
        return -torch.special.xlogy(rows, rows).sum(-1)

    return (entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2) / torch.tensor(2.0).log()


def _distances(maps: Tensor, batch: StoryBatch, which: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Return (heads, heads) mean divergences of two heads' rows at the words `which` (N, S); and of
    one head's row and the other's with its weights moved to random places, of equal entropy."""
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
    """Return both, averaged over the pairs of each layer. Answers are read at pronouns only, so in
    the last layer only their rows count; before it, every word's."""
    found: tuple[list[float], list[float]] = ([], [])
    for at, some in enumerate(maps.chunk(layers, 1)):
        which = batch.answers != NOWHERE if at == layers - 1 else _real(batch)
        n = some.shape[1]
        for values, table in zip(found, _distances(some, batch, which, seed), strict=True):
            values.append((table.sum() / (n * (n - 1))).item())
    return found


def _relations(maps: Tensor, stories: Sequence[Story]) -> list[list[float]]:
    """Return the mean weight of each head on each relation. The last two are of the last pronoun's
    row, the others of all rows that have such a word."""
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
    """Return the accuracy over all pronouns, some heads' contexts being replaced by their means."""
    changed = ablating(model.encoder, heads=without, mode="mean") if without else nullcontext()
    with changed:
        given = model(batch.ids).argmax(-1)
    return (given == batch.answers)[batch.answers != NOWHERE].double().mean().item()


def _all_heads(model: Reader) -> list[Head]:
    layers = self_attentions(model.encoder)
    return [(at, head) for at, layer in enumerate(layers) for head in range(layer.n_heads)]


def _remove_in_turn(model: Reader, chosen_on: StoryBatch, batch: StoryBatch) -> list[float]:
    """Return the accuracy without 1, 2, … heads, each the least missed one on other stories."""
    gone: list[Head] = []
    left, found = _all_heads(model), []
    while left:
        scores = {head: _accuracy(model, chosen_on, [*gone, head]) for head in left}
        gone.append(max(left, key=scores.__getitem__))
        left.remove(gone[-1])
        found.append(_accuracy(model, batch, gone))
    return found


def _ratios(evidence: Mapping[str, Any], when: str = "") -> list[list[float]]:
    """Return for each layer, per seed, how far apart heads are, over what unrelated ones are.

    Heads that all look at everything alike are not apart.
    """
    seeds = zip(evidence[f"apart{when}"], evidence[f"unrelated{when}"], strict=True)
    ratios = [
        [a / b if b > 1e-6 else 0.0 for a, b in zip(apart, unrelated, strict=True)]
        for apart, unrelated in seeds
    ]
    return [list(layer) for layer in zip(*ratios, strict=True)]


def _are_different(ratio: Interval, rise: Interval) -> bool | None:
    """Return whether the heads of a layer are different; None if the intervals do not tell."""
    if ratio.high < APART or rise.high <= 0:
        return False
    return True if ratio.low >= APART and rise.low > 0 else None


def _share_missed(accuracy: float, without: Sequence[float]) -> float:
    return sum(accuracy - left > SAME for left in without) / len(without)


def _share_spare(accuracy: float, without: Sequence[float]) -> float:
    first = (n for n, left in enumerate(without) if accuracy - left > SAME)
    return next(first, len(without)) / len(without)


def judge(evidence: Evidence) -> Finding:
    e = evidence
    can_go = mean(list(map(_share_spare, e["accuracy"], e["together"])))
    needed = mean(list(map(_share_missed, e["accuracy"], e["singly"])))
    numbers: Numbers = {"accuracy": mean(e["accuracy"])}
    words: list[Words] = []
    different: list[bool | None] = []
    for at, (ratios, before) in enumerate(zip(_ratios(e), _ratios(e, " before"), strict=True)):
        trained, start = ([seed[at] for seed in e[f"apart{when}"]] for when in ("", " before"))
        ratio, rise = mean(ratios), difference(trained, start)
        different.append(_are_different(ratio, rise))
        numbers |= {
            f"layer {at}: apart, bits": mean(trained),
            f"layer {at}: apart, bits, before training": mean(start),
            f"layer {at}: apart, trained minus before, bits": rise,
            f"layer {at}: apart, trained against before, Cohen's d": cohens_d(trained, start),
            f"layer {at}: apart, of equally sharp and unrelated": ratio,
            f"layer {at}: the same, before training": mean(before),
        }
        rows = TEXTS["rows.pronouns" if at == e["layers"] - 1 else "rows.all"]
        words.append(
            TEXTS["layer"].format(
                layer=at, rows=rows, bits=mean(trained), start=mean(start), ratio=ratio,
                before=mean(before),
            )
        )  # fmt: skip
    numbers |= {"heads that are needed one by one": needed, "heads that can go together": can_go}
    work = True if can_go.high <= SPARE else False if can_go.low > SPARE else None
    if mean(e["accuracy"]).low < LEARNED or None in different:
        verdict = Verdict.UNCLEAR
    elif not any(different):
        verdict = Verdict.FAILS
    elif all(different) and work is None:
        verdict = Verdict.UNCLEAR
    else:
        verdict = Verdict.HOLDS if all(different) and work else Verdict.HOLDS_WHEN
    layers = ", ".join(str(at) for at, yes in enumerate(different) if yes)
    where = "only_looks" if all(different) else "only_in" if work is not False else "only_both"
    if verdict is Verdict.HOLDS_WHEN:
        words.insert(0, TEXTS[where].format(layers=layers))
    accuracy, heads = numbers["accuracy"], e["heads"]
    words.append(
        TEXTS["ablation"].format(
            accuracy=accuracy, same=SAME, needed=needed, heads=heads, can_go=can_go
        )
    )
    return Finding(
        verdict, join_sentences(words), numbers, TEXTS[f"when.{where}"].format(layers=layers)
    )


def draw(evidence: Evidence, figure: Any, say: Mapping[str, str]) -> None:
    figure.set_size_inches(7.2, 5.6)
    above, below = figure.subfigures(2, 1, height_ratios=(1.05, 1))
    left, right = above.subplots(1, 2, width_ratios=(1.25, 1))
    _draw_relations(evidence, left, say)
    _draw_distances(evidence, right, say)
    left, right = below.subplots(1, 2, width_ratios=(1, 1.25))
    _draw_bits(evidence, left, say)
    _draw_ablation(evidence, right, say)


def _head_names(evidence: Evidence) -> list[str]:
    per_layer = evidence["heads"] // evidence["layers"]
    return [f"{at // per_layer}.{at % per_layer}" for at in range(evidence["heads"])]


def _draw_relations(evidence: Evidence, axes: Any, say: Mapping[str, str]) -> None:
    table = list(zip(*evidence["relations"][0], strict=True))  # relations down, heads across
    draw_map(axes, table, say["figure.relations"], aspect="auto")
    for at, row in enumerate(table):
        for head, value in enumerate(row):
            color = "white" if value > 0.5 else "#333333"
            if value >= 0.1:
                axes.annotate(f"{value:.1f}", (head, at), ha="center", va="center", fontsize=7,
                              color=color)  # fmt: skip
    names = [say[f"figure.relation.{name}"] for name in evidence["relation_names"]]
    axes.set_yticks(range(len(names)), names)
    axes.set_xticks(range(evidence["heads"]), _head_names(evidence))


def _draw_distances(evidence: Evidence, axes: Any, say: Mapping[str, str]) -> None:
    picture = draw_map(axes, evidence["distances"][0], say["figure.distances"])
    for set_ticks in (axes.set_xticks, axes.set_yticks):
        set_ticks(range(evidence["heads"]), _head_names(evidence), fontsize=8)
    axes.figure.colorbar(picture, ax=axes, shrink=0.9, pad=0.02).outline.set_visible(False)


def _draw_bits(evidence: Evidence, axes: Any, say: Mapping[str, str]) -> None:
    sides = ((" before", say["figure.before"], GREY), ("", say["figure.trained"], FOR))
    names = []
    for at in range(2 * evidence["layers"]):
        layer, (when, name, color) = at // 2, sides[at % 2]
        apart, unrelated = (
            [seed[layer] for seed in evidence[f"{what}{when}"]] for what in ("apart", "unrelated")
        )
        axes.bar(at, mean(apart).value, width=0.6, color=color, alpha=0.85)
        axes.plot([at] * len(apart), apart, "o", color="#333333", markersize=2.5, alpha=0.7)
        most = mean(unrelated).value
        axes.plot([at - 0.4, at + 0.4], [most, most], color="#333333", linewidth=1.4,
                  linestyle=(0, (3, 2)))  # fmt: skip
        annotate(axes, f"{mean(apart).value:.2f}/{most:.2f}", (at, max(most, *apart)), (0, 4),
                 ha="center", fontsize=7.5, color="black")  # fmt: skip
        names.append(name)
        if at % 2:
            text = say["figure.layer"].format(layer)
            axes.annotate(text, (at - 0.5, 1.02), ha="center", fontsize=8.5, color="#555555")
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(0, 1.12)
    style_axes(axes, say["figure.bits"])


def _draw_ablation(evidence: Evidence, axes: Any, say: Mapping[str, str]) -> None:
    n = evidence["heads"]
    runs = [
        [whole, *without]
        for whole, without in zip(evidence["accuracy"], evidence["together"], strict=True)
    ]
    seeds = list(zip(*runs, strict=True))
    draw_band(axes, range(n + 1), seeds, FOR, label=say["figure.least_missed"])
    for at, without in enumerate(evidence["singly"]):
        axes.plot([1] * n, without, "x", color=GREY, markersize=5,
                  label=None if at else say["figure.any_one"])  # fmt: skip
    axes.set_ylim(0, 1.05)
    axes.set_xticks(range(n + 1))
    style_axes(axes, say["figure.accuracy"], x=say["figure.removed"])
    axes.legend(fontsize=8.5, loc="lower left")


CLAIM = Claim.of(
    12, TEXTS, measure, judge, draw, apart=APART, same=SAME, spare=SPARE, learned=LEARNED
)
