"""`glasshead look`: what the heads of a model look at."""

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from glasshead.cli.terminal import (
    Beyond,
    Device,
    FirstTokens,
    Language,
    console,
    language,
    read_text,
    say,
    say_unseen,
)

if TYPE_CHECKING:
    from glasshead.observe.inspectable import Inspectable
    from glasshead.observe.picture import Sheet
    from glasshead.observe.view import View
    from glasshead.observe.words import Word

__all__ = ["look"]

SUFFIXES = (".png", ".svg", ".html")
NAMES_A_FILE = {
    "en": "note: {text} is a file, but its name was taken as the text; "
    "to look at what is in it: glasshead look {model} - < {text}",
    "zh": "注意：{text} 是一个文件，但这里把它的名字当成了文本；"
    "要看文件的内容：glasshead look {model} - < {text}",
}
NO_ROOM = {
    "en": "note: the page has room for the maps of {n} of {all} heads; --layer L puts those of "
    "layer L first, and `glasshead serve {model}` shows all",
    "zh": "注意：网页里只放得下 {all} 个头中 {n} 个的注意力图；用 --layer L 让第 L 层的头优先，"
    "或用 glasshead serve {model} 查看全部",
}


def look(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|FILE.glass",
            help="A trained run, a folder with a transformers model, or what `atlas` wrote.",
        ),
    ],
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="What the model is to read; - for stdin.")
    ] = None,
    layer: Annotated[
        str | None,
        typer.Option("--layer", metavar="L", help="A layer: 0, 1, ...; cross.0 of a translator."),
    ] = None,
    head: Annotated[
        int | None, typer.Option("--head", metavar="H", help="A head of the layer.")
    ] = None,
    word: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="WORD", help="What this word looks at; WORD#1 is its first place."
        ),
    ] = None,
    query: Annotated[
        int | None,
        typer.Option("--query", metavar="N", help="What token N looks at, with where it stands."),
    ] = None,
    statistic: Annotated[
        str | None,
        typer.Option(
            "--statistic", metavar="NAME", help="A number for every head, such as entropy."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="PICTURE", help="Write a .png, .svg or .html."),
    ] = None,
    top: Annotated[int, typer.Option("--top", metavar="K", help="How many are ranked.")] = 10,
    log: Annotated[bool, typer.Option("--log", help="Colours by the logarithm.")] = False,
    hide_sink: Annotated[
        bool, typer.Option("--hide-sink", help="Hide the first word (sink); rows sum to 1 again.")
    ] = False,
    ratio: Annotated[
        bool, typer.Option("--ratio", help="Weights as multiples of equal attention.")
    ] = False,
    tokens: Annotated[
        bool, typer.Option("--tokens/--words", help="Tokens as they are, not joined to words.")
    ] = False,
    max_tokens: FirstTokens = None,
    beyond: Beyond = False,
    lang: Annotated[
        Language | None, typer.Option("--lang", help="Language of labels [default: the locale's]")
    ] = None,
    device: Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """See what the heads of a model look at while it reads a text.

    Without options comes a table of which heads do what; --layer and --head show one head's map,
    --from what one word looks at. -o writes a picture, or one page with every head.

    \b
    Examples:
      glasshead look runs/poems "春江潮水连海平"
      glasshead look runs/poems "春江潮水连海平" -o heads.html
      glasshead look runs/poems "春江潮水连海平" --layer 1 --head 0
      glasshead look models/gpt2 "The cat sat; it slept." --from it
      glasshead look HuggingFaceTB/SmolLM2-135M "The cat sat; it slept." --from it
      glasshead look runs/de-en "Ein Hund rennt." --layer cross.1 -o dog.png
      glasshead look book.glass --query 1234

    The model runs as it always does; weights are computed from its queries and keys, and are
    exact. Tokens are joined to words: a word is looked at by as much as its tokens are together,
    and looks as they do on average. A translator also shows how it looked at the source while it
    wrote what `translate` gives. A text of more than 200 words is shown from afar.
    """
    from glasshead.observe.inspectable import RecordConfig
    from glasshead.observe.view import View, ViewConfig

    if out is not None:
        _check_suffix(out)
    _check_one(word, query, statistic)
    config = ViewConfig(tokens or query is not None, log, hide_sink, ratio)
    chosen_language = language(lang)
    opened = _open(model, device)
    said = _read_text(opened, model, text, chosen_language)
    trace = opened.record(said, RecordConfig(max_tokens=max_tokens, beyond=beyond))
    say_unseen(trace)
    options = LookOptions(View(trace, config), layer, head, word, query, statistic, chosen_language)
    if out is not None and out.suffix.lower() == ".html":
        _write_page(options, opened, model, said, out)
    elif out is not None:
        from glasshead.observe.picture import save

        save(options.sheet(), out)
        say(f"wrote {out}")
    elif as_json:
        import json

        from glasshead.observe.look_json import look_as_json

        found = look_as_json(options.view, options.heads, options.word, statistic, layer, head, top)
        print(json.dumps(found, ensure_ascii=False, allow_nan=False))
    else:
        _print(options, model, text, top)


