"""The page's Atlas: the whole map of a head, page by page, at any distance.

    POST /api/open                     {model}: a .glass file, ready to be looked at
    POST /api/atlas                    {model, text}: a text is read and recorded, long ones too
    GET  /api/seen/{seen}/map          layers, levels and statistics of what was recorded
    GET  /api/seen/{seen}/cells        128 x 128 cells of 2^level x 2^level weights: mean, then max
    GET  /api/seen/{seen}/row          exact weights of one query: the strongest, and one asked for
    GET  /api/seen/{seen}/tokens       a part of the text down the side, or along the top

An atlas answers several threads at once; only measuring holds its lock.
"""

import math
from typing import Annotated, Any, Literal

import torch
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from glasshead.errors import InputError
from glasshead.observe.inspectable import RecordConfig
from glasshead.observe.trace import PAGE, Trace
from glasshead.observe.trace_storage import LayerTrace
from glasshead.observe.view import View
from glasshead.observe.wording import STATISTICS
from glasshead.observe.words import Token, Word, characters
from glasshead.serve.trace_store import StoredTrace
from glasshead.serve.workers import CancelToken, run_in_worker

__all__ = ["router"]

router = APIRouter(prefix="/api", tags=["atlas"])

SOON = 2**31  # pairs of all heads that are measured while someone waits
PIECES = 4096  # tokens of one answer
AROUND = 12  # tokens to show on either side of one
LONGEST = 16  # tokens that one character can be cut into, and more

ModelId = Annotated[str, Field(min_length=1, max_length=1024)]
Index = Annotated[int, Query(ge=0, lt=2**31)]
FOREVER = "private, max-age=31536000, immutable"  # an id stands for what was recorded


class OpenAsk(BaseModel):
    model: ModelId


class AtlasAsk(BaseModel):
    model: ModelId
    text: str


@router.post("/open")
async def open_atlas(request: Request, ask: OpenAsk) -> dict[str, Any]:
    return await run_in_worker(request, _opened, request.app.state, ask.model)


@router.post("/atlas")
async def record(request: Request, ask: AtlasAsk) -> dict[str, Any]:
    return await run_in_worker(request, _recorded, request.app.state, ask)


@router.get("/seen/{seen}/map")
async def described(request: Request, seen: str) -> dict[str, Any]:
    return await run_in_worker(request, _described, request.app.state.traces, seen)


@router.get("/seen/{seen}/cells", response_class=Response)
async def cells(
    request: Request,
    seen: str,
    layer: Index,
    head: Index,
    level: Annotated[int, Query(ge=0, le=40)],
    row: Index,
    col: Index,
    hide_sink: bool = False,
) -> Response:
    """Little-endian float32: the means row by row, then the maxima; X-Shape says how many."""
    store = request.app.state.traces
    tag = f'"{layer}.{head}.{level}.{row}.{col}.{int(hide_sink)}"'
    kept = {"etag": tag, "cache-control": FOREVER}
    if request.headers.get("if-none-match") == tag:
        store.entry(seen)
        return Response(status_code=304, headers=kept)
    where = (layer, head, level, row, col)
    shape, data = await run_in_worker(request, _page, store, seen, where, hide_sink)
    return Response(data, media_type="application/octet-stream", headers={**kept, "x-shape": shape})


@router.get("/seen/{seen}/row")
async def row(
    request: Request,
    seen: str,
    layer: Index,
    head: Index,
    query: Index,
    key: Index | None = None,
    top: Annotated[int, Query(ge=1, le=64)] = 8,
) -> dict[str, Any]:
    store = request.app.state.traces
    return await run_in_worker(request, _row, store, seen, layer, head, query, key, top)


@router.get("/seen/{seen}/tokens")
async def tokens(
    request: Request,
    seen: str,
    start: Index,
    stop: Index,
    layer: Index | None = None,
    side: Literal["rows", "cols"] = "rows",
) -> dict[str, Any]:
    """Pieces of text, each [first token, one past its last, text], at most 4096 tokens of them."""
    return await run_in_worker(
        request, _tokens, request.app.state.traces, seen, start, stop, layer, side
    )


