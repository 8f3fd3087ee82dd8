"""`glasshead translate`: a run's model says it in the other language."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glasshead.cli.flags import with_flags
from glasshead.cli.terminal import Device

if TYPE_CHECKING:
    from glasshead.generation.alignment import Alignment
    from glasshead.generation.translate import Candidate, Reading, Translation, Translator

__all__ = ["translate"]

CHUNK = 1 << 16  # bytes of stdin that are read at once, if they are there
SHOWN = 3  # source words that --align shows for each word, of at least so much weight:
LEAST = 0.1


@with_flags(defaults=True, Search=("generation/beam.py", "SearchConfig"))
def translate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a trained run.")],
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="TEXT", help="What to translate; - or nothing reads lines of stdin."
        ),
    ] = None,
    n_best: Annotated[
        int, typer.Option("--n-best", metavar="N", help="How many translations of each text.")
    ] = 1,
    align: Annotated[
        bool, typer.Option("--align", help="Show which source words each word looked at.")
    ] = False,
    layer: Annotated[
        int | None,
        typer.Option(
            "--layer", metavar="L", help="For --align, from 0 on [default: the last but one]"
        ),
    ] = None,
    head: Annotated[
        int | None,
        typer.Option("--head", metavar="H", help="For --align, from 0 on [default: their mean]"),
    ] = None,
    device: Device = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line for each text.")
    ] = False,
    **flags: Any,
) -> None:
    """Translate a text, or stdin line by line.

    Each line becomes one line on stdout, an empty one an empty one; from a pipe, each is printed as
    soon as it is there.

    \b
    Examples:
      glasshead translate runs/de-en "Ein Hund rennt durch den Schnee."
      glasshead translate runs/de-en "Ein Hund rennt." --n-best 3 --align
      glasshead translate runs/de-en < german.txt > english.txt

    --n-best prints score, log-probability and text, best first, and --- between lines. A line
    longer than the model's max_len is translated in parts, cut at ends of sentences if it can be.
    The search is the paper's.

    --align shows the cross-attention of one layer of the decoder, by which a word looked at the
    source while it was written. --json has every head's.
    """
    from glasshead.errors import ConfigError
    from glasshead.generation.beam import SearchConfig
    from glasshead.generation.opening import open_translator
    from glasshead.generation.translate import Translator
    from glasshead.machine import pick_device

    given = {name: value for name, value in flags.items() if value is not None}
    for name, value in (("layer", layer), ("head", head)):
        if value is not None and not align:
            raise ConfigError(f"--{name} {value} is for --align", hint="add --align")
    config = SearchConfig(**given)
    loaded, model = open_translator(run, pick_device(device))
    lowercase = loaded.reads_small_letters
    translator = Translator(model, loaded.tokenizer, config, n_best=n_best, lowercase=lowercase)
    looks = Looks(translator, layer, head) if align else None
    show = JsonLines(looks) if as_json else TranslationLines(looks, n_best)
    first = 1
    for readings in _readings(translator, text):
        for number, translation in enumerate(translator.write(readings), first):
            show.add(translation)
            if not translation.best.ended and config.max_tokens is None:
                sys.stderr.write(f"the translation of line {number} found no end and was cut\n")
        sys.stdout.flush()
        first += len(readings)


def _readings(translator: "Translator", text: str | None) -> "Iterator[list[Reading]]":
    """The lines to translate, as many at a time as are there. What stands before one that cannot
    be read is given out first."""
    from glasshead.errors import InputError

    number = 1
    for lines in _stdin() if text in (None, "-") else [(text or "").split("\n")]:
        readings: list[Reading] = []
        try:
            for line in lines:
                readings.append(_read(translator, _decoded(line, number), number))
                number += 1
        except InputError:
            yield readings
            raise
        yield readings


def _stdin() -> Iterator[list[bytes]]:
    """Its lines, as many at a time as are there."""
    if sys.stdin is None:
        return
    if sys.stdin.isatty():
        sys.stderr.write("a line is translated when you press Enter; Ctrl-D ends\n")
    stream: Any = sys.stdin.buffer
    rest: list[bytes] = []  # parts of a line that has not ended
    while block := stream.read1(CHUNK):
        first, *lines = block.split(b"\n")
        rest.append(first)
        if lines:
            yield [b"".join(rest), *lines[:-1]]
            rest = [lines[-1]]
    if last := b"".join(rest):
        yield [last]


def _decoded(line: bytes | str, number: int) -> str:
    from glasshead.errors import InputError

    if isinstance(line, str):
        return line
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise InputError(
            f"standard input, line {number}: invalid UTF-8 at byte {error.start}",
            hint="if it is text, convert it, for example with iconv -f GB18030 -t UTF-8",
        ) from None


def _read(translator: "Translator", line: str, number: int) -> "Reading":
    from glasshead.errors import InputError

    try:
        reading = translator.read(line)
    except InputError as error:
        place = f"line {number} of the text: " if number > 1 else ""
        raise type(error)(f"{place}{error}", error.hint) from None
    if (n := len(reading.parts)) > 1:
        sys.stderr.write(
            f"line {number} is longer than the {translator.model.config.max_len} tokens that "
            f"the model reads (max_len): translated in {n} parts\n"
        )
    return reading


class Looks:
    """Where the words of a translation looked, part by part, as asked for."""

    def __init__(self, translator: "Translator", layer: int | None, head: int | None) -> None:
        from glasshead.errors import ConfigError

        model, self._translator, self._layer, self.head = translator.model, translator, layer, head
        self._n_layers, self._n_heads = len(model.decoder.blocks), model.config.n_heads
        for name, value, n in (("layer", layer, self._n_layers), ("head", head, self._n_heads)):
            if value is not None and not 0 <= value < n:
                raise ConfigError(
                    f"{name} ({value}) must lie between 0 and {n - 1}", hint=f"there are {n}"
                )

    def of(self, candidate: "Candidate") -> "list[Alignment]":
        from glasshead.generation.alignment import align

        model, tokenizer = self._translator.model, self._translator.tokenizer
        return [align(model, tokenizer, *part, self._layer) for part in candidate.parts]

    def title(self, alignment: "Alignment") -> str:
        heads = f"the mean of heads 0 to {self._n_heads - 1}"
        which = heads if self.head is None else f"head {self.head} of 0 to {self._n_heads - 1}"
        return f"layer {alignment.layer} of 0 to {self._n_layers - 1}, {which}:"

    def table(self, alignment: "Alignment") -> Iterator[str]:
        """A line for each word: what it looked at most, in columns that are straight."""
        from rich.cells import cell_len

        each = alignment.weights
        weights = each.mean(0) if self.head is None else each[self.head]  # (T, S)
        width = max(map(cell_len, alignment.target), default=0)
        for word, row in zip(alignment.target, weights, strict=True):
            top = row.topk(min(SHOWN, len(row)))
            found = list(zip(top.values.tolist(), top.indices.tolist(), strict=True))
            looked = [(w, s) for place, (w, s) in enumerate(found) if w >= LEAST or place == 0]
            cells = "  ".join(f"{alignment.source[s]} {weight:.2f}" for weight, s in looked)
            yield f"  {word}{' ' * (width - cell_len(word))}  {cells}"


class TranslationLines:
    """Translations as lines of text."""

    def __init__(self, looks: Looks | None, n_best: int) -> None:
        self._looks, self._n_best = looks, n_best
        self._any = False

    def add(self, translation: "Translation") -> None:
        if self._any and self._n_best > 1:
            print("---")
        self._any = True
        for one in translation.candidates:
            # A line for a line, even where the model writes a line end.
            text = " ".join(one.text.splitlines())
            print(text if self._n_best == 1 else f"{one.score:.4f}\t{one.log_prob:.4f}\t{text}")
        if self._looks:
            for alignment in self._looks.of(translation.best):
                print(self._looks.title(alignment))
                for row in self._looks.table(alignment):
                    print(row)


class JsonLines:
    """One JSON object a line for each text."""

    def __init__(self, looks: Looks | None) -> None:
        self._looks = looks

    def add(self, translation: "Translation") -> None:
        found: dict[str, Any] = {
            "source": translation.reading.text,
            "parts": len(translation.reading.parts),
            "translations": [
                {
                    "text": one.text,
                    "score": one.score,
                    "log_prob": one.log_prob,
                    "tokens": one.tokens,
                    "ended": one.ended,
                }
                for one in translation.candidates
            ],
        }
        if self._looks:
            found["align"] = [self._json(one) for one in self._looks.of(translation.best)]
        print(json.dumps(found, ensure_ascii=False))

    def _json(self, alignment: "Alignment") -> dict[str, Any]:
        assert self._looks
        n_heads = len(alignment.weights)
        heads = list(range(n_heads)) if self._looks.head is None else [self._looks.head]
        return {
            "layer": alignment.layer,
            "heads": heads,
            "source": alignment.source,
            "target": alignment.target,
            "weights": alignment.weights[heads].tolist(),
        }
