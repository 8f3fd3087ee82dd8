"""The routes of the page's Atlas: the whole map of a head, page by page, at any distance.

    POST /api/open                     {model}: a .glass file, ready to be looked at
    POST /api/atlas                    {model, text}: a text is read and recorded, long ones too
    GET  /api/seen/{seen}/map          layers, levels and statistics of what was recorded
    GET  /api/seen/{seen}/cells        128 x 128 cells of 2^level x 2^level weights: mean, then max
    GET  /api/seen/{seen}/row          exact weights of one query: the strongest, and one asked for
    GET  /api/seen/{seen}/tokens       a part of the text down the side, or along the top

`page/atlas_answers.py` makes the answers. A trace answers several threads at once; only measuring
needs its lock.
"""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from glasshead.errors import InputError
from glasshead.observe.inspectable import RecordConfig
from glasshead.page.atlas_answers import binary_cells, describe_atlas, exact_row, token_pieces
from glasshead.serve.trace_store import StoredTrace
from glasshead.serve.workers import CancelToken, run_in_worker

__all__ = ["router"]

router = APIRouter(prefix="/api", tags=["atlas"])

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
    return await run_in_worker(request, _open, request.app.state, ask.model)


@router.post("/atlas")
async def record(request: Request, ask: AtlasAsk) -> dict[str, Any]:
    return await run_in_worker(request, _record, request.app.state, ask)


@router.get("/seen/{seen}/map")
async def description(request: Request, seen: str) -> dict[str, Any]:
    return await run_in_worker(request, _describe, request.app.state.traces.entry(seen))


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
    where = (layer, head, level, row, col, hide_sink)
    found = await run_in_worker(request, binary_cells, store.get(seen), *where)
    headers = {**kept, **found.headers}
    return Response(found.data, media_type="application/octet-stream", headers=headers)


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
    trace = request.app.state.traces.get(seen)
    return await run_in_worker(request, exact_row, trace, layer, head, query, key, top)


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
    trace = request.app.state.traces.get(seen)
    return await run_in_worker(request, token_pieces, trace, layer, side, start, stop)


def _open(state: Any, name: str) -> dict[str, Any]:
    served = state.library.open(name)
    if served.atlas is None:
        raise InputError(f"{name} is no .glass file", hint="POST /api/atlas records a text")
    key = {"glass": served.stamp}
    # Its tensors stay in the file: what takes memory is the pages that are kept.
    known = state.traces.has(name, key) or state.traces.put(
        served.atlas, name, key, size=0, whole=served.whole
    )
    return _describe(state.traces.entry(known))


def _record(state: Any, ask: AtlasAsk, cancel: CancelToken) -> dict[str, Any]:
    most = state.config.max_text
    if len(ask.text) > most:
        raise InputError(
            f"the text has {len(ask.text):,} characters, more than {most:,}",
            hint="glasshead atlas records longer ones to a .glass file, which can be served",
        )
    served = state.library.open(ask.model)
    if served.subject is None:
        raise InputError(f"{ask.model} is a .glass file", hint="POST /api/open opens it")
    key = {
        "text": ask.text,
        "stamp": served.stamp,
    }  # the same as of Look, so that a text is recorded once
    name = state.traces.has(ask.model, key)
    if name is None:
        with served.lock:
            _check_tokens(served, ask.text, state.config.max_tokens)
            config = RecordConfig(max_tokens=state.config.max_tokens, beyond=True, progress=cancel)
            trace = served.subject.record(ask.text, config)
        name = state.traces.put(trace, ask.model, key)
    return _describe(state.traces.entry(name))


def _check_tokens(served: Any, text: str, most: int) -> None:
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


def _describe(seen: StoredTrace) -> dict[str, Any]:
    with seen.lock:
        return {"seen": seen.id, "model": seen.model, **describe_atlas(seen.atlas)}
