"""A walkthrough as tables for a terminal, in Chinese or English.

East Asian characters count as two cells and no table has vertical lines: columns stay straight.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
from rich import box
from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from glasshead.attention.steps import Array
from glasshead.lab.walkthrough import Walkthrough

__all__ = ["Language", "bar", "tables"]

Language = Literal["zh", "en"]

_WORD_CELLS = 20  # a longer word is cut
_SHOWN = 4  # a longer vector is cut
_BAR_CELLS = 24

_ENGLISH = {
    "words": "Words: {n}. Numbers in a vector: {d}.",
    "textbook": "Vectors of the textbook example: {words}.",
    "spelling": "Vectors made from the spelling, without any meaning: {words}. The arithmetic is "
    "real, what these words look at is not.",
    "file": "Vectors from your file.",
    "query": "Query: {word}, word {place} of {n}.",
    "again": "{word} occurs {times} times: --query {word}#N takes the Nth.",
    "1": "1. Scores: q · k, multiplied number by number and added up",
    "2": "2. Scale: scores divided by √{d} = {root:.4f}",
    "2 off": "2. Scale: left out (--no-scale)",
    "mask": "Mask (--causal): a word does not see the words after it",
    "mask off": "Mask: none, every word sees every word",
    "3": "3. Softmax: e to the score, divided by the sum: weights that add up to 1",
    "largest": "(The largest score is taken off first, which changes no weight.)",
    "4": "4. Weighted sum: weight × v, added up, is the context",
    "comma": ", ",
    "word": "word",
    "key": "key",
    "score": "score",
    "scaled": "scaled",
    "masked": "masked",
    "hidden": "hidden",
    "weight": "weight",
    "weighted": "weight × v",
    "sum": "sum",
    "context": "context",
    "more": "+{n} more",
}
_CHINESE = {
    "words": "共 {n} 个词，每个向量 {d} 个数。",
    "textbook": "教科书例子里的向量：{words}。",
    "spelling": "由写法生成、没有任何含义的向量：{words}。计算是真的，这些词“看”谁并不说明什么。",
    "file": "向量来自你的文件。",
    "query": "查询：{word}，第 {place} 个词，共 {n} 个。",
    "again": "{word} 出现了 {times} 次：--query {word}#N 选第 N 个。",
    "1": "1. 分数：q · k，逐个数相乘再相加",
    "2": "2. 缩放：分数除以 √{d} = {root:.4f}",
    "2 off": "2. 缩放：省略（--no-scale）",
    "mask": "掩码（--causal）：一个词看不见它后面的词",
    "mask off": "掩码：没有，每个词都看得见所有的词",
    "3": "3. Softmax：e 的分数次方，除以总和，得到和为 1 的权重",
    "largest": "（先减去最大的分数，权重不变。）",
    "4": "4. 加权求和：权重 × v，相加就是上下文向量",
    "comma": "、",
    "word": "词",
    "key": "键",
    "score": "分数",
    "scaled": "缩放后",
    "masked": "掩码后",
    "hidden": "看不见",
    "weight": "权重",
    "weighted": "权重 × v",
    "sum": "总和",
    "context": "上下文",
    "more": "还有 {n} 个",
}
_TEXTS: dict[Language, dict[str, str]] = {"zh": _CHINESE, "en": _ENGLISH}


def tables(
    walked: Walkthrough, lang: Language = "en", width: int = 80, ascii_only: bool = False
) -> Iterator[RenderableType]:
    """The whole matrices, or one row in detail when the walkthrough has a query."""
    text = _TEXTS[lang]
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
    second = "2" if walked.scaled else "2 off"
    mask = "mask" if walked.causal else "mask off"  # no step of its own
    return [
        Text("\n" + text[name].format(d=d, root=d**0.5), style="bold cyan")
        for name in ("1", second, mask, "3", "4")
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
    """Queries down, keys across; keys that do not fit beside each other go below each other."""
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
    """As text, so that `[bold]` in a word stays a word."""
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
    """A weight of 1 fills the bar; eighths of a cell are drawn where the terminal has them."""
    eighths = round(weight * _BAR_CELLS * 8)
    if ascii_only:
        return "#" * round(eighths / 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
