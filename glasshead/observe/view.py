"""What is to be shown of an atlas: maps over words, what a word looks at, statistics of heads.

    view = View(seen, ViewConfig(hide_sink=True))
    view.head("2", 1)                   one head: a map from words to words
    view.word_rows(view.heads(), "它")      what every head looks at from 它
    view.statistic("entropy")           a number for each head of each layer

Pictures (`picture.py`) and tables (`picture_terminal.py`) show these, and compute nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from glasshead.attention.hooks import Layer
from glasshead.errors import ConfigError, InputError, did_you_mean
from glasshead.observe.trace import Trace
from glasshead.observe.words import Token, Word, find_word, merge, visible, words

__all__ = ["LONG", "Head", "Map", "Statistics", "View", "ViewConfig"]

LONG = 200  # words: a longer text is shown from afar
AFAR = 256  # cells a side of a map from afar
MAX_HEADS = 64  # rows of a map of heads

# Cross-attention has no position of its own: what speaks of one says nothing there.
OF_CROSS = ("entropy", "relative_entropy", "effective_keys", "first_weight", "vertical")
SHORT = {"sink": "first_weight", "first": "first_weight", "previous": "previous_weight",
         "self": "self_weight", "distance": "mean_distance"}  # fmt: skip

Head = tuple[int, int]  # the index of a layer, and a head of it
Statistics = dict[int, dict[str, Tensor]]  # of each layer by name, (H,)


@dataclass(frozen=True)
class ViewConfig:
    """How weights are shown."""

    tokens: bool = False  # tokens as they are, not joined to words
    log: bool = False  # colours by the logarithm
    hide_sink: bool = False  # without the first word; what is left of each row sums to 1
    ratio: bool = False  # how many times the weight that each key would get if all got the same

    def __post_init__(self) -> None:
        if self.ratio and self.log:
            raise ConfigError(
                "--ratio and --log cannot go together",
                hint="colours of ratios are logarithmic by themselves",
            )


PLAIN = ViewConfig()


@dataclass(frozen=True, eq=False)
class Map:
    """Numbers with names at the side and at the top; NaN where there is nothing to see."""

    name: str
    values: Tensor  # (rows, cols)
    rows: list[str] | None  # None: too many to name
    cols: list[str] | None
    cell: int = 1  # tokens a side that each number stands for: the largest of their weights


class View:
    """An atlas and how to show it."""

    def __init__(self, seen: Trace, config: ViewConfig = PLAIN) -> None:
        self.trace, self.config = seen, config
        self._known_sides: dict[str, tuple[list[Word], list[Word]]] = {}
        if seen.tokens is None:
            raise InputError(
                "the recording has no tokens", hint="give observing(..., tokens=...) when recording"
            )

    @cached_property
    def names(self) -> dict[int, str]:
        """What layers are called: 0, 1, ...; encoder.0, decoder.0, cross.0 where there are both."""
        names: dict[int, str] = {}
        counts: dict[str, int] = {}
        for layer in self.layers:
            part = _part(layer)
            number = counts[part] = counts.get(part, -1) + 1
            both = self.trace.source_tokens is not None
            names[layer.index] = f"{part}.{number}" if both else str(layer.index)
        return names

    @cached_property
    def layers(self) -> list[Layer]:
        """In the order of the model; of a translator the encoder's, the decoder's, and cross."""
        if self.trace.source_tokens is None:
            return self.trace.layers
        order = ["encoder", "self", "decoder", "cross"]
        return sorted(self.trace.layers, key=lambda layer: order.index(_part(layer)))

    def layer(self, which: str) -> int:
        """The index of a layer, by its short name, its index or its module's name."""
        for layer in self.layers:
            if which in (self.names[layer.index], str(layer.index), layer.name):
                return layer.index
        known = list(self.names.values())
        raise InputError(f"there is no layer '{which}'", hint=_one_of(which, known))

    def heads(self, layer: int | None = None, head: int | None = None) -> list[Head]:
        """All heads, of one layer or of all; or one head of one layer."""
        layers = [one.index for one in self.layers] if layer is None else [layer]
        found = []
        for index in layers:
            H = self.trace.shape(index)[1]
            if head is not None and not 0 <= head < H:
                raise InputError(
                    f"layer {self.names[index]} has no head {head}",
                    hint=f"its heads are 0 to {H - 1}",
                )
            found += [(index, h) for h in (range(H) if head is None else [head])]
        return found

    def name(self, head: Head) -> str:
        return f"{self.names[head[0]]}:{head[1]}"

    # -- the two sides of a map --

    def tokens(self, layer: int) -> tuple[list[Token], list[Token]]:
        """Of queries and of keys."""
        seen = self.trace
        assert seen.tokens is not None
        own, source = seen.tokens[0], seen.source_tokens[0] if seen.source_tokens else None
        where = seen.layer(layer)
        if source is None:
            return own, own
        if where.kind == "cross":
            last = seen.about.get("last")
            return (own if last is None else [*own[1:], last]), source
        return (source, source) if where.part == "encoder" else (own, own)

    def sides(self, layer: int) -> tuple[list[Word], list[Word]]:
        """Words of queries and of keys, or tokens if the config says so."""
        kind = self._kind(layer)
        if kind in self._known_sides:
            return self._known_sides[kind]
        rows, cols = self.tokens(layer)
        _, _, T, S = self.trace.shape(layer)
        if (len(rows), len(cols)) != (T, S):
            raise InputError(
                f"layer {self.names[layer]} has {T} x {S} positions, but there are {len(rows)} and "
                f"{len(cols)} tokens",
                hint="the tokens of the recording are of another text",
            )
        self._known_sides[kind] = self._units(rows), self._units(cols)
        return self._known_sides[kind]

    def _units(self, tokens: Sequence[Token]) -> list[Word]:
        if not self.config.tokens:
            return words(tokens)
        return [Word(token if isinstance(token, str) else f"⟨{token.hex(' ').upper()}⟩", i, i + 1)
                for i, token in enumerate(tokens)]  # fmt: skip

    # -- maps --

    def head(self, head: Head) -> Map:
        """One head's whole map; from afar if the text is long."""
        rows, cols = self.sides(head[0])
        if len(rows) > LONG or len(cols) > LONG:
            return self._afar(head)
        T = self.trace.shape(head[0])[2]
        values = self._between(head, slice(0, T), rows, cols)
        return Map(self.name(head), values, labels(rows), labels(self._shown(cols)))

    def word_rows(self, heads: Sequence[Head], wanted: str | Word) -> tuple[Map, list[Head]]:
        """What a word looks at: a row for each head in whose text it is, strongest first.

        At most 64 heads. All must look at the same text.
        """
        found: list[tuple[float, Head, Tensor]] = []
        cols: list[Word] = []
        sides = {layer: self.sides(layer) for layer in dict.fromkeys(layer for layer, _ in heads)}
        at = self._places(sides, wanted)
        for head in heads:
            if head[0] in at:
                cols = sides[head[0]][1]
                word = at[head[0]]
                row = self._between(head, slice(word.start, word.stop), [_whole(word)], cols)[0]
                found.append((float(row.nan_to_num(0).max()), head, row))
        found.sort(key=lambda one: -one[0])
        ranked = [head for _, head, _ in found[:MAX_HEADS]]
        values = torch.stack([row for _, _, row in found[:MAX_HEADS]])
        names = [self.name(head) for head in ranked]
        return Map("", values, names, labels(self._shown(cols))), ranked

    def _shown(self, cols: list[Word]) -> list[Word]:
        return cols[1:] if self.config.hide_sink else cols

    def _places(
        self, sides: dict[int, tuple[list[Word], list[Word]]], wanted: str | Word
    ) -> dict[int, Word]:
        """In which layers the word is, and where: those that look at the same text as the first."""
        found: dict[int, Word] = {}
        problem: InputError | None = None
        for layer, (rows, _) in sides.items():
            try:
                found[layer] = wanted if isinstance(wanted, Word) else find_word(wanted, rows)
            except InputError as error:
                problem = problem or error
        if problem and not found:
            raise problem
        # Of encoder and decoder, cross-attention comes first: it is what a translator is asked for.
        kinds = {layer: self._kind(layer) for layer in found}
        chosen = "cross" if "cross" in kinds.values() else next(iter(kinds.values()))
        return {layer: word for layer, word in found.items() if kinds[layer] == chosen}

    def _kind(self, layer: int) -> str:
        return self.names[layer].partition(".")[0] if self.trace.source_tokens else "self"

    def _between(self, head: Head, part: slice, rows: list[Word], cols: list[Word]) -> Tensor:
        """Weights of the queries in `part` merged to `rows`, whose tokens are counted from it."""
        weights = self.trace.tile(*head, rows=part)  # (n, S)
        shown = self._merged(weights, rows, cols)
        if not self.config.ratio:
            return shown
        expected = self._merged(self._uniform(head, part), rows, cols)
        return torch.where(expected > 0, shown / expected, torch.nan)

    def _merged(self, weights: Tensor, rows: list[Word], cols: list[Word]) -> Tensor:
        """Over words; without the first of them each row is brought to a sum of 1 again."""
        merged = merge(weights, rows, cols)
        if not self.config.hide_sink:
            return merged
        rest = merged[:, 1:]
        total = rest.sum(-1, keepdim=True)
        return torch.where(total > 0, rest / total.where(total > 0, 1), 0.0)

    def _uniform(self, head: Head, part: slice) -> Tensor:
        """Equal weight on everything that the mask lets each query see."""
        record = self.trace.layer_trace(head[0])
        B, H, T, S = record.shape
        mask, _ = record.mask_and_scoring()
        allowed = mask.to_tensor(T, S, part)
        every = torch.ones(1, 1, part.stop - part.start, S, dtype=torch.bool)
        allowed = every if allowed is None else allowed.cpu() & every
        mine = allowed.expand(B, H, *allowed.shape[2:])[0, head[1]].float()
        return mine / mine.sum(-1, keepdim=True).clamp(min=1)

    def _afar(self, head: Head) -> Map:
        if self.config.hide_sink or self.config.ratio:
            option = "--hide-sink" if self.config.hide_sink else "--ratio"
            raise InputError(
                f"{option} needs a text of at most {LONG} words",
                hint="the map of a longer one is shown from afar; --query N shows one row exactly",
            )
        _, _, T, S = self.trace.shape(head[0])
        level = min(max(0, math.ceil(math.log2(max(T, S) / AFAR))), self.trace.levels(head[0]) - 1)
        return Map(
            self.name(head), self.trace.cells(*head, level=level).max, None, None, 1 << level
        )

    # -- statistics --

    @cached_property
    def statistics(self) -> Statistics:
        """Of each layer, the numbers that mean something there."""
        found = {}
        for layer in self.layers:
            means = self.trace.statistics(layer.index).means()
            known = OF_CROSS if layer.kind == "cross" else list(means)
            found[layer.index] = {n: means[n][0].cpu() for n in known if n in means}
        return found

    @property
    def statistic_names(self) -> list[str]:
        return list(dict.fromkeys(name for each in self.statistics.values() for name in each))

    def statistic(self, wanted: str) -> Map:
        """A number for each head of each layer."""
        known = self.statistic_names
        name = wanted.replace("-", "_").lower()
        name = SHORT.get(name, name)
        if name not in known:
            raise InputError(
                f"there is no statistic '{wanted}'", hint=did_you_mean(name, [*known, *SHORT])
            )
        H = max(self.trace.shape(layer.index)[1] for layer in self.layers)
        values = torch.full((len(self.statistics), H), torch.nan)
        for row, each in zip(values, self.statistics.values(), strict=True):
            if name in each:
                row[: len(each[name])] = each[name]
        return Map(name, values, list(self.names.values()), [str(h) for h in range(H)])


def _part(layer: Layer) -> str:
    return "cross" if layer.kind == "cross" else layer.part or "self"


def labels(found: Sequence[Word]) -> list[str]:
    return [visible(word.text) for word in found]


def _whole(word: Word) -> Word:
    return Word(word.text, 0, word.stop - word.start)


def _one_of(word: str, known: list[str]) -> str:
    hint = did_you_mean(word, known)
    return hint if hint.startswith("did") or len(known) <= 12 else f"{known[0]} to {known[-1]}"
