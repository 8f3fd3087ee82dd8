"""report.html: the demo as one page, in both languages, with its pictures in it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from glasshead.lab.attention_maps import Head
from glasshead.lab.demo import Demo
from glasshead.lab.demo_sentence import Rendering, StoryReading
from glasshead.lab.demo_tables import ROWS, commands, numbered, trained, truths, values
from glasshead.lab.demo_words import TEXTS, Language
from glasshead.lab.report_shell import shell
from glasshead.observe.colours import Theme
from glasshead.observe.picture import Sheet
from glasshead.observe.picture_svg import svg
from glasshead.observe.view import Map

__all__ = ["report"]


def report(demo: Demo, out: Path, lang: Language) -> str:
    """Return the page; `lang` is the language that it opens in."""
    parts = [
        _head(demo),
        *_reader(demo),
        *_hidden(demo),
        *_translator(demo),
        *_figures(demo),
        *_truths(demo),
        *_next(out),
    ]
    return shell(TEXTS[lang]["title"], parts, lang)


def _both(name: str, tag: str = "span", kind: str = "", **values: Any) -> str:
    texts = {lang: words[name].format(**values) for lang, words in TEXTS.items()}
    return _in_both(texts, tag, kind)


def _in_both(texts: Mapping[Language, str], tag: str = "span", kind: str = "") -> str:
    """A text in both languages, of which the page shows one."""
    return "".join(
        f'<{tag} class="{f"{lang} {kind}".strip()}" lang="{lang}">{_to_html(text)}</{tag}>'
        for lang, text in texts.items()
    )


def _to_html(text: str) -> str:
    """`**bold**` and `` `code` `` as HTML; everything else is text."""
    html = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", escape(text, quote=False))
    return re.sub(r"`(.+?)`", r"<code>\1</code>", html)


def _title(number: int, **values: Any) -> str:
    return f"<h2><i>{number}</i>{_both(str(number), **values)}</h2>"


def _picture(
    kind: Literal["map", "heat"],
    title: str,
    values: Tensor,
    rows: Sequence[str],
    cols: Sequence[str],
    marks: Iterable[tuple[int, int]],
) -> str:
    """A map, or numbers for each head, with some cells outlined; once light and once dark."""
    shown = Map("", values.float(), list(rows), list(cols))
    sheet = Sheet(kind, title, [], [shown], "linear", marks=frozenset(marks))
    themes: tuple[Theme, ...] = ("light", "dark")
    drawn = {theme: svg(sheet, theme).decode() for theme in themes}
    # Inside of HTML an SVG needs no namespace.
    inside = {theme: re.sub(r' xmlns="[^"]*"', "", text) for theme, text in drawn.items()}
    return "".join(f'<div class="{theme}">{text}</div>' for theme, text in inside.items())


def _heads_picture(title: str, values: Tensor, best: Head) -> str:
    """A number for each layer (down) and head (across); the best is outlined."""
    n_layers, n_heads = values.shape
    layers, heads = [f"L{n}" for n in range(n_layers)], [f"H{n}" for n in range(n_heads)]
    return _picture("heat", title, values, layers, heads, [best])


def _figure(picture: str, caption: str = "", kind: str = "") -> str:
    below = f"<figcaption>{caption}</figcaption>" if caption else ""
    return f'<figure class="{kind}"><div class="scroll">{picture}</div>{below}</figure>'


def _head(demo: Demo) -> str:
    return f"""<div class="top">