class LookOptions:
    """What the options ask for."""

    def __init__(
        self,
        view: "View",
        layer: str | None,
        head: int | None,
        word: str | None,
        query: int | None,
        statistic: str | None,
        lang: Literal["zh", "en"],
    ) -> None:
        from glasshead.errors import ConfigError

        self.view, self.query, self.statistic = view, query, statistic
        self.lang = lang
        if head is not None and layer is None:
            if len(view.names) > 1:
                raise ConfigError(f"--head {head} of which layer?", hint="add --layer L")
            layer = next(iter(view.names.values()))
        self.layer, self.head = None if layer is None else view.layer(layer), head
        self.heads = view.heads(self.layer, head)
        self.word: str | Word | None = word
        if query is not None:
            from glasshead.observe.ranking import token_at

            self.word = token_at(view, query)

    def sheet(self) -> "Sheet":
        from glasshead.observe import picture

        if self.statistic is not None:
            return picture.statistic_sheet(self.view, self.statistic, self.lang)
        if self.word is not None:
            return picture.looks_sheet(self.view, self.heads, self.word, self.lang)
        if self.head is not None:
            return picture.head_sheet(self.view, self.heads[0], self.lang)
        return picture.grid_sheet(self.view, self.heads, self.lang)


def _print(asked: LookOptions, model: str, text: str | None, top: int) -> None:
    from glasshead.observe import look_tables as tables
    from glasshead.observe.picture_terminal import print_sheet

    screen = console()
    if asked.word is not None:
        for line in tables.ranking_lines(asked.view, asked.heads, asked.word, asked.query, top,
                                  asked.lang, screen):  # fmt: skip
            screen.print(line, soft_wrap=True)
    elif asked.statistic is not None or asked.layer is not None:
        print_sheet(asked.sheet(), screen)
    else:
        for part in tables.summary_lines(asked.view, asked.lang, screen, model, text):
            screen.print(part, soft_wrap=True)


def _check_one(word: str | None, query: int | None, statistic: str | None) -> None:
    from glasshead.errors import ConfigError

    given = {"--from": word, "--query": query, "--statistic": statistic}
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise ConfigError(f"{names[0]} and {names[1]} cannot go together", hint="ask for one")


def _check_suffix(path: Path) -> None:
    from glasshead.errors import InputError, did_you_mean

    if path.suffix.lower() in SUFFIXES:
        return
    what = f"ends in '{path.suffix}'" if path.suffix else "has no suffix"
    hint = (
        did_you_mean(path.suffix.lower(), SUFFIXES)
        if path.suffix
        else "name it picture.png, .svg or .html"
    )
    raise InputError(f"the picture {path} {what}, which is no kind of picture", hint=hint)


def _open(model: str, device: str) -> "Inspectable":
    from glasshead.generation.opening import open_inspectable
    from glasshead.machine import pick_device

    return open_inspectable(model, pick_device(device), say)


def _read_text(
    opened: "Inspectable", model: str, text: str | None, lang: Literal["zh", "en"]
) -> str:
    from glasshead.errors import InputError
    from glasshead.observe.inspectable import GlassFile

    if isinstance(opened, GlassFile):
        return text or ""
    said = read_text(text)
    if text and os.path.isfile(text):  # of os.path: a text too long for a name is no file
        names = {"model": shlex.quote(model), "text": shlex.quote(text)}
        say(NAMES_A_FILE[lang].format(**names))
    if not said:
        raise InputError("there is no text to look at", hint=f'try: glasshead look {model} "TEXT"')
    return said


def _write_page(
    options: LookOptions, opened: "Inspectable", model: str, text: str, out: Path
) -> None:
    from glasshead.generation.inspectable_runs import InspectableRun
    from glasshead.observe.picture import write_file
    from glasshead.page.entries import entry_of_model
    from glasshead.page.saved_look import LookChoice, save_look

    view, name = options.view, options.statistic
    statistic = None if name is None else view.statistic(name).name
    choice = LookChoice(options.layer, options.head, options.word, statistic, view.config,
                        options.lang)  # fmt: skip
    run = opened.run if isinstance(opened, InspectableRun) else None
    entry = entry_of_model(Path(model), view.trace, run)
    page = save_look(view.trace, entry, run, text, choice)
    write_file(out, page.html.encode())
    say(f"wrote {out}")
    if page.heads_left_out:
        all_heads = len(view.heads())
        numbers = {"n": all_heads - page.heads_left_out, "all": all_heads}
        say(NO_ROOM[options.lang].format(model=shlex.quote(model), **numbers))
