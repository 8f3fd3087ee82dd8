"""The routes of the page's Write view: generate a text token by token, and see every choice.

    POST /api/write         {model, ids, ...}: server-sent events, a token each
    POST /api/write/read    {model, text | ids}: tokens, their probabilities, and likely next ones
    POST /api/write/look    {model, ids, at}: what every head looked at to generate token `at`

The page sends ids, not texts: the tokens of a text may differ from those that were generated.
"""

import math
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Self

import torch
from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field, model_validator

from glasshead.errors import GlassheadError, InputError
from glasshead.generation.sampling import SamplingConfig
from glasshead.generation.step import eval_mode
from glasshead.generation.stream import start_ids
from glasshead.model.gpt import GPT
from glasshead.observe.recording import observing
from glasshead.observe.words import characters, decode_tokens
from glasshead.serve.config import ServeConfig
from glasshead.serve.engine import Ask, Stream
from glasshead.serve.library import Library, ServedModel
from glasshead.serve.predictions import next_log_probs
from glasshead.serve.routes.inputs import (
    ModelId,
    TokenId,
    check_max_tokens,
    check_text,
    open_gpt,
    server_event,
    stream_events,
)
from glasshead.serve.workers import CancelToken, in_worker
from glasshead.text.tokenizer import StreamDecoder, Tokenizer

__all__ = ["router"]

router = APIRouter(prefix="/api/write", tags=["write"])

KEYS = 32  # the strongest keys of a head to send

Ids = Annotated[list[TokenId], Field(min_length=1)]
Alternatives = Annotated[int, Field(ge=1, le=32)]


class WriteRequest(BaseModel):
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


class ReadRequest(BaseModel):
    """A text, or its ids; an empty text stands for the start of a text."""

    model: ModelId
    text: str | None = None
    ids: Ids | None = None
    alternatives: Alternatives = 8

    @model_validator(mode="after")
    def check_one_is_given(self) -> Self:
        if (self.text is None) == (self.ids is None):
            raise ValueError("give either text or ids")
        return self


class TokenLookRequest(BaseModel):
    model: ModelId
    ids: Ids
    at: int = Field(ge=1, lt=2**31)  # the query is the token before it


@router.post("/read")
@in_worker
def read(request: Request, ask: ReadRequest, cancel: CancelToken) -> dict[str, Any]:
    state = request.app.state
    served, model, tokenizer = open_gpt(state.library, ask.model)
    check_text(len(ask.text or ""), state.config)
    ids = ask.ids or tokenizer.prompt_ids(ask.text or "") or start_ids(tokenizer)
    _check_ids(ids, model, tokenizer, state.config)
    start = max(0, len(ids) - model.config.max_len)
    predicted = next_log_probs(served, ids[start:], ask.alternatives, cancel.check)
    likely = [[_alternative(tokenizer, *pair) for pair in pairs] for _, pairs in predicted]
    tokens = _describe_tokens(tokenizer, ids)
    for token, (log_prob, _), others in zip(tokens[start + 1 :], predicted, likely, strict=False):
        token |= {"logprob": _finite(log_prob), "alternatives": others}
    return {"tokens": tokens, "next": likely[-1], "from": start}


@router.post("/look")
@in_worker
def look(request: Request, ask: TokenLookRequest, cancel: CancelToken) -> dict[str, Any]:
    state = request.app.state
    served, model, tokenizer = open_gpt(state.library, ask.model)
    _check_ids(ask.ids, model, tokenizer, state.config)
    if ask.at > len(ask.ids):
        raise InputError(
            f"at ({ask.at}) is beyond the text", hint=f"use a number from 1 to {len(ask.ids)}"
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
async def write(request: Request, ask: WriteRequest) -> StreamingResponse:
    """Events: `token` for each, then `end` with how it ended; or `error`."""
    state = request.app.state
    served, tokenizer = await state.workers.run(
        request, _open_checked, state.library, state.config, ask
    )
    wanted = Ask(
        ask.ids, ask.sampling, ask.max_tokens, seed=ask.seed, alternatives=ask.alternatives
    )
    return stream_events(_events(state.engine.stream(served, wanted), tokenizer))


async def _events(tokens: Stream, tokenizer: Tokenizer) -> AsyncIterator[str]:
    try:
        async for token in tokens:
            if token.id is not None:
                others = [_alternative(tokenizer, i, p) for i, _, p in token.alternatives]
                about = {"id": token.id, "text": token.text, "logprob": _finite(token.logprob)}
                yield server_event({**about, "alternatives": others}, "token")
            if token.finish is not None:
                yield server_event({"finish": token.finish, "text": token.text}, "end")
    except GlassheadError as error:
        yield server_event({"message": str(error), "hint": error.hint}, "error")
    finally:
        tokens.close()


def _open_checked(
    library: Library, config: ServeConfig, ask: WriteRequest
) -> tuple[ServedModel, Tokenizer]:
    served, model, tokenizer = open_gpt(library, ask.model)
    _check_ids(ask.ids, model, tokenizer, config)
    check_max_tokens(ask.max_tokens, config)
    return served, tokenizer


def _alternative(tokenizer: Tokenizer, token: int, log_prob: float) -> dict[str, Any]:
    [shown] = characters(decode_tokens(tokenizer, [token]))
    special = {"special": True} if token in tokenizer.specials.values() else {}
    return {"id": token, "text": shown.text, "logprob": _finite(log_prob), **special}


def _describe_tokens(tokenizer: Tokenizer, ids: Sequence[int]) -> list[dict[str, Any]]:
    """Return what each id adds to the text: nothing if it does not complete a character."""
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


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def _check_ids(ids: Sequence[int], model: GPT, tokenizer: Tokenizer, config: ServeConfig) -> None:
    known = min(tokenizer.vocab_size, model.config.vocab_size)
    if len(ids) > config.max_tokens:
        raise InputError(
            f"the text has {len(ids):,} tokens, but {config.max_tokens:,} is the maximum here",
            hint="use a shorter text",
        )
    if max(ids) >= known:
        raise InputError(
            f"id {max(ids)} is not in the vocabulary, whose ids end at {known - 1}",
            hint="use the ids from the answer of /api/write/read",
        )
