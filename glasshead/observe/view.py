"""What pictures and tables show of a trace: maps over words, rows of a word, statistics of heads.

view = View(trace, ViewConfig(hide_sink=True))
view.head((2, 1))                       one head: a map from words to words
view.word_rows(view.heads(), "它")      the weights of 它 in every head
view.statistic("entropy")               a number for each head of each layer
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from glasshead.attention.hooks import Layer
from glasshead.errors import ConfigError, InputError, did_you_mean
from glasshead.observe.head_tables import OF_CROSS
from glasshead.observe.trace import Trace
from glasshead.observe.words import Token, Word, find_word, merge, single_tokens, visible, words

__all__ = ["LONG", "Head", "Map", "Statistics", "View", "ViewConfig"]

LONG = 200  # words: the map of a longer text is shown in cells
MOST_CELLS = 256  # on a side of such a map
MAX_HEADS = 64  # rows of a map of heads

SHORT = {"sink": "first_weight", "first": "first_weight", "previous": "previous_weight",
         "self": "self_weight", "distance": "mean_distance"}  # fmt: skip

Head = tuple[int, int]  # the index of a layer, and a head of it
Statistics = dict[int, dict[str, Tensor]]  # of each layer by name, (H,)


@dataclass(frozen=True)
class ViewConfig:
    """How weights are shown."""

    tokens: bool = False  # show single tokens, not words
    log: bool = False  # colours by the logarithm
    hide_sink: bool = False  # leave out the first word; the rest of each row sums to 1
    ratio: bool = False  # divide by the weight that each key would get if all got the same

    def __post_init__(self) -> None:
        if self.ratio and self.log:
            raise ConfigError(
                "--ratio and --log cannot be used together",
                hint="leave --log out: colours of ratios are logarithmic already",
            )


PLAIN = ViewConfig()


@dataclass(frozen=True, eq=False)
class Map:
    """Numbers with labels of rows and columns; NaN where there is no number."""

    name: str
    values: Tensor  # (rows, cols)
    rows: list[str] | None  # None if there are too many to label
    cols: list[str] | None
    cell: int = 1  # tokens on a side of a cell, whose number is the largest of its weights


class View:
    """A trace and how to show it."""

    def __init__(self, trace: Trace, config: ViewConfig = PLAIN) -> None:
        self.trace, self.config = trace, config
        self._sides: dict[str, tuple[list[Word], list[Word]]] = {}
        if trace.tokens is None:
            raise InputError(
                "the recording has no tokens", hint="record with observing(..., tokens=...)"
            )

    @cached_property
    def names(self) -> dict[int, str]:
        """Short names of layers: 0, 1, ...; of a translator encoder.0, decoder.0, cross.0, ..."""
        if self.trace.source_tokens is None:
            return {layer.index: str(layer.index) for layer in self.layers}
        counts: Counter[str] = Counter()
        names: dict[int, str] = {}
        for layer in self.layers:
            names[layer.index] = f"{_part(layer)}.{counts[_part(layer)]}"
            counts[_part(layer)] += 1
        return names

    @cached_property
    def layers(self) -> list[Layer]:
        """Layers in the order of the model; of a translator first encoder, then decoder, cross."""
        if self.trace.source_tokens is None:
            return self.trace.layers
        order = ["encoder", "self", "decoder", "cross"]
        return sorted(self.trace.layers, key=lambda layer: order.index(_part(layer)))

    def layer(self, which: str) -> int:
        """Return the index of a layer, by its short name, its index or its module's name."""
        for layer in self.layers:
            if which in (self.names[layer.index], str(layer.index), layer.name):
                return layer.index
        known = list(self.names.values())
        hint = did_you_mean(which, known)
        if not hint.startswith("did") and len(known) > 12:
            hint = f"{known[0]} to {known[-1]}"
        raise InputError(f"there is no layer '{which}'", hint=hint)

    def heads(self, layer: int | None = None, head: int | None = None) -> list[Head]:
        """Return all heads, of one layer or of all; or one head of one layer."""
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
        """Return the tokens of the queries and of the keys."""
        trace, where = self.trace, self.trace.layer(layer)
        assert trace.tokens is not None
        own = trace.tokens[0]
        if not trace.source_tokens:
            return own, own
        source = trace.source_tokens[0]
        if where.kind == "cross":
            last = trace.about.get("last")
            return (own if last is None else [*own[1:], last]), source
        return (source, source) if where.part == "encoder" else (own, own)

    def sides(self, layer: int) -> tuple[list[Word], list[Word]]:
        """Return the words of the queries and of the keys, or tokens if the config says so."""
        kind = self._kind(layer)
        if kind in self._sides:
            return self._sides[kind]
        rows, cols = self.tokens(layer)
        _, _, T, S = self.trace.shape(layer)
        if (len(rows), len(cols)) != (T, S):
            raise InputError(
                f"layer {self.names[layer]} has {T} x {S} positions, but there are {len(rows)} and "
                f"{len(cols)} tokens",
                hint="record with the tokens of the same text",
            )
        join = single_tokens if self.config.tokens else words
        self._sides[kind] = join(rows), join(cols)
        return self._sides[kind]

    # -- maps --

    def head(self, head: Head) -> Map:
        """Return the whole map of one head; in cells if the text is long."""
        rows, cols = self.sides(head[0])
        if len(rows) > LONG or len(cols) > LONG:
            return self._map_in_cells(head)
        T = self.trace.shape(head[0])[2]
        values = self.word_weights(head, slice(0, T), rows, cols)
        return Map(self.name(head), values, labels(rows), self._column_labels(cols))

    def word_rows(self, heads: Sequence[Head], wanted: str | Word) -> tuple[Map, list[Head]]:
        """Return the weights of a word: a row for each head in whose text it is, and these heads.

        The heads with the largest weight come first, at most 64 of them. Weight on the first word
        counts only where it is no sink (`may_be_sink`): else heads that look nowhere lead.
        """
        found: list[tuple[float, Head, Tensor]] = []
        cols: list[Word] = []
        sides = {layer: self.sides(layer) for layer in dict.fromkeys(layer for layer, _ in heads)}
        at = self._places(sides, wanted)
        for head in heads:
            if head[0] in at:
                cols = sides[head[0]][1]
                word = at[head[0]]
                part, whole = slice(word.start, word.stop), Word("", 0, word.stop - word.start)
                row = self.word_weights(head, part, [whole], cols)[0]
                beside = row[1:] if self.may_be_sink(head[0]) and len(row) > 1 else row
                found.append((float(beside.nan_to_num(0).max()), head, row))
        found.sort(key=lambda one: -one[0])
        ranked = [head for _, head, _ in found[:MAX_HEADS]]
        values = torch.stack([row for _, _, row in found[:MAX_HEADS]])
        names = [self.name(head) for head in ranked]
        return Map("", values, names, self._column_labels(cols)), ranked

    def may_be_sink(self, layer: int) -> bool:
        """Whether the first column is the text's own first word, on which heads rest."""
        return not self.config.hide_sink and self.trace.layer(layer).kind == "self"

    def _column_labels(self, cols: list[Word]) -> list[str]:
        return labels(cols[1:] if self.config.hide_sink else cols)

    def _places(
        self, sides: dict[int, tuple[list[Word], list[Word]]], wanted: str | Word
    ) -> dict[int, Word]:
        """Return where the word is in each layer that has it; layers of one kind only."""
        found: dict[int, Word] = {}
        problem: InputError | None = None
        for layer, (rows, _) in sides.items():
            try:
                found[layer] = wanted if isinstance(wanted, Word) else find_word(wanted, rows)
            except InputError as error:
                problem = problem or error
        if problem and not found:
            raise problem
        # Cross-attention first: it is the most interesting of a translator.
        kinds = {layer: self._kind(layer) for layer in found}
        chosen = "cross" if "cross" in kinds.values() else next(iter(kinds.values()))
        return {layer: word for layer, word in found.items() if kinds[layer] == chosen}

    def _kind(self, layer: int) -> str:
        return self.names[layer].partition(".")[0] if self.trace.source_tokens else "self"

    def word_weights(self, head: Head, part: slice, rows: list[Word], cols: list[Word]) -> Tensor:
        """Return the weights of the queries in `part`, merged to `rows`, which count from its
        start."""
        weights = self.trace.tile(*head, rows=part)  # (n, S)
        merged = self._merge(weights, rows, cols)
        if not self.config.ratio:
            return merged
        expected = self._merge(self._uniform(head, part), rows, cols)
        return torch.where(expected > 0, merged / expected, torch.nan)

    def _merge(self, weights: Tensor, rows: list[Word], cols: list[Word]) -> Tensor:
        """Merge weights over words; without the first word, normalise each row to a sum of 1."""
        merged = merge(weights, rows, cols)
        if not self.config.hide_sink:
            return merged
        rest = merged[:, 1:]
        total = rest.sum(-1, keepdim=True)
        return torch.where(total > 0, rest / total.where(total > 0, 1), 0.0)

    def _uniform(self, head: Head, part: slice) -> Tensor:
        """Return equal weights on all keys that the mask lets each query see."""
        stored = self.trace.layer_trace(head[0])
        B, H, T, S = stored.shape
        mask, _ = stored.mask_and_scoring()
        allowed = mask.to_tensor(T, S, part)
        every = torch.ones(1, 1, part.stop - part.start, S, dtype=torch.bool)
        allowed = every if allowed is None else allowed.cpu() & every
        mine = allowed.expand(B, H, *allowed.shape[2:])[0, head[1]].float()
        return mine / mine.sum(-1, keepdim=True).clamp(min=1)

    def _map_in_cells(self, head: Head) -> Map:
        if self.config.hide_sink or self.config.ratio:
            option = "--hide-sink" if self.config.hide_sink else "--ratio"
            raise InputError(
                f"{option} needs a text of at most {LONG} words",
                hint="a longer one is shown in cells; --query N shows one row exactly",
            )
        _, _, T, S = self.trace.shape(head[0])
        level = max(0, math.ceil(math.log2(max(T, S) / MOST_CELLS)))
        level = min(level, self.trace.levels(head[0]) - 1)
        cells = self.trace.cells(*head, level=level)
        return Map(self.name(head), cells.max, None, None, 1 << level)

    # -- statistics --

    @cached_property
    def statistics(self) -> Statistics:
        """The statistics of each layer that are meaningful there."""
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
        """Return a map of one statistic: layers x heads."""
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
