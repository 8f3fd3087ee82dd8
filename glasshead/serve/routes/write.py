"""The page's Write: a text goes on token by token, and every choice can be seen and changed.

    POST /api/write         {model, ids, ...}: server-sent events, a token each
    POST /api/write/read    {model, text | ids}: its tokens, how probable each was, what may follow
    POST /api/write/look    {model, ids, at}: what every head looked at when token `at` was written

A page goes by ids, not by texts: a text may be cut into other tokens than those that were written.
"""

import json
import math
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Self

import torch
from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field, model_validator

from glasshead.errors import GlassheadError, InputError
from glasshead.generation.sampling import SamplingConfig, not_finite_error
from glasshead.generation.step import eval_mode
from glasshead.generation.stream import start_ids
from glasshead.model.gpt import GPT
from glasshead.observe.recording import observing
from glasshead.observe.words import characters, decode_tokens
from glasshead.serve.config import ServeConfig
from glasshead.serve.engine import Ask, Stream
from glasshead.serve.library import Library, Served
from glasshead.serve.workers import CancelToken, run_in_worker
from glasshead.text.tokenizer import StreamDecoder, Tokenizer

__all__ = ["router"]

router = APIRouter(prefix="/api/write", tags=["write"])

LOGITS = 1 << 22  # that are held at once
KEYS = 32  # of those a head looked at, that are told

ModelId = Annotated[str, Field(min_length=1, max_length=1024)]
Ids = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1)]
Alternatives = Annotated[int, Field(ge=1, le=32)]


class WriteAsk(BaseModel):
    model: ModelId
    ids: Ids
    max_tokens: int = Field(64, ge=1, le=65536)
    temperature: float = Field(1.0, ge=0, le=100)
    top_k: int | None = Field(None, ge=1, lt=2**31)
    top_p: float = Field(1.0, gt=0, le=1)
    min_p: float = Field(0.0, ge=0, le=1)
    repetition_penalty: float = Field(1.0, ge=0.1, le=10)
    seed: int = Field(0, ge=0, lt=2**53)
    alternatives: Alternatives = 8

    @property
    def sampling(self) -> SamplingConfig:
        return SamplingConfig(
            self.temperature, self.top_k, self.top_p, self.min_p, self.repetition_penalty
        )


class ReadAsk(BaseModel):
    """A text, or its ids; an empty text is what the model begins with."""

    model: ModelId
    text: str | None = None
    ids: Ids | None = None
    alternatives: Alternatives = 8

    @model_validator(mode="after")
    def one_of_both(self) -> Self:
        if (self.text is None) == (self.ids is None):
            raise ValueError("give either text or ids")
        return self


class TokenLookRequest(BaseModel):
    model: ModelId
    ids: Ids
    at: int = Field(ge=1, lt=2**31)  # the token before it is the one that looked


@router.post("/read")
async def read(request: Request, ask: ReadAsk) -> dict[str, Any]:
    state = request.app.state
    return await run_in_worker(request, _read, state.library, state.config, ask)


def _read(
    library: Library, config: ServeConfig, ask: ReadAsk, cancel: CancelToken
) -> dict[str, Any]:
    served, model, tokenizer = _writer(library, ask.model)
    if ask.text is not None and len(ask.text) > config.max_text:
        raise InputError(
            f"the text has {len(ask.text):,} characters, more than {config.max_text:,}",
            hint="give a shorter one",
        )
    ids = ask.ids or tokenizer.prompt_ids(ask.text or "") or start_ids(tokenizer)
    _check(ids, model, tokenizer, config)
    start = max(0, len(ids) - model.config.max_len)
    heard = _predictions(served, model, tokenizer, ids[start:], ask.alternatives, cancel)
    tokens = _tokens(tokenizer, ids)
    for token, (log_prob, others) in zip(tokens[start + 1 :], heard, strict=False):
        token |= {"logprob": log_prob, "alternatives": others}
    return {"tokens": tokens, "next": heard[-1][1], "from": start}


