"""Fields, checks and replies that several routes share, and the recording of a text."""

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Query
from fastapi.responses import StreamingResponse
from pydantic import Field

from glasshead.errors import InputError
from glasshead.model.gpt import GPT
from glasshead.observe.inspectable import RecordConfig
from glasshead.page.predictions import NOTHING, Cut
from glasshead.serve.config import ServeConfig
from glasshead.serve.library import Library, ServedModel
from glasshead.serve.trace_store import StoredTrace
from glasshead.text.tokenizer import Tokenizer

__all__ = [
    "USE_ATLAS", "Index", "ModelId", "ModelQuery", "TokenId", "check_max_tokens", "check_text",
    "open_gpt", "record_text", "server_event", "stream_events", "tokens_at_once",
]  # fmt: skip

ModelId = Annotated[str, Field(min_length=1, max_length=1024)]
ModelQuery = Annotated[str, Query(min_length=1, max_length=1024)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
Index = Annotated[int, Query(ge=0, lt=2**31)]

USE_ATLAS = "record a longer text with `glasshead atlas`, and serve the .glass file"


def check_text(
    n_characters: int,
    config: ServeConfig,
    hint: str = "use a shorter text",
    field: str = "text",
) -> None:
    if n_characters > config.max_text:
        raise InputError(
            f"the text has {n_characters:,} characters, but this server takes "
            f"{config.max_text:,} at most",
            hint=hint,
            field=field,
        )


def check_max_tokens(max_tokens: int, config: ServeConfig) -> None:
    if max_tokens > config.max_tokens:
        raise InputError(
            f"max_tokens ({max_tokens:,}) is more than this server generates at once",
            hint=f"set max_tokens to {config.max_tokens:,} or less",
            field="max_tokens",
        )


def open_gpt(library: Library, name: str) -> tuple[ServedModel, GPT, Tokenizer]:
    """Open a model that generates text; raise InputError if it is of another kind."""
    kind = library.find(name).kind
    if kind in ("gpt", "broken"):
        served = library.open(name)  # raises the reason if it is broken
        if served.run is not None and isinstance(served.run.model, GPT):
            return served, served.run.model, served.run.tokenizer
    raise InputError(
        f"{name[:200]} is of kind {kind}, which does not generate text",
        hint="choose a model from GET /v1/models",
        field="model",
    )


def server_event(data: dict[str, Any], name: str | None = None) -> str:
    """Format a server-sent event."""
    head = "" if name is None else f"event: {name}\n"
    return f"{head}data: {json.dumps(data, ensure_ascii=False)}\n\n"


def stream_events(events: AsyncIterator[str]) -> StreamingResponse:
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


def record_text(
    state: Any, served: ServedModel, text: str, config: RecordConfig, cut: Cut = NOTHING
) -> StoredTrace:
    """Return the trace of a text: the stored one, or a new one if it was not recorded yet."""
    model, key = served.entry.id, {"text": text, "stamp": served.stamp}
    if cut:
        key["cut"] = repr(cut)
    if served.inspectable is None:
        raise InputError(f"{model} is a .glass file, which reads no text", hint="POST /api/open")
    check_text(len(text), state.config, USE_ATLAS)
    stored: StoredTrace | None = state.traces.find(model, key)
    if stored is None:
        with served.lock:
            stored = state.traces.find(model, key)  # another request may have recorded it
            if stored is None:
                _check_tokens(served, text, state.config.max_tokens, config.beyond)
                with cut.apply_to(served.inspectable.model):
                    trace = served.inspectable.record(text, config)
                stored = state.traces.add(trace, model, key)
    return stored


def tokens_at_once(served: ServedModel, limit: int, beyond: bool) -> int:
    """The most tokens that a run reads of a text, here or, if `beyond`, with untrained positions.

    `limit` is that of the server.
    """
    assert served.run is not None
    if beyond and getattr(served.run.model.config, "positions", "") != "learned":
        return limit
    return min(limit, served.entry.max_len or limit)


def _check_tokens(served: ServedModel, text: str, limit: int, beyond: bool) -> None:
    if served.run is None:
        return  # models of transformers raise by themselves
    limit = tokens_at_once(served, limit, beyond)
    n = len(served.run.tokenizer.prompt_ids(text))
    if n > limit:
        raise InputError(
            f"the text has {n:,} tokens, but {served.entry.name} reads {limit:,} at most here",
            hint=USE_ATLAS if beyond else "use a shorter text",
        )
