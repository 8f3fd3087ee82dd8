"""The routes of the page's Translate view: the best translations, and their cross-attention.

POST /api/translate            {model, text, beam, alpha, n_best}: n-best of each part
POST /api/translate/look       {model, source, target, layer}: cross-attention of every head
GET  /api/translate/examples   stories with two endings that differ in one pronoun
"""

import base64
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from glasshead.checkpoint import Run
from glasshead.errors import InputError
from glasshead.generation.alignment import align, usual_layer
from glasshead.generation.beam import LONGER, SearchConfig
from glasshead.generation.splitting import join
from glasshead.generation.translate import Candidate, Reading, Translator
from glasshead.model.transformer import Transformer
from glasshead.observe.words import decode_tokens, words
from glasshead.page.examples import describe_story, story_pairs, world_languages
from glasshead.serve.library import ServedModel
from glasshead.serve.routes.inputs import ModelId, ModelQuery, TokenId, check_text
from glasshead.serve.workers import CancelToken, in_worker

__all__ = ["router"]

router = APIRouter(prefix="/api/translate", tags=["translate"])

Ids = Annotated[list[TokenId], Field(min_length=1, max_length=8192)]


class TranslationRequest(BaseModel):
    model: ModelId
    text: str
    beam: int = Field(4, ge=1, le=32)
    alpha: float = Field(0.6, ge=0, le=10)
    n_best: int = Field(4, ge=1, le=32)


class AlignmentRequest(BaseModel):
    """Ids, not texts: the tokens of a text may differ from those that the model generated."""

    model: ModelId
    source: Ids
    target: Ids
    layer: int | None = Field(None, ge=0, lt=1024)  # of the decoder; the usual one when None


@router.post("")
@in_worker
def translate(request: Request, ask: TranslationRequest, cancel: CancelToken) -> dict[str, Any]:
    check_text(len(ask.text), request.app.state.config, "translate it in parts")
    served, run, model = _open_translator(request, ask.model)
    config, lowercase = SearchConfig(ask.beam, ask.alpha), run.config.lowercase
    n_best = min(ask.n_best, ask.beam)
    translator = Translator(model, run.tokenizer, config, n_best=n_best, lowercase=lowercase)
    parts: list[dict[str, Any]] = []
    for source in translator.read(ask.text).parts:
        cancel.check()
        with served.lock:
            [found] = translator.write([Reading("", (source,))])
        tokens = decode_tokens(run.tokenizer, source)
        parts.append(
            {
                "source": source,
                "words": [word.text for word in words(tokens)],
                "candidates": [_describe_candidate(one) for one in found.candidates],
            }
        )
    return {
        "text": join([part["candidates"][0]["text"] for part in parts]),
        "parts": parts,
        "layers": len(model.decoder.blocks),
        "heads": model.config.n_heads,
        "usual_layer": usual_layer(model),
    }


def _describe_candidate(one: Candidate) -> dict[str, Any]:
    [(_, target)] = one.parts
    return {
        "text": one.text,
        "score": one.score,
        "log_prob": one.log_prob,
        "ended": one.ended,
        "target": target,
    }


@router.post("/look")
@in_worker
def look(request: Request, ask: AlignmentRequest) -> dict[str, Any]:
    served, run, model = _open_translator(request, ask.model)
    longest = model.config.max_len
    # A translation that was cut may have no learned position left for its end.
    room = longest - 1 if model.config.positions == "learned" else longest + LONGER
    for name, ids, most in (("source", ask.source, longest), ("target", ask.target, room)):
        if len(ids) > most:
            raise InputError(
                f"the {name} has {len(ids):,} tokens, but {most:,} is the maximum",
                hint="use a shorter text",
            )
        if max(ids) >= model.config.vocab_size:
            raise InputError(
                f"the {name} contains id {max(ids)}, but ids end at {model.config.vocab_size - 1}",
                hint="use the ids from the answer of /api/translate",
            )
    with served.lock:
        found = align(model, run.tokenizer, ask.source, ask.target, ask.layer)
    return {
        "layer": found.layer,
        "source": found.source,
        "target": found.target,
        "shape": list(found.weights.shape),  # (H, T, S)
        "weights": base64.b64encode(found.weights.float().numpy().astype("<f4").tobytes()),
    }


@router.get("/examples")
@in_worker
def examples(
    request: Request,
    model: ModelQuery,
    start: Annotated[int, Query(ge=0, lt=10**9)] = 0,
    n: Annotated[int, Query(ge=1, le=8)] = 3,
) -> dict[str, Any]:
    """Stories for a model of the embedded world; none for others."""
    langs = world_languages(_open_translator(request, model)[1].config.data)
    if len(langs) != 2:
        return {"langs": None, "pairs": [], "next": 0}
    source, target = langs
    found = list(islice(story_pairs(source, target, start), n))
    pairs = [[describe_story(story, source, target) for story in both] for _, both in found]
    return {"langs": [source, target], "pairs": pairs, "next": found[-1][0] + 1}


def _open_translator(request: Request, name: str) -> tuple[ServedModel, Run, Transformer]:
    served = request.app.state.library.open(name)
    if served.run is None or not isinstance(served.run.model, Transformer):
        raise InputError(
            f"{name} is not a translator, but of kind {served.entry.kind}",
            hint="choose a model of kind translator from /api/models",
        )
    return served, served.run, served.run.model
