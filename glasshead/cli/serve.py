"""`glasshead serve`: the page and the API, on real models."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from glasshead.cli.flags import with_flags
from glasshead.cli.terminal import Device

__all__ = ["serve"]

KEY = "GLASSHEAD_API_KEY"


@with_flags(defaults=True, Server=("serve/config.py", "ServeConfig"))
def serve(
    what: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|FOLDER|FILE.glass",
            help="A trained run, a folder of runs and transformers models, or what `atlas` wrote.",
        ),
    ],
    open_: Annotated[
        bool | None,
        typer.Option(
            "--open/--no-open", help="Open the page in a browser [default: where there is one]"
        ),
    ] = None,
    device: Device = "auto",
    **flags: Any,
) -> None:
    """Serve a page to look into models, and an API for programs.

    The address is printed: open it in a browser. /v1 is what OpenAI's clients speak, /metrics what
    Prometheus reads.

    \b
    Examples:
      glasshead serve runs/demo
      glasshead serve book.glass --port 8123 --no-open
      GLASSHEAD_API_KEY=secret glasshead serve runs --host 0.0.0.0

    What happens goes to stderr, one JSON object a line. Ctrl-C, or SIGTERM, lets requests that run
    finish, for --grace seconds at most.
    """
    from glasshead.machine import settle_half_precision

    settle_half_precision()  # before torch computes anything
    from glasshead.machine import pick_device
    from glasshead.serve import logs, server
    from glasshead.serve.app import create_app
    from glasshead.serve.config import ServeConfig
    from glasshead.serve.library import Library

    given = {name: value for name, value in flags.items() if value is not None}
    if os.environ.get(KEY):
        given.setdefault("api_key", os.environ[KEY])
    config = ServeConfig(**given)
    library = Library(what, pick_device(device), config.models_loaded)
    with server.listen(config) as (sock, config):
        app = create_app(library, config)
        logs.configure()
        url = server.address(config)
        print(url, flush=True)
        if _has_browser() if open_ is None else open_:
            _show(f"{url}?key={quote(config.api_key, safe='')}" if config.api_key else url)
        ended = server.run(app, sock, config)
    if not ended:
        # Its client was told, and Python would wait for the thread.
        sys.stderr.flush()
        os._exit(0)


def _has_browser() -> bool:
    """Whether somebody sits before a screen."""
    if not sys.stdout.isatty() or os.environ.get("SSH_CONNECTION"):
        return False
    windows = sys.platform in ("darwin", "win32")
    return windows or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def _show(url: str) -> None:
    import threading
    import webbrowser

    # The socket listens already: a browser that is quicker than the server waits in it.
    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
