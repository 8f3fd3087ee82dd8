"""The demo on a terminal, in Chinese or English."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from rich import box
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text
from torch import Tensor

from glasshead.lab.demo import Demo
from glasshead.lab.demo_sentence import Answer, Rendering, StoryReading
from glasshead.lab.demo_words import TEXTS, Language
from glasshead.lab.walkthrough_tables import bar

__all__ = ["ROWS", "commands", "numbered", "screens", "trained", "truths", "values", "wrapped"]

SHOWN = 5  # words of a ranking
FEW = 3  # of the translator's
WIDEST = 100  # cells of a line of text
# What stays on one line: a Chinese character or a word, with the marks around it.
_OPEN, _CLOSE = "（“", "，。：；、）”？！"
_ATOMS = re.compile(
    rf"[{_OPEN}]*(?:[\u3400-\u9fff]|[^\s\u3400-\u9fff{_OPEN}{_CLOSE}]+|\s)[{_CLOSE}]*\s*"
    rf"|[{_OPEN}{_CLOSE}]+\s*"
)
# The order of the table, under its two headings.
ROWS = {
    "reader": ("accuracy", "flips", "share", "weight", "cut_best", "cut_all", "cut_other"),
    "translator": ("exact", "pronouns", "reading", "writing", "error"),
}


def screens(
    demo: Demo, out: Path, lang: Language, width: int = 80, ascii_only: bool = False
) -> Iterator[RenderableType]:
    """The parts of the demo from top to bottom; paragraphs are set in lines of `width` cells."""
    words, width = TEXTS[lang], min(width, WIDEST)
    yield Text()
    yield Text(words["title"], style="bold")
    yield wrapped(_marked(words["trained"].format(**trained(demo))), width)
    for title, reading in zip("12", demo.readings, strict=True):
        yield _title(words, title)
        yield wrapped(_sentence(reading), width)
        yield from _answers(reading, words)
        layer, head = reading.best
        yield Text()
        yield wrapped(Text(words["looks"].format(layer=layer, head=head)), width)
        yield ranking(reading.tokens, reading.row, SHOWN, ascii_only)
    yield _title(words, "3")
    yield wrapped(Text(words["cut"]), width)
    yield _hidden(demo, words)
    yield _title(words, "4")
    for number, rendering in enumerate(demo.renderings):
        if number:
            yield Text()
        yield from _german(demo, rendering, words, width, ascii_only)
    yield _title(words, "5", n=demo.reader.stories)
    yield _table(demo, words)
    yield wrapped(Text(words["method"], style="dim"), width)
    yield _title(words, "6")
    if not demo.learned:
        yield wrapped(Text(words["unlearned"], style="yellow"), width)
    for line in truths(demo, lang):
        yield _bullet(wrapped(_marked(line), width - 2))
    yield _title(words, "7")
    yield _next(out, words)


def trained(demo: Demo) -> dict[str, float]:
    steps = {f"{name}_steps": n for name, n in demo.steps.items()}
    return {"seconds": demo.seconds, **demo.parameters, **steps}


def _title(words: Mapping[str, str], number: str, **values: int) -> RenderableType:
    title = Text(f"{number}  {words[number].format(**values)}", style="bold cyan")
    return Group(Text(), Rule(title, align="left", style="cyan dim"))


def _marked(line: str) -> Text:
    """`**bold**` and `` `code` `` as styles."""
    text = Text()
    for number, part in enumerate(line.split("**")):
        for inner, piece in enumerate(part.split("`")):
            text.append(piece, style="bold" if number % 2 else "cyan" if inner % 2 else "")
    return text


def wrapped(text: Text, width: int) -> Text:
    """In lines of at most so many cells; Chinese may break anywhere but before a closing mark.

    >>> print(wrapped(Text("现在，它饿坏了。 er, sie"), 10))
    现在，它饿
    坏了。 er,
    sie
    """
    plain, cuts, start = text.plain, [], 0
    atoms = list(_ATOMS.finditer(plain))
    for atom in atoms:
        if cell_len(plain[start : atom.end()].rstrip()) > width and atom.start() > start:
            start = atom.start()
            cuts.append(start)
    lines = text.divide(cuts)
    for line in lines:
        line.rstrip()
    return Text("\n").join(lines)


def _bullet(text: Text) -> RenderableType:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_row("•", text)
    return grid


def _sentence(reading: StoryReading) -> Text:
    """The story, each pronoun followed by what the reader says it stands for."""
    text = Text()
    for place, token in enumerate(reading.tokens):
        if place in reading.answers:
            right = reading.answers[place].word == reading.wanted[place]
            text.append(token, style="bold")
            text.append(f"(→{reading.answers[place].word})", style="green" if right else "red")
        else:
            text.append(token)
    return text


def _answers(reading: StoryReading, words: Mapping[str, str]) -> Iterator[Text]:
    for place, answer in reading.answers.items():
        if answer.word != reading.wanted[place]:
            yield Text(words["wrong"].format(word=reading.wanted[place]), style="red")


def ranking(
    tokens: tuple[str, ...], weights: Tensor, n: int, ascii_only: bool = False
) -> RenderableType:
    """The n words with the largest weights, as bars; the place tells words apart."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for justify in ("left", "right", "left"):
        table.add_column(justify=justify, no_wrap=True)
    top = weights.topk(min(n, len(weights)))
    for number, (weight, place) in enumerate(
        zip(top.values.tolist(), top.indices.tolist(), strict=True)
    ):
        style = "bold green" if number == 0 else ""
        word = Text(numbered(tokens, place), style=style)
        table.add_row(word, f"{weight:.3f}", Text(bar(weight, ascii_only) or "·", style=style))
    return Padding(table, (0, 0, 0, 2), expand=False)


