"""What is printed on a terminal cannot command it: control characters show as their codes.

Output that is not a terminal's gets the characters as they are.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from glasshead.messages import escape_controls

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["SafeStream", "protect_console", "protect_stdout", "unprotected"]


class SafeStream:
    """A terminal's stream, with control characters in what is written shown as codes."""

    def __init__(self, stream: TextIO) -> None:
        self.unprotected = stream

    def write(self, text: str) -> int:
        self.unprotected.write(escape_controls(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unprotected, name)


def unprotected(stream: Any) -> Any:
    """Return the stream itself, for programs whose own codes are wanted."""
    return getattr(stream, "unprotected", stream)


@contextmanager
def protect_stdout() -> Iterator[None]:
    """Escape what is printed to stdout if it is a terminal."""
    before = sys.stdout
    if before is not None and before.isatty():
        sys.stdout = SafeStream(before)
    try:
        yield
    finally:
        sys.stdout = before


def protect_console(console: "Console") -> "Console":
    """Escape what a console of rich prints to a terminal; its own colours remain."""
    from rich.console import RenderHook
    from rich.segment import Segment

    class Escaped:
        def __init__(self, content: Any) -> None:
            self.content = content

        def __rich_console__(self, console: Any, options: Any) -> Iterator[Segment]:
            for part in console.render(self.content, options):
                if not part.control:
                    part = Segment(escape_controls(part.text), part.style)
                yield part

    class Escape(RenderHook):
        def process_renderables(self, renderables: Any) -> Any:
            return [Escaped(one) for one in renderables]

    if console.is_terminal:
        console.push_render_hook(Escape())
    return console
