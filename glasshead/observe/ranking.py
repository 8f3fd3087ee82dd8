"""Rank heads and keys: the lists that `glasshead look` prints."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from glasshead.errors import InputError
from glasshead.observe.view import Head, View
from glasshead.observe.words import Token, Word, characters, visible

__all__ = ["StandoutHead", "StrongKey", "context", "standout_heads", "strongest_keys", "token_at"]

AROUND = 10  # tokens of context on either side
PER_ROW = ("previous_weight", "self_weight", "first_weight")  # of one key
OTHERS = ("duplicate", "induction")
WORTH_NAMING = 0.15  # of the attention


@dataclass(frozen=True)
class StandoutHead:
    """The head with the most, or least, of a statistic."""

    role: str
    head: Head
    value: float
    uniform: float | None  # the value that equal weights would give, if there is a simple one

    @property
    def worth_naming(self) -> bool:
        """Whether the value is large, not only the largest there is."""
        if self.role in ("sharpest", "broadest"):
            return True
        return self.value >= max(WORTH_NAMING, 2 * (self.uniform or 0.0))


@dataclass(frozen=True)
class StrongKey:
    """A word that a head attends to."""

    head: Head
    word: str
    place: int  # of the word among all keys
    weight: float


def standout_heads(view: View) -> list[StandoutHead]:
    """Return the head that stands out most in each role."""
    found = []
    for role in (*PER_ROW, *OTHERS):
        best = _best_head(view, role)
        if best is not None:
            uniform = _uniform(view, best[0][0]) if role in PER_ROW else None
            found.append(StandoutHead(role, *best, uniform))
    for role, sign in (("sharpest", -1), ("broadest", 1)):
        best = _best_head(view, "relative_entropy", sign)
        if best is not None:
            found.append(StandoutHead(role, *best, None))
    return found


def strongest_keys(
    view: View, heads: Sequence[Head], wanted: str | Word, k: int
) -> list[StrongKey]:
    """Return the keys with the most weight: k keys of one head, or one key of each of k heads.

    Of several heads the key is the one by which they are ranked: not the sink, unless it is all.
    """
    if k < 1:
        raise InputError(f"--top ({k}) must be at least 1", hint="try --top 10")
    found, ranked = view.word_rows(heads, wanted)
    names = found.cols or []
    n = k if len(heads) == 1 else 1
    shown: list[StrongKey] = []
    for head, row in zip(ranked[:k], found.values.nan_to_num(0), strict=False):
        if len(heads) > 1 and view.may_be_sink(head[0]) and bool((row[1:] > 0).any()):
            row = row.index_fill(0, torch.tensor(0), 0)
        top = row.topk(min(n, len(row)))
        for weight, place in zip(top.values.tolist(), top.indices.tolist(), strict=True):
            if weight > 0 or not shown:
                at = place + view.config.hide_sink
                shown.append(StrongKey(head, names[place], at, weight))
    return shown


def token_at(view: View, n: int) -> Word:
    """Return token n of the text, as a query."""
    assert view.trace.tokens is not None
    tokens = view.trace.tokens[0]
    if not -len(tokens) <= n < len(tokens):
        raise InputError(
            f"there is no token {n}", hint=f"the text has {len(tokens):,}, counted from 0"
        )
    n %= len(tokens)
    return Word(context(tokens, n)[1], n, n + 1)


def context(tokens: Sequence[Token], at: int, around: int = AROUND) -> tuple[str, str, str]:
    """Return the text before a token, the token, and the text after it.

    >>> context(["The", " cat", " sat", " on", " it"], 2, around=1)
    (' cat', ' sat', ' on')

    A part of a character is shown as the character and the number of the part:

    >>> context(["a", b"\\xe7", b"\\x8c", b"\\xab", "b"], 2)
    ('a', '猫 2/3', 'b')
    """
    start = max(0, at - around)
    pieces = characters(tokens[start : at + 1 + around])
    here = next(n for n, piece in enumerate(pieces) if piece.start <= at - start < piece.stop)
    before, piece, after = pieces[:here], pieces[here], pieces[here + 1 :]
    name, parts = _plain(piece.text), piece.stop - piece.start
    if parts > 1:
        name += f" {at - start - piece.start + 1}/{parts}"
    return _join(before), name, _join(after)


def _join(pieces: Sequence[Word]) -> str:
    """Join pieces of text, without the halves of characters at its ends."""
    return _plain("".join(piece.text for piece in pieces if not piece.text.startswith("⟨")))


def _plain(text: str) -> str:
    return "".join(c if c == " " else visible(c) for c in text)


def _best_head(view: View, name: str, sign: int = 1) -> tuple[Head, float] | None:
    """Return the head with the most of a statistic, or with the least if sign is -1."""
    heads = [
        ((layer, h), value)
        for layer, each in view.statistics.items()
        for h, value in enumerate(each.get(name, torch.empty(0)).tolist())
    ]
    best = max(heads, key=lambda one: sign * one[1], default=None)
    return best if best is None or best[1] > 0 or sign < 0 else None


def _uniform(view: View, layer: int) -> float:
    sizes = view.trace.statistics(layer).sizes
    return float((1 / sizes.clamp(min=1)).double().mean())
