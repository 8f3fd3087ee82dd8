"""Error replies: {"error": {"message", "hint"}}; under /v1 in the format of OpenAI's API."""

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


def error_body(path: str, status: int, message: str, hint: str = "") -> dict[str, Any]:
    # A message may quote lone surrogates of the request, which UTF-8 cannot encode.
    message = message.encode("utf-8", "replace").decode()
    error: dict[str, Any] = {"message": message, "hint": hint}
    if path.startswith("/v1"):
        error["message"] = f"{message}; {hint}" if hint else message
        default = "invalid_request_error" if status < 500 else "server_error"
        error |= {"type": OPENAI_TYPES.get(status, default), "param": None, "code": None}
    return {"error": error}


def error_reply(path: str, status: int, message: str, hint: str = "") -> Response:
    return JSONResponse(error_body(path, status, message, hint), status)


def handle_errors(app: FastAPI) -> None:
    @app.exception_handler(GlassheadError)
    async def package_error(request: Request, error: GlassheadError) -> Response:
        status = {NotFoundError: 404, BusyError: 429, ClosingError: 503}.get(type(error), 400)
        # The page says in which language it is shown; API clients get English.
        of_page = request.headers.get("accept-language", "") == "zh"
        texts = (translate(text, "zh" if of_page else "en") for text in (str(error), error.hint))
        reply = error_reply(request.url.path, status, *texts)
        if isinstance(error, BusyError):
            reply.headers["retry-after"] = str(error.retry_after)
        return reply

    @app.exception_handler(RequestValidationError)
    async def validation_error(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])[:200] or str(first["loc"][0])
        status = 400 if request.url.path.startswith("/v1") else 422
        return error_reply(request.url.path, status, f"{where}: {first['msg']}"[:500])

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        reply = error_reply(request.url.path, error.status_code, str(error.detail))
        reply.headers.update(error.headers or {})
        return reply
