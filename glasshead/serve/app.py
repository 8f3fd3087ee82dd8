"""The ASGI app: state, middleware and routes of the server."""

import asyncio
import mimetypes
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import FileResponse, PlainTextResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel

from glasshead import __version__
from glasshead.page.bundle import WEB, page_around_data
from glasshead.serve.chat import TemplateRenderer
from glasshead.serve.config import ServeConfig
from glasshead.serve.engine import Engine
from glasshead.serve.error_replies import ERRORS, handle_errors
from glasshead.serve.library import Entry, Library
from glasshead.serve.logs import LoggingMiddleware
from glasshead.serve.memory import keep_giving_back
from glasshead.serve.metrics import CONTENT_TYPE, Metrics
from glasshead.serve.routes import (
    atlas,
    look,
    openai,
    runs,
    share,
    steps,
    tokenize,
    translate,
    write,
)
from glasshead.serve.security import SecurityMiddleware
from glasshead.serve.trace_store import TraceStore
from glasshead.serve.workers import Workers

__all__ = ["create_app"]

WEB_FOLDER = Path(str(WEB))
# The machine's own table may say that scripts are plain text.
mimetypes.add_type("text/javascript", ".js")
mimetypes.add_type("text/css", ".css")

router = APIRouter()

ROUTERS = [
    router,
    *(part.router for part in (atlas, steps, look, write, translate, runs, share)),
    openai.router,
    tokenize.router,
]


def create_app(library: Library, config: ServeConfig) -> FastAPI:
    """Return the app; `app.state` holds library, config, traces, workers, engine and metrics."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        giving_back = asyncio.ensure_future(keep_giving_back(lambda: _work_done(app.state)))
        yield
        giving_back.cancel()
        app.state.engine.close()
        app.state.workers.close()
        app.state.templates.close()

    app = FastAPI(
        title="Glasshead",
        version=__version__,
        docs_url=None,  # their pages fetch scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        responses=ERRORS,
    )
    state = app.state
    state.library, state.config = library, config
    state.traces = TraceStore(config.seen_count, config.seen_bytes)
    state.workers = Workers(config.running, config.waiting, state.traces.make_room)
    state.engine = Engine(config.batch, config.waiting)
    state.templates = TemplateRenderer()
    state.metrics = _new_metrics(app)
    handle_errors(app)
    for part in ROUTERS:
        app.include_router(part)
    app.mount("/web", StaticFiles(directory=WEB_FOLDER), name="web")
    # The middleware that is added last is the first to get a request.
    app.add_middleware(SecurityMiddleware, config=config)
    app.add_middleware(LoggingMiddleware, metrics=state.metrics)
    return app


def _work_done(state: Any) -> tuple[int, ...]:
    """Numbers that change when memory may have been freed."""
    return state.workers.n_done, state.engine.tokens, state.engine.n_threads


def _new_metrics(app: FastAPI) -> Metrics:
    metrics, state = Metrics(), app.state
    gauges = {
        "running": ("Running requests.", lambda: state.workers.n_running + state.engine.n_running),
        "waiting": ("Waiting requests.", lambda: state.workers.n_waiting + state.engine.n_waiting),
        "seen": ("Recorded texts in memory.", lambda: len(state.traces)),
        "seen_bytes": ("Bytes of recorded texts in memory.", lambda: state.traces.bytes),
        "models_loaded": ("Models in memory.", lambda: state.library.n_open),
    }
    for name, (about, read) in gauges.items():
        metrics.poll("gauge", f"glasshead_{name}", about, read)
    metrics.poll(
        "counter",
        "glasshead_tokens_generated_total",
        "Generated tokens.",
        lambda: state.engine.tokens,
    )
    return metrics


class ModelList(BaseModel):
    models: list[Entry]
    version: str
    limits: dict[str, int]


@router.get("/api/models")
def models(request: Request) -> ModelList:
    """All models and .glass files, and the limits of requests."""
    library: Library = request.app.state.library
    config: ServeConfig = request.app.state.config
    limits = ("max_body", "max_text", "max_tokens")
    return ModelList(
        models=library.list(),
        version=__version__,
        limits={name: getattr(config, name) for name in limits},
    )


class PageParts(BaseModel):
    """The page as one file, before and after the data that it shows."""

    before: str
    after: str


@router.get("/api/page", tags=["save"])
def standalone_page() -> PageParts:
    before, after = page_around_data()
    return PageParts(before=before, after=after)


@router.get("/healthz")
@router.get("/health")
async def health() -> dict[str, str]:
    """Whether the server is up."""
    return {"status": "ok", "version": __version__}


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Any:
    """Metrics for Prometheus."""
    return PlainTextResponse(request.app.state.metrics.text(), media_type=CONTENT_TYPE)


@router.get("/", include_in_schema=False)
async def page() -> FileResponse:
    return FileResponse(WEB_FOLDER / "index.html", media_type="text/html; charset=utf-8")
