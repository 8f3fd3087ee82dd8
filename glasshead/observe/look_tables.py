"""The tables that `glasshead look` prints: heads that stand out, and what is looked at most."""

import shlex
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.text import Text

from glasshead.observe.colours import full_bar, three
from glasshead.observe.picture import statistic_sheet
from glasshead.observe.picture_terminal import bar, fitted, parts
from glasshead.observe.ranking import context, standout_heads, strongest_keys
from glasshead.observe.view import Head, View
from glasshead.observe.wording import ROLES, TEXTS, Language
from glasshead.observe.words import Word, visible

__all__ = ["ranked", "summary"]

BAR, SMALL = 24, 8  # cells
SHOWN = 48  # cells of a text that is repeated in a command


def summary(
    view: View, lang: Language, console: Console, model: str, text: str | None
) -> Iterator[RenderableType]:
    """The size of the model, a number for every head, who does what, and what to ask next."""
    words, seen = TEXTS[lang], view.trace
    assert seen.tokens is not None
    count = sum(len(side[0]) for side in (seen.tokens, seen.source_tokens) if side)
    yield Text(
        words["size"].format(layers=len(view.names), heads=len(view.heads()), tokens=f"{count:,}")
    )
    if "translation" in seen.about:
        yield Text(words["translation"].format(text=visible(seen.about["translation"])))
    yield ""
    yield from parts(statistic_sheet(view, "relative_entropy", lang), console)
    yield ""
    found = standout_heads(view)
    yield Text(words["telling"], style="bold")
    wide = max(cell_len(ROLES[lang][one.role]) for one in found)
    side = max(cell_len(view.name(one.head)) for one in found)
    for one in found:
        line = Text(f"{fitted(ROLES[lang][one.role], wide)}  {fitted(view.name(one.head), side)}  ")
        line.append(f"{three(one.value):>7}  ")
        drawn = bar(one.value, BAR, console.options.ascii_only)
        if one.uniform is None:
            yield line.append(drawn, style="blue")
            continue
        line.append(fitted(drawn, BAR), style="blue")
        yield line.append(f"  {words['uniform'].format(x=three(one.uniform))}", style="dim")
    yield ""
    yield Text(words["next"], style="dim")
    best = max(found, key=lambda one: one.value if one.uniform is not None else 0.0)
    layer, head = view.names[best.head[0]], best.head[1]
    start = f"  glasshead look {shlex.quote(model)}{_quoted(text)}"
    for more in (f"--layer {layer} --head {head}", f"--from {_some_word(view)}", "-o heads.html"):
        yield Text(f"{start} {more}", style="dim")


def ranked(
    view: View,
    heads: Sequence[Head],
    wanted: str | Word,
    query: int | None,
    k: int,
    lang: Language,
    console: Console,
) -> Iterator[Text]:
    """What a word looks at: bars, of one head or the strongest of each; tokens where they stand."""
    words, seen = TEXTS[lang], view.trace
    assert seen.tokens is not None
    found = strongest_keys(view, heads, wanted, k)
    if isinstance(wanted, Word):
        here = "".join(_marked(context(seen.tokens[0], wanted.start)))
        yield Text(words["query"].format(n=wanted.start, context=here), style="bold")
    else:
        what = "looks" if len(heads) == 1 else "looking"
        yield Text(words[what].format(word=visible(wanted)), style="bold")
    flags = {"hide_sink": view.config.hide_sink, "ratio": view.config.ratio}
    for name in (name for name, is_set in flags.items() if is_set):
        yield Text(words[name], style="dim")
    full = full_bar(max(one.weight for one in found))
    if full != 1:
        yield Text(words["full bar"].format(x=f"{full:g}"), style="dim")
    yield Text("")
    _, keys = view.tokens(found[0].head[0])
    side = max(cell_len(view.name(one.head)) for one in found)
    wide = min(18, max(cell_len(one.word) for one in found))
    for one in found:
        line = Text(f"{fitted(view.name(one.head), side)}  " if len(heads) > 1 else "")
        if query is None:
            drawn = bar(one.weight / full, BAR, console.options.ascii_only)
            line.append(f"{fitted(one.word, wide)}  {three(one.weight):>7}  ")
            yield line.append(drawn, style="blue")
            continue
        drawn = bar(one.weight / full, SMALL, console.options.ascii_only)
        line.append(f"{three(one.weight):>7}  ").append(fitted(drawn, SMALL), style="blue")
        line.append(f"  {one.place:>7}  ")
        before, token, after = _marked(context(keys, one.place))
        yield line.append(before, "dim").append(token, "bold").append(after, "dim")


def _marked(parts_: tuple[str, str, str]) -> tuple[str, str, str]:
    before, token, after = parts_
    return before, f"[{token}]", after


def _quoted(text: str | None) -> str:
    if text is None:
        return ""
    return f" {shlex.quote(text)}" if cell_len(text) <= SHOWN and text != "-" else " TEXT"


def _some_word(view: View) -> str:
    """The last word that is one, as an example."""
    rows, _ = view.sides(view.layers[-1].index)
    found = [
        word.text for word in rows if any(c.isalnum() for c in word.text) and "<" not in word.text
    ]
    return shlex.quote(found[-1]) if found else "WORD"