<span class="eyebrow">GLASSHEAD DEMO · SEED {demo.seed}</span>
<span class="switch"><label for="show-zh">中文</label><label for="show-en">English</label></span>
</div>
<h1>{_both("title")}</h1>
{_both("trained", "p", "lead", **trained(demo))}"""


def _reader(demo: Demo) -> list[str]:
    parts = []
    for number, reading in enumerate(demo.readings, 1):
        layer, head = reading.best
        caption = _both("heads caption", best=_name(layer, head))
        parts += [_title(number), _figure(_reading_picture(reading), caption)]
    return parts


def _name(layer: int, head: int) -> str:
    return f"L{layer} H{head}"


def _reading_picture(reading: StoryReading) -> str:
    """What the last pronoun looks at in every head; the strongest cell of the best is outlined."""
    n_layers, n_heads = reading.maps.shape[:2]
    heads = [(layer, head) for layer in range(n_layers) for head in range(n_heads)]
    values = torch.stack([reading.maps[head][reading.last] for head in heads])
    answers = [f"{reading.tokens[at]} → {one.word}" for at, one in reading.answers.items()]
    names = [_name(*head) for head in heads]
    mark = (heads.index(reading.best), int(reading.row.argmax()))
    return _picture("map", " · ".join(answers), values, names, reading.tokens, [mark])


def _hidden(demo: Demo) -> list[str]:
    head = "".join(
        f"<th>{_both(name)}</th>"
        for name in ("ending", "hidden", "before", "in best", "in all", "instead")
    )
    rows = []
    for reading in demo.readings:
        before = reading.answers[reading.last]
        cells = [
            f"<td>{escape(''.join(reading.tokens[reading.last :]))}</td>",
            f"<td>{escape(reading.tokens[reading.hidden])}</td>",
        ]
        for answer in (before, reading.cut_best, reading.cut_all):
            kind = "changed" if answer.word != before.word else ""
            shown = _both("one", word=answer.word, probability=answer.probability)
            cells.append(f'<td class="{kind}">{shown}</td>')
        cells.append(f"<td>{escape(numbered(reading.tokens, reading.instead))}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return [_title(3), _both("cut", "p"), table]


def _translator(demo: Demo) -> list[str]:
    parts = [_title(4)]
    for rendering in demo.renderings:
        parts.append(f'<p class="german" lang="de">{_pronoun_marked(rendering)}</p>')
        if rendering.text != rendering.wanted:
            parts.append(_both("mistaken", "p", "quiet", text=rendering.wanted))
        if rendering.pronoun is None:
            parts.append(_both("no pronoun", "p", "quiet"))
        else:
            picture = _pronoun_picture(demo, rendering)
            parts.append(_figure(picture, _both("looked caption")))
    first = demo.renderings[0]
    layer, head = demo.translator.best
    if first.target:
        rows = [f"▸ {word}" if n == first.pronoun else word for n, word in enumerate(first.target)]
        links = [(row, column) for column, row in first.links]
        weights = first.crossing[layer, head]
        picture = _picture("map", _name(layer, head), weights, rows, first.source, links)
        parts.append(_figure(picture, _both("matrix caption", best=_name(layer, head))))
    t = demo.translator
    parts.append(
        _figure(
            _heads_picture("", t.errors, t.best),
            _both("error caption", least=t.least, untrained=demo.translator_untrained.error),
            "narrow",
        )
    )
    return parts


def _pronoun_marked(rendering: Rendering) -> str:
    if rendering.pronoun is None:
        return escape(rendering.text)
    end = len(rendering.before)
    start = end - len(rendering.target[rendering.pronoun])
    before, word, after = rendering.text[:start], rendering.text[start:end], rendering.text[end:]
    return f"{escape(before)}<b>{escape(word)}</b>{escape(after)}"


def _pronoun_picture(demo: Demo, rendering: Rendering) -> str:
    """What was looked at while the pronoun was written, and while 它 was read."""
    assert rendering.pronoun is not None
    written = rendering.crossing[demo.translator.writing_best][rendering.pronoun]
    read = rendering.reading[demo.translator.reading_best][rendering.asked]
    word = rendering.target[rendering.pronoun]
    values = torch.stack([written, read])
    mark = (0, int(written.argmax()))
    return _picture("map", f"它 → {word}", values, [f"→ {word}", "它"], rendering.source, [mark])


def _figures(demo: Demo) -> list[str]:
    names = ("trained column", "untrained", "chance")
    head = "".join(f'<th class="n">{_both(name)}</th>' for name in names)
    found, rows = values(demo), []
    for part, measures in ROWS.items():
        rows.append(f'<tr class="part"><td colspan="4">{_both(part)}</td></tr>')
        for name in measures:
            after, before, chance = found[name]
            rows.append(
                f"<tr><td>{_both(name, least=demo.translator.least)}</td>"
                f'<td class="n main">{after}</td><td class="n">{before}</td>'
                f'<td class="n">{chance}</td></tr>'
            )
    table = f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    r = demo.reader
    share = _figure(_heads_picture("", r.heads.share, r.best), _both("share caption"), "narrow")
    weight = _figure(_heads_picture("", r.heads.weight, r.best), _both("weight caption"), "narrow")
    return [
        _title(5, n=r.stories),
        table,
        _both("method", "p", "quiet"),
        f'<div class="pair">{share}{weight}</div>',
    ]


def _truths(demo: Demo) -> list[str]:
    both = zip(*(truths(demo, lang) for lang in TEXTS), strict=True)
    items = [f"<li>{_in_both(dict(zip(TEXTS, lines, strict=True)))}</li>" for lines in both]
    warning = "" if demo.learned else _both("unlearned", "p", "lead")
    return [_title(6), warning, f"<ul>{''.join(items)}</ul>"]


def _next(out: Path) -> list[str]:
    parts = [_title(7)]
    for number, command in enumerate(commands(out)[1:], 2):
        parts.append(_both(f"next {number}", "div", "quiet"))
        parts.append(f"<pre><code>{escape(command)}</code></pre>")
    parts.append(f"<footer class='quiet'>{_both('footer')}</footer>")
    return parts
