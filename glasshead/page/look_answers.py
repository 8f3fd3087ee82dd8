"""The answers of the page's Look view: words, layers, statistics, maps and rankings of a trace.

    view = LookView(trace, ViewConfig(hide_sink=True))
    describe_look(view)                     words, layers, statistics of all heads
    binary_map(view, (layer, head))         one head's map from words to words, float32
    binary_thumbnails(view)                 every head's map, small
    rank_heads(view, layer, token, "from")  how each head looks from a word, or at it

Words, queries and keys are named by the position of their first token. Every list or map of weights
has an entry for every word; NaN (null in JSON) stands where there is nothing to see.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from glasshead.errors import GlassheadError, InputError
from glasshead.observe.ranking import standout_heads
from glasshead.observe.trace import Trace
from glasshead.observe.view import Head, View
from glasshead.observe.wording import ROLES, STATISTICS
from glasshead.observe.words import Word, visible

__all__ = [
    "MAX_WORDS", "Binary", "LookView", "binary_map", "binary_thumbnails", "describe_look",
    "has_words", "rank_heads", "to_json_numbers",
]  # fmt: skip

MAX_WORDS = 400  # shown one by one; a longer text is for the Atlas
THUMBNAIL = 40  # cells a side of a small map, at most
RANKED = 64  # heads of a ranking
CACHE_BYTES = 2**26  # of maps that one view keeps
PRONOUNS = frozenset(
    ("它", "他", "她", "它们", "他们", "她们", "it", "he", "she", "they", "him", "her", "them",
     "er", "sie", "es", "ihn", "ihm", "ihr")
)  # fmt: skip

TextName = Literal["words", "source_words", "written_words"]


class Binary(NamedTuple):
    """Numbers as little-endian float32, and the header that says their shape."""

    data: bytes
    headers: dict[str, str]


class LookView(View):
    """Maps in full: never pooled, and with a column for the first word even where it is hidden."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._maps: dict[Head, Tensor] = {}
        self._cached = 0  # bytes

    def map(self, head: Head) -> Tensor:
        """(rows, cols) float32. The first maps are kept; do not change them."""
        if head in self._maps:
            return self._maps[head]
        rows, cols = self.sides(head[0])
        if (longest := max(len(rows), len(cols))) > MAX_WORDS:
            raise InputError(
                f"the text has {longest:,} words, more than {MAX_WORDS} at once",
                hint="the Atlas shows texts of any length",
            )
        T = self.trace.shape(head[0])[2]
        values = self.word_weights(head, slice(0, T), rows, cols).float().cpu()
        if self.config.hide_sink:
            values = F.pad(values, (1, 0), value=math.nan)
        if self._cached + values.nbytes <= CACHE_BYTES:
            self._maps[head] = values
            self._cached += values.nbytes
        return values

    @property
    def cached_bytes(self) -> int:
        return self._cached

    def find_query(self, word: str | Word, layer: int | None = None) -> tuple[int, int]:
        """The first layer with this word among its queries, and the word's first token."""
        layers = [one.index for one in self.layers] if layer is None else [layer]
        places = self._places({index: self.sides(index) for index in layers}, word)
        index, found = next(iter(places.items()))
        return index, found.start

    def heads_with_same_texts(self, layer: int) -> list[Head]:
        """All heads whose queries and keys are of the same texts as this layer's."""
        wanted = self.texts(layer)
        return [head for head in self.heads() if self.texts(head[0]) == wanted]

    def texts(self, layer: int) -> tuple[TextName, TextName]:
        """The texts of a layer's queries and keys, by their names in the answer."""
        if self.trace.source_tokens is None:
            return "words", "words"
        where = self.trace.layer(layer)
        if where.kind == "cross":
            return "written_words", "source_words"
        text: TextName = "source_words" if where.part == "encoder" else "words"
        return text, text


def has_words(trace: Trace) -> bool:
    """Whether every layer ran, was recorded exactly, and has a token for each position."""
    try:
        view = View(trace)
        for layer in view.layers:
            view.sides(layer.index)
    except GlassheadError:
        return False
    return all(record.q is not None for record in trace.layer_traces.values())


def describe_look(view: LookView, kind: str) -> dict[str, Any]:
    """Return layers, words and statistics; of a text that is too long the layers only.

    `pins` is, for each text, the number of the word that is looked at first: the last pronoun, or
    without one the last word. Of a GPT, which says what comes next, it is always the last.
    """
    layers: list[dict[str, Any]] = []
    texts: dict[str, list[Word]] = {}
    for layer in view.layers:
        _, H, T, S = view.trace.shape(layer.index)
        rows, cols = view.texts(layer.index)
        texts[rows], texts[cols] = view.sides(layer.index)
        layers.append(
            {"index": layer.index, "name": view.names[layer.index], "module": layer.name,
             "part": layer.part, "kind": layer.kind, "heads": H, "T": T, "S": S,
             "rows": rows, "cols": cols}
        )  # fmt: skip
    about = {"translation": view.trace.about.get("translation"), "layers": layers}
    if any(len(words) > MAX_WORDS for words in texts.values()):
        return {**about, "long": True, "words": []}
    named = {
        name: [{"text": visible(w.text), "start": w.start, "stop": w.stop} for w in words]
        for name, words in texts.items()
    }
    pins = {name: _first_pin(words, kind) for name, words in texts.items()}
    return {**about, "long": False, "words": [], **named, "pins": pins,
            "statistics": _statistics(view), "telling": _standing_out(view)}  # fmt: skip


