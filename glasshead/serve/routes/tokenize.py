"""The routes that turn a text into token ids and back, as programs that evaluate models ask for.

POST /tokenize      {model, prompt, add_special_tokens}: the ids that a completion would read
POST /detokenize    {model, tokens}: their text
"""

from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from glasshead.errors import InputError
from glasshead.serve.library import Library, ServedModel
from glasshead.serve.routes.inputs import ModelId, TokenId, check_text
from glasshead.serve.workers import in_worker
from glasshead.text.tokenizer import Tokenizer

__all__ = ["router"]

router = APIRouter(tags=["tokens"])


class TokenizeRequest(BaseModel):
    prompt: str
    model: ModelId | None = None  # may be left out if there is only one
    add_special_tokens: bool = True  # those that the model expects around a text


class Tokens(BaseModel):
    tokens: list[int]
    count: int
    max_model_len: int | None


class DetokenizeRequest(BaseModel):
    tokens: Annotated[list[TokenId], Field(max_length=1_000_000)]
    model: ModelId | None = None


class Detokenized(BaseModel):
    prompt: str


@router.post("/tokenize")
@in_worker
def tokenize(request: Request, ask: TokenizeRequest) -> Tokens:
    check_text(len(ask.prompt), request.app.state.config, field="prompt")
    served, tokenizer = _open(request.app.state.library, ask.model)
    encode = tokenizer.prompt_ids if ask.add_special_tokens else tokenizer.encode_ids
    ids = [int(number) for number in encode(ask.prompt)]
    return Tokens(tokens=ids, count=len(ids), max_model_len=served.entry.max_len)


@router.post("/detokenize")
@in_worker
def detokenize(request: Request, ask: DetokenizeRequest) -> Detokenized:
    _, tokenizer = _open(request.app.state.library, ask.model)
    return Detokenized(prompt=tokenizer.decode(ask.tokens))


def _open(library: Library, name: str | None) -> tuple[ServedModel, Tokenizer]:
    if name is None:
        names = list(library.paths())
        if len(names) != 1:
            raise InputError(
                f"this server has {len(names)} models", hint="name one of them", field="model"
            )
        name = names[0]
    served = library.open(name)
    if served.run is None:
        raise InputError(
            f"{served.entry.id} is of kind {served.entry.kind}, whose tokens are not known here",
            hint="choose a run",
            field="model",
        )
    return served, served.run.tokenizer
