"""The page's Look: a text is read while the model's attention is recorded, and asked about.

    POST /api/look                     {model, text, tokens}: words, layers, statistics of all heads
    GET  /api/look/examples            texts that fit a model
    GET  /api/seen/{seen}/weights      one head's map from words to words, float32
    GET  /api/seen/{seen}/thumbs       every head's map, small
    GET  /api/seen/{seen}/from, /to    where every head looks from a word, and who looks at it
    POST /api/ablate                   what the model says with heads or edges out of action

Words, queries and keys are named by where their first token stands. Answers of numbers always have
a place for every word; NaN (null in JSON) stands where there is nothing to see.
"""

import math
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, Field
from torch import Tensor

from glasshead.errors import InputError
from glasshead.observe.inspectable import RecordConfig
from glasshead.observe.ranking import standout_heads
from glasshead.observe.view import Head, View, ViewConfig
from glasshead.observe.wording import ROLES, STATISTICS
from glasshead.observe.words import Word, visible
from glasshead.serve.examples import examples_of
from glasshead.serve.predicting import Cut, predicted
from glasshead.serve.work import Cancel, work

__all__ = ["router"]

router = APIRouter(prefix="/api", tags=["look"])

MOST = 400  # words that are shown one by one; more are for the Atlas
THUMB = 40  # cells a side of a small map, at most
RANKED = 64  # heads of a ranking

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


class Shown(BaseModel):
    """How maps are to be shown."""

    tokens: bool = False
    hide_sink: bool = False
    ratio: bool = False

    def of(self, atlas: Any) -> "Exact":
        return Exact(atlas, ViewConfig(self.tokens, hide_sink=self.hide_sink, ratio=self.ratio))


class Exact(View):
    """A view whose maps are never from afar, and have a place for the first word even if hidden."""

    def map(self, head: Head, word: Word | None = None) -> Tensor:
        """(rows, cols), or (1, cols) from one word."""
        rows, cols = self.sides(head[0])
        if max(len(rows), len(cols)) > MOST:
            raise InputError(
                f"the text has {max(len(rows), len(cols)):,} words, more than {MOST} at once",
                hint="the Atlas shows texts of any length",
            )
        part = slice(0, self.trace.shape(head[0])[2])
        if word is not None:
            part, rows = slice(word.start, word.stop), [Word("", 0, word.stop - word.start)]
        values = self._between(head, part, rows, cols).float()
        return F.pad(values, (1, 0), value=math.nan) if self.config.hide_sink else values

    def alike(self, layer: int) -> list[Head]:
        """All heads that look from the same text at the same text."""
        wanted = self._texts(layer)
        return [head for head in self.heads() if self._texts(head[0]) == wanted]

    def _texts(self, layer: int) -> tuple[str, str]:
        """Which texts a layer looks from and at, by their names in the answer of /api/look."""
        where = self.trace.layer(layer)
        if self.trace.source_tokens is None:
            return "words", "words"
        if where.kind == "cross":
            return "written_words", "source_words"
        return ("source_words",) * 2 if where.part == "encoder" else ("words",) * 2

    def described(self) -> dict[str, Any]:
        layers, texts = [], {}
        for layer in self.layers:
            _, H, T, S = self.trace.shape(layer.index)
            rows, cols = self._texts(layer.index)
            texts[rows], texts[cols] = self.sides(layer.index)
            layers.append(
                {"index": layer.index, "name": self.names[layer.index], "module": layer.name,
                 "part": layer.part, "kind": layer.kind, "heads": H, "T": T, "S": S,
                 "rows": rows, "cols": cols}
            )  # fmt: skip
        long = any(len(words) > MOST for words in texts.values())
        named = {} if long else {name: _words(words) for name, words in texts.items()}
        return {"layers": layers, "long": long, "words": [], **named}


@router.post("/look")
async def look(request: Request, ask: LookRequest) -> dict[str, Any]:
    _check(request, ask.text)
    return await work(request, _looked, request.app.state, ask)


