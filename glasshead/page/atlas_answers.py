"""The answers of the page's Atlas: the whole map of a head, page by page, at any distance.

describe_atlas(trace)                            layers, levels and statistics
binary_cells(trace, layer, head, level, i, j)    a page of cells of 2^level x 2^level weights
exact_row(trace, layer, head, query, ...)        one query's weights: the strongest keys
token_pieces(trace, layer, side, start, stop)    a part of the text of queries or of keys
"""

import math
from typing import Any, Literal

import torch

from glasshead.errors import InputError
from glasshead.observe.trace import PAGE, Trace
from glasshead.observe.trace_storage import LayerTrace
from glasshead.observe.view import View
from glasshead.observe.wording import STATISTICS
from glasshead.observe.words import Token, Word, characters
from glasshead.page.look_answers import Binary, to_bytes, to_json_numbers

__all__ = ["binary_cells", "describe_atlas", "exact_row", "token_pieces"]

SOON = 2**31  # pairs of all heads that are measured while someone waits
MAX_TOKENS = 4096  # of one answer
AROUND = 12  # tokens to show on either side of one
LONGEST = 16  # tokens that one character can be cut into, and more


def describe_atlas(trace: Trace) -> dict[str, Any]:
    """Return layers, levels and statistics of what was recorded."""
    ran = [layer for layer in _layer_order(trace) if layer in trace.layer_traces]
    names = View(trace).names if trace.tokens is not None else {}
    layers = []
    for index in ran:
        recorded, layer = trace.layer_trace(index), trace.layer(index)
        _, H, T, S = recorded.shape
        layers.append(
            {"index": index, "name": names.get(index, str(index)), "module": layer.name,
             "part": layer.part, "kind": layer.kind, "heads": H, "T": T, "S": S,
             "levels": trace.levels(index), "exact": recorded.q is not None,
             "finest": _finest_level(recorded),
             "causal": bool(recorded.calls) and all(c.mask.causal for c in recorded.calls)}
        )  # fmt: skip
    return {
        "name": str(trace.about.get("name") or trace.model), "page": PAGE, "layers": layers,
        "statistics": _statistics(trace, ran),
        "tokens": max((max(trace.shape(layer)[2:]) for layer in ran), default=0),
        "texts": 2 if trace.source_tokens else 1 if trace.tokens else 0,
    }  # fmt: skip


def _finest_level(recorded: LayerTrace) -> int:
    """0 where tensors were kept; else the level of the overview that was."""
    if recorded.q is not None or recorded.statistics is None:
        return 0
    return max(recorded.statistics.overview_cell).bit_length() - 1


def _statistics(trace: Trace, layers: list[int]) -> dict[str, Any]:
    """The statistics of each head, a list for each layer; nothing if measuring would take long."""
    pairs = sum(math.prod(trace.shape(layer)) for layer in layers)
    if pairs > SOON and any(trace.layer_trace(layer).statistics is None for layer in layers):
        return {}
    means = [trace.statistics(layer).means() for layer in layers]
    found = {}
    for name in dict.fromkeys(name for each in means for name in each):
        values = [to_json_numbers(each[name][0]) if name in each else None for each in means]
        explain = {lang: STATISTICS[lang].get(name, name) for lang in STATISTICS}
        found[name] = {"explain": explain, "values": values}
    return found


def binary_cells(
    trace: Trace, layer: int, head: int, level: int, row: int, col: int, hide_sink: bool = False
) -> Binary:
    """A page of at most 128 x 128 cells: the means row by row, then the maxima."""
    _, _, T, S = trace.shape(layer)
    side = PAGE << level
    if level >= trace.levels(layer) or row * side >= T or col * side >= S:
        raise InputError(
            f"level {level} has no page {row}, {col}",
            hint=f"there are {trace.levels(layer)} levels, and the map is {T} x {S}",
        )
    rows, cols = (slice(n * PAGE, (n + 1) * PAGE) for n in (row, col))
    found = trace.cells(layer, head, level, rows, cols, hide_sink=hide_sink)
    shape = f"{found.mean.shape[0]},{found.mean.shape[1]}"
    return Binary(to_bytes(torch.stack(tuple(found))), {"x-shape": shape})


def exact_row(
    trace: Trace, layer: int, head: int, query: int, key: int | None = None, top: int = 8
) -> dict[str, Any]:
    """The `top` strongest keys of a query with the text around them, and the weight of `key`."""
    weights = trace.row(layer, head, query)
    if key is not None and key >= len(weights):
        raise InputError(f"key {key} does not exist", hint=f"there are {len(weights)}, from 0 on")
    most = weights.topk(min(top, len(weights)))
    rows, cols = _tokens_of(trace, layer)
    found = zip(most.indices.tolist(), most.values.tolist(), strict=True)
    return {
        "query": query, "text": _surroundings(rows, query),
        "key": key, "weight": None if key is None else float(weights[key]),
        "keys": [{"key": at, "weight": weight, "text": _surroundings(cols, at)}
                 for at, weight in found],
    }  # fmt: skip


def token_pieces(
    trace: Trace, layer: int | None, side: Literal["rows", "cols"], start: int, stop: int
) -> dict[str, Any]:
    """Pieces of text, each [first token, one past its last, text], at most 4096 tokens of them."""
    index = _layer_order(trace)[0] if layer is None else layer
    _, _, T, S = trace.shape(index)
    tokens = _tokens_of(trace, index)[0 if side == "rows" else 1]
    found = _pieces(tokens, start, min(stop, len(tokens), start + MAX_TOKENS))
    return {
        "total": T if side == "rows" else S,
        "pieces": [[w.start, w.stop, w.text] for w in found],
    }


def _pieces(tokens: list[Token], start: int, stop: int) -> list[Word]:
    """Characters, or what the tokenizer keeps together; one that would be cut is given whole."""
    first = max(0, start - LONGEST)
    found = characters(tokens[first : stop + LONGEST])
    moved = (Word(word.text, word.start + first, word.stop + first) for word in found)
    return [word for word in moved if word.start < stop and word.stop > start]


def _surroundings(tokens: list[Token], place: int) -> list[str]:
    """The text before a token, its own, and the text after it; empty where there is none."""
    parts = ["", "", ""]
    for word in _pieces(tokens, place - AROUND, place + AROUND + 1):
        parts[(word.stop > place) + (word.start > place)] += word.text
    return parts


def _layer_order(trace: Trace) -> list[int]:
    layers = View(trace).layers if trace.tokens is not None else trace.layers
    return [layer.index for layer in layers]


def _tokens_of(trace: Trace, layer: int) -> tuple[list[Token], list[Token]]:
    """Tokens of queries and of keys; none where those of the trace are of another length."""
    if not trace.tokens:
        return [], []
    _, _, T, S = trace.shape(layer)
    rows, cols = View(trace).tokens(layer)
    return rows if len(rows) == T else [], cols if len(cols) == S else []
