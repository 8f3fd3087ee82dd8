"""The routes of the page's Look view: a text is read while the model's attention is recorded.

    POST /api/look                     {model, text, tokens}: words, layers, statistics of all heads
    GET  /api/look/examples            texts that fit a model
    GET  /api/seen/{seen}/weights      one head's map from words to words, float32
    GET  /api/seen/{seen}/thumbs       every head's map, small
    GET  /api/seen/{seen}/from, /to    where every head looks from a word, and who looks at it
    POST /api/ablate                   what the model predicts without some heads or edges

`page/look_answers.py` and `page/predictions.py` make the answers.
"""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, Field

from glasshead.errors import InputError
from glasshead.observe.inspectable import RecordConfig
from glasshead.observe.view import Head, ViewConfig
from glasshead.page.examples import example_texts
from glasshead.page.look_answers import (
    Binary,
    LookView,
    binary_map,
    binary_thumbnails,
    describe_look,
    rank_heads,
)
from glasshead.page.predictions import Cut, predict
from glasshead.serve.trace_store import StoredTrace
from glasshead.serve.workers import CancelToken, run_in_worker

__all__ = ["router"]

router = APIRouter(prefix="/api", tags=["look"])

ModelId = Annotated[str, Field(min_length=1, max_length=1024)]
Index = Annotated[int, Query(ge=0, lt=2**31)]
Place = Annotated[int, Field(ge=0, lt=2**31)]


class LookRequest(BaseModel):
    model: ModelId
    text: str
    tokens: bool = False  # tokens as they are, not joined to words


class EdgeAsk(BaseModel):
    """Queries `query` to `query_stop` of a head, or of all of a layer, may not see these keys."""

    layer: Place
    head: Place | None = None
    query: Place
    query_stop: Place
    key: Place
    key_stop: Place


class AblateAsk(BaseModel):
    model: ModelId
    text: str
    heads: Annotated[list[tuple[Place, Place]], Field(max_length=1024)] = []
    edges: Annotated[list[EdgeAsk], Field(max_length=64)] = []
    at: Place | None = None  # where the model is asked: a position in the text it writes or reads


class MapQuery(BaseModel):
    """How maps are to be shown."""

    tokens: bool = False
    hide_sink: bool = False
    ratio: bool = False

    def view(self, seen: StoredTrace) -> LookView:
        return seen.look_view(ViewConfig(self.tokens, hide_sink=self.hide_sink, ratio=self.ratio))


MapOptions = Annotated[MapQuery, Depends()]


@router.post("/look")
async def look(request: Request, ask: LookRequest) -> dict[str, Any]:
    _check_characters(request, ask.text)
    return await run_in_worker(request, _look, request.app.state, ask)


@router.get("/look/examples")
async def examples(
    request: Request, model: Annotated[str, Query(min_length=1, max_length=1024)]
) -> dict[str, Any]:
    return await run_in_worker(request, _examples, request.app.state.library, model)


@router.get("/seen/{seen}/weights")
async def weights(
    request: Request, seen: str, layer: Index, head: Index, options: MapOptions
) -> Response:
    return await run_in_worker(
        request, _weights, request.app.state.traces, seen, (layer, head), options
    )


@router.get("/seen/{seen}/thumbs")
async def thumbs(request: Request, seen: str, options: MapOptions) -> Response:
    return await run_in_worker(request, _thumbs, request.app.state.traces, seen, options)


@router.get("/seen/{seen}/from")
async def from_word(
    request: Request, seen: str, layer: Index, query: Index, options: MapOptions
) -> dict[str, Any]:
    """Where each head looks from a word, those first that look most at one other word."""
    return await run_in_worker(
        request, _rank, request.app.state.traces, seen, layer, query, "from", options
    )


@router.get("/seen/{seen}/to")
async def to_word(
    request: Request, seen: str, layer: Index, key: Index, options: MapOptions
) -> dict[str, Any]:
    """How much each word looks at this one in each head."""
    return await run_in_worker(
        request, _rank, request.app.state.traces, seen, layer, key, "to", options
    )


@router.post("/ablate")
async def ablate(request: Request, ask: AblateAsk) -> dict[str, Any]:
    _check_characters(request, ask.text)
    return await run_in_worker(request, _ablate, request.app.state.library, ask)


def _check_characters(request: Request, text: str) -> None:
    most = request.app.state.config.max_text
    if len(text) > most:
        raise InputError(
            f"the text has {len(text):,} characters, more than {most:,}",
            hint="look at a part of it",
        )


def _look(state: Any, ask: LookRequest, cancel: CancelToken) -> dict[str, Any]:
    served = state.library.open(ask.model)
    recorded = served.atlas if "look" in served.entry.can else None
    if served.subject is None and recorded is None:
        raise InputError(f"{ask.model} is a .glass file", hint="look at it in the Atlas")
    key = {"stamp": served.stamp} if recorded else {"text": ask.text, "stamp": served.stamp}
    name = state.traces.has(ask.model, key)
    if name is None and recorded is not None:
        name = state.traces.put(recorded, ask.model, key)
    elif name is None:
        with served.lock:
            _check_tokens(served, ask.text, state.config.max_tokens)
            trace = served.subject.record(ask.text, RecordConfig(progress=cancel))
        name = state.traces.put(trace, ask.model, key)
    seen = state.traces.entry(name)
    with seen.lock:
        return {"seen": name, "model": ask.model, "kind": served.entry.kind, "text": ask.text,
                **describe_look(seen.look_view(ViewConfig(ask.tokens)))}  # fmt: skip


def _check_tokens(served: Any, text: str, most: int) -> None:
    """Raise, in words for a page, if the text is too long for the model or for this server."""
    if served.loaded is None:
        return  # a model of transformers raises by itself
    n = len(served.loaded.tokenizer.prompt_ids(text))
    limit = min(served.entry.max_len or most, most)
    if n > limit:
        raise InputError(
            f"the text has {n:,} tokens, but {served.entry.name} takes {limit:,}",
            hint="look at a part of it",
        )


def _weights(store: Any, name: str, head: Head, options: MapQuery) -> Response:
    seen = store.entry(name)
    with seen.lock:
        return _binary(binary_map(options.view(seen), head))


def _thumbs(store: Any, name: str, options: MapQuery, cancel: CancelToken) -> Response:
    seen = store.entry(name)
    with seen.lock:
        return _binary(binary_thumbnails(options.view(seen), cancel.check))


def _rank(
    store: Any,
    name: str,
    layer: int,
    token: int,
    way: Literal["from", "to"],
    options: MapQuery,
    cancel: CancelToken,
) -> dict[str, Any]:
    seen = store.entry(name)
    with seen.lock:
        return rank_heads(options.view(seen), layer, token, way, cancel.check)


def _ablate(library: Any, ask: AblateAsk) -> dict[str, Any]:
    served = library.open(ask.model)
    edges = tuple((e.layer, e.head, slice(e.query, e.query_stop), slice(e.key, e.key_stop))
                  for e in ask.edges)  # fmt: skip
    if served.loaded is None:
        raise InputError(
            f"{served.entry.name} makes no predictions here",
            hint="choose a GPT, a reader or a translator",
        )
    with served.lock:
        return predict(served.loaded, ask.text, Cut(tuple(ask.heads), edges), ask.at)


def _examples(library: Any, name: str) -> dict[str, Any]:
    return {"examples": example_texts(library.open(name).loaded)}


def _binary(found: Binary) -> Response:
    headers = {**found.headers, "cache-control": "private, max-age=600"}
    return Response(found.data, media_type="application/octet-stream", headers=headers)