@router.get("/look/examples")
async def examples(
    request: Request, model: Annotated[str, Query(min_length=1, max_length=1024)]
) -> dict[str, Any]:
    return await work(request, _examples, request.app.state.library, model)


@router.get("/seen/{seen}/weights")
async def weights(
    request: Request, seen: str, layer: Index, head: Index, shown: Annotated[Shown, Depends()]
) -> Response:
    return await work(request, _weights, request.app.state.seen, seen, (layer, head), shown)


@router.get("/seen/{seen}/thumbs")
async def thumbs(request: Request, seen: str, shown: Annotated[Shown, Depends()]) -> Response:
    return await work(request, _thumbs, request.app.state.seen, seen, shown)


@router.get("/seen/{seen}/from")
async def from_word(
    request: Request, seen: str, layer: Index, query: Index, shown: Annotated[Shown, Depends()]
) -> dict[str, Any]:
    """Where each head looks from a word, those first that look most at one other word."""
    return await work(request, _ranked, request.app.state.seen, seen, layer, query, 0, shown)


@router.get("/seen/{seen}/to")
async def to_word(
    request: Request, seen: str, layer: Index, key: Index, shown: Annotated[Shown, Depends()]
) -> dict[str, Any]:
    """How much each word looks at this one in each head."""
    return await work(request, _ranked, request.app.state.seen, seen, layer, key, 1, shown)


@router.post("/ablate")
async def ablate(request: Request, ask: AblateAsk) -> dict[str, Any]:
    _check(request, ask.text)
    return await work(request, _ablated, request.app.state.library, ask)


def _check(request: Request, text: str) -> None:
    most = request.app.state.config.max_text
    if len(text) > most:
        raise InputError(
            f"the text has {len(text):,} characters, more than {most:,}",
            hint="look at a part of it",
        )


def _looked(state: Any, ask: LookRequest, cancel: Cancel) -> dict[str, Any]:
    served = state.library.open(ask.model)
    recorded = served.atlas if "look" in served.entry.can else None
    if served.subject is None and recorded is None:
        raise InputError(f"{ask.model} is a .glass file", hint="look at it in the Atlas")
    key = {"stamp": served.stamp} if recorded else {"text": ask.text, "stamp": served.stamp}
    name = state.seen.has(ask.model, key)
    if name is None and recorded is not None:
        name = state.seen.put(recorded, ask.model, key)
    elif name is None:
        with served.lock:
            _fits(served, ask.text, state.config.max_tokens)
            atlas = served.subject.record(ask.text, RecordConfig(progress=cancel))
        name = state.seen.put(atlas, ask.model, key)
    seen = state.seen.entry(name)
    with seen.lock:
        view = Exact(seen.atlas, ViewConfig(ask.tokens))
        found = view.described()
        about = {"seen": name, "model": ask.model, "kind": served.entry.kind, "text": ask.text,
                 "translation": seen.atlas.about.get("translation")}  # fmt: skip
        return about | found | ({} if found["long"] else _numbers(view))


def _fits(served: Any, text: str, most: int) -> None:
    """Raise, in words for a page, if the text is too long for the model or for this server."""
    if served.loaded is None:
        return  # a model of transformers says so itself
    n = len(served.loaded.tokenizer.prompt_ids(text))
    limit = min(served.entry.max_len or most, most)
    if n > limit:
        raise InputError(
            f"the text has {n:,} tokens, but {served.entry.name} takes {limit:,}",
            hint="look at a part of it",
        )


def _numbers(view: Exact) -> dict[str, Any]:
    found = {}
    for name in view.statistic_names:
        table = [each.get(name) for each in view.statistics.values()]
        values = [None if one is None else _rounded(one) for one in table]
        explain = {lang: STATISTICS[lang].get(name, name) for lang in ("en", "zh")}
        found[name] = {"explain": explain, "values": values}
    roles = [
        {"role": one.role, "label": {lang: ROLES[lang][one.role] for lang in ("en", "zh")},
         "layer": one.head[0], "head": one.head[1], "value": one.value, "uniform": one.uniform}
        for one in standout_heads(view)
    ]  # fmt: skip
    return {"statistics": found, "telling": roles}


