"""The routes of the page's Look view: a text is read while the model's attention is recorded.

    POST /api/look                     {model, text, tokens}: words, layers, statistics of heads;
                                       with {heads, edges}, of the model without these
    GET  /api/look/examples            texts that fit a model, and the words that it knows
    GET  /api/seen/{seen}/weights      one head's map from words to words, float32
    GET  /api/seen/{seen}/thumbs       every head's map, small
    GET  /api/seen/{seen}/from, /to    where every head looks from a word, and who looks at it
    POST /api/ablate                   what the model predicts without some heads or edges

`page/look_answers.py` and `page/predictions.py` make the answers.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, Field

from glasshead.errors import InputError
from glasshead.observe.inspectable import RecordConfig
from glasshead.observe.transformers_folder import TransformersFolder
from glasshead.observe.view import ViewConfig
from glasshead.page.examples import beginning, example_texts, known_words
from glasshead.page.look_answers import (
    Binary,
    LookView,
    binary_map,
    binary_thumbnails,
    describe_look,
    rank_heads,
)
from glasshead.page.predictions import Cut, predict
from glasshead.serve.library import ServedModel
from glasshead.serve.routes.inputs import (
    USE_ATLAS,
    Index,
    ModelId,
    ModelQuery,
    TokenId,
    check_text,
    record_text,
    tokens_at_once,
)
from glasshead.serve.trace_store import StoredTrace
from glasshead.serve.workers import CancelToken, in_worker
from glasshead.text.tokenizer import Tokenizer

__all__ = ["router"]

router = APIRouter(prefix="/api", tags=["look"])


class EdgeRequest(BaseModel):
    """Queries `query` to `query_stop` of a head, or of all of a layer, may not see these keys."""

    layer: TokenId
    head: TokenId | None = None
    query: TokenId
    query_stop: TokenId
    key: TokenId
    key_stop: TokenId


class TextRequest(BaseModel):
    """A text, and the heads and edges without which the model reads it."""

    model: ModelId
    text: str
    heads: Annotated[list[tuple[TokenId, TokenId]], Field(max_length=1024)] = []
    edges: Annotated[list[EdgeRequest], Field(max_length=64)] = []

    def cut(self) -> Cut:
        edges = ((e.layer, e.head, slice(e.query, e.query_stop), slice(e.key, e.key_stop))
                 for e in self.edges)  # fmt: skip
        return Cut(tuple(self.heads), tuple(edges))


class LookRequest(TextRequest):
    tokens: bool = False  # do not join tokens to words


class AblationRequest(TextRequest):
    at: TokenId | None = None  # the position to predict at, in the text that is written or read


class MapQuery(BaseModel):
    """How maps are shown."""

    tokens: bool = False
    hide_sink: bool = False
    ratio: bool = False

    def view(self, stored: StoredTrace) -> LookView:
        return stored.look_view(ViewConfig(self.tokens, hide_sink=self.hide_sink, ratio=self.ratio))


MapOptions = Annotated[MapQuery, Depends()]


@router.post("/look")
@in_worker
def look(request: Request, ask: LookRequest, cancel: CancelToken) -> dict[str, Any]:
    state = request.app.state
    served = state.library.open(ask.model)
    if (long := _longer_than_it_reads(state, served, ask.text)) is not None:
        return {"model": ask.model, "kind": served.entry.kind, "text": ask.text, **long}
    if served.trace is None:
        stored = record_text(state, served, ask.text, RecordConfig(progress=cancel), ask.cut())
    elif "look" in served.entry.can:
        key = {"stamp": served.stamp}
        stored = state.traces.find(ask.model, key) or state.traces.add(
            served.trace, ask.model, key, in_file=True, whole=served.whole
        )
    else:
        raise InputError(f"{ask.model} is a .glass file", hint="open it in the Atlas view")
    kind = served.entry.kind
    with stored.lock:
        return {"seen": stored.id, "model": ask.model, "kind": kind, "text": ask.text,
                **describe_look(stored.look_view(ViewConfig(ask.tokens)), kind)}  # fmt: skip


def _longer_than_it_reads(state: Any, served: ServedModel, text: str) -> dict[str, Any] | None:
    """What to do with a text that is longer than a model reads at once; None if it is not."""
    most = state.config.max_tokens
    count_tokens: Callable[[str], int]
    if served.run is not None:
        tokenizer = served.run.tokenizer
        reads, beyond = (tokens_at_once(served, most, beyond) for beyond in (False, True))
        count_tokens = partial(_count_tokens, tokenizer)
    elif isinstance(folder := served.inspectable, TransformersFolder):
        reads = min(most, folder.longest or most)
        beyond = most if folder.is_rotary else reads
        count_tokens = folder.count_tokens
    else:
        return None
    check_text(len(text), state.config, USE_ATLAS)
    n = count_tokens(text)
    if n <= reads:
        return None
    return {
        "seen": "", "long": True, "words": [], "layers": [], "tokens": n, "reads": reads,
        "atlas": n <= beyond, "beginning": beginning(text, reads, count_tokens),
    }  # fmt: skip


def _count_tokens(tokenizer: Tokenizer, text: str) -> int:
    return len(tokenizer.prompt_ids(text))


@router.get("/look/examples")
@in_worker
def examples(request: Request, model: ModelQuery) -> dict[str, Any]:
    run = request.app.state.library.open(model).run
    return {"examples": example_texts(run), "knows": known_words(run)}


@router.get("/seen/{seen}/weights")
@in_worker
def weights(
    request: Request, seen: str, layer: Index, head: Index, options: MapOptions
) -> Response:
    stored = request.app.state.traces.entry(seen)
    with stored.lock:
        return _binary(binary_map(options.view(stored), (layer, head)))


@router.get("/seen/{seen}/thumbs")
@in_worker
def thumbs(request: Request, seen: str, options: MapOptions, cancel: CancelToken) -> Response:
    stored = request.app.state.traces.entry(seen)
    with stored.lock:
        return _binary(binary_thumbnails(options.view(stored), cancel.check))


@router.get("/seen/{seen}/from")
@in_worker
def from_word(
    request: Request,
    seen: str,
    layer: Index,
    query: Index,
    options: MapOptions,
    cancel: CancelToken,
) -> dict[str, Any]:
    """Where each head looks from a word, those first that look most at one other word."""
    stored = request.app.state.traces.entry(seen)
    with stored.lock:
        return rank_heads(options.view(stored), layer, query, "from", cancel.check)


@router.get("/seen/{seen}/to")
@in_worker
def to_word(
    request: Request, seen: str, layer: Index, key: Index, options: MapOptions, cancel: CancelToken
) -> dict[str, Any]:
    """How much each word looks at this one in each head."""
    stored = request.app.state.traces.entry(seen)
    with stored.lock:
        return rank_heads(options.view(stored), layer, key, "to", cancel.check)


@router.post("/ablate")
@in_worker
def ablate(request: Request, ask: AblationRequest) -> dict[str, Any]:
    check_text(len(ask.text), request.app.state.config)
    served = request.app.state.library.open(ask.model)
    if served.run is None:
        raise InputError(
            f"{served.entry.name} makes no predictions here",
            hint="choose a GPT, a reader or a translator",
        )
    with served.lock:
        return predict(served.run, ask.text, ask.cut(), ask.at)


def _binary(found: Binary) -> Response:
    headers = {**found.headers, "cache-control": "private, max-age=600"}
    return Response(found.data, media_type="application/octet-stream", headers=headers)
