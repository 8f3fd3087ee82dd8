"""Show a walkthrough as tables in a terminal, in Chinese or English.

East Asian characters count as two cells and no table has vertical lines: columns stay straight.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from rich import box
from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from glasshead.attention.steps import Array
from glasshead.lab.texts import Language, read_texts, texts_in
from glasshead.lab.walkthrough import Walkthrough

__all__ = ["bar", "tables"]

_WORD_CELLS = 20  # a longer word is cut
_SHOWN = 4  # a longer vector is cut
_BAR_CELLS = 24

TEXTS = read_texts(__file__)


def tables(
    walked: Walkthrough, lang: Language = "en", width: int = 80, ascii_only: bool = False
) -> Iterator[RenderableType]:
    """Show the whole matrices, or one row in detail if the walkthrough has a query."""
    text = texts_in(lang, TEXTS)
    yield from _opening(walked, text)
    if walked.query is None:
        yield from _matrices(walked, text, width)
    else:
        yield from _detail(walked, walked.query, text, ascii_only)


def _opening(walked: Walkthrough, text: dict[str, str]) -> Iterator[Text]:
    n, d = walked.steps.k.shape
    yield Text(text["words"].format(n=n, d=d))
    for source in dict.fromkeys(walked.sources):
        of = zip(walked.words, walked.sources, strict=True)
        words = text["comma"].join(dict.fromkeys(word for word, other in of if other == source))
        yield Text(text[source].format(words=words), style="yellow" if source == "spelling" else "")
    if walked.query is not None:
        word, label = walked.words[walked.query], walked.labels[walked.query]
        line = text["query"].format(word=label, place=walked.query + 1, n=n)
        if (times := walked.words.count(word)) > 1:
            line += " " + text["again"].format(word=word, times=times)
        yield Text(line, style="bold")


def _titles(walked: Walkthrough, text: dict[str, str]) -> list[Text]:
    d = walked.steps.k.shape[-1]
    scale = "scale_title" if walked.scaled else "scale_title_off"
    mask = "mask_title" if walked.causal else "mask_title_off"  # no step of its own
    return [
        Text("\n" + text[name].format(d=d, root=d**0.5), style="bold cyan")
        for name in ("scores_title", scale, mask, "softmax_title", "sum_title")
    ]


def _matrices(walked: Walkthrough, text: dict[str, str], width: int) -> Iterator[RenderableType]:
    s, labels, titles = walked.steps, walked.labels, _titles(walked, text)
    same = s.q is s.k or (np.array_equal(s.q, s.k) and np.array_equal(s.k, s.v))
    for name, vectors in [("q = k = v", s.q)] if same else [("q", s.q), ("k", s.k), ("v", s.v)]:
        yield _vectors(labels, text["word"], name, vectors, text)
    yield titles[0]
    yield from _matrix(labels, s.scores, text, width)
    yield titles[1]
    if walked.scaled:
        yield from _matrix(labels, s.scaled, text, width)
    yield titles[2]
    if walked.causal:
        yield from _matrix(labels, s.masked, text, width)
    yield titles[3]
    yield from _matrix(labels, s.weights, text, width)
    yield titles[4]
    yield _vectors(labels, text["word"], text["context"], s.context, text)


def _detail(
    walked: Walkthrough, i: int, text: dict[str, str], ascii_only: bool
) -> Iterator[RenderableType]:
    s, labels, titles = walked.steps, walked.labels, _titles(walked, text)
    hidden = np.isneginf(s.masked[i])

    yield titles[0]
    yield Text(f"q = {_vector(s.q[i], text)}")
    table = _table(text["key"], "k", text["score"])
    for j, label in enumerate(labels):
        table.add_row(_word(label), _vector(s.k[j], text), _number(s.scores[i, j]))
    yield table

    yield titles[1]
    if walked.scaled:
        table = _table(text["key"], text["score"], text["scaled"])
        for j, label in enumerate(labels):
            table.add_row(_word(label), _number(s.scores[i, j]), _number(s.scaled[i, j]))
        yield table

    yield titles[2]
    if walked.causal:
        table = _table(text["key"], text["masked"], "")
        for j, label in enumerate(labels):
            note = text["hidden"] if hidden[j] else ""
            table.add_row(_word(label), _number(s.masked[i, j]), note)
        yield table

    yield titles[3]
    yield Text(text["largest"])
    powers = np.exp(s.masked[i] - s.masked[i].max())
    largest = _number(s.masked[i].max())
    table = _table(text["key"], f"e^({text['score']} - {largest})", text["weight"], "", footer=True)
    table.columns[3].justify = "left"
    for j, label in enumerate(labels):
        weight = float(s.weights[i, j])
        table.add_row(_word(label), _number(powers[j]), _number(weight), bar(weight, ascii_only))
    _foot(table, text["sum"], _number(powers.sum()), _number(s.weights[i].sum()), "")
    yield table

    yield titles[4]
    table = _table(text["key"], text["weight"], "v", text["weighted"], footer=True)
    for j, label in enumerate(labels):
        weight, v = s.weights[i, j], s.v[j]
        table.add_row(_word(label), _number(weight), _vector(v, text), _vector(weight * v, text))
    _foot(table, text["context"], "", "", _vector(s.context[i], text))
    yield table


def _matrix(
    labels: list[str], values: Array, text: dict[str, str], width: int
) -> Iterator[RenderableType]:
    """Show queries as rows and keys as columns, in several blocks if the columns do not fit."""
    cells = [[_number(value) for value in row] for row in values]
    room = width - min(max(map(cell_len, labels)), _WORD_CELLS) - 2
    block: list[int] = []
    used = 0
    for j, label in enumerate(labels):
        need = 3 + max(min(cell_len(label), _WORD_CELLS), *(len(row[j]) for row in cells))
        if block and used + need > room:
            yield _block(labels, block, cells, values)
            yield ""
            block, used = [], 0
        block.append(j)
        used += need
    yield _block(labels, block, cells, values)


def _block(labels: list[str], keys: list[int], cells: list[list[str]], values: Array) -> Table:
    table = _table("q \\ k", *(labels[j] for j in keys))
    for label, row, numbers in zip(labels, cells, values, strict=True):
        top = numbers.max()
        table.add_row(
            _word(label),
            *(Text(row[j], style="bold" if numbers[j] == top else "") for j in keys),
        )
    return table


def _vectors(
    labels: list[str], head: str, name: str, vectors: Array, text: dict[str, str]
) -> Table:
    table = _table(head, name)
    for label, vector in zip(labels, vectors, strict=True):
        table.add_row(_word(label), _vector(vector, text))
    return table


def _table(first: str, *rest: str, footer: bool = False) -> Table:
    table = Table(box=box.SIMPLE, show_footer=footer, pad_edge=False, show_edge=False)
    table.add_column(Text(first), no_wrap=True)
    for name in rest:
        table.add_column(_word(name), justify="right", no_wrap=True)
    return table


def _foot(table: Table, *cells: str) -> None:
    for column, cell in zip(table.columns, cells, strict=True):
        column.footer = Text(cell)


def _word(label: str) -> Text:
    """Return the word as `Text`, so that rich does not interpret `[bold]` in it."""
    word = Text(label, no_wrap=True)
    word.truncate(_WORD_CELLS, overflow="ellipsis")
    return word


def _number(x: float) -> str:
    if x == 0 or 1e-4 <= abs(x) < 1e5:
        return f"{x:.4f}"
    return f"{x:.2e}" if np.isfinite(x) else str(x)


def _vector(vector: Sequence[float] | Array, text: dict[str, str]) -> str:
    shown = "  ".join(f"{_number(x):>6}" for x in vector[:_SHOWN])
    rest = len(vector) - _SHOWN
    return shown + ("  " + text["more"].format(n=rest) if rest > 0 else "")


def bar(weight: float, ascii_only: bool) -> str:
    """Draw a weight as a bar, in eighths of a cell where the terminal has them."""
    eighths = round(weight * _BAR_CELLS * 8)
    if ascii_only:
        return "#" * round(eighths / 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