def _weights(store: Any, name: str, head: Head, shown: Shown) -> Response:
    seen = store.entry(name)
    with seen.lock:
        view = shown.of(seen.atlas)
        view.heads(*head)  # or there is none
        found = view.map(head)
    return _binary(found, {"x-shape": ",".join(map(str, found.shape))})


def _thumbs(store: Any, name: str, shown: Shown, cancel: Cancel) -> Response:
    seen = store.entry(name)
    maps, shapes = [], []
    with seen.lock:
        view = shown.of(seen.atlas)
        for layer in view.layers:
            small = []
            for head in view.heads(layer.index):
                cancel.check()
                small.append(_pooled(view.map(head)))
            maps += [one.flatten() for one in small]
            shapes.append(f"{len(small)},{small[0].shape[0]},{small[0].shape[1]}")
    return _binary(torch.cat(maps), {"x-shapes": ";".join(shapes)})


def _pooled(values: Tensor) -> Tensor:
    """At most THUMB cells a side, each with the largest of its numbers."""
    side = [min(n, THUMB) for n in values.shape]
    if side == list(values.shape):
        return values
    low = values.nan_to_num(-1.0)[None]
    small = F.adaptive_max_pool2d(low, side)[0]
    return small.masked_fill(small < 0, math.nan)


def _ranked(
    store: Any, name: str, layer: int, at: int, axis: int, shown: Shown, cancel: Cancel
) -> dict[str, Any]:
    """Each head's row (axis 0) or column (axis 1) at one word, strongest first."""
    seen = store.entry(name)
    with seen.lock:
        view = shown.of(seen.atlas)
        sides = view.sides(seen.atlas.layer(layer).index)
        number, word = _word_at(sides[axis], at)
        own = number if view._texts(layer)[0] == view._texts(layer)[1] else None
        found = []
        for head in view.alike(layer):
            cancel.check()
            values = view.map(head, word)[0] if axis == 0 else view.map(head)[:, number]
            others = values.nan_to_num(0.0).clone()
            if own is not None:
                others[own] = 0  # a word's look at itself says little
            found.append((float(others.max()), int(others.argmax()), head, values))
    found.sort(key=lambda one: -one[0])
    heads = [
        {"layer": head[0], "head": head[1], "most": most, "at": place, "weights": _rounded(values)}
        for most, place, head, values in found[:RANKED]
    ]
    return {"word": number, "of": len(found), "heads": heads}


def _ablated(library: Any, ask: AblateAsk) -> dict[str, Any]:
    served = library.open(ask.model)
    edges = tuple((e.layer, e.head, slice(e.query, e.query_stop), slice(e.key, e.key_stop))
                  for e in ask.edges)  # fmt: skip
    with served.lock:
        return predicted(served, ask.text, Cut(tuple(ask.heads), edges), ask.at)


def _examples(library: Any, name: str) -> dict[str, Any]:
    return {"examples": examples_of(library.open(name))}


def _word_at(words: list[Word], token: int) -> tuple[int, Word]:
    for number, word in enumerate(words):
        if word.start <= token < word.stop:
            return number, word
    raise InputError(f"there is no token {token}", hint=f"there are {words[-1].stop}, from 0 on")


def _words(words: list[Word]) -> list[dict[str, Any]]:
    return [{"text": visible(w.text), "start": w.start, "stop": w.stop} for w in words]


def _rounded(values: Tensor) -> list[float | None]:
    """For JSON, which knows no NaN."""
    return [round(x, 6) if math.isfinite(x) else None for x in values.tolist()]


def _binary(values: Tensor, headers: dict[str, str]) -> Response:
    data = values.float().cpu().numpy().astype("<f4").tobytes()
    kept = {"cache-control": "private, max-age=600"}
    return Response(data, media_type="application/octet-stream", headers={**headers, **kept})
