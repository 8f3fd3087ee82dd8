"""The program of a process that renders chat templates: a line of JSON in, a line of JSON out.

It needs nothing but Jinja, so that it starts quickly. `TemplateRenderer` in chat.py runs it.
"""

import json
import math
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

MEMORY = 1 << 28  # bytes that the whole process may have


def render(source: str, values: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """Return {"text"} of at most `limit` characters, or the reason why there is none."""
    pieces: list[str] = []
    written = 0
    try:
        for piece in _compile(source).generate(**values):
            pieces.append(piece)
            written += len(piece)
            if written > limit:
                return {"too_long": True}
    except TemplateError as error:
        return {"rejected": str(error)[:300]}
    except Exception as error:  # templates are programs of others
        return {"failed": repr(error)[:300]}
    return {"text": "".join(pieces)}


@lru_cache(maxsize=16)
def _compile(source: str) -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(source)


def _to_json(value: Any, indent: int | None = None) -> str:
    """Replace Jinja's filter, which escapes < and > for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _limit(seconds: float) -> None:
    """Limit memory, and the time from now on: the server may be gone when it is over."""
    try:
        import resource
    except ImportError:  # Windows: the server alone ends what takes too long
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time() + seconds) + 1, hard))


def main() -> None:
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin.buffer:
        ask = json.loads(line)
        _limit(ask.pop("seconds"))
        print(json.dumps(render(**ask)), flush=True)


if __name__ == "__main__":
    main()
