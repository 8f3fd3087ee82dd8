"""A lesson's cells in a terminal: Markdown whose lines break as Chinese does, code with a bar."""

from collections.abc import Iterator
from typing import ClassVar

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markdown import Markdown, Paragraph
from rich.syntax import Syntax
from rich.text import Text
from rich.theme import Theme

__all__ = ["THEME", "breaks", "highlighted", "markdown"]

# Rich's own colours of headings and code are for black terminals.
THEME = Theme({"markdown.h2": "bold", "markdown.code": "cyan"})

_NEVER_FIRST = "，。：；？！、）”’》」…,.:;?!)%"
_NEVER_LAST = "（“‘《「("


def markdown(text: str) -> Markdown:
    return _Markdown(text)


def highlighted(source: str, ascii_only: bool) -> Text:
    """Code with a bar at its left, so that without colours too it is told from what it prints."""
    code = Syntax("", "python", theme="ansi_dark").highlight(source.rstrip())
    bar = "| " if ascii_only else "│ "
    return Text("\n").join(Text.assemble((bar, "dim"), line) for line in code.split("\n"))


def breaks(text: str, width: int) -> list[int]:
    """Where to break a text: at spaces, and between Chinese characters but for punctuation.

    >>> breaks("看看 q，然后", 8), breaks("one two", 5)
    ([5], [4])
    """
    found: list[int] = []
    start = last = 0
    for at in range(1, len(text) + 1):
        while cell_len(text[start:at].rstrip()) > width:
            # A word that is wider than the line is cut where the line ends.
            start = last if last > start else at - 1
            found.append(start)
        if at < len(text) and _may_break(text[at - 1], text[at]):
            last = at
    return found


def _may_break(before: str, after: str) -> bool:
    if after in _NEVER_FIRST or before in _NEVER_LAST or after == " ":
        return False
    return before == " " or cell_len(before) == 2 or cell_len(after) == 2


class _Paragraph(Paragraph):
    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        for line in self.text.divide(breaks(self.text.plain, options.max_width)):
            line.rstrip()
            line.no_wrap = True
            yield line


class _Markdown(Markdown):
    elements: ClassVar = {**Markdown.elements, "paragraph_open": _Paragraph}