def numbered(tokens: tuple[str, ...], place: int) -> str:
    """A word; one that occurs several times with its number, as in 它#2."""
    word = tokens[place]
    return word if tokens.count(word) == 1 else f"{word}#{tokens[: place + 1].count(word)}"


def _hidden(demo: Demo, words: Mapping[str, str]) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False)
    for name in ("ending", "hidden", "before", "in best", "in all", "instead"):
        table.add_column(Text(words[name]), overflow="fold")
    for reading in demo.readings:
        before = reading.answers[reading.last]
        table.add_row(
            "".join(reading.tokens[reading.last :]),
            reading.tokens[reading.hidden],
            _answer(before, words),
            _answer(reading.cut_best, words, before),
            _answer(reading.cut_all, words, before),
            numbered(reading.tokens, reading.instead),
        )
    return table


def _answer(answer: Answer, words: Mapping[str, str], before: Answer | None = None) -> Text:
    changed = before is not None and answer.word != before.word
    shown = words["one"].format(word=answer.word, probability=answer.probability)
    return Text(shown, style="bold yellow" if changed else "")


def _german(
    demo: Demo, rendering: Rendering, words: Mapping[str, str], width: int, ascii_only: bool
) -> Iterator[RenderableType]:
    yield wrapped(Text("".join(rendering.source), style="dim"), width)
    text = Text(rendering.text)
    if rendering.pronoun is not None:
        word = rendering.target[rendering.pronoun]
        start = len(rendering.before) - len(word)
        text.stylize("bold green", start, len(rendering.before))
    yield wrapped(text, width)
    if rendering.text != rendering.wanted:
        yield Text(words["mistaken"].format(text=rendering.wanted), style="red")
    if rendering.pronoun is None:
        yield Text(words["no pronoun"])
        return
    layer, head = demo.translator.writing_best
    yield Text(words["wrote"].format(word=word, layer=layer, head=head))
    yield ranking(
        rendering.source, rendering.crossing[layer, head, rendering.pronoun], FEW, ascii_only
    )
    layer, head = demo.translator.reading_best
    yield Text(words["encoded"].format(layer=layer, head=head))
    yield ranking(
        rendering.source, rendering.reading[layer, head, rendering.asked], FEW, ascii_only
    )


def values(demo: Demo) -> dict[str, tuple[str, str, str]]:
    """The rows of the table by name: trained, untrained, by chance."""
    readers = (demo.reader, demo.reader_untrained)
    writers = (demo.translator, demo.translator_untrained)
    chance = f"{demo.reader.chance:.1%}"
    rows = {
        **{name: [getattr(one, name) for one in readers] for name in ROWS["reader"]},
        "exact": [one.exact for one in writers],
        "pronouns": [one.pronouns for one in writers],
        "reading": [one.reading.share[one.reading_best].item() for one in writers],
        "writing": [one.writing.share[one.writing_best].item() for one in writers],
        "error": [one.error for one in writers],
    }
    found = {}
    for name, (trained, untrained) in rows.items():
        form = ".3f" if name in ("weight", "error") else ".1%"
        by_chance = chance if name in ("accuracy", "share", "reading", "writing") else ""
        found[name] = (f"{trained:{form}}", f"{untrained:{form}}", by_chance)
    return found


def _table(demo: Demo, words: Mapping[str, str]) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False)
    table.add_column("")
    for name in ("trained column", "untrained", "chance"):
        table.add_column(Text(words[name]), justify="right", no_wrap=True)
    found = values(demo)
    for heading, names in ROWS.items():
        table.add_row(Text(words[heading], style="bold"), "", "", "")
        for name in names:
            trained, untrained, chance = found[name]
            label = Text("  " + words[name].format(least=demo.translator.least))
            table.add_row(label, Text(trained, style="bold green"), untrained, chance)
    return table


def truths(demo: Demo, lang: Language) -> list[str]:
    r, t = demo.reader, demo.translator
    figures = {
        "pronouns": t.pronouns,
        "reading": t.reading.share[t.reading_best].item(),
        "writing": t.writing.share[t.writing_best].item(),
        "share": r.share,
        "cut_best": r.cut_best,
        "cut_all": r.cut_all,
        "cut_other": r.cut_other,
    }
    return [TEXTS[lang][f"truth {number}"].format(**figures) for number in range(1, 6)]


def commands(out: Path) -> list[str]:
    """What to run next; the first is a file to open."""
    return [
        str(out / "report.html"),
        f"glasshead translate {out / 'translator'} --align \\\n"
        '    "那个小猫，它昨天在公园里追逐一只蝴蝶，现在它飞走了。"',
        "glasshead train --task refer --lang de --out runs/reader-de",
        "glasshead world --show 5 --lang zh,de",
        "glasshead ladder",
    ]


def _next(out: Path, words: Mapping[str, str]) -> RenderableType:
    lines: list[RenderableType] = []
    for number, command in enumerate(commands(out), 1):
        shown = words["open"].format(path=command) if number == 1 else command
        lines.append(Padding(Text(shown, style="cyan"), (0, 0, 0, 2), expand=False))
        lines.append(Text(f"      {words[f'next {number}']}", style="dim"))
    return Group(*lines)
