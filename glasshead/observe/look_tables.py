"""The tables that `glasshead look` prints: heads that stand out, and what is looked at most."""

import shlex
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.text import Text

from glasshead.observe.colours import full_bar, three
from glasshead.observe.picture import statistic_sheet
from glasshead.observe.picture_terminal import bar, fit_to_width, render
from glasshead.observe.ranking import context, standout_heads, strongest_keys
from glasshead.observe.view import Head, View
from glasshead.observe.wording import ROLES, TEXTS, Language
from glasshead.observe.words import Word, visible

__all__ = ["ranking_lines", "summary_lines"]

BAR, SMALL = 24, 8  # cells
SHOWN = 48  # cells of a text that is repeated in a command


def summary_lines(
    view: View, lang: Language, console: Console, model: str, text: str | None
) -> Iterator[RenderableType]:
    """Its size, a number for every head, the heads that stand out, and commands to go on with."""
    words, trace = TEXTS[lang], view.trace
    assert trace.tokens is not None
    count = sum(len(side[0]) for side in (trace.tokens, trace.source_tokens) if side)
    yield Text(
        words["size"].format(layers=len(view.names), heads=len(view.heads()), tokens=f"{count:,}")
    )
    if "translation" in trace.about:
        yield Text(words["translation"].format(text=visible(trace.about["translation"])))
    yield ""
    yield from render(statistic_sheet(view, "relative_entropy", lang), console)
    yield ""
    found = standout_heads(view)
    yield Text(words["telling"], style="bold")
    wide = max(cell_len(ROLES[lang][one.role]) for one in found)
    side = max(cell_len(view.name(one.head)) for one in found)
    for one in found:
        role = fit_to_width(ROLES[lang][one.role], wide)
        line = Text(f"{role}  {fit_to_width(view.name(one.head), side)}  ")
        line.append(f"{three(one.value):>7}  ")
        drawn = bar(one.value, BAR, console.options.ascii_only)
        if one.uniform is None:
            yield line.append(drawn, style="blue")
            continue
        line.append(fit_to_width(drawn, BAR), style="blue")
        yield line.append(f"  {words['uniform'].format(x=three(one.uniform))}", style="dim")
    yield ""
    yield Text(words["next"], style="dim")
    best = max(found, key=lambda one: one.value if one.uniform is not None else 0.0)
    layer, head = view.names[best.head[0]], best.head[1]
    start = f"  glasshead look {shlex.quote(model)}{_as_argument(text)}"
    for more in (f"--layer {layer} --head {head}", f"--from {_some_word(view)}", "-o heads.html"):
        yield Text(f"{start} {more}", style="dim")


def ranking_lines(
    view: View,
    heads: Sequence[Head],
    wanted: str | Word,
    query: int | None,
    k: int,
    lang: Language,
    console: Console,
) -> Iterator[Text]:
    """What a word looks at: its strongest keys in one head, or the strongest of each head.

    With `query`, keys are shown as tokens with the text around them.
    """
    words, trace = TEXTS[lang], view.trace
    assert trace.tokens is not None
    found = strongest_keys(view, heads, wanted, k)
    if isinstance(wanted, Word):
        here = "".join(_in_brackets(context(trace.tokens[0], wanted.start)))
        yield Text(words["query"].format(n=wanted.start, context=here), style="bold")
    else:
        what = "looks" if len(heads) == 1 else "looking"
        yield Text(words[what].format(word=visible(wanted)), style="bold")
    flags = {"hide_sink": view.config.hide_sink, "ratio": view.config.ratio}
    for name in (name for name, is_set in flags.items() if is_set):
        yield Text(words[name], style="dim")
    if len(heads) > 1 and view.may_be_sink(found[0].head[0]):
        yield Text(words["besides"], style="dim")
    full = full_bar(max(one.weight for one in found))
    if full != 1:
        yield Text(words["full bar"].format(x=f"{full:g}"), style="dim")
    yield Text("")
    _, keys = view.tokens(found[0].head[0])
    side = max(cell_len(view.name(one.head)) for one in found)
    wide = min(18, max(cell_len(one.word) for one in found))
    for one in found:
        line = Text(f"{fit_to_width(view.name(one.head), side)}  " if len(heads) > 1 else "")
        if query is None:
            drawn = bar(one.weight / full, BAR, console.options.ascii_only)
            line.append(f"{fit_to_width(one.word, wide)}  {three(one.weight):>7}  ")
            yield line.append(drawn, style="blue")
            continue
        drawn = bar(one.weight / full, SMALL, console.options.ascii_only)
        line.append(f"{three(one.weight):>7}  ").append(fit_to_width(drawn, SMALL), style="blue")
        line.append(f"  {one.place:>7}  ")
        before, token, after = _in_brackets(context(keys, one.place))
        yield line.append(before, "dim").append(token, "bold").append(after, "dim")


def _in_brackets(around: tuple[str, str, str]) -> tuple[str, str, str]:
    before, token, after = around
    return before, f"[{token}]", after


def _as_argument(text: str | None) -> str:
    """The text as it is typed in a command; a long one as TEXT."""
    if text is None:
        return ""
    return f" {shlex.quote(text)}" if cell_len(text) <= SHOWN and text != "-" else " TEXT"


def _some_word(view: View) -> str:
    """The last word with a letter or digit, as an example."""
    rows, _ = view.sides(view.layers[-1].index)
    found = [
        word.text for word in rows if any(c.isalnum() for c in word.text) and "<" not in word.text
    ]
    return shlex.quote(found[-1]) if found else "WORD"
