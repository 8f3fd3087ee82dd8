"""report.html: the demo as one page, in both languages, with its pictures in it."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from glasshead.lab.attention_maps import Head
from glasshead.lab.demo import TEXTS, Demo
from glasshead.lab.demo_sentence import Rendering, StoryReading
from glasshead.lab.demo_tables import (
    HIDDEN_COLUMNS,
    ROWS,
    label_word,
    next_commands,
    table_values,
    training_facts,
    truths,
)
from glasshead.lab.report_html import html_head, html_page, html_table, html_words
from glasshead.lab.texts import Language
from glasshead.observe.colours import Theme
from glasshead.observe.picture import Sheet
from glasshead.observe.picture_svg import svg
from glasshead.observe.view import Map

__all__ = ["report"]


def report(demo: Demo, out: Path, lang: Language) -> str:
    """Return the page, which opens in this language."""
    parts = [
        _head(demo),
        *_reader(demo),
        *_hidden(demo),
        *_translator(demo),
        *_figures(demo),
        *_truths(demo),
        *_next(out),
    ]
    return html_page(TEXTS["title"][lang], parts, lang)


def _say(name: str, tag: str = "span", kind: str = "", **values: Any) -> str:
    return html_words(TEXTS[name].format(**values), tag, kind)


def _title(number: int, **values: Any) -> str:
    return f"<h2><i>{number}</i>{_say(f'section.{number}', **values)}</h2>"


def _picture(
    kind: Literal["map", "heat"],
    title: str,
    values: Tensor,
    rows: Sequence[str],
    cols: Sequence[str],
    marks: Iterable[tuple[int, int]],
) -> str:
    """Draw a map, or numbers for each head, with some cells outlined; once light and once dark."""
    shown = Map("", values.float(), list(rows), list(cols))
    sheet = Sheet(kind, title, [], [shown], "linear", marks=frozenset(marks))
    themes: tuple[Theme, ...] = ("light", "dark")
    drawn = {theme: svg(sheet, theme).decode() for theme in themes}
    # Inside of HTML an SVG needs no namespace.
    inside = {theme: re.sub(r' xmlns="[^"]*"', "", text) for theme, text in drawn.items()}
    return "".join(f'<div class="{theme}">{text}</div>' for theme, text in inside.items())


def _heads_picture(title: str, values: Tensor, best: Head) -> str:
    """Draw a number for each layer (down) and head (across); the best is outlined."""
    n_layers, n_heads = values.shape
    layers, heads = [f"L{n}" for n in range(n_layers)], [f"H{n}" for n in range(n_heads)]
    return _picture("heat", title, values, layers, heads, [best])


def _figure(picture: str, caption: str = "", kind: str = "") -> str:
    below = f"<figcaption>{caption}</figcaption>" if caption else ""
    return f'<figure class="{kind}"><div class="scroll">{picture}</div>{below}</figure>'


def _head(demo: Demo) -> str:
    head = html_head(f"GLASSHEAD DEMO · SEED {demo.seed}", TEXTS["title"])
    return f"{head}\n{_say('trained', 'p', 'lead', **training_facts(demo))}"


def _reader(demo: Demo) -> list[str]:
    parts = []
    for number, reading in enumerate(demo.readings, 1):
        layer, head = reading.best
        caption = _say("caption.heads", best=_name(layer, head))
        parts += [_title(number), _figure(_reading_picture(reading), caption)]
    return parts


def _name(layer: int, head: int) -> str:
    return f"L{layer} H{head}"


def _reading_picture(reading: StoryReading) -> str:
    """Draw what the last pronoun attends to in every head; the best head's maximum is outlined."""
    n_layers, n_heads = reading.maps.shape[:2]
    heads = [(layer, head) for layer in range(n_layers) for head in range(n_heads)]
    values = torch.stack([reading.maps[head][reading.last] for head in heads])
    answers = [f"{reading.tokens[at]} → {one.word}" for at, one in reading.answers.items()]
    names = [_name(*head) for head in heads]
    mark = (heads.index(reading.best), int(reading.row.argmax()))
    return _picture("map", " · ".join(answers), values, names, reading.tokens, [mark])


