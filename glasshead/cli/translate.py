"""`glasshead translate`: translate a text, or stdin line by line."""

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from glasshead.cli.flags import with_flags
from glasshead.cli.terminal import Device, RunArgument, argument, drop_none, option, say

if TYPE_CHECKING:
    from glasshead.generation.alignment import Alignment
    from glasshead.generation.translate import Candidate, Reading, Translation, Translator

__all__ = ["translate"]

CHUNK = 1 << 16  # the most bytes of stdin to read at once
SHOWN, LEAST = 3, 0.1  # --align shows this many source words of at least this weight


@with_flags(defaults=True, Search=("generation/beam.py", "SearchConfig"))
def translate(
    run: RunArgument,
    text: Annotated[
        str | None, argument("TEXT", "The text; - or nothing translates stdin line by line.")
    ] = None,
    n_best: Annotated[int, option("--n-best", "N", "How many translations of each text.")] = 1,
    align: Annotated[
        bool, option("--align", None, "Show which source words each word looked at.")
    ] = False,
    layer: Annotated[
        int | None, option("--layer", "L", "For --align, from 0 on [default: the last but one]")
    ] = None,
    head: Annotated[
        int | None, option("--head", "H", "For --align, from 0 on [default: their mean]")
    ] = None,
    device: Device = "auto",
    as_json: Annotated[
        bool, option("--json", None, "Print one JSON object a line for each text.")
    ] = False,
    **flags: Any,
) -> None:
    """Translate a text, or stdin line by line.

    Each line gives one line on stdout, printed as soon as it is translated; an empty line stays
    empty.

    \b
    Examples:
      glasshead translate runs/de-en "Ein Hund rennt durch den Schnee."
      glasshead translate runs/de-en "Ein Hund rennt." --n-best 3 --align
      glasshead translate runs/de-en < german.txt > english.txt

    --n-best prints score, log-probability and text, best first, and --- between lines. A line
    longer than the model's max_len is translated in parts, cut at ends of sentences if possible.

    --align shows the cross-attention of one decoder layer: what each word looked at in the source
    when it was generated. --json includes every head.
    """
    from glasshead.errors import ConfigError
    from glasshead.generation.beam import SearchConfig
    from glasshead.generation.opening import open_translator
    from glasshead.generation.translate import Translator
    from glasshead.machine import pick_device

    for name, value in (("layer", layer), ("head", head)):
        if value is not None and not align:
            raise ConfigError(f"--{name} {value} works only with --align", hint="add --align")
    config = SearchConfig(**drop_none(flags))
    loaded, model = open_translator(run, pick_device(device))
    lowercase = loaded.config.lowercase
    translator = Translator(model, loaded.tokenizer, config, n_best=n_best, lowercase=lowercase)
    alignments = AlignmentTable(translator, layer, head) if align else None
    show = JsonLines(alignments) if as_json else TranslationLines(alignments, n_best)
    first = 1
    for readings in _readings(translator, text):
        for number, translation in enumerate(translator.write(readings), first):
            show.add(translation)
            if not translation.best.ended and config.max_tokens is None:
                say(f"the translation of line {number} was cut at the maximum length")
        sys.stdout.flush()
        first += len(readings)


def _readings(translator: "Translator", text: str | None) -> "Iterator[list[Reading]]":
    """Yield the lines to translate, in groups as they arrive. The lines before one that cannot be
    read are yielded before the error is raised."""
    from glasshead.errors import InputError

    number = 1
    for lines in _read_stdin() if text in (None, "-") else [(text or "").split("\n")]:
        readings: list[Reading] = []
        try:
            for line in lines:
                readings.append(_read(translator, _decode(line, number), number))
                number += 1
        except InputError:
            yield readings
            raise
        yield readings


def _read_stdin() -> Iterator[list[bytes]]:
    """Yield the lines of stdin, in groups as they arrive."""
    if sys.stdin is None:
        return
    if sys.stdin.isatty():
        say("type a line and press Enter to translate it; Ctrl-D ends")
    stream: Any = sys.stdin.buffer
    rest: list[bytes] = []  # parts of an incomplete line
    while block := stream.read1(CHUNK):
        first, *lines = block.split(b"\n")
        rest.append(first)
        if lines:
            yield [b"".join(rest), *lines[:-1]]
            rest = [lines[-1]]
    if last := b"".join(rest):
        yield [last]


