"""The cells of a lesson on a terminal: Markdown that breaks in Chinese too, code with a bar."""

from collections.abc import Iterator
from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markdown import Markdown, Paragraph
from rich.syntax import Syntax
from rich.text import Text
from rich.theme import Theme

from glasshead.lab.line_breaks import line_breaks

__all__ = ["THEME", "LessonMarkdown", "highlight_code"]

# Rich's own colours of headings and code are for black terminals.
THEME = Theme({"markdown.h2": "bold", "markdown.code": "cyan"})


def highlight_code(source: str, ascii_only: bool) -> Text:
    """Return code with a bar at its left, which tells it from its output without colours too."""
    code = Syntax("", "python", theme="ansi_dark").highlight(source.rstrip())
    bar = "| " if ascii_only else "│ "
    return Text("\n").join(Text.assemble((bar, "dim"), line) for line in code.split("\n"))


class _Paragraph(Paragraph):
    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        for line in self.text.divide(line_breaks(self.text.plain, options.max_width)):
            line.rstrip()
            line.no_wrap = True
            yield line


class LessonMarkdown(Markdown):
    elements: ClassVar = {**Markdown.elements, "paragraph_open": _Paragraph}
