"""Error replies: {"error": {"message", "hint"}}; under /v1 in the format of OpenAI's API."""

import re
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from glasshead.errors import BusyError, ClosingError, GlassheadError, NotFoundError
from glasshead.messages import translate

__all__ = ["ERRORS", "ErrorReply", "error_body", "error_reply", "handle_errors"]

OPENAI_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
TYPE = re.compile(r"str|int|.*[-\[].*")


class ErrorDetail(BaseModel):
    message: str
    hint: str


class ErrorReply(BaseModel):
    error: ErrorDetail


# What any route may answer, for the OpenAPI schema.
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorReply, "description": description}
    for status, description in {
        400: "The request has a wrong value.",
        401: "The API key is missing or wrong.",
        404: "What the request names does not exist, or no longer.",
        413: "The request is too large.",
        422: "The request does not match the schema.",
        429: "Too many requests at once; try again after Retry-After seconds.",
        503: "The server is shutting down; try again after Retry-After seconds.",
    }.items()
}


def error_body(
    path: str, status: int, message: str, hint: str = "", field: str | None = None
) -> dict[str, Any]:
    # A message may quote lone surrogates of the request, which UTF-8 cannot encode.
    message = message.encode("utf-8", "replace").decode()
    error: dict[str, Any] = {"message": message, "hint": hint}
    if path.startswith("/v1"):
        error["message"] = f"{message}; {hint}" if hint else message
        default = "invalid_request_error" if status < 500 else "server_error"
        error |= {"type": OPENAI_TYPES.get(status, default), "param": field, "code": None}
    return {"error": error}


def error_reply(
    path: str, status: int, message: str, hint: str = "", field: str | None = None
) -> Response:
    return JSONResponse(error_body(path, status, message, hint, field), status)


def _describe_validation(errors: Sequence[Any]) -> tuple[str, str | None]:
    """Return what is wrong with a request, and in which field.

    Of a field that may have several types there is an error for each; the first that is not about
    the type itself says most.
    """
    first = errors[0]
    if first["type"] == "json_invalid":
        return f"the body is not JSON: {first['ctx']['error']}", None
    mine = [error for error in errors if error["loc"][:2] == first["loc"][:2]]
    found = next((error for error in mine if not error["type"].endswith("_type")), first)
    # Between fields and indices stand names of types, such as list[str] or constrained-int.
    where = [str(n) for n in found["loc"][1:] if isinstance(n, int) or TYPE.fullmatch(n) is None]
    field = where[0][:200] if where else None
    return f"{'.'.join(where)[:200] or first['loc'][0]}: {found['msg']}"[:500], field


def handle_errors(app: FastAPI) -> None:
    @app.exception_handler(GlassheadError)
    async def package_error(request: Request, error: GlassheadError) -> Response:
        status = {NotFoundError: 404, BusyError: 429, ClosingError: 503}.get(type(error), 400)
        # The page says in which language it is shown; API clients get English.
        lang = "zh" if request.headers.get("accept-language", "") == "zh" else "en"
        message, hint = translate(str(error), lang), translate(error.hint, lang)
        reply = error_reply(request.url.path, status, message, hint, error.field)
        if isinstance(error, BusyError):
            reply.headers["retry-after"] = str(error.retry_after)
        return reply

    @app.exception_handler(RequestValidationError)
    async def validation_error(request: Request, error: RequestValidationError) -> Response:
        message, field = _describe_validation(error.errors())
        status = 400 if request.url.path.startswith("/v1") else 422
        return error_reply(request.url.path, status, message, field=field)

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        reply = error_reply(request.url.path, error.status_code, str(error.detail))
        reply.headers.update(error.headers or {})
        return reply
