"""Texts that show what heads do: the user's own, and built-in ones whose answers are known.

    text     windows of the user's text; of stories of the embedded world without one
    repeat   random tokens, then the same again and again, at another period in each sequence
    list     a few random tokens in random order, again and again, with a separator between them
    needle   a phrase hidden in a text, at another depth in each sequence, and asked for at its end
    story    stories with pronouns, for a `Reader`

A probe knows the pairs (query, key) that its roles are about, and the tokens that a model should
predict. Sequences of a probe have one length, so that none is padded.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

import torch
from torch import Tensor

from glasshead.errors import InputError
from glasshead.model.transformer import Reader
from glasshead.roles.scores import copies, followers
from glasshead.roles.subject import Subject, is_separator
from glasshead.text.tinyworld import LANGUAGES, World
from glasshead.text.tinyworld.tokens import pieces
from glasshead.text.tokenizer import WordTokenizer

__all__ = ["Probe", "ProbeSizes", "make_probes"]

PERIODS = (0.23, 0.29, 0.31, 0.37, 0.41)  # of a repeat, as shares of its length
N_ITEMS = 7  # different tokens in a list
N_KEY, N_VALUE = 3, 5  # tokens of a needle that are asked with, and asked for


@dataclass(frozen=True)
class ProbeSizes:
    """How much is read: more takes longer, and makes intervals narrower."""

    sequences: int = 6  # of each probe
    tokens: int = 96  # of each sequence
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Probe:
    name: str
    ids: Tensor  # (B, T)
    rows: Tensor  # (B, T) bool: where the model should know what comes
    answers: Tensor  # (B, T) what comes there
    targets: dict[str, Tensor] = field(default_factory=dict)  # role -> (B, T, T) bool pairs


def make_probes(subject: Subject, texts: Sequence[str], config: ProbeSizes) -> dict[str, Probe]:
    """Make the probes that fit a model."""
    if isinstance(subject.model, Reader):
        story = _story(subject, config)
        return {"text": story, "story": story}
    random = Random(config.seed)
    text = _text(subject, texts, config)
    made = (
        text, _repeat(subject, config, random), _list(subject, config, random),
        _needle(subject, text, config, random),
    )  # fmt: skip
    return {probe.name: probe for probe in made}


def _length(subject: Subject, config: ProbeSizes) -> int:
    """Return how many tokens of a text a sequence has, besides special ones."""
    room = subject.longest - len(subject.before) - len(subject.after)
    if min(room, config.tokens) < 24:
        raise InputError(
            f"{subject.name} reads {subject.longest} tokens at a time, too few to name its heads",
            hint="name a model that was trained on texts of at least 32 tokens",
        )
    return min(room, config.tokens)


def _batch(subject: Subject, rows: Sequence[Sequence[int]]) -> Tensor:
    made = [[*subject.before, *row, *subject.after] for row in rows]
    return torch.tensor(made, device=subject.device)


def _probe(
    subject: Subject, name: str, rows: Sequence[Sequence[int]], first: Sequence[int] | None = None
) -> Probe:
    """Make a probe in which the tokens from `first` on are to be known."""
    ids = _batch(subject, rows)
    answers = ids.roll(-1, 1)
    place = torch.arange(ids.shape[1], device=ids.device)
    starts = torch.tensor(first or [1] * len(rows), device=ids.device) + len(subject.before)
    last = ids.shape[1] - 1 - len(subject.after)
    known = (place >= starts[:, None] - 1) & (place < last)
    return Probe(name, ids, known, answers)


def _text(subject: Subject, texts: Sequence[str], config: ProbeSizes) -> Probe:
    n = _length(subject, config)
    windows = [
        ids[start : start + n]
        for ids in map(subject.encode, texts)
        for start in range(0, len(ids) - n + 1, n)
    ]
    if texts and len(windows) < 2:
        joined = subject.encode("\n".join(texts))
        n = min(n, len(joined) // 2)
        if n < 24:
            raise InputError(
                f"the text has {len(joined)} tokens, too few to name heads by",
                hint="give at least 50 tokens, or leave the text out to use stories",
            )
        windows = [joined[:n], joined[n : 2 * n]]
    if not texts:
        windows = list(_story_windows(subject, n, config))
    step = max(1, len(windows) // config.sequences)  # from all over the text
    probe = _probe(subject, "text", windows[::step][: config.sequences])
    labels = [subject.decode(row) for row in probe.ids.tolist()]
    marked = torch.tensor([[is_separator(x) for x in row] for row in labels])
    marked[:, 0] = False  # the first token is a sink whatever it says
    marked = marked.to(probe.ids.device)[:, None, :].expand(-1, probe.ids.shape[1], -1)
    probe.targets["separator"] = _as_seen(subject, marked)
    return probe


def _story_windows(subject: Subject, n: int, config: ProbeSizes) -> Iterator[list[int]]:
    """Stories of the embedded world, in the language in which the model needs fewest tokens."""
    stories = [World(config.seed).story("train", i) for i in range(9 * config.sequences)]
    told = {}
    for lang in LANGUAGES:
        try:
            told[lang] = subject.encode(" ".join(story.text(lang) for story in stories))
        except InputError:  # it lacks a character
            continue
    told = {lang: ids for lang, ids in told.items() if len(ids) >= 2 * n}
    if not told:
        raise InputError(
            f"{subject.name} cannot read the built-in stories",
            hint="give a text of the kind that it was trained on",
        )
    ids = min(told.values(), key=len)
    yield from (ids[at : at + n] for at in range(0, len(ids) - n + 1, n))


def _repeat(subject: Subject, config: ProbeSizes, random: Random) -> Probe:
    n = _length(subject, config)
    rows, first = [], []
    for b in range(config.sequences):
        period = int(n * PERIODS[b % len(PERIODS)]) + b // len(PERIODS)
        tokens = _draw(subject, period, random)
        rows.append((tokens * (n // period + 1))[:n])
        first.append(period + 1)  # the second token after the first copy begins
    probe = _probe(subject, "repeat", rows, first)
    probe.targets["induction"] = _as_seen(subject, followers(probe.ids))
    probe.targets["duplicate"] = copies(probe.ids)
    return probe


def _list(subject: Subject, config: ProbeSizes, random: Random) -> Probe:
    n = _length(subject, config)
    separator = next(
        (i for i in subject.plain[:4096] if is_separator(subject.decode([i])[0])), None
    )
    rows = []
    for _ in range(config.sequences):
        items, row = _draw(subject, N_ITEMS, random), list[int]()
        while len(row) < n:
            random.shuffle(items)
            for item in items:
                row += [item] if separator is None else [item, separator]
        rows.append(row[:n])
    per_round = N_ITEMS * (1 if separator is None else 2)
    probe = _probe(subject, "list", rows, [per_round] * len(rows))
    items_only = torch.ones_like(probe.ids, dtype=torch.bool)
    if separator is not None:
        items_only = probe.ids != separator
    same = copies(probe.ids) & items_only[:, :, None]
    probe.targets["duplicate"] = same
    comes = items_only.roll(-1, 1)  # only items are hard to know
    return Probe(probe.name, probe.ids, probe.rows & comes, probe.answers, probe.targets)


def _needle(subject: Subject, text: Probe, config: ProbeSizes, random: Random) -> Probe:
    """Hide key and value in a text, give the key at its end, and expect the value."""
    n = _length(subject, config)
    a, z = len(subject.before), len(subject.after)
    hay = text.ids[:, a : text.ids.shape[1] - z].tolist()
    space = n - 2 * (N_KEY + N_VALUE)
    rows, places = [], []
    for b in range(config.sequences):
        stack = [token for line in (*hay[b % len(hay) :], *hay) for token in line]
        drawn = _draw(subject, N_KEY + N_VALUE, random)
        # From 5 % to 85 % of the text: all depths, but none beside the question.
        depth = 1 + int(space * (0.05 + 0.8 * b / max(1, config.sequences - 1)))
        rows.append([*stack[:depth], *drawn, *stack[depth:space], *drawn])
        places.append(a + depth)
    asked = a + space + N_KEY + N_VALUE  # where the question begins
    probe = _probe(subject, "needle", rows, [asked - a + N_KEY] * len(rows))
    B, T = probe.ids.shape
    value, span = torch.zeros(2, B, T, T, dtype=torch.bool, device=probe.ids.device)
    for b, place in enumerate(places):
        for i in range(N_VALUE):  # the row that predicts value i looks at value i
            value[b, asked + N_KEY - 1 + i, place + N_KEY + i] = True
        span[b, asked : asked + N_KEY, place : place + N_KEY + N_VALUE] = True
    probe.targets["retrieval"], probe.targets["query"] = value, span
    return probe


def _story(subject: Subject, config: ProbeSizes) -> Probe:
    """Stories of one length, whose pronouns stand for a noun."""
    tokenizer = subject.tokenizer
    assert isinstance(tokenizer, WordTokenizer)
    for lang in LANGUAGES:
        by_length = defaultdict(list)
        try:
            for i in range(60 * config.sequences):
                story = World(config.seed).story("test", i)
                words = tokenizer.ids_of(pieces(story.tokens[lang], lang))
                by_length[len(words)].append((words, story.pronouns[lang]))
        except (InputError, KeyError):
            continue
        length = max(by_length, key=lambda n: len(by_length[n]))
        chosen = by_length[length][: 4 * config.sequences]
        ids = torch.tensor([row for row, _ in chosen], device=subject.device)
        rows, answers = torch.zeros_like(ids, dtype=torch.bool), torch.zeros_like(ids)
        targets = torch.zeros(*ids.shape, length, dtype=torch.bool, device=ids.device)
        for b, (row, pronouns) in enumerate(chosen):
            for pronoun in pronouns:
                rows[b, pronoun.index] = True
                answers[b, pronoun.index] = row[pronoun.referent_index]
                targets[b, pronoun.index, pronoun.referent_index] = True
        return Probe("story", ids, rows, answers, {"referent": targets})
    raise InputError(
        f"{subject.name} does not read the stories of the embedded world",
        hint="name a reader of `glasshead demo`, or a language model",
    )


def _draw(subject: Subject, n: int, random: Random) -> list[int]:
    """Return n tokens, all different if the vocabulary allows."""
    if len(subject.plain) >= n:
        return random.sample(subject.plain, n)
    return random.choices(subject.plain, k=n)


def _as_seen(subject: Subject, targets: Tensor) -> Tensor:
    """Leave out what a language model may not see."""
    return targets.tril() if subject.predicts else targets