def _first_pin(words: list[Word], kind: str) -> int | None:
    if kind == "gpt":
        return len(words) - 1 if words else None
    names = [word.text.strip().lower() for word in words]
    pronouns = [n for n, name in enumerate(names) if name in PRONOUNS]
    others = [n for n, name in enumerate(names) if any(map(str.isalnum, name))]
    return next((places[-1] for places in (pronouns, others) if places), None)


def _statistics(view: View) -> dict[str, Any]:
    found = {}
    for name in view.statistic_names:
        values = [to_json_numbers(each[name]) if name in each else None
                  for each in view.statistics.values()]  # fmt: skip
        explain = {lang: STATISTICS[lang].get(name, name) for lang in STATISTICS}
        found[name] = {"explain": explain, "values": values}
    return found


def _standing_out(view: View) -> list[dict[str, Any]]:
    return [
        {"role": one.role, "label": {lang: ROLES[lang][one.role] for lang in ROLES},
         "layer": one.head[0], "head": one.head[1], "value": one.value, "uniform": one.uniform}
        for one in standout_heads(view)
        if one.worth_naming
    ]  # fmt: skip


def binary_map(view: LookView, head: Head) -> Binary:
    """One head's map, row by row; X-Shape is "rows,cols"."""
    view.heads(*head)  # raises if there is no such head
    values = view.map(head)
    return Binary(to_bytes(values), {"x-shape": ",".join(map(str, values.shape))})


def binary_thumbnails(view: LookView, check: Callable[[], None] = lambda: None) -> Binary:
    """Small maps of all heads; X-Shapes is "heads,rows,cols" of each layer.

    `check` is called between heads and may raise to give up.
    """
    maps, shapes = [], []
    for layer in view.layers:
        small = []
        for head in view.heads(layer.index):
            check()
            small.append(_shrink(view.map(head)))
        maps += [one.flatten() for one in small]
        shapes.append(f"{len(small)},{small[0].shape[0]},{small[0].shape[1]}")
    return Binary(to_bytes(torch.cat(maps)), {"x-shapes": ";".join(shapes)})


def _shrink(values: Tensor) -> Tensor:
    """At most THUMBNAIL cells a side, each with the largest of its numbers."""
    side = [min(n, THUMBNAIL) for n in values.shape]
    if side == list(values.shape):
        return values
    small = F.adaptive_max_pool2d(values.nan_to_num(-1.0)[None], side)[0]
    return small.masked_fill(small < 0, math.nan)


def rank_heads(
    view: LookView,
    layer: int,
    token: int,
    way: Literal["from", "to"],
    check: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """How each head looks from the word of a token, or how each word looks at it.

    The heads are those with the same texts as `layer`. First come those that look most at one other
    word; from a word of a causal layer, the first word counts only where there is no other
    (`besides_first`): heads with nothing to look at rest on it.
    """
    words = view.sides(view.trace.layer(layer).index)[0 if way == "from" else 1]
    number = _word_of(words, token)
    heads, rows = view.heads_with_same_texts(layer), []
    for head in heads:
        check()
        values = view.map(head)
        rows.append(values[number] if way == "from" else values[:, number])
    weights = torch.stack(rows)  # (heads, words)
    others = weights.nan_to_num(0.0)
    if len(set(view.texts(layer))) == 1:
        others[:, number] = 0  # how much a word looks at itself says little
    besides = way == "from" and _is_causal(view, layer) and bool((others[:, 1:] > 0).any())
    if besides:
        others[:, 0] = 0
    most, places = others.max(-1)
    order = most.argsort(descending=True, stable=True)[:RANKED].tolist()
    ranked = [
        {"layer": heads[n][0], "head": heads[n][1], "most": float(most[n]), "at": int(places[n]),
         "weights": to_json_numbers(weights[n])}
        for n in order
    ]  # fmt: skip
    return {"word": number, "of": len(heads), "besides_first": besides, "heads": ranked}


def _is_causal(view: LookView, layer: int) -> bool:
    calls = view.trace.layer_trace(layer).calls
    return bool(calls) and all(call.mask.causal for call in calls)


def _word_of(words: list[Word], token: int) -> int:
    for number, word in enumerate(words):
        if word.start <= token < word.stop:
            return number
    raise InputError(f"there is no token {token}", hint=f"there are {words[-1].stop}, from 0 on")


def to_json_numbers(values: Tensor) -> list[float | None]:
    """Six decimals; null for NaN and infinity, which JSON does not have."""
    return [round(x, 6) if math.isfinite(x) else None for x in values.tolist()]


def to_bytes(values: Tensor) -> bytes:
    return values.float().cpu().numpy().astype("<f4").tobytes()
