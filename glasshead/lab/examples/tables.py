"""Show an example on a terminal: the document's numbers beside ours, then its slips."""

from collections.abc import Iterator
from itertools import groupby

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from glasshead.lab.examples.example import Example, Number, Slip
from glasshead.lab.texts import Language, read_texts, texts_in

__all__ = ["tables"]

TEXTS = read_texts(__file__)


def tables(example: Example, lang: Language = "en") -> Iterator[RenderableType]:
    text = texts_in(lang, TEXTS)
    yield Text(text[f"about.{example.name}"])
    for part, numbers in groupby(example.numbers, key=lambda number: number.part):
        some = list(numbers)
        yield Text("\n" + text.get(f"parts.{part}", part), style="bold cyan")
        yield _numbers(some, lang, text)
    shown = {number.shown for number in example.numbers}
    for source in ("code", "picture"):
        if source in shown:
            yield Text(text[f"from_{source}"], style="dim")
    if any(not number.agrees for number in example.numbers):
        yield Text(text["differs"], style="yellow")
    if example.slips:
        yield Text("\n" + text["slips"], style="bold cyan")
    for slip in example.slips:
        yield from _slip(slip, lang, text)
    if next_step := text.get(f"next.{example.name}"):
        yield Text("\n" + next_step)


def _numbers(numbers: list[Number], lang: Language, text: dict[str, str]) -> Table:
    compared = any(number.shown != "ours" for number in numbers)
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False)
    table.add_column("", no_wrap=True)
    for name in ["document", "ours", ""] if compared else ["ours"]:
        table.add_column(text.get(name, ""), justify="right", overflow="fold")
    for number in numbers:
        ours = _vector(number.ours, number.decimals)
        if number.shown == "ours":
            cells = ["", ours, ""] if compared else [ours]
        else:
            mark = {"code": "*", "picture": "°"}.get(number.shown, "")
            theirs = _vector(number.document, number.decimals) + mark
            cells = [theirs, ours, "" if number.agrees else text["slip"]]
        table.add_row(Text(number.label[lang]), *cells, style="" if number.agrees else "yellow")
    return table


def _slip(slip: Slip, lang: Language, text: dict[str, str]) -> Iterator[RenderableType]:
    one = slip.erratum
    says = text["says"].format(document=one.source, says=one.says[lang])
    yield Text(f"\n{says}", style="yellow")
    yield Text(text["correct"].format(correct=one.correct[lang]))
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False)
    table.add_column("")
    table.add_column(text["its_form"], justify="right", overflow="fold")
    table.add_column(text["ours"], justify="right", overflow="fold")
    for figure in slip.figures:
        table.add_row(Text(figure.label[lang]), Text(figure.document), Text(figure.ours))
    yield table


def _vector(vector: tuple[float, ...], decimals: int) -> str:
    return "  ".join(f"{x:,.{decimals}f}" for x in vector)