def _opened(state: Any, name: str) -> dict[str, Any]:
    served = state.library.open(name)
    if served.atlas is None:
        raise InputError(f"{name} is no .glass file", hint="POST /api/atlas records a text")
    key = {"glass": served.stamp}
    # Its tensors stay in the file: what takes memory is the pages that are kept.
    known = state.traces.has(name, key) or state.traces.put(
        served.atlas, name, key, size=0, whole=served.whole
    )
    return _described(state.traces, known)


def _recorded(state: Any, ask: AtlasAsk, cancel: CancelToken) -> dict[str, Any]:
    most = state.config.max_text
    if len(ask.text) > most:
        raise InputError(
            f"the text has {len(ask.text):,} characters, more than {most:,}",
            hint="glasshead atlas records longer ones to a .glass file, which can be served",
        )
    served = state.library.open(ask.model)
    if served.subject is None:
        raise InputError(f"{ask.model} is a .glass file", hint="POST /api/open opens it")
    key = {"text": ask.text, "stamp": served.stamp}  # as Look has it, so that one recording does
    name = state.traces.has(ask.model, key)
    if name is None:
        with served.lock:
            _fits(served, ask.text, state.config.max_tokens)
            config = RecordConfig(max_tokens=state.config.max_tokens, beyond=True, progress=cancel)
            atlas = served.subject.record(ask.text, config)
        name = state.traces.put(atlas, ask.model, key)
    return _described(state.traces, name)


def _fits(served: Any, text: str, most: int) -> None:
    if served.loaded is None:
        return  # a model of transformers reads as much as it can
    config = served.loaded.model.config
    if getattr(config, "positions", "") == "learned":
        most = min(most, config.max_len)
    n = len(served.loaded.tokenizer.prompt_ids(text))
    if n > most:
        raise InputError(
            f"the text has {n:,} tokens, but {most:,} is the most here",
            hint="glasshead atlas records longer ones to a .glass file, if the model can read them",
        )


def _described(store: Any, name: str) -> dict[str, Any]:
    seen: StoredTrace = store.entry(name)
    atlas = seen.atlas
    ran = [layer for layer in _order(atlas) if layer in atlas.layer_traces]
    pairs = sum(math.prod(atlas.shape(layer)) for layer in ran)
    layers = []
    for index in ran:
        record, (_, H, T, S) = atlas.layer_trace(index), atlas.shape(index)
        layer = atlas.layer(index)
        layers.append(
            {"index": index, "name": _names(atlas).get(index, str(index)), "module": layer.name,
             "part": layer.part, "kind": layer.kind, "heads": H, "T": T, "S": S,
             "levels": atlas.levels(index), "exact": record.q is not None,
             "finest": _finest(record),
             "causal": bool(record.calls) and all(s.mask.causal for s in record.calls)}
        )  # fmt: skip
    return {
        "seen": seen.id, "model": seen.model, "name": str(atlas.about.get("name") or atlas.model),
        "page": PAGE, "layers": layers, "statistics": _statistics(seen, ran, pairs <= SOON),
        "tokens": max((max(atlas.shape(layer)[2:]) for layer in ran), default=0),
        "texts": 2 if atlas.source_tokens else 1 if atlas.tokens else 0,
    }  # fmt: skip


def _finest(record: LayerTrace) -> int:
    """The first level that can be seen: where no tensors were kept, that of the overview."""
    if record.q is not None or record.statistics is None:
        return 0
    return max(record.statistics.overview_cell).bit_length() - 1


def _statistics(seen: StoredTrace, layers: list[int], soon: bool) -> dict[str, Any]:
    """What is known of each head, a list for each layer; nothing if it takes long to find out."""
    atlas, found = seen.atlas, {}
    if not soon and any(atlas.layer_trace(layer).statistics is None for layer in layers):
        return {}
    with seen.lock:
        means = [atlas.statistics(layer).means() for layer in layers]
    for name in dict.fromkeys(name for each in means for name in each):
        values = [_rounded(each[name][0]) if name in each else None for each in means]
        explain = {language: STATISTICS[language].get(name, name) for language in ("en", "zh")}
        found[name] = {"explain": explain, "values": values}
    return found


