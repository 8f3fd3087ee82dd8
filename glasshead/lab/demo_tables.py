"""The demo on a terminal, in Chinese or English."""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text
from torch import Tensor

from glasshead.lab.ask import ask
from glasshead.lab.ask_tables import show
from glasshead.lab.demo import TEXTS, Demo
from glasshead.lab.demo_sentence import Answer, Rendering, StoryReading
from glasshead.lab.line_breaks import wrap_text
from glasshead.lab.texts import Language, Words
from glasshead.lab.walkthrough_tables import bar
from glasshead.text.tinyworld import World

__all__ = [
    "HIDDEN_COLUMNS",
    "ROWS",
    "first_picture",
    "label_word",
    "next_commands",
    "screens",
    "table_values",
    "training_facts",
    "truths",
]

SHOWN = 5  # words of a ranking
FEW = 3  # of the translator's
WIDEST = 100  # cells of a line of text
# The order of the table, under its two headings.
ROWS = {
    "reader": ("accuracy", "flips", "share", "weight", "cut_best", "cut_all", "cut_other"),
    "translator": ("exact", "pronouns", "reading", "writing", "error"),
}
HIDDEN_COLUMNS = ("ending", "word", "before", "best", "all", "instead")

Say = Mapping[str, str]


def screens(
    demo: Demo, out: Path, lang: Language, width: int = 80, ascii_only: bool = False
) -> Iterator[RenderableType]:
    """Yield the parts of the demo from top to bottom; paragraphs have lines of `width` cells."""
    say = {name: words[lang] for name, words in TEXTS.items()}
    width = min(width, WIDEST)
    yield Text()
    yield Text(say["title"], style="bold")
    yield wrap_text(_style_markup(say["trained"].format(**training_facts(demo))), width)
    for number, reading in enumerate(demo.readings, 1):
        yield _title(say, number)
        yield wrap_text(_sentence(reading), width)
        yield from _corrections(reading, say)
        layer, head = reading.best
        yield Text()
        yield wrap_text(Text(say["looks"].format(layer=layer, head=head)), width)
        yield _ranking(reading.tokens, reading.row, SHOWN, ascii_only)
    yield _title(say, 3)
    yield wrap_text(Text(say["cut"]), width)
    yield _hidden_table(demo, say)
    yield _title(say, 4)
    for number, rendering in enumerate(demo.renderings):
        if number:
            yield Text()
        yield from _german(demo, rendering, say, width, ascii_only)
    yield _title(say, 5, n=demo.reader.stories)
    yield _figures_table(demo, say)
    yield wrap_text(Text(say["method"], style="dim"), width)
    yield _title(say, 6)
    if not demo.has_learned:
        yield wrap_text(Text(say["unlearned"], style="yellow"), width)
    for words in truths(demo):
        yield _bullet(wrap_text(_style_markup(words[lang]), width - 2))
    yield _title(say, 7)
    yield _next_steps(out, say)


def first_picture(run: Path, lang: Language) -> Iterator[Text]:
    """Yield what a reader that has just been trained says of the document's sentence."""
    story = World.seed_story()
    yield Text(TEXTS["first"][lang], style="bold")
    yield Text(story.text(lang))
    yield from show(ask(run, story.text(lang)), lang)


def training_facts(demo: Demo) -> dict[str, float]:
    """Return the values of the text "trained"."""
    counts = {name.replace("-", "_"): n for name, n in demo.parameters.items()}
    steps = {f"{name.replace('-', '_')}_steps": n for name, n in demo.steps.items()}
    return {"seconds": demo.seconds, "english": demo.reader_en.accuracy, **counts, **steps}


def _title(say: Say, number: int, **values: int) -> RenderableType:
    title = Text(f"{number}  {say[f'section.{number}'].format(**values)}", style="bold cyan")
    return Group(Text(), Rule(title, align="left", style="cyan dim"))


def _style_markup(line: str) -> Text:
    """Style `**bold**` and `` `code` ``."""
    text = Text()
    for number, part in enumerate(line.split("**")):
        for inner, piece in enumerate(part.split("`")):
            text.append(piece, style="bold" if number % 2 else "cyan" if inner % 2 else "")
    return text


def _bullet(text: Text) -> RenderableType:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_row("•", text)
    return grid


def _sentence(reading: StoryReading) -> Text:
    """Return the story, each pronoun followed by the reader's answer."""
    text = Text()
    for place, token in enumerate(reading.tokens):
        if place in reading.answers:
            right = reading.answers[place].word == reading.wanted[place]
            text.append(token, style="bold")
            text.append(f"(→{reading.answers[place].word})", style="green" if right else "red")
        else:
            text.append(token)
    return text


def _corrections(reading: StoryReading, say: Say) -> Iterator[Text]:
    for place, answer in reading.answers.items():
        if answer.word != reading.wanted[place]:
            yield Text(say["wrong"].format(word=reading.wanted[place]), style="red")


