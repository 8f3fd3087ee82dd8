"""Pictures of attention: a `Sheet` says what is on it, `save` makes it a PNG or an SVG.

    save(head_sheet(View(seen), (2, 1)), "head.svg")

What is drawn is exactly what the view holds: the numbers in an SVG are the recorded ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from glasshead.errors import InputError
from glasshead.observe.colours import Kind, full_bar
from glasshead.observe.view import LONG, MAX_HEADS, Head, Map, View
from glasshead.observe.wording import STATISTICS, TEXTS, Language
from glasshead.observe.words import Word, visible

__all__ = [
    "Sheet", "grid_sheet", "head_sheet", "looks_sheet", "save", "statistic_sheet", "write_file",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Sheet:
    """What a picture shows."""

    kind: Literal["map", "grid", "bars", "heat"]
    title: str
    notes: list[str]
    maps: list[Map] = field(repr=False)
    scale: Kind
    lang: Language = "en"
    # Of a grid: a row for each layer, with its name; which of the maps stand in it.
    layers: list[tuple[str, list[int]]] = field(default_factory=list)
    unit: str = ""  # of the numbers; without one there is no legend
    marks: frozenset[tuple[int, int]] = frozenset()  # (row, column) of cells to outline

    def _repr_png_(self) -> bytes:
        """Return the picture that a notebook shows."""
        from glasshead.observe.picture_png import png

        return png(self)


def head_sheet(view: View, head: Head, lang: Language = "en") -> Sheet:
    text = TEXTS[lang]
    shown = view.head(head)
    where = text["head"].format(layer=view.names[head[0]], head=head[1])
    notes = _notes(view, head[0], lang, [shown])
    return Sheet("map", _title(view, where), notes, [shown], _scale(view, [shown]), lang,
                 unit=_unit(view, lang))  # fmt: skip


def grid_sheet(view: View, heads: Sequence[Head], lang: Language = "en") -> Sheet:
    """The maps of many heads side by side."""
    text = TEXTS[lang]
    maps = [view.head(head) for head in heads]
    layers = list(dict.fromkeys(layer for layer, _ in heads))
    where = text["layer"].format(layer=view.names[layers[0]]) if len(layers) == 1 else text["grid"]
    notes = _notes(view, layers[0], lang, maps)
    notes += [] if view.config.ratio else [text["own scale"]]
    rows = [(view.names[layer], [n for n, head in enumerate(heads) if head[0] == layer])
            for layer in layers]  # fmt: skip
    return Sheet("grid", _title(view, where), notes, maps, _scale(view, maps), lang, rows,
                 _unit(view, lang))  # fmt: skip


def looks_sheet(
    view: View, heads: Sequence[Head], wanted: str | Word, lang: Language = "en"
) -> Sheet:
    """What a word looks at: bars for one head, a row of cells for each of several."""
    text = TEXTS[lang]
    found, ranked = view.word_rows(heads, wanted)
    word = wanted.text if isinstance(wanted, Word) else wanted
    what = text["looks"].format(word=visible(word))
    notes = _notes(view, ranked[0][0], lang, [])
    if len(heads) == 1:
        where = text["head"].format(layer=view.names[heads[0][0]], head=heads[0][1])
        if (full := full_bar(float(found.values.nan_to_num(0).max()))) != 1:
            notes.append(text["full bar"].format(x=f"{full:g}"))
        return Sheet("bars", _title(view, f"{where} · {what}"), notes, [found], _scale(view), lang,
                     unit=_unit(view, lang))  # fmt: skip
    if found.values.shape[1] > LONG:
        raise InputError(
            f"a picture of all heads needs a text of at most {LONG} words, and this one has "
            f"{found.values.shape[1]:,}",
            hint="choose one head with --layer and --head, or leave out -o",
        )
    if view.may_be_sink(ranked[0][0]):
        notes.append(text["besides"])
    if len(heads) > MAX_HEADS:
        notes.append(text["ranked"].format(n=len(ranked), all=len(heads)))
    return Sheet("map", _title(view, what), notes, [found], _scale(view), lang,
                 unit=_unit(view, lang))  # fmt: skip


def statistic_sheet(view: View, wanted: str, lang: Language = "en") -> Sheet:
    found = view.statistic(wanted)
    notes = [STATISTICS[lang].get(found.name, found.name), TEXTS[lang]["layer × head"]]
    return Sheet("heat", _title(view, found.name), notes, [found], "linear", lang)


def save(sheet: Sheet, path: str | Path) -> None:
    """Write the picture as an SVG, or as a PNG if the suffix is any other."""
    path = Path(path)
    if path.suffix.lower() == ".svg":
        from glasshead.observe.picture_svg import svg

        write_file(path, svg(sheet))
    else:
        from glasshead.observe.picture_png import png

        write_file(path, png(sheet))


def write_file(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror}", hint="is there such a folder?"
        ) from None


def _title(view: View, what: str) -> str:
    name = view.trace.about.get("name") or view.trace.model
    return f"{name} · {what}" if name else what


def _scale(view: View, maps: Sequence[Map] = ()) -> Kind:
    """From afar, colours are logarithmic: most weights of a long text are small."""
    afar = any(one.rows is None for one in maps)
    return "ratio" if view.config.ratio else "log" if view.config.log or afar else "linear"


def _unit(view: View, lang: Language) -> str:
    return TEXTS[lang]["times" if view.config.ratio else "weight"]


def _notes(view: View, layer: int, lang: Language, maps: Sequence[Map]) -> list[str]:
    text, config = TEXTS[lang], view.config
    notes = []
    if maps and all(one.rows is not None for one in maps):
        cross = view.trace.layer(layer).kind == "cross"
        notes.append(text["cross" if cross else "map"])
    if maps and maps[0].cell > 1:
        notes.append(text["afar"].format(n=maps[0].cell))
    flags = {"tokens": config.tokens, "hide_sink": config.hide_sink, "ratio": config.ratio,
             "log": config.log or any(one.rows is None for one in maps)}  # fmt: skip
    return notes + [text[name] for name, is_set in flags.items() if is_set]