def _page(store: Any, name: str, where: tuple[int, ...], hide_sink: bool) -> tuple[str, bytes]:
    layer, head, level, row, col = where
    atlas: Trace = store.get(name)
    _, _, T, S = atlas.shape(layer)
    side = PAGE << level
    if level >= atlas.levels(layer) or row * side >= T or col * side >= S:
        raise InputError(
            f"level {level} has no page {row}, {col}",
            hint=f"there are {atlas.levels(layer)} levels, and the map is {T} x {S}",
        )
    rows, cols = (slice(n * PAGE, (n + 1) * PAGE) for n in (row, col))
    found = atlas.cells(layer, head, level, rows, cols, hide_sink=hide_sink)
    shape = f"{found.mean.shape[0]},{found.mean.shape[1]}"
    return shape, torch.stack(tuple(found)).numpy().astype("<f4").tobytes()


def _row(
    store: Any, name: str, layer: int, head: int, query: int, key: int | None, top: int
) -> dict[str, Any]:
    atlas: Trace = store.get(name)
    weights = atlas.row(layer, head, query)
    if key is not None and key >= len(weights):
        raise InputError(f"key {key} does not exist", hint=f"there are {len(weights)}, from 0 on")
    most = weights.topk(min(top, len(weights)))
    rows, cols = _sides(atlas, layer)
    found = zip(most.indices.tolist(), most.values.tolist(), strict=True)
    return {
        "query": query, "text": _around(rows, query),
        "key": key, "weight": None if key is None else float(weights[key]),
        "keys": [{"key": at, "weight": weight, "text": _around(cols, at)} for at, weight in found],
    }  # fmt: skip


def _tokens(
    store: Any, name: str, start: int, stop: int, layer: int | None, side: str
) -> dict[str, Any]:
    atlas: Trace = store.get(name)
    index = _order(atlas)[0] if layer is None else layer
    _, _, T, S = atlas.shape(index)
    all_tokens = _sides(atlas, index)[0 if side == "rows" else 1]
    stop = min(stop, len(all_tokens), start + PIECES)
    found = _pieces(all_tokens, start, stop)
    return {
        "total": T if side == "rows" else S,
        "pieces": [[w.start, w.stop, w.text] for w in found],
    }


def _pieces(tokens: list[Token], start: int, stop: int) -> list[Word]:
    """Characters, or what the tokenizer keeps together; one that is cut is given whole."""
    first = max(0, start - LONGEST)
    found = characters(tokens[first : stop + LONGEST])
    moved = (Word(word.text, word.start + first, word.stop + first) for word in found)
    return [word for word in moved if word.start < stop and word.stop > start]


def _around(tokens: list[Token], place: int) -> list[str]:
    """What stands before a token, its text, and what follows; empty where there is no text."""
    found = _pieces(tokens, place - AROUND, place + AROUND + 1)
    parts = ["", "", ""]
    for word in found:
        parts[(word.stop > place) + (word.start > place)] += word.text
    return parts


def _order(atlas: Trace) -> list[int]:
    listed = View(atlas).layers if atlas.tokens is not None else atlas.layers
    return [layer.index for layer in listed]


def _names(atlas: Trace) -> dict[int, str]:
    return View(atlas).names if atlas.tokens is not None else {}


def _sides(atlas: Trace, layer: int) -> tuple[list[Token], list[Token]]:
    """Tokens of queries and of keys; none where what was kept is of another length."""
    if atlas.tokens is None or not atlas.tokens:
        return [], []
    _, _, T, S = atlas.shape(layer)
    rows, cols = View(atlas).tokens(layer)
    return rows if len(rows) == T else [], cols if len(cols) == S else []


def _rounded(values: torch.Tensor) -> list[float | None]:
    """For JSON, which knows no NaN."""
    return [round(x, 6) if math.isfinite(x) else None for x in values.tolist()]
