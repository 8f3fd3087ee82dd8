"""Break lines for a terminal: at spaces, and between Chinese characters."""

from rich.cells import cell_len
from rich.text import Text

__all__ = ["line_breaks", "wrap_text"]

_NEVER_FIRST = "，。：；？！、）”’》」…,.:;?!)%"
_NEVER_LAST = "（“‘《「("


def line_breaks(text: str, width: int) -> list[int]:
    """Return where to break a text: at spaces and between Chinese characters, not at punctuation.

    >>> line_breaks("看看 q，然后", 8), line_breaks("one two", 5)
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


def wrap_text(text: Text, width: int) -> Text:
    """Break a text into lines of at most `width` cells.

    >>> print(wrap_text(Text("现在，它饿坏了。 er, sie"), 10))
    现在，它饿
    坏了。 er,
    sie
    """
    lines = text.divide(line_breaks(text.plain, width))
    for line in lines:
        line.rstrip()
    return Text("\n").join(lines)