def _hidden(demo: Demo) -> list[str]:
    head = [f"<th>{_say(f'hidden.{name}')}</th>" for name in HIDDEN_COLUMNS]
    rows = []
    for reading in demo.readings:
        before = reading.answers[reading.last]
        cells = [
            f"<td>{escape(''.join(reading.tokens[reading.last :]))}</td>",
            f"<td>{escape(reading.tokens[reading.hidden])}</td>",
        ]
        for answer in (before, reading.cut_best, reading.cut_all):
            kind = "changed" if answer.word != before.word else ""
            shown = _say("answer", word=answer.word, probability=answer.probability)
            cells.append(f'<td class="{kind}">{shown}</td>')
        cells.append(f"<td>{escape(label_word(reading.tokens, reading.instead))}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return [_title(3), _say("cut", "p"), html_table(head, rows)]


def _translator(demo: Demo) -> list[str]:
    parts = [_title(4)]
    for rendering in demo.renderings:
        parts.append(f'<p class="german" lang="de">{_mark_pronoun(rendering)}</p>')
        if rendering.text != rendering.wanted:
            parts.append(_say("mistaken", "p", "quiet", text=rendering.wanted))
        if rendering.pronoun is None:
            parts.append(_say("no_pronoun", "p", "quiet"))
        else:
            picture = _pronoun_picture(demo, rendering)
            parts.append(_figure(picture, _say("caption.looked")))
    first = demo.renderings[0]
    layer, head = demo.translator.best
    if first.target:
        rows = [f"▸ {word}" if n == first.pronoun else word for n, word in enumerate(first.target)]
        links = [(row, column) for column, row in first.links]
        weights = first.crossing[layer, head]
        picture = _picture("map", _name(layer, head), weights, rows, first.source, links)
        parts.append(_figure(picture, _say("caption.matrix", best=_name(layer, head))))
    t = demo.translator
    parts.append(
        _figure(
            _heads_picture("", t.errors, t.best),
            _say("caption.error", least=t.least, untrained=demo.translator_untrained.error),
            "narrow",
        )
    )
    return parts


def _mark_pronoun(rendering: Rendering) -> str:
    if rendering.pronoun is None:
        return escape(rendering.text)
    end = len(rendering.before)
    start = end - len(rendering.target[rendering.pronoun])
    before, word, after = rendering.text[:start], rendering.text[start:end], rendering.text[end:]
    return f"{escape(before)}<b>{escape(word)}</b>{escape(after)}"


def _pronoun_picture(demo: Demo, rendering: Rendering) -> str:
    """Draw what was attended to while the pronoun was written, and while 它 was read."""
    assert rendering.pronoun is not None
    written = rendering.crossing[demo.translator.writing_best][rendering.pronoun]
    read = rendering.reading[demo.translator.reading_best][rendering.asked]
    word = rendering.target[rendering.pronoun]
    values = torch.stack([written, read])
    mark = (0, int(written.argmax()))
    return _picture("map", f"它 → {word}", values, [f"→ {word}", "它"], rendering.source, [mark])


def _figures(demo: Demo) -> list[str]:
    columns = ("trained", "untrained", "chance")
    head = ["<th></th>", *(f'<th class="n">{_say(f"column.{name}")}</th>' for name in columns)]
    values, rows = table_values(demo), []
    for part, measures in ROWS.items():
        rows.append(f'<tr class="part"><td colspan="4">{_say(f"row.{part}")}</td></tr>')
        for name in measures:
            after, before, chance = values[name]
            rows.append(
                f"<tr><td>{_say(f'row.{name}', least=demo.translator.least)}</td>"
                f'<td class="n main">{after}</td><td class="n">{before}</td>'
                f'<td class="n">{chance}</td></tr>'
            )
    r = demo.reader
    share = _figure(_heads_picture("", r.heads.share, r.best), _say("caption.share"), "narrow")
    weight = _figure(_heads_picture("", r.heads.weight, r.best), _say("caption.weight"), "narrow")
    return [
        _title(5, n=r.stories),
        html_table(head, rows),
        _say("method", "p", "quiet"),
        f'<div class="pair">{share}{weight}</div>',
    ]


def _truths(demo: Demo) -> list[str]:
    items = "".join(f"<li>{html_words(words)}</li>" for words in truths(demo))
    warning = "" if demo.has_learned else _say("unlearned", "p", "lead")
    return [_title(6), warning, f"<ul>{items}</ul>"]


def _next(out: Path) -> list[str]:
    parts = [_title(7)]
    for number, command in enumerate(next_commands(out)[1:], 2):
        parts.append(_say(f"next.{number}", "div", "quiet"))
        parts.append(f"<pre><code>{escape(command)}</code></pre>")
    parts.append(f"<footer class='quiet'>{_say('footer')}</footer>")
    return parts
