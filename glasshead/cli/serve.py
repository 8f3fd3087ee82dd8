"""`glasshead serve`: the page and the API."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from glasshead.cli.flags import with_flags
from glasshead.cli.terminal import Device, argument, drop_none, option

__all__ = ["serve"]


@with_flags(defaults=True, Server=("serve/config.py", "ServeConfig"))
def serve(
    what: Annotated[
        Path,
        argument(
            "RUN|FOLDER|FILE.glass",
            "A run, a folder of runs and transformers models, or a file that `atlas` wrote.",
        ),
    ],
    open_: Annotated[
        bool | None,
        option("--open/--no-open", None, "Open the page [default: if there is a browser]"),
    ] = None,
    api_key_file: Annotated[
        str | None, option("--api-key-file", "FILE", "A file with the API key in one line.")
    ] = None,
    device: Device = "auto",
    **flags: Any,
) -> None:
    """Serve a page to look into models, and an API for programs.

    The address is printed: open it in a browser. OpenAI's clients use /v1, Prometheus /metrics.

    \b
    Examples:
      glasshead serve runs/demo
      glasshead serve book.glass --port 8123 --no-open
      glasshead serve runs --host 0.0.0.0 --api-key-file key.txt

    Requests from other machines need an API key: --api-key-file, GLASSHEAD_API_KEY, or the one in
    the address that is printed.

    The log goes to stderr, one JSON object a line. Ctrl-C or SIGTERM stops the server; running
    requests have --grace seconds to finish.
    """
    from glasshead.machine import settle_half_precision

    settle_half_precision()  # before torch computes anything
    from glasshead.machine import pick_device
    from glasshead.serve import logs, server
    from glasshead.serve.app import create_app
    from glasshead.serve.config import ServeConfig
    from glasshead.serve.keys import read_key
    from glasshead.serve.library import Library

    given = drop_none(flags)
    key = read_key(given.pop("api_key", None), api_key_file)
    config = ServeConfig(api_key=key, **given)
    library = Library(what, pick_device(device), config.models_loaded)
    with server.listen(config) as (sock, config):
        app = create_app(library, config)
        logs.configure()
        url = server.url_of(config)
        with_key = f"{url}?key={quote(config.api_key, safe='')}" if config.api_key else url
        print(with_key if key is None else url, flush=True)
        if _has_browser() if open_ is None else open_:
            _open_browser(with_key)
        ended = server.run(app, sock, config)
    if not ended:
        # A request still computes; its client got an error, and Python would wait for the thread.
        sys.stderr.flush()
        os._exit(0)


def _has_browser() -> bool:
    """Whether this process was started on a desktop."""
    if not sys.stdout.isatty() or os.environ.get("SSH_CONNECTION"):
        return False
    windows = sys.platform in ("darwin", "win32")
    return windows or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def _open_browser(url: str) -> None:
    import threading
    import webbrowser

    # The socket is open already: a request that comes before the server is ready waits in it.
    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
