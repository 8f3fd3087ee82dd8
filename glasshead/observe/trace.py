"""The whole map of every head, of which any part can be seen: exact, near or from afar.

    seen.tile(layer, head, rows, cols)      exact weights of a rectangle
    seen.row(layer, head, query)            one query's weights
    seen.top(layer, head, query, k)         the keys it looks at most
    seen.weights(layer)                     all of a short text, (B, H, T, S)
    seen.cells(layer, head, level, ...)     cells of 2^level x 2^level weights: mean and max
    seen.statistics(layer)                  what was measured of its heads
    seen.save("x.glass"), open_glass(...)   one file, which opening does not read
    seen.show()                             the page, in a notebook

Nothing of size T x S is kept: each answer is computed from queries, keys and log-sum-exp.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glasshead.attention.hooks import Layer
from glasshead.errors import InputError, RecordingError
from glasshead.observe.pooling import Cells, Overview, overview, pooled, summed
from glasshead.observe.showing import shown
from glasshead.observe.statistics import HeadStatistics, cell_side
from glasshead.observe.trace_storage import LayerTrace

__all__ = ["Cells", "Top", "Trace", "open_glass"]

MAX_CELLS = 2**26  # of one answer: 256 MB
PAGE = 128  # cells, a side of what is computed and kept at a time
OVERVIEWS = 16  # heads whose map is kept from afar, where it was not measured


class Top(NamedTuple):
    keys: Tensor  # (k,) positions, the one with most weight first
    weights: Tensor  # (k,)


class Trace:
    """What `observing` recorded, or `open_glass` found in a file.

    `layers` names the layers; each can be asked for by its index or its name. `tokens` holds the
    pieces of text, a list for each sequence; `source_tokens` those of an encoder's text. `about` is
    for anything else that JSON can hold: the text itself, offsets.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        *,
        model: str = "",
        ids: Tensor | None = None,
        tokens: Any = None,
        source_tokens: Any = None,
        about: dict[str, Any] | None = None,
        top_k: int = 8,
        cache_bytes: int = 2**26,
    ) -> None:
        self._layers = {layer.index: layer for layer in layers}
        self.layer_traces: dict[int, LayerTrace] = {}
        self.model, self.ids, self.top_k = model, ids, top_k
        self.tokens, self.source_tokens = tokens, source_tokens
        self.about: dict[str, Any] = about or {}
        self._pages: OrderedDict[tuple[int, ...], Cells] = OrderedDict()
        self._overviews: OrderedDict[tuple[int, ...], Overview] = OrderedDict()
        self._room = cache_bytes // (2 * 4 * PAGE**2)
        # A server asks from several threads.
        self._lock, self._making = Lock(), Lock()

    @property
    def layers(self) -> list[Layer]:
        return list(self._layers.values())

    @property
    def tokens(self) -> list[list[str | bytes]] | None:
        return self._tokens

    @tokens.setter
    def tokens(self, tokens: Any) -> None:
        self._tokens = _batched(tokens)

    @property
    def source_tokens(self) -> list[list[str | bytes]] | None:
        return self._source_tokens

    @source_tokens.setter
    def source_tokens(self, tokens: Any) -> None:
        self._source_tokens = _batched(tokens)

    def layer(self, which: int | str) -> Layer:
        for layer in self._layers.values():
            if which in (layer.index, layer.name):
                return layer
        raise InputError(
            f"layer {which!r} was not recorded",
            hint="recorded: "
            + ", ".join(f"{layer.index} ({layer.name})" for layer in self._layers.values()),
        )

    def replace_layer(self, layer: Layer) -> None:
        """Put a better description in the place of the layer with the same index."""
        self._layers[layer.index] = layer

    def layer_trace(self, layer: int | str) -> LayerTrace:
        found = self.layer(layer)
        if found.index not in self.layer_traces:
            raise RecordingError(
                f"layer {found.index} ({found.name}) did not run while it was observed",
                hint="call the model inside `with observing(model)`",
            )
        return self.layer_traces[found.index]

    def shape(self, layer: int | str) -> tuple[int, int, int, int]:
        """(B, H, T, S) of a layer's maps."""
        return self.layer_trace(layer).shape

    def tile(
        self,
        layer: int | str,
        head: int,
        rows: slice | int = slice(None),
        cols: slice | int = slice(None),
        batch: int = 0,
    ) -> Tensor:
        """Exact weights of queries `rows` at keys `cols`; a number stands for one row or column."""
        record = self.layer_trace(layer)
        B, H, T, S = record.shape
        r, c = _span("rows", rows, T), _span("cols", cols, S)
        _check_size(f"a tile of {r.stop - r.start} x {c.stop - c.start}", _area(r, c))
        return record.tile(_index("batch", batch, B), _index("head", head, H), r, c)

    def row(self, layer: int | str, head: int, query: int, batch: int = 0) -> Tensor:
        """(S,) how much one query looks at each key. -1 is the last query."""
        return self.tile(layer, head, rows=query, batch=batch)[0]

    def top(self, layer: int | str, head: int, query: int, k: int = 8, batch: int = 0) -> Top:
        """The k keys that one query looks at most."""
        row = self.row(layer, head, query, batch)
        if k < 1:
            raise InputError(f"k ({k}) must be at least 1", hint="try k=8")
        weights, keys = row.topk(min(k, row.numel()))
        return Top(keys, weights)

    def weights(self, layer: int | str) -> Tensor:
        """(B, H, T, S) all weights of a layer, for short texts."""
        record = self.layer_trace(layer)
        B, H, T, S = record.shape
        _check_size(f"the weights of layer {layer}, {B} x {H} x {T} x {S},", B * H * T * S)
        every = slice(0, T), slice(0, S)
        maps = [record.tile(b, h, *every) for b in range(B) for h in range(H)]
        return torch.stack(maps).view(B, H, T, S)

    def statistics(self, layer: int | str) -> HeadStatistics:
        """What was measured of a layer's heads; measured now where only tensors were kept."""
        return self.layer_trace(layer).measure(self.ids, self.top_k)

    def levels(self, layer: int | str) -> int:
        """How many levels there are: 0 is exact, at the last one the map fits in a page."""
        _, _, T, S = self.shape(layer)
        return max(0, math.ceil(math.log2(max(1, T, S) / PAGE))) + 1

    def cells(
        self,
        layer: int | str,
        head: int,
        level: int,
        rows: slice | int = slice(None),
        cols: slice | int = slice(None),
        batch: int = 0,
        hide_sink: bool = False,
    ) -> Cells:
        """The map from afar: each cell is the mean and the max of 2^level x 2^level weights.

        `rows` and `cols` count cells. At the border a cell is of what there is; what a mask hides
        counts as 0, and with `hide_sink` so does the first key. Computed when asked for; the last
        pages are kept.
        """
        record = self.layer_trace(layer)
        B, H, T, S = record.shape
        level = _index("level", level, self.levels(layer))
        batch, head = _index("batch", batch, B), _index("head", head, H)
        r = _span("rows", rows, -(-T >> level) if T else 0)
        c = _span("cols", cols, -(-S >> level) if S else 0)
        _check_size(f"a picture of {r.stop - r.start} x {c.stop - c.start} cells", _area(r, c))
        mean = torch.empty(r.stop - r.start, c.stop - c.start)
        top = torch.empty_like(mean)
        for i in range(r.start // PAGE, -(-r.stop // PAGE)):
            for j in range(c.start // PAGE, -(-c.stop // PAGE)):
                page = self._page(record, batch, head, level, i, j, hide_sink)
                here, there = _overlap(r, i), _overlap(c, j)
                mean[here[0], there[0]] = page.mean[here[1], there[1]]
                top[here[0], there[0]] = page.max[here[1], there[1]]
        return Cells(mean, top)

    def _page(
        self, record: LayerTrace, batch: int, head: int, level: int, i: int, j: int, hide_sink: bool
    ) -> Cells:
        key = (record.layer.index, batch, head, level, i, j, hide_sink)
        with self._lock:
            if key in self._pages:
                self._pages.move_to_end(key)
                return self._pages[key]
        _, _, T, S = record.shape
        side, one = PAGE << level, 1 << level
        rows = slice(i * side, min((i + 1) * side, T))
        cols = slice(j * side, min((j + 1) * side, S))
        known = self._overview(record, batch, head, one)
        if known is None:
            page = summed(record, batch, head, rows, cols, (one, one), hide_sink)
        else:
            page = pooled(record, batch, head, rows, cols, one, known, hide_sink)
        with self._lock:
            self._pages[key] = page
            while len(self._pages) > max(1, self._room):
                self._pages.popitem(last=False)
        return page

    def _overview(self, record: LayerTrace, batch: int, head: int, side: int) -> Overview | None:
        """What larger cells are made of; None where the weights themselves are as near."""
        found = record.statistics
        if found is not None:
            if side % max(found.overview_cell):
                return None
            mean, top = found.overview_mean[batch, head], found.overview_max[batch, head]
            return Overview(mean, top, found.overview_cell)
        _, _, T, S = record.shape
        cell = cell_side(T), cell_side(S)
        if side % max(cell) or max(cell) == 1:
            return None
        key = (record.layer.index, batch, head)
        with self._making:  # it takes long enough that others better wait for it
            known = self._overviews.get(key)
            if known is not None:
                return known
            made = overview(record, batch, head, cell)
            with self._lock:
                self._overviews[key] = made
                while len(self._overviews) > OVERVIEWS:
                    self._overviews.popitem(last=False)
            return made

    @property
    def cached_bytes(self) -> int:
        """The memory of the pages and maps from afar that are kept."""
        with self._lock:
            pages: list[Cells | Overview] = [*self._pages.values()]
            kept = [*pages, *self._overviews.values()]
        return sum(each.mean.nbytes + each.max.nbytes for each in kept)

    def save(self, path: str | Path) -> None:
        """Write everything to one .glass file."""
        from glasshead.observe.glass_file import write

        write(self, Path(path))

    def show(self, **how: Any) -> Any:
        """The page's view of it, as a widget of a notebook: `seen.show(layer=1, head=3)`."""
        return shown(self, **how)


def open_glass(path: str | Path) -> Trace:
    """The atlas in a .glass file. Its tensors stay in the file until they are looked at."""
    from glasshead.observe.glass_file import read

    return read(Path(path))


def _overlap(part: slice, page: int) -> tuple[slice, slice]:
    """Where a page lies in the answer, and where the answer lies in the page."""
    start, stop = max(part.start, page * PAGE), min(part.stop, (page + 1) * PAGE)
    return (
        slice(start - part.start, stop - part.start),
        slice(start - page * PAGE, stop - page * PAGE),
    )


def _span(name: str, part: slice | int, size: int) -> slice:
    if not isinstance(part, slice):
        part = slice(at := _index(name, part, size), at + 1)
    start, stop, step = part.indices(size)
    if step != 1:
        raise InputError(f"{name} has step {step}", hint="a rectangle has no gaps: leave it out")
    return slice(start, max(start, stop))


def _index(name: str, value: int, size: int) -> int:
    if -size <= value < size:
        return value % size
    raise InputError(f"{name} {value} does not exist", hint=f"there are {size}, counted from 0")


def _area(rows: slice, cols: slice) -> int:
    return (rows.stop - rows.start) * (cols.stop - cols.start)


def _check_size(what: str, cells: int) -> None:
    if cells > MAX_CELLS:
        raise InputError(
            f"{what} has {cells:,} weights, more than {MAX_CELLS:,} at once",
            hint="look at a smaller tile, or from afar with cells(layer, head, level)",
        )


def _batched(tokens: Any) -> list[list[str | bytes]] | None:
    """A list for each sequence; one list of tokens is a batch of one."""
    if tokens is None:
        return None
    listed = list(tokens)
    if all(isinstance(piece, str | bytes) for piece in listed):
        return [listed]
    return [list(sequence) for sequence in listed]