def _decode(line: bytes | str, number: int) -> str:
    from glasshead.errors import InputError

    if isinstance(line, str):
        return line
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8").removesuffix("\r")
    except UnicodeDecodeError as error:
        from glasshead.text.sources import encoding_hint

        raise InputError(
            f"standard input, line {number}: invalid UTF-8 at byte {error.start}",
            hint=encoding_hint(line[:6], line[error.start :]),
        ) from None


def _read(translator: "Translator", line: str, number: int) -> "Reading":
    from glasshead.errors import InputError

    try:
        reading = translator.read(line)
    except InputError as error:
        place = f"line {number} of the text: " if number > 1 else ""
        raise type(error)(f"{place}{error}", error.hint) from None
    if (n := len(reading.parts)) > 1:
        say(
            f"line {number} is longer than max_len ({translator.model.config.max_len} tokens): "
            f"translated in {n} parts"
        )
    return reading


class AlignmentTable:
    """The cross-attention of a translation, part by part, in one layer and one or all heads."""

    def __init__(self, translator: "Translator", layer: int | None, head: int | None) -> None:
        from glasshead.errors import ConfigError

        model, self._translator, self._layer, self.head = translator.model, translator, layer, head
        self._n_layers, self._n_heads = len(model.decoder.blocks), model.config.n_heads
        for name, value, n in (("layer", layer, self._n_layers), ("head", head, self._n_heads)):
            if value is not None and not 0 <= value < n:
                raise ConfigError(
                    f"--{name} ({value}) must be between 0 and {n - 1}",
                    hint=f"the model has {n} {name}s",
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
        """Yield a line for each word: the source words it looked at most."""
        from rich.cells import cell_len

        each = alignment.weights
        weights = each.mean(0) if self.head is None else each[self.head]  # (T, S)
        width = max(map(cell_len, alignment.target), default=0)
        for word, row in zip(alignment.target, weights, strict=True):
            top = row.topk(min(SHOWN, len(row)))
            found = list(zip(top.values.tolist(), top.indices.tolist(), strict=True))
            shown = [pair for rank, pair in enumerate(found) if pair[0] >= LEAST or rank == 0]
            cells = "  ".join(f"{alignment.source[s]} {weight:.2f}" for weight, s in shown)
            yield f"  {word}{' ' * (width - cell_len(word))}  {cells}"


class TranslationLines:
    """Translations as lines of text."""

    def __init__(self, alignments: AlignmentTable | None, n_best: int) -> None:
        self._alignments, self._n_best = alignments, n_best
        self._any = False

    def add(self, translation: "Translation") -> None:
        if self._any and self._n_best > 1:
            print("---")
        self._any = True
        for one in translation.candidates:
            # One line for each line, even if the model generates a line end.
            text = " ".join(one.text.splitlines())
            print(text if self._n_best == 1 else f"{one.score:.4f}\t{one.log_prob:.4f}\t{text}")
        if self._alignments:
            for alignment in self._alignments.of(translation.best):
                print(self._alignments.title(alignment))
                for row in self._alignments.table(alignment):
                    print(row)


class JsonLines:
    """Translations as JSON, one object a line."""

    def __init__(self, alignments: AlignmentTable | None) -> None:
        self._alignments = alignments

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
        if self._alignments:
            found["align"] = [self._json(one) for one in self._alignments.of(translation.best)]
        print(json.dumps(found, ensure_ascii=False))

    def _json(self, alignment: "Alignment") -> dict[str, Any]:
        assert self._alignments
        n_heads = len(alignment.weights)
        heads = list(range(n_heads)) if self._alignments.head is None else [self._alignments.head]
        return {
            "layer": alignment.layer,
            "heads": heads,
            "source": alignment.source,
            "target": alignment.target,
            "weights": alignment.weights[heads].tolist(),
        }
