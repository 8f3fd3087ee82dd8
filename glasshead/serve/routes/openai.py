"""The routes of the OpenAI API: models, completions and chat completions.

    client = openai.OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none")
    client.completions.create(model="poems", prompt="春江", max_tokens=50, stream=True)

A prompt longer than the model's context is an error. An answer may grow past it: the model then
continues from the last half of its context, as `glasshead generate` does.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from glasshead.errors import GlassheadError, InputError, NotFoundError
from glasshead.generation.stream import start_ids
from glasshead.model.gpt import GPT
from glasshead.serve.chat import TemplateRenderer, chat_ids
from glasshead.serve.config import ServeConfig
from glasshead.serve.engine import Ask, Engine, Stream, Token
from glasshead.serve.error_replies import error_body
from glasshead.serve.library import Entry, Library, ServedModel
from glasshead.serve.openai_replies import ChatReply, CompletionReply, Echo, Reply
from glasshead.serve.openai_requests import (
    ChatRequest,
    CompletionRequest,
    GenerationRequest,
    Model,
    Models,
)
from glasshead.serve.predictions import prompt_tokens
from glasshead.serve.routes.inputs import (
    check_max_tokens,
    check_text,
    open_gpt,
    server_event,
    stream_events,
)
from glasshead.serve.workers import CancelToken, ClientGone, until_disconnect

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["openai"])

# In one piece, or as server-sent events.
ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {}, "text/event-stream": {}}}
}
MAX_ANSWERS = 128  # to one request, for all its prompts


@router.get("/models")
def models(request: Request) -> Models:
    """The models that generate text."""
    library: Library = request.app.state.library
    return Models(data=[_describe_model(entry) for entry in library.list() if "write" in entry.can])


@router.get("/models/{name:path}")
def model(request: Request, name: str) -> Model:
    library: Library = request.app.state.library
    entry = library.find(name)
    if "write" not in entry.can:
        raise NotFoundError(
            f"{name[:200]} does not generate text", hint="GET /v1/models lists models that do"
        )
    return _describe_model(entry)


def _describe_model(entry: Entry) -> Model:
    return Model(id=entry.id, max_model_len=entry.max_len)


@router.post("/completions", response_model=None, responses=ANSWERS)
async def completions(request: Request, ask: CompletionRequest) -> Response:
    """Continue texts."""
    if ask.best_of not in (None, ask.n or 1):
        raise InputError(
            f"best_of ({ask.best_of}) is not supported",
            hint="leave it out, or set n",
            field="best_of",
        )
    state = request.app.state
    served, prompts, echoes = await state.workers.run(
        request, _read_prompts, state.library, state.config, ask
    )
    reply = CompletionReply(
        served, ask.logprobs is not None, [echo for echo in echoes for _ in range(ask.n or 1)]
    )
    limit = 16 if ask.max_tokens is None else ask.max_tokens
    asks = _asks(ask, prompts, limit, ask.logprobs, state.config)
    return await _answer(request, ask, served, reply, asks)


@router.post("/chat/completions", response_model=None, responses=ANSWERS)
async def chat(request: Request, ask: ChatRequest) -> Response:
    """Answer a conversation."""
    state = request.app.state
    served, ids, max_len = await state.workers.run(
        request, _read_chat, state.library, state.config, state.templates, ask
    )
    room = max(1, min(state.config.max_tokens // (ask.n or 1), max_len - len(ids)))
    limit = ask.max_completion_tokens or ask.max_tokens or room
    reply = ChatReply(served, bool(ask.logprobs))
    alternatives = (ask.top_logprobs or 0) if ask.logprobs else None
    asks = _asks(ask, [ids], limit, alternatives, state.config)
    return await _answer(request, ask, served, reply, asks)


def _read_prompts(
    library: Library, config: ServeConfig, ask: CompletionRequest, cancel: CancelToken
) -> tuple[ServedModel, list[list[int]], list[Echo]]:
    """Return the ids of all prompts, and what is repeated of them."""
    served, model, tokenizer = open_gpt(library, ask.model)
    ids, texts = [], []
    for prompt in ask.prompts:
        if isinstance(prompt, str):
            check_text(len(prompt), config, field="prompt")
            texts.append(prompt)
            prompt = tokenizer.prompt_ids(prompt) or start_ids(tokenizer)
        else:
            texts.append(tokenizer.decode(prompt))
        _check_prompt(prompt, model, config, "prompt")
        ids.append(prompt)
    if not ask.echo:
        return served, ids, [Echo()] * len(ids)
    if ask.logprobs is None:
        return served, ids, [Echo(text) for text in texts]
    if (n := sum(map(len, ids))) > config.max_tokens:
        raise InputError(
            f"the prompts have {n:,} tokens, more than this server returns log-probabilities of "
            "at once",
            hint=f"send prompts of {config.max_tokens:,} tokens or less in all",
            field="prompt",
        )
    scored = [prompt_tokens(served, prompt, ask.logprobs, cancel.check) for prompt in ids]
    return served, ids, [Echo(*pair) for pair in zip(texts, scored, strict=True)]


def _read_chat(
    library: Library, config: ServeConfig, templates: TemplateRenderer, ask: ChatRequest
) -> tuple[ServedModel, list[int], int]:
    """Return the ids of the conversation, and the length of the model's context."""
    served, model, tokenizer = open_gpt(library, ask.model)
    assert served.run is not None
    messages = [message.plain for message in ask.messages]
    check_text(sum(len(message["content"]) for message in messages), config, field="messages")
    ids = chat_ids(templates, served.run, messages, 2 * config.max_text) or start_ids(tokenizer)
    _check_prompt(ids, model, config, "messages")
    return served, ids, model.config.max_len


