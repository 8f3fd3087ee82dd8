"""Help in Chinese: the texts from the catalogue, and lines broken by the width of characters."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

import typer

from glasshead.messages import language, translate

__all__ = ["ChineseFormatter", "LocalizedHelp", "default_of", "paragraphs", "wrap"]

_OPENING, _CLOSING = "（“《「", "，。、；：！？）”》」…"
_WIDE = "\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef"
# What no line end may break: a wide character or a run of others, with its punctuation.
_PIECE = re.compile(
    rf"\s+|[{_OPENING}]*(?:[{_WIDE}]|[^\s{_WIDE}{_OPENING}{_CLOSING}]+)?[{_CLOSING}]*"
)


class LocalizedHelp:
    """A mixin for commands: their help is in the language of the user."""

    def get_help(self, ctx: Any) -> str:
        if language() == "zh":
            ctx.formatter_class = ChineseFormatter
        return super().get_help(ctx)  # type: ignore[misc]


_HelpFormatter: Any = typer.Context.formatter_class


class ChineseFormatter(_HelpFormatter):  # type: ignore[misc]
    """Writes what it is given in Chinese. The methods are those of click's HelpFormatter."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        first = f"{translate('Usage')}：{prog} "
        lines = wrap(args, self.width - _cells(first)) or [""]
        self.write(f"\n{' ' * _cells(first)}".join([first + lines[0], *lines[1:]]) + "\n")

    def write_heading(self, heading: str) -> None:
        self.write(f"{'':>{self.current_indent}}{translate(heading)}：\n")

    def write_text(self, text: str) -> None:
        indent = " " * self.current_indent
        blocks = []
        for paragraph in paragraphs(text):
            lines = paragraph.splitlines()[1:]  # without the \b
            if paragraph.startswith("\b"):
                lines = [f"{translate(line[:-1])}：" if line[-1] == ":" else line for line in lines]
            else:
                lines = wrap(translate(paragraph), self.width - len(indent))
            blocks.append("".join(f"{indent}{line}\n" for line in lines))
        self.write("\n".join(blocks))

    def write_dl(
        self, rows: Sequence[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        first_column = min(max(_cells(first) for first, _ in rows), col_max) + col_spacing
        start = " " * (self.current_indent + first_column)
        for first, second in rows:
            lines = wrap(_describe(second), max(self.width - len(start), 10))
            head = f"{'':>{self.current_indent}}{first}"
            if _cells(first) + col_spacing <= first_column and lines:
                head += " " * (len(start) - _cells(head)) + lines.pop(0)
            self.write("\n".join([head, *(start + line for line in lines)]) + "\n")


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text, each as one line unless it begins with a \\b.

    >>> list(paragraphs("One\\nline.\\n\\nTwo."))
    ['One line.', 'Two.']
    """
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        yield paragraph if paragraph.startswith("\b") else " ".join(paragraph.split())


def default_of(text: str) -> tuple[str, list[str]]:
    """Split the help of an option from what stands in brackets after it.

    >>> default_of("Train less [default: the preset's]  [at least 1]")
    ('Train less', ["default: the preset's", 'at least 1'])
    """
    brackets: list[str] = []
    text = text.strip()
    while found := re.fullmatch(r"(.*?)\s*\[([^\[\]]*)\]", text, re.DOTALL):
        text = found[1]
        brackets = [*found[2].split("; "), *brackets]
    return text, brackets


def _describe(text: str) -> str:
    """Return the help of an option in Chinese."""
    body, brackets = default_of(text)
    # The first sentence of a command is its line in the list of commands.
    chinese = translate(body)
    if chinese == body:
        chinese = translate(f"{body}.").removesuffix(".").removesuffix("。")
    inside = "；".join(
        f"默认：{translate(one[9:])}" if one.startswith("default: ") else translate(one)
        for one in brackets
    )
    return f"{chinese}［{inside}］".strip() if inside else chinese


def wrap(text: str, width: int) -> list[str]:
    """Break a text into lines of at most so many cells, between Chinese characters too.

    >>> wrap("读一个 token，再写下一个。", 12)
    ['读一个', 'token，再写', '下一个。']
    """
    lines, line = [], ""
    for piece in filter(None, _PIECE.findall(text)):
        if line and _cells(line) + _cells(piece.rstrip()) > width:
            lines.append(line.rstrip())
            line = ""
        line = (line + piece) if line or not piece.isspace() else ""
    return [*lines, line.rstrip()] if line.strip() else lines


def _cells(text: str) -> int:
    return sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in text)
