"""Recorded attention: any part of the map of any head, exact or in cells.

    trace.tile(layer, head, rows, cols)     exact weights of a rectangle
    trace.row(layer, head, query)           one query's weights
    trace.rows(query)                       one query's weights in all heads, (L, H, S)
    trace.top(layer, head, query, k)        the k keys with the most weight
    trace.weights(layer)                    all weights of a short text, (B, H, T, S)
    trace.cells(layer, head, level, ...)    cells of 2^level x 2^level weights: mean and max
    trace.statistics(layer)                 statistics of a layer's heads
    trace.table(name), trace.means()        one statistic of all heads, (L, H); all of them
    trace.save("x.glass"), open_glass(...)  one file, whose tensors are read when they are needed
    trace.show()                            the page, in a notebook

Nothing of size T x S is kept: each answer is computed from queries, keys and log-sum-exp.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glasshead.attention.hooks import Layer
from glasshead.errors import InputError, RecordingError
from glasshead.observe.cell_cache import CellCache
from glasshead.observe.head_tables import find_table, mean_tables
from glasshead.observe.pooling import Cells, compute_cells, pool_overview
from glasshead.observe.slices import check_index, check_size, overlap, span
from glasshead.observe.statistics import HeadStatistics, cell_side
from glasshead.observe.stream import Step, stream_steps
from glasshead.observe.trace_storage import LayerTrace
from glasshead.observe.unchecked_calls import measure_layers
from glasshead.observe.viewer import show_trace
from glasshead.observe.words import Token, batch_tokens, characters, single_tokens, visible

__all__ = ["Cells", "TopKeys", "Trace", "open_glass"]

MAX_CELLS = 2**26  # of one answer: 256 MB
PAGE = 128  # cells on a side of what is computed and cached at a time
OVERVIEWS = 16  # overviews that are cached, of heads whose statistics were not measured


class TopKeys(NamedTuple):
    """The keys with the most weight in a row, the largest first. Printed as a table."""

    keys: Tensor  # (k,) positions
    weights: Tensor  # (k,)
    words: list[str]  # the tokens at these positions; empty if the trace has none

    def __repr__(self) -> str:
        names = [visible(word) for word in self.words] or [""] * len(self.keys)
        rows = zip(self.keys.tolist(), self.weights.tolist(), names, strict=True)
        lines = [f"{key:>6}  {weight:6.4f}  {name}".rstrip() for key, weight, name in rows]
        return "\n".join(["   key  weight", *lines])


class Trace:
    """The attention that `observing` recorded, or that `open_glass` read from a file.

    >>> import glasshead, torch
    >>> model = glasshead.GPT(glasshead.GPTConfig(vocab_size=7, n_layers=2, d_model=16))
    >>> with glasshead.observing(model, tokens=[list("abcde")]) as trace:
    ...     logits = model(torch.arange(5)[None])
    >>> [layer.name for layer in trace.layers]
    ['blocks.0.attention', 'blocks.1.attention']
    >>> trace.row(layer=0, head=3, query=-1).shape  # weights of the last token
    torch.Size([5])

    `layers` lists the layers; methods take a layer's index or its name. `tokens` holds the tokens,
    a list for each sequence; `source_tokens` those of an encoder's text. `about` is for what else
    JSON can hold: the text, offsets. `options` are those of `observe`, for the statistics.
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
        overview: int | None = None,
        cache_bytes: int = 2**26,
    ) -> None:
        self._layers = {layer.index: layer for layer in layers}
        self.layer_traces: dict[int, LayerTrace] = {}
        self.model, self._ids, self.top_k = model, ids, top_k
        self.options = {"top_k": top_k, "overview": overview}
        self.tokens, self.source_tokens = tokens, source_tokens
        self.about: dict[str, Any] = about or {}
        self._pages = CellCache(max(1, cache_bytes // (2 * 4 * PAGE**2)))
        self._overviews = CellCache(OVERVIEWS)
        self._computing = Lock()
        self.step_ends: list[int] = []  # rows that are known after each forward
        self.on_step: Callable[[], None] | None = None

    def __repr__(self) -> str:
        """Summarize what was recorded.

        >>> Trace([], model="gpt")
        Trace of gpt: nothing was recorded
        """
        lines = [f"Trace of {self.model or 'a model'}:"]
        if self.tokens:
            start = "".join(word.text for word in characters(self.tokens[0][:40]))
            lines.append(f"  text    {len(self.tokens[0]):,} tokens: {visible(start)}")
        groups: dict[tuple[str, ...], list[int]] = {}
        for index, stored in self.layer_traces.items():
            B, H, T, S = stored.shape
            where = self.layer(index)
            kind = f"{where.part or ''} {where.kind}".strip()
            sizes = f"{H} heads, {T:,} queries x {S:,} keys" + (f", batch {B}" if B > 1 else "")
            groups.setdefault((kind, sizes), []).append(index)
        for (kind, sizes), found in groups.items():
            span = str(found[0]) if len(found) == 1 else f"{found[0]}-{found[-1]}"
            lines.append(f"  layers  {span}: {kind} attention, {sizes}")
        if not groups:
            return f"{lines[0]} nothing was recorded"
        if self.unseen:
            lines.append(f"  unseen  {len(self.unseen)} more attention layers: .unseen names them")
        if n := len(self.without_attention):
            have = "layer has" if n == 1 else "layers have"
            lines.append(f"  none    {n} {have} no attention: .without_attention names them")
        return "\n".join([*lines, "  ask     .top(layer, head, query), .row(...), .show()"])

    @property
    def layers(self) -> list[Layer]:
        return list(self._layers.values())

    @property
    def unseen(self) -> tuple[str, ...]:
        """The attention modules that ran and that cannot be recorded."""
        return tuple(self.about.get("unseen", ()))

    @property
    def without_attention(self) -> tuple[str, ...]:
        """The layers of a hybrid that have no attention."""
        return tuple(self.about.get("without_attention", ()))

    @property
    def ids(self) -> Tensor | None:
        """(B, T) token ids; statistics that were measured with others are measured anew."""
        return self._ids

    @ids.setter
    def ids(self, ids: Tensor | None) -> None:
        self._ids = ids
        for stored in self.layer_traces.values():
            stored.forget_statistics()

    @property
    def tokens(self) -> list[list[str | bytes]] | None:
        return self._tokens

    @tokens.setter
    def tokens(self, tokens: Any) -> None:
        self._tokens = batch_tokens(tokens)

    @property
    def source_tokens(self) -> list[list[str | bytes]] | None:
        return self._source_tokens

    @source_tokens.setter
    def source_tokens(self, tokens: Any) -> None:
        self._source_tokens = batch_tokens(tokens)

    def layer(self, which: int | str) -> Layer:
        for layer in self._layers.values():
            if which in (layer.index, layer.name):
                return layer
        known = ", ".join(map(str, self.layers))
        raise InputError(f"layer {which!r} was not recorded", hint=f"recorded: {known}")

    def replace_layer(self, layer: Layer) -> None:
        """Replace the description of the layer with the same index."""
        self._layers[layer.index] = layer

    def layer_trace(self, layer: int | str) -> LayerTrace:
        """Return what is stored of a layer; raise if it did not run."""
        found = self.layer(layer)
        if found.index not in self.layer_traces:
            raise RecordingError(
                f"{found} did not run inside the `with`",
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
        """Return the exact weights of queries `rows` at keys `cols`, each a slice or one index."""
        stored = self.layer_trace(layer)
        B, H, T, S = stored.shape
        r, c = span("rows", rows, T), span("cols", cols, S)
        check_size(MAX_CELLS, "the tile", r.stop - r.start, c.stop - c.start)
        return stored.tile(check_index("batch", batch, B), check_index("head", head, H), r, c)

    def row(self, layer: int | str, head: int, query: int, batch: int = 0) -> Tensor:
        """Return one query's weights, (S,). -1 is the last query."""
        return self.tile(layer, head, rows=query, batch=batch)[0]

    def rows(self, query: int, batch: int = 0) -> Tensor:
        """Return one query's weights in all heads of the layers that ran, (L, H, S)."""
        sizes = sorted({stored.shape[1:] for stored in self.layer_traces.values()})
        if len(sizes) != 1:
            raise InputError(
                f"layers have maps of {len(sizes)} sizes (H, T, S): {', '.join(map(str, sizes))}",
                hint="ask for one head with trace.row(layer, head, query)",
            )
        heads = range(sizes[0][0])
        found = [self.row(i, h, query, batch) for i in self.layer_traces for h in heads]
        return torch.stack(found).unflatten(0, (-1, len(heads)))

    def top(self, layer: int | str, head: int, query: int, k: int = 8, batch: int = 0) -> TopKeys:
        """Return the k keys with the most weight in one query's row."""
        row = self.row(layer, head, query, batch)
        if k < 1:
            raise InputError(f"k ({k}) must be at least 1", hint="try k=8")
        weights, keys = row.topk(min(k, row.numel()))
        found = single_tokens(self._key_tokens(layer, batch))
        return TopKeys(keys, weights, [found[i].text for i in keys.tolist()] if found else [])

    def _key_tokens(self, layer: int | str, batch: int) -> Sequence[Token]:
        """Return the tokens that a layer's keys stand for; none if the trace does not have them."""
        where, S = self.layer(layer), self.shape(layer)[3]
        of_source = where.kind == "cross" or where.part == "encoder"
        batches = (self.source_tokens if of_source else self.tokens) or [[]]
        tokens = batches[batch % len(batches)]
        return tokens if len(tokens) == S else ()

    def weights(self, layer: int | str) -> Tensor:
        """Return all weights of a layer, (B, H, T, S); for short texts."""
        stored = self.layer_trace(layer)
        B, H, T, S = stored.shape
        check_size(MAX_CELLS, f"layer {layer}", B, H, T, S)
        every = slice(0, T), slice(0, S)
        maps = [stored.tile(b, h, *every) for b in range(B) for h in range(H)]
        return torch.stack(maps).view(B, H, T, S)

    def statistics(self, layer: int | str) -> HeadStatistics:
        """Return the statistics of a layer's heads; the first call measures them where it ran."""
        stored, every = self.layer_trace(layer), self.layer_traces.values()
        return stored.measured or measure_layers(stored, every, self.ids, self.options)

    def means(self, batch: int = 0) -> dict[str, Tensor]:
        """Return each statistic of all heads, (L, H); NaN where a layer has no such number."""
        found = [(stored.layer, self.statistics(i)) for i, stored in self.layer_traces.items()]
        sizes = [stored.shape[0] for stored in self.layer_traces.values()]
        return mean_tables(found, check_index("batch", batch, min(sizes, default=0)))

    def table(self, statistic: str, batch: int = 0) -> Tensor:
        """Return one statistic of all heads, (L, H): `trace.table("induction")`."""
        return find_table(self.means(batch), statistic)

    def levels(self, layer: int | str) -> int:
        """Return how many levels `cells` has: 0 is exact, at the last one the map fits a page."""
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
        """Return a part of the map in cells: mean and max of 2^level x 2^level weights each.

        `rows` and `cols` count cells. At the border a cell has fewer weights. A hidden pair counts
        as 0, and with `hide_sink` so does the first key. The latest pages are cached.
        """
        stored = self.layer_trace(layer)
        B, H, T, S = stored.shape
        level = check_index("level", level, self.levels(layer))
        batch, head = check_index("batch", batch, B), check_index("head", head, H)
        r = span("rows", rows, -(-T >> level) if T else 0)
        c = span("cols", cols, -(-S >> level) if S else 0)
        size = r.stop - r.start, c.stop - c.start
        check_size(MAX_CELLS, "the map", *size)
        mean = torch.empty(size)
        top = torch.empty_like(mean)
        for i in range(r.start // PAGE, -(-r.stop // PAGE)):
            for j in range(c.start // PAGE, -(-c.stop // PAGE)):
                page = self._page(stored, batch, head, level, i, j, hide_sink)
                here, there = overlap(r, i, PAGE), overlap(c, j, PAGE)
                mean[here[0], there[0]] = page.mean[here[1], there[1]]
                top[here[0], there[0]] = page.max[here[1], there[1]]
        return Cells(mean, top)

    def _page(
        self, stored: LayerTrace, batch: int, head: int, level: int, i: int, j: int, hide_sink: bool
    ) -> Cells:
        key = (stored.layer.index, *stored.shape, batch, head, level, i, j, hide_sink)
        page = self._pages.get(key)
        if page is None:
            _, _, T, S = stored.shape
            side, one = PAGE << level, 1 << level
            rows = slice(i * side, min((i + 1) * side, T))
            cols = slice(j * side, min((j + 1) * side, S))
            measured = stored.measured
            cell = measured.overview_cell if measured else (cell_side(T), cell_side(S))
            if one % max(cell) or (not measured and max(cell) == 1):
                page = compute_cells(stored, batch, head, rows, cols, (one, one), hide_sink)
            else:
                overview = self._overview(stored, batch, head, cell)
                page = pool_overview(
                    stored, batch, head, rows, cols, one, overview, cell, hide_sink
                )
            self._pages.put(key, page)
        return page

    def _overview(self, stored: LayerTrace, batch: int, head: int, cell: tuple[int, int]) -> Cells:
        """Return the whole map of a head in cells, as it was measured or computed here."""
        if (found := stored.measured) is not None:
            return Cells(found.overview_mean[batch, head], found.overview_max[batch, head])
        _, _, T, S = stored.shape
        key = (stored.layer.index, *stored.shape, batch, head)
        with self._computing:  # takes long: a second thread that needs the same waits for it
            known = self._overviews.get(key)
            if known is None:
                known = compute_cells(stored, batch, head, slice(0, T), slice(0, S), cell)
                self._overviews.put(key, known)
            return known

    @property
    def cached_bytes(self) -> int:
        """The memory of the cached pages and overviews."""
        return self._pages.bytes + self._overviews.bytes

    def end_step(self, rows: int) -> None:
        """Note that a forward of the model ended, after which so many rows are known."""
        if rows > max(self.step_ends, default=0):
            self.step_ends.append(rows)
            if self.on_step is not None:
                self.on_step()

    def stream(self, write: Callable[[], object] | None = None) -> Iterator[Step]:
        """Yield the rows that each forward added; with `write`, while it makes the model write:

        for step in trace.stream(lambda: model.generate(ids)): step.row(layer=1, head=3)
        """
        return stream_steps(self, write)

    def save(self, path: str | Path) -> None:
        """Write everything to one .glass file."""
        from glasshead.observe.glass_file import write_glass

        write_glass(self, Path(path))

    def show(self, **how: Any) -> Any:
        """Return the page as a widget for a notebook: `trace.show(layer=1, head=3)`."""
        return show_trace(self, **how)


def open_glass(path: str | Path) -> Trace:
    """Open a .glass file. Its tensors stay in the file until they are needed.

    >>> import glasshead, torch
    >>> model = glasshead.GPT(glasshead.GPTConfig(vocab_size=7, n_layers=2, d_model=16))
    >>> with glasshead.observing(model) as trace:
    ...     logits = model(torch.arange(5)[None])
    >>> trace.save("five.glass")
    >>> torch.equal(glasshead.open_glass("five.glass").weights(0), trace.weights(0))
    True
    """
    from glasshead.observe.glass_file import read_glass

    return read_glass(Path(path))
