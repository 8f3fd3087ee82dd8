"""How errors are told: {"error": {"message", "hint"}}; in /v1 as clients of OpenAI expect them."""

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from glasshead.errors import BusyError, ClosingError, GlassheadError, NotFoundError

__all__ = ["ERRORS", "Failure", "failure", "handle_errors"]

KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


class ErrorDetail(BaseModel):
    message: str
    hint: str


class Failure(BaseModel):
    error: ErrorDetail


# What any route may answer, for the OpenAPI schema.
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Failure, "description": says}
    for status, says in {
        400: "The request cannot be answered as it is.",
        401: "The API key is missing or wrong.",
        404: "There is no such thing, or no longer.",
        413: "The request is too large.",
        422: "The request does not have the right form.",
        429: "Too many requests at once; Retry-After says when to come again.",
        503: "The server ends, and did not get to it; Retry-After says when to come again.",
    }.items()
}


def failure(path: str, status: int, message: str, hint: str = "") -> Response:
    # What a request says may hold halves of characters, which no answer can.
    message = message.encode("utf-8", "replace").decode()
    error: dict[str, Any] = {"message": message, "hint": hint}
    if path.startswith("/v1"):
        error["message"] = f"{message}; {hint}" if hint else message
        kind = KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
        error |= {"type": kind, "param": None, "code": None}
    return JSONResponse({"error": error}, status)


def handle_errors(app: FastAPI) -> None:
    @app.exception_handler(GlassheadError)
    async def mistaken(request: Request, error: GlassheadError) -> Response:
        status = {NotFoundError: 404, BusyError: 429, ClosingError: 503}.get(type(error), 400)
        reply = failure(request.url.path, status, str(error), error.hint)
        if isinstance(error, BusyError):
            reply.headers["retry-after"] = str(error.retry_after)
        return reply

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])[:200] or str(first["loc"][0])
        status = 400 if request.url.path.startswith("/v1") else 422
        return failure(request.url.path, status, f"{where}: {first['msg']}"[:500])

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        reply = failure(request.url.path, error.status_code, str(error.detail))
        reply.headers.update(error.headers or {})
        return reply