def _predictions(
    served: Served,
    model: GPT,
    tokenizer: Tokenizer,
    ids: Sequence[int],
    k: int,
    cancel: CancelToken,
) -> list[tuple[float | None, list[dict[str, Any]]]]:
    """At each position: the log-probability of the id that came next, and the likeliest ids."""
    device = model.embedding.weight.device
    known = min(tokenizer.vocab_size, model.config.vocab_size)
    found: list[tuple[float | None, list[dict[str, Any]]]] = []
    with served.lock, eval_mode(list(model.modules())):
        x = model.features(torch.tensor([ids], device=device))[0]  # (T, C)
        nexts = torch.tensor([*ids[1:], 0], device=device)
        rows = max(1, LOGITS // model.config.vocab_size)
        for some, wanted in zip(x.split(rows), nexts.split(rows), strict=True):
            cancel.check()
            log_probs = model.logits(some).float().log_softmax(-1)  # (rows, V)
            if not log_probs.amax(-1).isfinite().all():
                raise not_finite_error()
            own = log_probs.gather(-1, wanted[:, None])[:, 0].tolist()
            top = log_probs[:, :known].topk(min(k, known))
            for value, others, numbers in zip(
                own, top.indices.tolist(), top.values.tolist(), strict=True
            ):
                pairs = zip(others, numbers, strict=True)
                found.append((_finite(value), [_other(tokenizer, *pair) for pair in pairs]))
    found[-1] = (None, found[-1][1])
    return found


@router.post("/look")
async def look(request: Request, ask: TokenLookRequest) -> dict[str, Any]:
    state = request.app.state
    return await run_in_worker(request, _look, state.library, state.config, ask)


def _look(
    library: Library, config: ServeConfig, ask: TokenLookRequest, cancel: CancelToken
) -> dict[str, Any]:
    served, model, tokenizer = _writer(library, ask.model)
    _check(ask.ids, model, tokenizer, config)
    if ask.at > len(ask.ids):
        raise InputError(
            f"there is no token {ask.at}: the text has {len(ask.ids)}", hint="count from 0"
        )
    start = max(0, ask.at - model.config.max_len)
    batch = torch.tensor([ask.ids[start : ask.at]], device=model.embedding.weight.device)
    with served.lock, eval_mode(list(model.modules())), observing(model) as seen:
        model.features(batch)
    layers = []
    for layer in seen.layers:
        cancel.check()
        _, H, _, S = seen.shape(layer.index)
        heads = []
        for head in range(H):
            top = seen.top(layer.index, head, query=-1, k=min(KEYS, S))
            pairs = zip(top.keys.tolist(), top.weights.tolist(), strict=True)
            heads.append([[start + key, weight] for key, weight in pairs])
        layers.append({"index": layer.index, "name": layer.name, "heads": heads})
    return {"at": ask.at, "from": start, "layers": layers}


@router.post("", response_class=StreamingResponse)
async def write(request: Request, ask: WriteAsk) -> StreamingResponse:
    """Events: `token` for each, then `end` with how it ended; or `error`."""
    state = request.app.state
    served, tokenizer = await run_in_worker(request, _ready, state.library, state.config, ask)
    wanted = Ask(
        ask.ids, ask.sampling, ask.max_tokens, seed=ask.seed, alternatives=ask.alternatives
    )
    tokens = state.engine.stream(served, wanted)
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(
        _events(tokens, tokenizer), media_type="text/event-stream", headers=headers
    )


async def _events(tokens: Stream, tokenizer: Tokenizer) -> AsyncIterator[str]:
    try:
        async for token in tokens:
            if token.id is not None:
                others = [_other(tokenizer, i, p) for i, _, p in token.alternatives]
                told = {"id": token.id, "text": token.text, "logprob": _finite(token.logprob)}
                yield _event("token", {**told, "alternatives": others})
            if token.finish is not None:
                yield _event("end", {"finish": token.finish, "text": token.text})
    except GlassheadError as error:
        yield _event("error", {"message": str(error), "hint": error.hint})
    finally:
        tokens.close()


def _event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"


def _ready(library: Library, config: ServeConfig, ask: WriteAsk) -> tuple[Served, Tokenizer]:
    served, model, tokenizer = _writer(library, ask.model)
    _check(ask.ids, model, tokenizer, config)
    if ask.max_tokens > config.max_tokens:
        raise InputError(
            f"max_tokens ({ask.max_tokens:,}) is more than this server writes at once",
            hint=f"ask for {config.max_tokens:,} at most",
        )
    return served, tokenizer


def _other(tokenizer: Tokenizer, token: int, log_prob: float) -> dict[str, Any]:
    [shown] = characters(decode_tokens(tokenizer, [token]))
    special = token in tokenizer.specials.values()
    return {
        "id": token,
        "text": shown.text,
        "logprob": _finite(log_prob),
        **({"special": True} if special else {}),
    }


def _tokens(tokenizer: Tokenizer, ids: Sequence[int]) -> list[dict[str, Any]]:
    """What each id adds to the text: nothing while a character is not whole yet."""
    names = {number: name for name, number in tokenizer.specials.items()}
    stream = StreamDecoder(tokenizer)
    tokens: list[dict[str, Any]] = []
    for token in ids:
        if token in names:
            tokens.append({"id": token, "text": names[token], "special": True})
        else:
            tokens.append({"id": token, "text": stream.push(token)})
    tokens[-1]["text"] += stream.flush()
    return tokens


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _check(ids: Sequence[int], model: GPT, tokenizer: Tokenizer, config: ServeConfig) -> None:
    known = min(tokenizer.vocab_size, model.config.vocab_size)
    if len(ids) > config.max_tokens:
        raise InputError(
            f"the text has {len(ids):,} tokens, more than {config.max_tokens:,}",
            hint="give a shorter one",
        )
    if max(ids) >= known:
        raise InputError(
            f"id {max(ids)} is none of the {known} that this model writes",
            hint="use ids that /api/write/read gave",
        )


def _writer(library: Library, name: str) -> tuple[Served, GPT, Tokenizer]:
    served = library.open(name)
    if served.loaded is None or not isinstance(served.loaded.model, GPT):
        raise InputError(
            f"{name} writes no text: {served.entry.kind}", hint="choose a GPT that was trained"
        )
    return served, served.loaded.model, served.loaded.tokenizer