def _ranking(tokens: tuple[str, ...], weights: Tensor, n: int, ascii_only: bool) -> RenderableType:
    """Return the n words with the largest weights, as bars."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for justify in ("left", "right", "left"):
        table.add_column(justify=justify, no_wrap=True)
    top = weights.topk(min(n, len(weights)))
    rows = zip(top.values.tolist(), top.indices.tolist(), strict=True)
    for number, (weight, place) in enumerate(rows):
        style = "bold green" if number == 0 else ""
        word = Text(label_word(tokens, place), style=style)
        table.add_row(word, f"{weight:.3f}", Text(bar(weight, ascii_only) or "·", style=style))
    return Padding(table, (0, 0, 0, 2), expand=False)


def label_word(tokens: tuple[str, ...], place: int) -> str:
    """Return the word; one that occurs several times with its number, as in 它#2."""
    word = tokens[place]
    return word if tokens.count(word) == 1 else f"{word}#{tokens[: place + 1].count(word)}"


def _hidden_table(demo: Demo, say: Say) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False)
    for name in HIDDEN_COLUMNS:
        table.add_column(Text(say[f"hidden.{name}"]), overflow="fold")
    for reading in demo.readings:
        before = reading.answers[reading.last]
        table.add_row(
            "".join(reading.tokens[reading.last :]),
            reading.tokens[reading.hidden],
            *(_answer(one, say, before) for one in (before, reading.cut_best, reading.cut_all)),
            label_word(reading.tokens, reading.instead),
        )
    return table


def _answer(answer: Answer, say: Say, before: Answer) -> Text:
    shown = say["answer"].format(word=answer.word, probability=answer.probability)
    return Text(shown, style="bold yellow" if answer.word != before.word else "")


def _german(
    demo: Demo, rendering: Rendering, say: Say, width: int, ascii_only: bool
) -> Iterator[RenderableType]:
    yield wrap_text(Text("".join(rendering.source), style="dim"), width)
    text = Text(rendering.text)
    if rendering.pronoun is not None:
        word = rendering.target[rendering.pronoun]
        start = len(rendering.before) - len(word)
        text.stylize("bold green", start, len(rendering.before))
    yield wrap_text(text, width)
    if rendering.text != rendering.wanted:
        yield Text(say["mistaken"].format(text=rendering.wanted), style="red")
    if rendering.pronoun is None:
        yield Text(say["no_pronoun"])
        return
    layer, head = demo.translator.writing_best
    yield Text(say["wrote"].format(word=word, layer=layer, head=head))
    written = rendering.crossing[layer, head, rendering.pronoun]
    yield _ranking(rendering.source, written, FEW, ascii_only)
    layer, head = demo.translator.reading_best
    yield Text(say["encoded"].format(layer=layer, head=head))
    read = rendering.reading[layer, head, rendering.asked]
    yield _ranking(rendering.source, read, FEW, ascii_only)


def table_values(demo: Demo) -> dict[str, tuple[str, str, str]]:
    """Return the rows of the table by name: trained, untrained, by chance."""
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


def _figures_table(demo: Demo, say: Say) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False)
    table.add_column("")
    for name in ("trained", "untrained", "chance"):
        table.add_column(Text(say[f"column.{name}"]), justify="right", no_wrap=True)
    values = table_values(demo)
    for heading, names in ROWS.items():
        table.add_row(Text(say[f"row.{heading}"], style="bold"), "", "", "")
        for name in names:
            trained, untrained, chance = values[name]
            label = Text("  " + say[f"row.{name}"].format(least=demo.translator.least))
            table.add_row(label, Text(trained, style="bold green"), untrained, chance)
    return table


def truths(demo: Demo) -> list[Words]:
    """Return what the figures do and do not show, one paragraph each."""
    r, t, untrained = demo.reader, demo.translator, demo.translator_untrained
    values = {name: getattr(r, name) for name in ("share", "cut_best", "cut_all", "cut_other")}
    values["pronouns"] = t.pronouns
    for name, of_translator in (("", t), ("_untrained", untrained)):
        values[f"reading{name}"] = of_translator.reading.share[of_translator.reading_best].item()
        values[f"writing{name}"] = of_translator.writing.share[of_translator.writing_best].item()
    below = [at for at in ("reading", "writing") if values[at] <= values[f"{at}_untrained"]]
    addition = TEXTS[f"below.{'both' if len(below) == 2 else below[0]}"] if below else Words("", "")
    return [TEXTS[f"truth.{n}"].format(**values, below=addition) for n in range(1, 6)]


def next_commands(out: Path) -> list[str]:
    """Return what to run next; the first is a file to open, the last opens the page."""
    return [
        str(out / "report.html"),
        f"glasshead translate {out / 'translator'} --align \\\n"
        '    "那个小猫，它昨天在公园里追逐一只蝴蝶，现在它飞走了。"',
        "glasshead train --task refer --lang de --out runs/reader-de",
        "glasshead world --show 5 --lang zh,de",
        "glasshead ladder",
        f"{_program()} serve {out}",
    ]


def _program() -> str:
    """Return what a shell calls this program, which `make demo` runs without putting it on PATH."""
    called = Path(sys.argv[0])
    if called.name != "glasshead" or shutil.which("glasshead"):
        return "glasshead"
    return os.path.relpath(called)


def _next_steps(out: Path, say: Say) -> RenderableType:
    lines: list[RenderableType] = []
    for number, command in enumerate(next_commands(out), 1):
        shown = say["open"].format(path=command) if number == 1 else command
        lines.append(Padding(Text(shown, style="cyan"), (0, 0, 0, 2), expand=False))
        lines.append(Text(f"      {say[f'next.{number}']}", style="dim"))
    return Group(*lines)
