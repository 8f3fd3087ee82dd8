"""The API that other programs know: models, completions and chats as OpenAI's clients ask for them.

    client = openai.OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none")
    client.completions.create(model="poems", prompt="春江", max_tokens=50, stream=True)

A prompt that is longer than the model's context is refused. An answer may grow past it: the model
then goes on from the last half of what it has seen, as `glasshead generate` does.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from glasshead.checkpoint import Run
from glasshead.errors import GlassheadError, InputError, NotFoundError
from glasshead.generation.stream import start_ids
from glasshead.model.gpt import GPT
from glasshead.serve.chat import chat_ids
from glasshead.serve.config import ServeConfig
from glasshead.serve.engine import Ask, Engine, Stream, Token
from glasshead.serve.library import Entry, Library, Served
from glasshead.serve.openai_replies import ChatReply, CompletionReply, Reply
from glasshead.serve.openai_requests import ChatAsk, CompletionAsk, GenerationAsk, Model, Models
from glasshead.serve.workers import ClientGone, run_in_worker, until_disconnect

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["openai"])

# Whole, or as server-sent events.
ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {}, "text/event-stream": {}}}
}
SAMPLES = 128  # answers to one request, of all its prompts


@router.get("/models")
def models(request: Request) -> Models:
    """What can write."""
    library: Library = request.app.state.library
    return Models(data=[_model(entry) for entry in library.list() if "write" in entry.can])


@router.get("/models/{name:path}")
def model(request: Request, name: str) -> Model:
    library: Library = request.app.state.library
    entry = library.find(name)
    if "write" not in entry.can:
        raise NotFoundError(f"{name[:200]} writes no text", hint="/v1/models lists those that do")
    return _model(entry)


def _model(entry: Entry) -> Model:
    return Model(id=entry.id, max_model_len=entry.max_len)


@router.post("/completions", response_model=None, responses=ANSWERS)
async def completions(request: Request, ask: CompletionAsk) -> Response:
    """A text goes on."""
    if ask.best_of not in (None, ask.n or 1):
        raise InputError(f"best_of ({ask.best_of}) is not supported", hint="leave it out, or use n")
    if ask.echo and ask.logprobs is not None:
        raise InputError(
            "echo with logprobs is not supported", hint="`glasshead score` tells those of a text"
        )
    state = request.app.state
    served, prompts, shown = await run_in_worker(
        request, _read_prompts, state.library, state.config, ask
    )
    echo = [text if ask.echo else "" for text in shown for _ in range(ask.n or 1)]
    reply = CompletionReply(served, ask.logprobs is not None, echo)
    asks = _asks(ask, prompts, ask.max_tokens or 16, ask.logprobs, state.config)
    return await _answered(request, ask, served, reply, asks)


@router.post("/chat/completions", response_model=None, responses=ANSWERS)
async def chat(request: Request, ask: ChatAsk) -> Response:
    """A conversation is answered."""
    state = request.app.state
    served, ids = await run_in_worker(request, _read_chat, state.library, state.config, ask)
    room = max(1, min(state.config.max_tokens // (ask.n or 1), _max_len(served) - len(ids)))
    limit = ask.max_completion_tokens or ask.max_tokens or room
    reply = ChatReply(served, bool(ask.logprobs))
    alternatives = (ask.top_logprobs or 0) if ask.logprobs else None
    asks = _asks(ask, [ids], limit, alternatives, state.config)
    return await _answered(request, ask, served, reply, asks)


def _read_prompts(
    library: Library, config: ServeConfig, ask: CompletionAsk
) -> tuple[Served, list[list[int]], list[str]]:
    """The ids of all prompts, and their texts."""
    served, loaded = _opened(library, ask.model)
    ids, texts = [], []
    for prompt in ask.prompts:
        if isinstance(prompt, str):
            _check_text(len(prompt), config)
            texts.append(prompt)
            prompt = loaded.tokenizer.prompt_ids(prompt) or start_ids(loaded.tokenizer)
        else:
            texts.append(loaded.tokenizer.decode(prompt))
        ids.append(_checked(served, prompt, config))
    return served, ids, texts


def _read_chat(library: Library, config: ServeConfig, ask: ChatAsk) -> tuple[Served, list[int]]:
    served, loaded = _opened(library, ask.model)
    messages = [message.plain for message in ask.messages]
    _check_text(sum(len(message["content"]) for message in messages), config)
    ids = chat_ids(loaded, messages, 2 * config.max_text)
    return served, _checked(served, ids or start_ids(loaded.tokenizer), config)


def _opened(library: Library, name: str) -> tuple[Served, Run]:
    if "write" not in library.find(name).can:
        raise InputError(f"{name[:200]} writes no text", hint="/v1/models lists those that do")
    served = library.open(name)
    assert served.loaded is not None
    return served, served.loaded


def _max_len(served: Served) -> int:
    assert served.loaded is not None
    assert isinstance(served.loaded.model, GPT)
    return served.loaded.model.config.max_len


def _check_text(length: int, config: ServeConfig) -> None:
    if length > config.max_text:
        raise InputError(
            f"the text has {length:,} characters, more than {config.max_text:,}",
            hint="give a shorter one",
        )


def _checked(served: Served, ids: list[int], config: ServeConfig) -> list[int]:
    most = min(_max_len(served), config.max_tokens)
    if len(ids) > most:
        raise InputError(
            f"the prompt has {len(ids):,} tokens, more than {most:,}", hint="give a shorter one"
        )
    return ids


def _asks(
    ask: GenerationAsk,
    prompts: list[list[int]],
    max_tokens: int,
    alternatives: int | None,
    config: ServeConfig,
) -> list[Ask]:
    """n samples of each prompt."""
    n, seed = ask.n or 1, secrets.randbits(53) if ask.seed is None else ask.seed
    if max_tokens > config.max_tokens:
        raise InputError(
            f"max_tokens ({max_tokens:,}) is more than this server writes at once",
            hint=f"ask for {config.max_tokens:,} at most",
        )
    answers = n * len(prompts)
    room = min(SAMPLES, config.batch + config.waiting)  # more would be refused at any time
    if answers > room:
        raise InputError(
            f"{n} samples of {len(prompts)} prompts are more than {room} answers",
            hint="ask for fewer at a time",
        )
    if answers * max_tokens > config.max_tokens:
        raise InputError(
            f"{answers} answers of {max_tokens:,} tokens are more than this server writes at once",
            hint=f"ask for {config.max_tokens:,} tokens at most in all",
        )
    return [
        Ask(
            ids,
            ask.sampling,
            max_tokens,
            ask.stops,
            seed=seed,
            place=place,
            alternatives=alternatives,
        )
        for ids in prompts
        for place in range(n)
    ]


async def _answered(
    request: Request, ask: GenerationAsk, served: Served, reply: Reply, asks: list[Ask]
) -> Response:
    engine: Engine = request.app.state.engine
    streams: list[Stream] = []
    try:
        for each in asks:
            streams.append(engine.stream(served, each))
        read = sum(len(each.ids) for each in asks[:: ask.n or 1])
        if ask.stream:
            told = ask.stream_options is not None and ask.stream_options.include_usage
            events = _events(streams, reply, read if told else None)
            headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
            return StreamingResponse(events, media_type="text/event-stream", headers=headers)
        answers = await _all(request, streams)
    except BaseException:
        for stream in streams:
            stream.close()
        raise
    return JSONResponse(reply.whole(answers, _usage(read, answers)))


async def _all(request: Request, streams: Sequence[Stream]) -> list[list[Token]]:
    """The whole answers, unless the client leaves before."""

    async def collected() -> list[list[Token]]:
        answers: list[list[Token]] = [[] for _ in streams]
        async for index, token in merged(streams):
            answers[index].append(token)
        return answers

    answering = asyncio.ensure_future(collected())
    leaving = asyncio.ensure_future(until_disconnect(request))
    try:
        await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if answering.done():
            return answering.result()
        raise ClientGone
    finally:
        leaving.cancel()
        answering.cancel()


async def _events(streams: Sequence[Stream], reply: Reply, read: int | None) -> AsyncIterator[str]:
    """Server-sent events; with the number of ids that were `read`, also how many were used."""
    made, lengths = 0, [0] * len(streams)
    try:
        for index in range(len(streams)):
            if (opening := reply.opening(index)) is not None:
                yield _event(opening)
        async for index, token in merged(streams):
            yield _event(reply.chunk(index, token, lengths[index]))
            lengths[index] += len(token.text)
            made += token.id is not None
        if read is not None:
            yield _event(reply.used(_used(read, made)))
        yield "data: [DONE]\n\n"
    except GlassheadError as error:
        told = {"message": str(error), "type": "server_error", "param": None, "code": None}
        yield _event({"error": {**told, "hint": error.hint}})
    finally:
        for stream in streams:
            stream.close()


async def merged(streams: Sequence[Stream]) -> AsyncIterator[tuple[int, Token]]:
    """The tokens of all streams as they come, each with the index of its stream."""
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


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n"


def _usage(read: int, answers: Sequence[Sequence[Token]]) -> dict[str, int]:
    return _used(read, sum(token.id is not None for tokens in answers for token in tokens))


def _used(prompt: int, completion: int) -> dict[str, int]:
    total = prompt + completion
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}
