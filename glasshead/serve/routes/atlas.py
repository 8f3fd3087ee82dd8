"""The routes of the page's Atlas view: the whole map of a head, page by page, at any zoom.

    POST /api/open                     {model}: open a .glass file
    POST /api/atlas                    {model, text}: read and record a text, also a long one
    GET  /api/seen/{seen}/map          layers, levels and statistics of a recorded text
    GET  /api/seen/{seen}/cells        128 x 128 cells of 2^level x 2^level weights: mean, then max
    GET  /api/seen/{seen}/row          exact weights of one query: the strongest, and a given key's
    GET  /api/seen/{seen}/tokens       a part of the text of the rows, or of the columns

`page/atlas_answers.py` makes the answers. A trace answers several threads at once; only measuring
needs its lock.
"""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel

from glasshead.errors import InputError
from glasshead.observe.inspectable import RecordConfig
from glasshead.page.atlas_answers import binary_cells, describe_atlas, exact_row, token_pieces
from glasshead.serve.routes.inputs import Index, ModelId, record_text
from glasshead.serve.trace_store import StoredTrace
from glasshead.serve.workers import CancelToken, in_worker

__all__ = ["router"]

router = APIRouter(prefix="/api", tags=["atlas"])

FOREVER = "private, max-age=31536000, immutable"  # the content of an id never changes


class OpenRequest(BaseModel):
    model: ModelId


class AtlasRequest(BaseModel):
    model: ModelId
    text: str


@router.post("/open")
@in_worker
def open_atlas(request: Request, ask: OpenRequest) -> dict[str, Any]:
    state = request.app.state
    served = state.library.open(ask.model)
    if served.trace is None:
        raise InputError(
            f"{ask.model} is not a .glass file", hint="record a text with POST /api/atlas"
        )
    key = {"glass": served.stamp}
    return _describe(
        state.traces.find(ask.model, key)
        or state.traces.add(served.trace, ask.model, key, in_file=True, whole=served.whole)
    )


@router.post("/atlas")
@in_worker
def record(request: Request, ask: AtlasRequest, cancel: CancelToken) -> dict[str, Any]:
    state = request.app.state
    config = RecordConfig(max_tokens=state.config.max_tokens, beyond=True, progress=cancel)
    return _describe(record_text(state, state.library.open(ask.model), ask.text, config))


@router.get("/seen/{seen}/map")
@in_worker
def description(request: Request, seen: str) -> dict[str, Any]:
    return _describe(request.app.state.traces.entry(seen))


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
    state = request.app.state
    trace = state.traces.get(seen)
    where = (layer, head, level, row, col, hide_sink)
    tag = f'"{".".join(str(int(n)) for n in where)}"'
    headers = {"etag": tag, "cache-control": FOREVER}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    found = await state.workers.run(request, binary_cells, trace, *where)
    headers |= found.headers
    return Response(found.data, media_type="application/octet-stream", headers=headers)


@router.get("/seen/{seen}/row")
@in_worker
def row(
    request: Request,
    seen: str,
    layer: Index,
    head: Index,
    query: Index,
    key: Index | None = None,
    top: Annotated[int, Query(ge=1, le=64)] = 8,
) -> dict[str, Any]:
    return exact_row(request.app.state.traces.get(seen), layer, head, query, key, top)


@router.get("/seen/{seen}/tokens")
@in_worker
def tokens(
    request: Request,
    seen: str,
    start: Index,
    stop: Index,
    layer: Index | None = None,
    side: Literal["rows", "cols"] = "rows",
) -> dict[str, Any]:
    """Pieces of text, each [first token, one past its last, text], at most 4096 tokens of them."""
    return token_pieces(request.app.state.traces.get(seen), layer, side, start, stop)


def _describe(stored: StoredTrace) -> dict[str, Any]:
    with stored.lock:
        return {"seen": stored.id, "model": stored.model, **describe_atlas(stored.trace)}