def _check_prompt(ids: Sequence[int], model: GPT, config: ServeConfig, field: str) -> None:
    limit = min(model.config.max_len, config.max_tokens)
    if len(ids) > limit:
        raise InputError(
            f"the prompt has {len(ids):,} tokens, but the model reads {limit:,} at most",
            hint="use a shorter prompt",
            field=field,
        )


def _asks(
    ask: GenerationRequest,
    prompts: list[list[int]],
    max_tokens: int,
    alternatives: int | None,
    config: ServeConfig,
) -> list[Ask]:
    """Return what the engine is asked: n samples of each prompt."""
    n, seed = ask.n or 1, secrets.randbits(53) if ask.seed is None else ask.seed
    check_max_tokens(max_tokens, config)
    answers = n * len(prompts)
    room = min(MAX_ANSWERS, config.batch + config.waiting)  # more would always be refused
    if answers > room:
        raise InputError(
            f"{n} samples of {len(prompts)} prompts are more than {room} answers",
            hint="send fewer prompts, or set a smaller n",
            field="n" if n > 1 else "prompt",
        )
    if answers * max_tokens > config.max_tokens:
        raise InputError(
            f"{answers} answers of {max_tokens:,} tokens are more than this server generates at "
            "once",
            hint=f"set max_tokens so that all answers together have {config.max_tokens:,} at most",
            field="max_tokens",
        )
    options = (ask.sampling, max_tokens, ask.stops)
    return [
        Ask(ids, *options, seed=seed, place=place, alternatives=alternatives)
        for ids in prompts
        for place in range(n)
    ]


async def _answer(
    request: Request, ask: GenerationRequest, served: ServedModel, reply: Reply, asks: list[Ask]
) -> Response:
    engine: Engine = request.app.state.engine
    streams: list[Stream] = []
    try:
        for each in asks:
            streams.append(engine.stream(served, each))
        n_prompt = sum(len(each.ids) for each in asks[:: ask.n or 1])
        if ask.stream:
            usage = ask.stream_options is not None and ask.stream_options.include_usage
            return stream_events(_events(streams, reply, n_prompt if usage else None))
        answers = await _collect(request, streams)
    except BaseException:
        for stream in streams:
            stream.close()
        raise
    n_generated = sum(token.id is not None for tokens in answers for token in tokens)
    return JSONResponse(reply.whole(answers, _usage(n_prompt, n_generated)))


async def _collect(request: Request, streams: Sequence[Stream]) -> list[list[Token]]:
    """Return the complete answers; raise ClientGone if the client disconnects first."""

    async def collect() -> list[list[Token]]:
        answers: list[list[Token]] = [[] for _ in streams]
        async for index, token in merge_streams(streams):
            answers[index].append(token)
        return answers

    answering = asyncio.ensure_future(collect())
    leaving = asyncio.ensure_future(until_disconnect(request))
    try:
        await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if answering.done():
            return answering.result()
        raise ClientGone
    finally:
        leaving.cancel()
        answering.cancel()


async def _events(
    streams: Sequence[Stream], reply: Reply, n_prompt: int | None
) -> AsyncIterator[str]:
    """Yield server-sent events; with the number of prompt tokens, also the usage."""
    n_generated, lengths = 0, [len(reply.echo(index).text) for index in range(len(streams))]
    try:
        for index in range(len(streams)):
            if (opening := reply.opening(index)) is not None:
                yield server_event(opening)
        async for index, token in merge_streams(streams):
            yield server_event(reply.chunk(index, token, lengths[index]))
            lengths[index] += len(token.text)
            n_generated += token.id is not None
        if n_prompt is not None:
            yield server_event(reply.usage(_usage(n_prompt, n_generated)))
        yield "data: [DONE]\n\n"
    except GlassheadError as error:
        yield server_event(error_body("/v1", 500, str(error), error.hint))
    finally:
        for stream in streams:
            stream.close()


async def merge_streams(streams: Sequence[Stream]) -> AsyncIterator[tuple[int, Token]]:
    """Yield the tokens of all streams as they come, each with the index of its stream."""
    if len(streams) == 1:
        async for token in streams[0]:
            yield 0, token
        return
    waiting = {asyncio.ensure_future(anext(stream)): index for index, stream in enumerate(streams)}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for future in done:
                index = waiting.pop(future)
                token = future.result()
                if token.finish is None:
                    waiting[asyncio.ensure_future(anext(streams[index]))] = index
                yield index, token
    finally:
        for future in waiting:
            future.cancel()


def _usage(prompt: int, completion: int) -> dict[str, int]:
    total = prompt + completion
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}
